"""Library calls in place of chains: found where the dataflow says the same, refused where it nearly does."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tracemine.codegen.graph import Graph, Ref, settled
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.verify.library import Found, find
from tracemine.verify.library.pattern import names, parse
from tracemine.verify.library.table import table
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"
ROWS, WIDTH = 6, 64


def says(found: Found) -> str | None:
    return None if found.replacement is None else found.replacement.says


@cache
def captured(name: str) -> list[Found]:
    """What is found for each fusion group of a recording."""
    read = flow(open_trace(CAPTURES / name))
    grouped = groups(read)
    begin = grouped.activity_begin.tolist()
    rebuilder = Rebuilder(read, grouped)
    found = []
    for k in range(len(grouped)):
        try:
            rebuilt = rebuilder.rebuild(grouped.activity[begin[k] : begin[k + 1]].tolist(), "chain")
        except NotRebuilt:
            continue
        found.append(find(rebuilt.graph, rebuilt.unread))
    return found


# What is found.


def test_every_norm_of_a_recorded_decoder_is_a_call() -> None:
    norms = [f.replacement for f in captured("decoder_prefill") if f.replacement is not None]
    assert {r.says for r in norms} == {"F.rms_norm(x, (1024,), weight, eps)"}
    assert len(norms) == 10  # in each of two steps two a layer, and the last
    assert {r.eager_calls for r in norms} == {1}  # the sum of the residual, or the rows of the embedding
    assert all("epsilon" in r.assumptions[-1] for r in norms)


def test_of_a_convolutional_network_only_the_optimizer_is_a_call() -> None:
    assert all(f.replacement is None for f in captured("clean_gemms"))
    shown = "torch.optim.SGD(parameters, lr=0.01, momentum=momentum, fused=True)"
    assert {says(f) for f in captured("convnet_train")} == {None, shown}


def norm(change: Callable[[GraphBuilder, dict[str, Any]], None] = lambda b, v: None, **how: Any) -> Graph:
    """RMSNorm as models spell it out, with one thing changed. how: dtype, dims, eps, gain, and `order` of the end."""
    b = GraphBuilder("norm")
    dtype = how.get("dtype", "bfloat16")
    shape = how.get("shape", (ROWS, WIDTH))
    v: dict[str, Any] = {"x": b.input("x", shape, dtype)}
    v["w"] = b.input("w", how.get("gain", (WIDTH,)), how.get("gain_dtype", dtype))
    v["wide"] = b.call("aten::_to_copy", v["x"], dtype="float32")
    v["other"] = b.call("aten::neg", v["wide"])
    v["square"] = b.call("aten::pow.Tensor_Scalar", v["wide"], how.get("power", 2))
    v["mean"] = b.call("aten::mean.dim", v["square"], how.get("dims", [-1]), how.get("keeps", True))
    change(b, v)
    v.setdefault("root", b.call("aten::rsqrt", b.call("aten::add.Tensor", v["mean"], how.get("eps", 1e-6))))
    v.setdefault("normal", b.call("aten::mul.Tensor", v["wide"], v["root"]))
    narrow = b.call("aten::_to_copy", v["normal"], dtype=dtype)
    live = [b.call("aten::mul.Tensor", v["w"], narrow), *(v[name] for name in how.get("live", ()))]
    return b.done(*live)


def test_a_norm_is_found() -> None:
    assert says(find(norm())) == "F.rms_norm(x, (64,), weight, 1e-06)"
    assert says(find(norm(dims=[1]))) == "F.rms_norm(x, (64,), weight, 1e-06)"
    assert says(find(norm(dtype="float16"))) == "F.rms_norm(x, (64,), weight, 1e-06)"


def squared_by_product(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["mean"] = b.call("aten::mean.dim", b.call("aten::mul.Tensor", v["wide"], v["wide"]), [-1], True)


def divided_by_root(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["root"] = b.call("aten::sqrt", b.call("aten::add.Tensor", v["mean"], 1e-6))
    v["normal"] = b.call("aten::div.Tensor", v["wide"], v["root"])


def narrow_times_wide(b: GraphBuilder, v: dict[str, Any]) -> None:  # as T5 does
    v["root"] = b.call("aten::rsqrt", b.call("aten::add.Tensor", v["mean"], 1e-6))
    v["normal"] = b.call("aten::mul.Tensor", v["root"], v["x"])


@pytest.mark.parametrize("spelling", [squared_by_product, divided_by_root, narrow_times_wide])
def test_a_norm_is_found_however_it_is_spelled(spelling: Callable[..., None]) -> None:
    assert says(find(norm(spelling))) == "F.rms_norm(x, (64,), weight, 1e-06)"


def eps_outside_the_root(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["root"] = b.call("aten::reciprocal", b.call("aten::add.Tensor", b.call("aten::sqrt", v["mean"]), 1e-6))


def mean_of_another(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["mean"] = b.call("aten::mean.dim", b.call("aten::mul.Tensor", v["other"], v["wide"]), [-1], True)


def sum_for_mean(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["mean"] = b.call("aten::sum.dim_IntList", v["square"], [-1], True)


def another_is_normalised(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["root"] = b.call("aten::rsqrt", b.call("aten::add.Tensor", v["mean"], 1e-6))
    v["normal"] = b.call("aten::mul.Tensor", v["other"], v["root"])


def eps_scaled(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["root"] = b.call("aten::rsqrt", b.call("aten::add.Tensor", v["mean"], b.call("aten::neg", v["mean"]), alpha=2))


def rounded_to_whole(b: GraphBuilder, v: dict[str, Any]) -> None:
    v["mean"] = b.call("aten::_to_copy", b.call("aten::_to_copy", v["mean"], dtype="int32"), dtype="float32")


NEAR_MISSES: dict[str, Graph] = {
    "the mean goes over rows": norm(dims=[0]),
    "the mean goes over the first of two axes": norm(shape=(4, 5, WIDTH), dims=[1]),
    "a cube instead of a square": norm(power=3),
    "the epsilon stands outside the root": norm(eps_outside_the_root),
    "the mean is another's": norm(mean_of_another),
    "a sum instead of a mean": norm(sum_for_mean),
    "what is normalised is another tensor": norm(another_is_normalised),
    "the epsilon is a tensor times a number": norm(eps_scaled),
    "the mean is rounded to whole numbers": norm(rounded_to_whole),
    "the epsilon is negative": norm(eps=-1e-6),
    "the epsilon is infinite": norm(eps=float("inf")),
    "the root is read elsewhere": norm(live=["root"]),
    "the mean is read elsewhere": norm(live=["mean"]),
}


@pytest.mark.parametrize("near", NEAR_MISSES, ids=list(NEAR_MISSES))
def test_what_is_nearly_a_norm_is_none(near: str) -> None:
    assert says(find(NEAR_MISSES[near])) is None


def test_a_refusal_says_what_is_lacking() -> None:
    assert find(norm(dims=[0])).refused == ("RMS normalisation: the mean goes over other axes than the last",)
    assert "epsilon" in find(norm(eps=-1.0)).refused[0]
    assert "wanted elsewhere" in find(norm(live=["root"])).refused[0]


def test_a_gain_of_another_shape_stays_a_call_of_its_own() -> None:
    found = find(norm(gain=(ROWS, WIDTH))).replacement
    assert found is not None
    assert found.says == "F.rms_norm(x, (64,), None, 1e-06)"
    assert "aten.mul.Tensor" in found.text


def test_what_lasts_but_nobody_reads_is_let_go_of() -> None:
    graph = norm(live=["root"])
    found = find(graph, unread=(graph.live[1],)).replacement
    assert found is not None
    assert found.text.rstrip().endswith(", None)")
    assert "it has no known consumer" in found.assumptions[0]


def test_a_gain_off_by_one_is_added_and_everything_stays_wide() -> None:
    """Gemma: (x · rsqrt(mean(x²) + eps)) · (1 + w), all in float32, rounded at the end.

    1 + w in bfloat16 would err 1.6 times as much, which is beyond what is called right.
    """
    b = GraphBuilder("gemma")
    x, w = b.input("x", (ROWS, WIDTH), "bfloat16"), b.input("w", (WIDTH,), "bfloat16")
    wide = b.call("aten::_to_copy", x, dtype="float32")
    power = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), [-1], True)
    normal = b.call("aten::mul.Tensor", wide, b.call("aten::rsqrt", b.call("aten::add.Tensor", power, 1e-6)))
    gain = b.call("aten::add.Tensor", b.call("aten::_to_copy", w, dtype="float32"), 1.0)
    found = find(b.done(b.call("aten::_to_copy", b.call("aten::mul.Tensor", normal, gain), dtype="bfloat16")))
    assert found.replacement is not None
    shown = "F.rms_norm(x.to(float32), (64,), weight.to(float32) + 1.0, 1e-06).to(bfloat16)"
    assert found.replacement.says == shown
    assert found.replacement.text.count("dtype=torch.float32") == 2
    assert ".to(torch.bfloat16)" in found.replacement.text


def test_a_wide_gain_keeps_the_call_wide() -> None:
    """A float32 gain of a bfloat16 tensor: rounding the gain would be another function."""
    found = find(norm(gain_dtype="float32")).replacement
    assert found is not None
    assert "dtype=torch.float32" in found.text


def layer(correction: int = 0, eps_outside: bool = False, bias: int = WIDTH) -> Graph:
    b = GraphBuilder("layer")
    x, w = b.input("x", (ROWS, WIDTH), "float32"), b.input("w", (WIDTH,), "float32")
    shift = b.input("shift", (bias,), "float32")
    centred = b.call("aten::sub.Tensor", x, b.call("aten::mean.dim", x, [-1], True))
    spread = b.call("aten::var.correction", x, [-1], correction=correction, keepdim=True)
    root = b.call("aten::sqrt", spread if eps_outside else b.call("aten::add.Tensor", spread, 1e-5))
    root = b.call("aten::add.Tensor", root, 1e-5) if eps_outside else root
    normal = b.call("aten::div.Tensor", centred, root)
    return b.done(b.call("aten::add.Tensor", b.call("aten::mul.Tensor", w, normal), shift))


def test_a_layer_norm_is_found_and_what_nearly_is_one_is_not() -> None:
    assert says(find(layer())) == "F.layer_norm(x, (64,), weight, bias, 1e-05)"
    assert says(find(layer(correction=1))) is None  # torch's std(): divided by one less than the count
    assert says(find(layer(eps_outside=True))) is None
    assert says(find(layer(bias=1))) == "F.layer_norm(x, (64,), weight, None, 1e-05)"


def attention(
    *, axis: int = -1, scale_last: bool = False, mask_dtype: str = "bfloat16", probs_live: bool = False,
    mask: tuple[int, ...] | None = (2, 1, 5, 7), turned: bool = False, keys: tuple[int, ...] = (56, 1, 8),
) -> Graph:  # fmt: skip
    """Two heads' worth of bmm, scale, mask, softmax, bmm, for a batch of 2 and 3 heads."""
    b = GraphBuilder("attention")
    q, value = b.input("q", (6, 5, 8), "bfloat16"), b.input("v", (6, 7, 8), "bfloat16")
    k = b.input("k", (6, 8, 7), "bfloat16", strides=keys)
    seen = b.input("seen", mask, mask_dtype) if mask is not None else None
    shape = [3, 2, 5, 7] if turned else [2, 3, 5, 7]
    scores = b.call("aten::view", b.call("aten::bmm", q, k), shape)
    scores = scores if scale_last else b.call("aten::mul.Tensor", scores, 0.35)
    scores = scores if seen is None else b.call("aten::add.Tensor", scores, seen)
    scores = b.call("aten::mul.Tensor", scores, 0.35) if scale_last else scores
    wide = b.call("aten::_to_copy", scores, dtype="float32")
    probs = b.call("aten::_to_copy", b.call("aten::_softmax", wide, axis, False), dtype="bfloat16")
    out = b.call("aten::bmm", b.call("aten::view", probs, [6, 5, 7]), value)
    return b.done(out, *((probs,) if probs_live else ()))


def test_attention_is_found() -> None:
    masked = find(attention()).replacement
    assert masked is not None
    assert masked.says == "F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.35)"
    assert masked.products
    assert masked.eager_calls == 0
    plain = "F.scaled_dot_product_attention(query, key, value, scale=0.35)"
    assert says(find(attention(mask=None))) == plain
    assert says(find(attention(mask=None, scale_last=True))) == plain


def test_keys_whose_heads_do_not_lie_side_by_side_are_copied_first_and_the_copy_is_counted() -> None:
    found = find(attention(keys=(56, 7, 1))).replacement
    assert found is not None
    assert "k.transpose(1, 2).contiguous()" in found.text
    assert found.eager_calls == 1
    beside = find(attention()).replacement
    assert beside is not None
    assert "contiguous" not in beside.text


def test_what_a_call_does_otherwise_than_eager_is_said() -> None:
    masked, plain, step = (find(c).replacement for c in (attention(), attention(mask=None), adamw(**MOVES)))
    assert masked is not None
    assert plain is not None
    assert step is not None
    assert any("may see none the call makes 0" in text for text in masked.assumptions)
    assert plain.assumptions == ()
    assert any("1 - beta2 in float32" in text for text in step.assumptions)


def test_what_is_nearly_attention_is_none() -> None:
    assert says(find(attention(axis=2))) is None
    assert says(find(attention(scale_last=True))) is None  # the scale would have to divide the mask
    assert says(find(attention(mask_dtype="float32"))) is None
    assert says(find(attention(probs_live=True))) is None
    assert says(find(attention(mask=(3, 1, 5, 7), turned=True))) is not None
    assert says(find(attention(mask=(2, 3, 1, 7)))) is not None


def product(*, bias: tuple[int, ...] = (16,), activation: str = "aten::relu", **named: Any) -> Graph:
    b = GraphBuilder("product")
    x, w, c = b.input("x", (12, 8), "float32"), b.input("w", (8, 16), "float32"), b.input("c", bias, "float32")
    seen = b.call("aten::view", b.call("aten::mm", x, w), [3, 4, 16])
    return b.done(b.call(activation, b.call("aten::add.Tensor", seen, c), **named))


def test_what_stands_behind_a_product_becomes_its_epilogue() -> None:
    assert says(find(product())) == "torch._addmm_activation(bias, left, right)"
    gelu = find(product(activation="aten::gelu", approximate="tanh")).replacement
    assert gelu is not None
    assert gelu.says == "torch._addmm_activation(bias, left, right, use_gelu=True)"
    assert gelu.gpu_only is not None  # a CPU computes another GELU by this call
    assert says(find(product(activation="aten::gelu", approximate="none"))) == "torch.addmm(bias, left, right)"
    assert says(find(product(activation="aten::silu"))) == "torch.addmm(bias, left, right)"
    assert says(find(product(bias=(4, 1)))) is None


def adamw(count: int = 3, **how: Any) -> Graph:
    """A step of AdamW over lists. how: `lists` False for one parameter; other values of its numbers."""
    known = {"decay": 1 - 1e-5, "first": 0.1, "keep": 0.999, "second": 0.001, "root": 0.1, "eps": 1e-8, "move": -1e-3}
    known |= how
    b = GraphBuilder("adamw")
    shapes = [(8, 3), (5,), (4, 2, 3)][:count]
    p, g, m, v = (
        [b.input(f"{name}{k}", s, how.get(f"{name}_dtype", "float32")) for k, s in enumerate(shapes)] for name in "pgmv"
    )
    other = g if not how.get("other_gradient") else [m[0], *g[1:]]
    b.call("aten::_foreach_mul_.Scalar", p, known["decay"])
    b.call("aten::_foreach_lerp_.Scalar", m, g, known["first"])
    b.call("aten::_foreach_mul_.Scalar", v, known["keep"])
    b.call("aten::_foreach_addcmul_.Scalar", v, g, other, known["second"])
    roots = b.call("aten::_foreach_sqrt", v)
    roots = [roots] if isinstance(roots, Ref) else list(roots)
    if how.get("eps_first"):
        b.call("aten::_foreach_add_.Scalar", roots, known["eps"])
    b.call("aten::_foreach_div_.ScalarList", roots, [known["root"]] * count)
    if not how.get("eps_first"):
        b.call("aten::_foreach_add_.Scalar", roots, known["eps"])
    b.call("aten::_foreach_addcdiv_.ScalarList", p, m, roots, [known["move"]] * count)
    return b.done(*(roots if how.get("live") else ()))


STEP = 7
MOVES = {"root": (1 - 0.999**STEP) ** 0.5, "move": -1e-3 / (1 - 0.9**STEP)}


def test_a_step_of_adamw_is_found_with_the_numbers_that_it_was_asked_for() -> None:
    found = find(adamw(**MOVES)).replacement
    assert found is not None
    asked = "torch.optim.AdamW(parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, fused=True)"
    assert found.says == asked
    assert found.numbers["step"] == STEP
    assert found.call == "torch._fused_adamw_"


def test_what_is_nearly_a_step_of_adamw_is_none() -> None:
    assert says(find(adamw(**MOVES | {"second": 0.002}))) is None  # not what keeps the average of 0.999
    assert says(find(adamw(**MOVES, eps_first=True))) is None
    assert says(find(adamw(**MOVES, other_gradient=True))) is None
    assert says(find(adamw(**MOVES, g_dtype="bfloat16"))) is None
    kept = adamw(**MOVES, live=True)
    assert says(find(kept)) is None
    assert says(find(kept, unread=kept.live)) is not None


@pytest.mark.parametrize("decay", [None, 0.01])
def test_a_step_without_decay_or_with_decay_in_its_gradient_is_adams(decay: float | None) -> None:
    b = GraphBuilder("adam")
    p, g, m, v = (b.input(n, (6,), "float32") for n in "pgmv")
    g = g if decay is None else b.call("aten::add.Tensor", g, p, alpha=decay)
    b.call("aten::lerp_.Scalar", m, g, 0.1)
    b.call("aten::mul_.Tensor", v, 0.999)
    b.call("aten::addcmul_", v, g, g, value=0.001)
    root = b.call("aten::add_.Tensor", b.call("aten::div.Tensor", b.call("aten::sqrt", v), MOVES["root"]), 1e-8)
    b.call("aten::addcdiv_", p, m, root, value=MOVES["move"])
    decayed = "" if decay is None else ", weight_decay=0.01"
    shown = f"torch.optim.Adam(parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08{decayed}, fused=True)"
    assert says(find(b.done())) == shown


@pytest.mark.parametrize("decay", [None, 0.01])
def test_sgd_with_momentum_is_found(decay: float | None) -> None:
    b = GraphBuilder("sgd")
    p, g, m = (b.input(n, (6,), "float32") for n in "pgm")
    grad = g if decay is None else b.call("aten::add.Tensor", g, p, alpha=decay)
    b.call("aten::add_.Tensor", b.call("aten::mul_.Tensor", m, 0.9), grad)
    b.call("aten::add_.Tensor", p, m, alpha=-0.1)
    decayed = "" if decay is None else ", weight_decay=0.01"
    assert says(find(b.done())) == f"torch.optim.SGD(parameters, lr=0.1, momentum=0.9{decayed}, fused=True)"


def test_gelu_by_a_tangent_is_found_where_its_numbers_are_recorded_or_not() -> None:
    def gelu(cubic: float = 0.044715) -> Graph:
        b = GraphBuilder("gelu")
        x = b.input("x", (4, 8), "float16")
        inner = b.call(
            "aten::add.Tensor", x, b.call("aten::mul.Tensor", b.call("aten::pow.Tensor_Scalar", x, 3.0), cubic)
        )
        bent = b.call("aten::tanh", b.call("aten::mul.Tensor", inner, 0.7978845608028654))
        half = b.call("aten::mul.Tensor", x, 0.5)
        return b.done(b.call("aten::mul.Tensor", half, b.call("aten::add.Tensor", bent, 1.0)))

    assert says(find(gelu())) == "F.gelu(x, approximate='tanh')"
    assert says(find(gelu(0.05))) is None


def test_numbers_that_are_not_recorded_become_those_of_the_call() -> None:
    from tracemine.codegen.graph import Scalar

    graph = norm()
    assert settled(graph, {"other": 7.0}) == graph  # what is recorded stays
    assert not [s for s in graph.scalars if isinstance(s, Scalar) and not s.recorded]


# The table.


@pytest.mark.parametrize("name", table())
def test_rows_of_the_table_hold_together(name: str) -> None:
    row = table()[name]
    known = {n for form in row.forms for n in names(parse(form.pattern))} | set(row.where)
    known |= {n for part in row.where.values() for n in names(parse(part))} | {"shape"} | set(row.otherwise)
    for form in row.forms:
        call = form.call.format(p="p", g="g", m="m", v="v", steps="shape") if row.roots else form.call
        assert names(parse(call)) - {"F", "torch"} <= known | {"p", "g", "m", "v"}, form.call
    for way in row.wrong:
        assert any(way.text in form.call for form in row.forms), way
        ast.parse(next(f.call for f in row.forms if way.text in f.call).replace(way.text, way.becomes, 1))
    assert row.wrong or row.gpu_only
    assert set(row.instead) == (set(row.scalars) if row.roots else set())
    assert set(row.solve) == set(row.otherwise)
