"""Chains in whose place one kernel wins nothing, or loses: what a scan must not claim, and what was measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.codegen.catalogue import BF16, CATALOGUE, F32
from tracemine.codegen import Graph, GraphBuilder


class Losing(NamedTuple):
    """One chain, and why little is to be had there."""

    why: str
    make: Callable[[], Graph]


def _of(name: str, **given: object) -> Callable[[], Graph]:
    return lambda: CATALOGUE[name](**given)


def _alone(operator: str, *given: object, shape: tuple[int, ...] = (4096, 4096), dtype: str = BF16) -> Graph:
    """A single operator: one kernel already."""
    b = GraphBuilder("alone")
    return b.done(b.call(operator, b.input("x", shape, dtype), *given))


def _scaled_softmax(rows: int, length: int, dtype: str) -> Graph:
    b = GraphBuilder("scaled_softmax")
    scaled = b.call("aten::mul.Tensor", b.input("x", (rows, length), dtype), 0.125)
    return b.done(b.call("aten::_softmax", scaled, -1, False))


def _added_norm(rows: int, length: int, dtype: str) -> Graph:
    b = GraphBuilder("added_norm")
    x, y = b.input("x", (rows, length), dtype), b.input("y", (rows, length), dtype)
    weight = b.input("weight", (length,), dtype)
    total = b.call("aten::add.Tensor", x, y)
    return b.done(b.call("aten::native_layer_norm", total, [length], weight, None, 1e-5)[0], total)


def _across(batch: int, channels: int, side: int, dtype: str) -> Graph:
    """A norm over the channels of an image that lies channel by channel."""
    b = GraphBuilder("across")
    x = b.input("x", (batch, channels, side, side), dtype)
    weight = b.input("weight", (channels,), dtype)
    last = b.call("aten::permute", x, [0, 2, 3, 1])
    normed = b.call("aten::native_layer_norm", last, [channels], weight, None, 1e-6)[0]
    return b.done(b.call("aten::permute", normed, [0, 3, 1, 2]))


def _bias_relu(rows: int, hidden: int) -> Graph:
    """What follows a product of a few rows."""
    b = GraphBuilder("bias_relu")
    x, bias = b.input("x", (rows, hidden), BF16), b.input("bias", (hidden,), BF16)
    return b.done(b.call("aten::relu", b.call("aten::add.Tensor", x, bias)))


TABLE: Mapping[str, Losing] = {
    "relu_alone": Losing("one kernel already", lambda: _alone("aten::relu")),
    "softmax_alone": Losing("one kernel already", lambda: _alone("aten::_softmax", -1, False)),
    "layer_norm_f32": Losing("one kernel already", _of("layer_norm", rows=8192, hidden=1024)),
    "layer_norm_bf16": Losing("one kernel already", _of("layer_norm", rows=8192, hidden=4096, dtype=BF16)),
    "layer_norm_decode": Losing("one kernel already", _of("layer_norm", rows=4, hidden=4096, dtype=BF16)),
    "sum_alone": Losing("one kernel already", lambda: _alone("aten::sum.dim_IntList", [-1], False)),
    "bias_relu_1x256": Losing("tiny, behind a product", lambda: _bias_relu(1, 256)),
    "bias_relu_8x512": Losing("tiny, behind a product", lambda: _bias_relu(8, 512)),
    "bias_gelu_4x1024": Losing("tiny, behind a product", _of("bias_gelu", rows=4, hidden=1024)),
    "softmax_65536": Losing("rows too long for registers", lambda: _scaled_softmax(64, 65_536, BF16)),
    "softmax_131072": Losing("rows too long for registers", lambda: _scaled_softmax(128, 131_072, F32)),
    "softmax_262144": Losing("rows too long for registers, few", lambda: _scaled_softmax(8, 262_144, F32)),
    "norm_65536": Losing("rows too long for registers", lambda: _added_norm(64, 65_536, BF16)),
    "norm_131072": Losing("rows too long for registers", lambda: _added_norm(256, 131_072, BF16)),
    "norm_16384": Losing("rows that fill the registers", lambda: _added_norm(2048, 16_384, F32)),
    "across_96": Losing("across the grain", lambda: _across(8, 96, 56, BF16)),
    "across_512": Losing("across the grain", lambda: _across(8, 512, 28, F32)),
    "column_sum_tall": Losing("a sum over rows", _of("column_sum", rows=65_536, columns=768)),
    "column_sum_narrow": Losing("a sum over rows, few columns", _of("column_sum", rows=1_048_576, columns=32)),
    "mean_of_all": Losing("one number of many", _of("full_mean", rows=16_384, columns=4096)),
    "siblings_large": Losing(
        "large, each on its own", _of("sibling_scales", shapes=((4096, 4096), (4096, 4096), (4096, 4096)))
    ),
    "transposed_large": Losing("one kernel already, across the grain", _of("transposed_add", rows=8192, columns=4096)),
    "logits_cross_entropy": Losing("rows of 128,256 logits", _of("cross_entropy", rows=512, classes=128_256)),
    "divergence_few_rows": Losing("few long rows", _of("kl_divergence", rows=4, classes=128_256)),
}
