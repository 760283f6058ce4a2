"""The catalogue's chains at the sizes that models run: as in a decoding step, 4 to 16 MB, and at least 64 MB moved.

Each row is a fusion that serving or training stacks ship; `row` numbers them in the order of
benchmarks/results/catalogue_rows.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.codegen.catalogue import BF16, CATALOGUE, F32
from tracemine.codegen import Graph

SIZES = ("small", "medium", "large")


class Sized(NamedTuple):
    """One chain: what it is in production, and its builder's arguments at each size."""

    row: int
    pattern: str
    small: Mapping[str, Any]
    medium: Mapping[str, Any]
    large: Mapping[str, Any]
    dtypes: tuple[str, ...] = (BF16, F32)


def _rows(row: int, pattern: str, hidden: int = 4096, wrap: bool = False, counts: Any = (16, 256, 8192)) -> Sized:
    """Tokens by features. wrap: the builder takes the leading shape, with a batch of one."""
    sizes = [{"rows": (1, n) if wrap else n, "hidden": hidden} for n in counts]
    return Sized(row, pattern, *sizes)


def _classes(row: int, pattern: str, counts: Any = (4, 64, 1024), classes: int = 32_000) -> Sized:
    return Sized(row, pattern, *({"rows": n, "classes": classes} for n in counts))


def _lists(row: int, pattern: str) -> Sized:
    """A model's parameters: small biases, matrices, several large matrices."""
    return Sized(
        row,
        pattern,
        {"shapes": ((768,),) * 8},
        {"shapes": ((512, 512),) * 3 + ((512,),) * 3},
        {"shapes": ((4096, 4096),) * 3 + ((4096,),) * 3},
    )


_MLP = (16, 128, 4096)
TABLE: Mapping[str, Sized] = {
    "rms_norm": _rows(1, "RMSNorm", wrap=True),
    "add_rms_norm": _rows(2, "residual add, RMSNorm", wrap=True),
    "layer_norm": _rows(3, "LayerNorm, already one kernel"),
    "swiglu": _rows(4, "SwiGLU", hidden=11_008, wrap=True, counts=_MLP),
    "geglu_tanh": _rows(5, "GeGLU", hidden=11_008, counts=_MLP),
    "relu_squared": _rows(6, "squared ReLU", hidden=11_008, counts=_MLP),
    "rope": Sized(
        7,
        "rotary embedding of q and k",
        *({"batch": 1, "tokens": n, "heads": (32, 8), "width": 128} for n in (16, 512, 8192)),
    ),
    "qk_norm_rope": Sized(
        8,
        "norm of heads, rotary embedding",
        *({"batch": 1, "tokens": n, "heads": 32, "width": 128} for n in (16, 512, 8192)),
    ),
    "add_rms_norm_quant": _rows(11, "residual add, RMSNorm, fp8"),
    "swiglu_quant": _rows(12, "SwiGLU, fp8", hidden=11_008, counts=_MLP),
    "token_quant": _rows(14, "fp8 by token"),
    "token_quant_int8": _rows(14, "int8 by token"),
    "block_quant": Sized(14, "fp8 by block", *({"rows": n, "blocks": 32, "width": 128} for n in (16, 512, 8192))),
    "bias_gelu": _rows(18, "bias, GELU", hidden=11_008, counts=_MLP),
    "bias_act_residual": _rows(18, "bias, activation, residual"),
    "bias_dropout_residual_norm": _rows(19, "bias, dropout, residual, LayerNorm"),
    "scale_mask_softmax": Sized(
        20,
        "scale, mask, softmax",
        {"batch": 1, "heads": 32, "q": 1, "k": 1024},
        {"batch": 1, "heads": 16, "q": 256, "k": 512},
        {"batch": 1, "heads": 32, "q": 1024, "k": 1024},
    ),
    "masked_fill_softmax": Sized(
        20,
        "scale, masked fill, softmax",
        {"batch": 1, "heads": 32, "q": 1, "k": 1024},
        {"batch": 1, "heads": 16, "q": 256, "k": 512},
        {"batch": 1, "heads": 32, "q": 1024, "k": 1024},
    ),
    "cross_entropy": _classes(22, "cross entropy", counts=(4, 64, 2048)),
    "kl_divergence": _classes(24, "Kullback-Leibler divergence"),
    "jensen_shannon": _classes(24, "Jensen-Shannon divergence"),
    "adamw_foreach": _lists(25, "optimizer step"),
    "clip_grad_norm": _lists(26, "gradients clipped by their norm"),
    "adaln_modulate": Sized(
        29, "adaptive LayerNorm", *({"batch": 2, "tokens": n, "hidden": 1152} for n in (16, 1024, 16_384))
    ),
    "gated_residual": Sized(
        29, "gated residual", *({"batch": 2, "tokens": n, "hidden": 1152} for n in (16, 1024, 16_384))
    ),
    "group_norm_silu": Sized(
        30,
        "group norm, SiLU",
        {"shape": (1, 128, 16, 16), "groups": 32},
        {"shape": (1, 256, 64, 64), "groups": 32},
        {"shape": (4, 256, 256, 256), "groups": 32},
    ),
    "softcap": _rows(31, "softcap of logits", hidden=32_000, counts=(4, 64, 2048)),
    "temperature_softmax": _rows(31, "temperature, softmax", hidden=32_000, counts=(4, 64, 2048)),
    # Lengths and places of a decoding batch: whole numbers, never many.
    "decode_metadata": Sized(
        32, "metadata of a decoding step", *({"rows": n, "places": 16 * n} for n in (64, 1024, 8192)), dtypes=("int64",)
    ),
    "gdn_gating": Sized(
        33, "gates of a linear attention", *({"rows": (1, n), "heads": 32} for n in (64, 32_768, 524_288))
    ),
    "cast_ladder": Sized(
        34,
        "casts and layouts",
        {"shape": (1, 64, 256)},
        {"shape": (4, 1024, 1024)},
        {"shape": (16, 2048, 1024)},
        dtypes=(BF16,),
    ),
    "transposed_add": Sized(
        34, "an addition across the grain", *({"rows": n, "columns": n} for n in (128, 1024, 4096))
    ),
    "sibling_scales": Sized(
        35,
        "equal operators beside each other",
        {"shapes": ((16, 768),) * 6},
        {"shapes": ((512, 768),) * 6},
        {"shapes": ((8192, 768),) * 6},
    ),
}


def sized(names: Any = (), sizes: Any = SIZES) -> Iterator[tuple[str, str, str, Graph]]:
    """Name, size, dtype and chain: large ones of bfloat16 first, then what fewer people wait for."""
    for narrow in (True, False):
        for size in reversed([s for s in SIZES if s in sizes]):
            for name, row in TABLE.items():
                if names and name not in names:
                    continue
                for dtype in row.dtypes:
                    if (dtype != F32) == narrow:
                        given = dict(getattr(row, size))
                        if dtype in (BF16, F32):
                            given["dtype"] = dtype
                        yield name, size, dtype, CATALOGUE[name](**given)
