"""The 35 fusions that inference and training engines write by hand, and what verified each on a GPU.

    python -m benchmarks catalogue_rows [--causes FILE] [-o results/catalogue_rows.md]

Read from kept results: the generated kernel of a chain of the catalogue (results/h200/verify_catalogue.json: the
largest size in bfloat16), or a library's call in place of a chain that was rebuilt from a model's trace
(verify_library.json), and with --causes what verify_causes.py wrote. A row counts as verified where what stands in its
place is right by float64 and faster than eager (L4), or no slower than torch.compile either (L5). Of the others stands
why they are not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
RESULTS = HERE / "results" / "h200"
VERIFIED = ("L4", "L5")
WANTED = 26
CACHE = "writes into a cache by index, which no kernel is generated for"
SEVERAL = "takes several GPUs"
ROUTED = "picks the largest by `topk`, which no kernel is generated for"

HEAD = "# The fusions that engines write by hand, and what verified them\n\n    python -m benchmarks catalogue_rows\n"

Row = dict[str, Any]


@dataclass(frozen=True)
class Fusion:
    """A row: what is fused, by which chains of the catalogue or stems of library results it is verified, or why not."""

    number: int
    pattern: str
    chains: Sequence[str] = ()
    stems: Sequence[str] = ()
    cause: str | None = None  # of verify_causes.py
    why_not: str = ""


ROWS = (
    Fusion(1, "RMSNorm spelled out", ("rms_norm",)),
    Fusion(2, "residual sum, then RMSNorm", ("add_rms_norm",)),
    Fusion(3, "LayerNorm, one kernel already", ("layer_norm",)),
    Fusion(4, "SwiGLU: SiLU of one half times the other", ("swiglu",)),
    Fusion(5, "GeGLU: GELU of one half times the other", ("geglu_tanh",)),
    Fusion(6, "squared ReLU", ("relu_squared",)),
    Fusion(7, "rotary embedding of queries and keys", ("rope",)),
    Fusion(8, "norms of heads, then rotary embedding", ("qk_norm_rope",)),
    Fusion(9, "rotary embedding, then a write into the cache", why_not=CACHE),
    Fusion(10, "norms of heads, rotary embedding, cache, 8-bit floats", why_not=CACHE),
    Fusion(11, "residual sum, RMSNorm, 8-bit floats", ("add_rms_norm_quant",)),
    Fusion(12, "SwiGLU, 8-bit floats", ("swiglu_quant",)),
    Fusion(13, "attention that writes 8-bit floats", why_not="is part of an attention kernel: none is generated"),
    Fusion(14, "8-bit numbers scaled by token or block", ("token_quant", "token_quant_int8", "block_quant")),
    Fusion(15, "all-reduce, then residual sum and RMSNorm", why_not=SEVERAL),
    Fusion(16, "products that overlap with collectives", why_not=SEVERAL),
    Fusion(17, "product, bias, activation", stems=("library_gpt2_odd_vocabulary_0", "library_gpt2_0")),
    Fusion(18, "bias, activation, residual sum", ("bias_gelu", "bias_act_residual")),
    Fusion(19, "bias, dropout, residual sum, LayerNorm", ("bias_dropout_residual_norm",)),
    Fusion(20, "scale, mask, softmax", ("scale_mask_softmax", "masked_fill_softmax")),
    Fusion(21, "attention spelled out", stems=("library_llama_eager_attention_1",), cause="attention"),
    Fusion(22, "cross entropy of logits", ("cross_entropy",)),
    Fusion(
        23, "product of the vocabulary, then cross entropy", why_not="products are left to libraries, and none has it"
    ),
    Fusion(24, "divergences between distributions", ("kl_divergence", "jensen_shannon")),
    Fusion(25, "a step of an optimizer over lists", ("adamw_foreach",), cause="optimizer"),
    Fusion(26, "gradients clipped by their norm", ("clip_grad_norm",)),
    Fusion(27, "routing to experts", why_not=ROUTED),
    Fusion(28, "experts one after another", why_not="loops over products of sizes that differ from step to step"),
    Fusion(29, "modulated LayerNorm, gated residual sum", ("adaln_modulate", "gated_residual")),
    Fusion(30, "group norm, then SiLU", ("group_norm_silu",)),
    Fusion(31, "soft cap or temperature of logits", ("softcap", "temperature_softmax")),
    Fusion(32, "metadata of a decoding step", ("decode_metadata",)),
    Fusion(33, "gates of linear attention", ("gdn_gating",)),
    Fusion(34, "casts and layouts beside what computes", ("cast_ladder", "transposed_add")),
    Fusion(35, "equal small operators beside each other", ("sibling_scales",)),
)


def ratio(row: Row) -> float:
    """How many times as long eager takes as what stands in its place."""
    return float(row["eager_ns"] / max(row["fused_ns"] if "fused_ns" in row else row["fixed_ns"], 1))


def of_catalogue(rows: Sequence[Row], chain: str) -> Row | None:
    """The verified row of a chain's kernel: the largest size, in bfloat16 where it was tried."""
    found = [r for r in rows if r["name"] == chain and r["level"] in VERIFIED]
    sizes = ("large", "medium", "small")
    return min(found, key=lambda r: (sizes.index(r["size"]), r.get("dtype") != "bfloat16"), default=None)


def verified(
    fusion: Fusion, catalogue: Sequence[Row], library: Sequence[Row], causes: Sequence[Row]
) -> list[tuple[str, str, float]]:
    """What verified a row: who, the level, how many times as fast as eager."""
    kernels = [row for chain in fusion.chains if (row := of_catalogue(catalogue, chain)) is not None]
    calls = [row for row in library if row["stem"] in fusion.stems and row["level"] in VERIFIED]
    fixed = [row for row in causes if row["cause"] == fusion.cause and row["level"] in VERIFIED and row["fixed_ns"]]
    return [
        *((f"kernel of {row['name']}, {row['size']}, {row['dtype']}", row["level"], ratio(row)) for row in kernels),
        *((f"library's call in {row['name']}", row["level"], ratio(row)) for row in calls),
        *((f"{row['way']} in {row['program']}", row["level"], ratio(row)) for row in fixed),
    ]


def table(catalogue: Sequence[Row], library: Sequence[Row], causes: Sequence[Row]) -> Iterator[str]:
    """A row a fusion, and how many are verified."""
    yield "| # | fusion | verified by | level | eager ÷ it |"
    yield "|---|---|---|---|---|"
    count = 0
    for fusion in ROWS:
        found = verified(fusion, catalogue, library, causes)
        count += bool(found)
        if not found:
            yield f"| {fusion.number} | {fusion.pattern} | not verified: {fusion.why_not} | | |"
        for k, (by, level, times) in enumerate(found):
            begin = f"{fusion.number} | {fusion.pattern}" if k == 0 else " | "
            yield f"| {begin} | {by} | {level} | {times:.2f} |"
    yield ""
    yield f"{count} of {len(ROWS)} are verified"


def main() -> int:
    """Print the table; 1 where fewer are verified than should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--causes", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    kept = [
        json.loads((RESULTS / name).read_text("utf-8"))["rows"]
        for name in ("verify_catalogue.json", "verify_library.json")
    ]
    lines = options.causes.read_text("utf-8").splitlines() if options.causes else []
    found = list(table(kept[0], kept[1], [json.loads(line) for line in lines]))
    print("\n".join(found))
    if options.output is not None:
        text = "\n".join([HEAD, *found])
        options.output.write_text(f"{text}\n", "utf-8")
    return 0 if int(found[-1].split()[0]) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
