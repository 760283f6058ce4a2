"""Graphs of matrix products and what models do with them, at the sizes that models have."""

from __future__ import annotations

from typing import Any

from tracemine.codegen import Graph, GraphBuilder


def linear(b: GraphBuilder, rows: int, columns: int, width: int, dtype: str = "bfloat16") -> Any:
    return b.call("aten::linear", b.input("x", (rows, width), dtype), b.input("w", (columns, width), dtype))


def codes(rows: int, columns: int = 14336, width: int = 4096) -> Graph:
    b = GraphBuilder("codes")
    x, w = b.input("x", (rows, width), "bfloat16"), b.input("w", (columns, width), "int8")
    scale = b.input("scale", (columns, 1), "bfloat16")
    weight = b.call("aten::mul.Tensor", b.call("aten::_to_copy", w, dtype="bfloat16"), scale)
    return b.done(b.call("aten::linear", x, weight))


def head(docs: int = 8, tokens: int = 256, words: int = 30522, width: int = 768, masked: bool = False) -> Graph:
    b = GraphBuilder("head")
    h, e = b.input("h", (docs, tokens, width), "bfloat16"), b.input("e", (words, width), "bfloat16")
    bias = b.input("bias", (words,), "bfloat16")
    mask = b.input("kept", (docs, tokens, 1), "bfloat16") if masked else None
    found = b.call("aten::log1p", b.call("aten::relu", b.call("aten::linear", h, e, bias)))
    found = b.call("aten::mul.Tensor", found, mask) if mask is not None else found
    return b.done(b.call("aten::amax", found, [1]))


def gate(rows: int, columns: int, width: int) -> Graph:
    b = GraphBuilder("gate")
    x, w, up = (b.input(n, (s, width), "bfloat16") for n, s in (("x", rows), ("w", columns), ("up", columns)))
    gated = b.call("aten::silu", b.call("aten::linear", x, w))
    return b.done(b.call("aten::mul.Tensor", gated, b.call("aten::linear", x, up)))


def largest(operator: str, rows: int, columns: int, width: int) -> Graph:
    b = GraphBuilder("largest")
    return b.done(b.call(operator, linear(b, rows, columns, width), [1] if operator == "aten::logsumexp" else 1))


def added(what: str, rows: int, columns: int = 4096, width: int = 14336) -> Graph:
    """A product with what a library's own epilogue does."""
    b = GraphBuilder(f"with_{what}")
    x, w = b.input("x", (rows, width), "bfloat16"), b.input("w", (columns, width), "bfloat16")
    r = b.input("r", (rows, columns), "bfloat16") if what == "residual" else None
    found = b.call("aten::linear", x, w)
    return b.done(
        b.call("aten::gelu", found, approximate="tanh") if r is None else b.call("aten::add.Tensor", found, r)
    )


def with_zero_points(rows: int, columns: int = 14336, width: int = 4096) -> Graph:
    b = GraphBuilder("with_zero_points")
    x, w = b.input("x", (rows, width), "bfloat16"), b.input("w", (columns, width), "int8")
    zero, scale = b.input("zero", (columns, 1), "int8"), b.input("scale", (columns, 1), "bfloat16")
    codes_, zeros = (b.call("aten::_to_copy", t, dtype="bfloat16") for t in (w, zero))
    weight = b.call("aten::mul.Tensor", b.call("aten::sub.Tensor", codes_, zeros), scale)
    return b.done(b.call("aten::linear", x, weight))


def batched(batches: int, rows: int, columns: int, width: int) -> Graph:
    b = GraphBuilder("batched")
    x, y = b.input("x", (batches, rows, width), "float32"), b.input("y", (batches, width, columns), "float32")
    return b.done(b.call("aten::relu", b.call("aten::bmm", x, y)))


def with_bias(rows: int, columns: int, width: int) -> Graph:
    b = GraphBuilder("with_bias")
    bias, x, w = (
        b.input(n, s, "float16") for n, s in (("bias", (columns,)), ("x", (rows, width)), ("w", (width, columns)))
    )
    return b.done(b.call("aten::addmm", bias, x, w, beta=0.5, alpha=2.0))


# As they are validated: downsized to what an interpreter gets through.
PRODUCTS = (
    *(codes(16), with_zero_points(16), codes(16, 4096, 14336), added("residual", 16), head(), head(masked=True)),
    *(head(tokens=512), gate(2048, 14336, 4096), largest("aten::logsumexp", 8192, 128256, 2048)),
    *(largest("aten::argmax", 8192, 32768, 512), batched(8, 512, 512, 64), with_bias(512, 1024, 256)),
)
