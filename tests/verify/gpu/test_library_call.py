"""Other ways to make a library's call: right ones pass, wrong ones are told, on a CPU; nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracemine.causes import CAUSES  # noqa: E402
from tracemine.verify.fixes.calls import OTHERS, Ways  # noqa: E402
from tracemine.verify.gpu.correctness import make_inputs  # noqa: E402
from tracemine.verify.gpu.fixed_forms import patches_multiplied, unfolded_product  # noqa: E402
from tracemine.verify.gpu.library_call import WAYS, Way, faults_of, integer_results, ways_tried  # noqa: E402

aten = torch.ops.aten
Made = Callable[[Sequence[Any]], Any]


def described(*shapes: tuple[int, ...], dtype: Any = torch.float32) -> list[tuple[Any, ...]]:
    return [(f"t{n}", shape, dtype, torch.empty(shape).stride(), None) for n, shape in enumerate(shapes)]


def convolution(x: Any, weight: Any) -> Any:
    return aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def convolution_backward(grad: Any, x: Any, weight: Any) -> Any:
    return aten.convolution_backward(
        grad, x, weight, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )


CONVOLUTION = described((2, 16, 9, 7), (8, 16, 3, 3))
BACKWARD = described((2, 8, 9, 7), (2, 16, 9, 7), (8, 16, 3, 3))
PRODUCT = described((6, 37), (37, 21), dtype=torch.float16)
CASES = [
    ("channels_last", convolution, CONVOLUTION),
    ("channels_last", convolution_backward, BACKWARD),
    ("padded", aten.mm, PRODUCT),
    ("padded", aten.bmm, described((3, 6, 37), (3, 37, 21), dtype=torch.bfloat16)),
    ("padded", aten.addmm, described((21,), (6, 37), (37, 21), dtype=torch.float16)),
]


def test_padding_keeps_the_order_in_which_a_tensor_lies() -> None:
    weight = torch.empty(37, 21).mT
    (padded,) = WAYS["padded"].prepare([weight])
    assert (tuple(padded.shape), padded.stride()) == ((24, 40), (1, 24))


def made(way: str, eager: Callable[..., Any]) -> Made:
    return lambda inputs: eager(*WAYS[way].prepare(inputs))


@pytest.mark.parametrize(("way", "eager", "inputs"), CASES, ids=[f"{way} {n}" for n, (way, *_) in enumerate(CASES)])
def test_a_right_way_passes_with_its_error_within_what_rounding_allows(way: str, eager: Any, inputs: Any) -> None:
    faults, error = faults_of(eager, made(way, eager), inputs, "cpu")
    assert faults == []
    assert 0 <= error <= 1


def spoiled(change: Callable[[list[Any]], object]) -> Made:
    """The convolution of inputs in which something is not right."""

    def way(inputs: Sequence[Any]) -> Any:
        own = [t.clone() for t in inputs]
        change(own)
        return convolution(*own)

    return way


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own[1][:, -1].zero_(),  # a channel left out
        lambda own: own[1][..., 2, 2].zero_(),  # a tap left out
        lambda own: own[0].copy_(own[0].flip(-1)),
        lambda own: own[0].mul_(1.01),
        lambda own: own[0][0, 0, 0, 0].zero_(),  # one element of two thousand
    ],
)
def test_a_wrong_way_is_told(change: Callable[[list[Any]], object]) -> None:
    assert faults_of(convolution, spoiled(change), CONVOLUTION, "cpu")[0]


def test_an_element_lost_among_thousands_shows_in_whole_numbers_though_rounding_would_hide_it() -> None:
    inputs = described((4, 4096), (4096, 8), dtype=torch.float16)

    def short(given: Sequence[Any]) -> Any:
        return aten.mm(given[0][:, :-1], given[1][:-1])

    faults, error = faults_of(aten.mm, short, inputs, "cpu")
    assert faults
    assert all("integers are not the right ones" in fault for fault in faults)
    assert error < 1


def test_nothing_is_right_that_is_not_a_number() -> None:
    faults, error = faults_of(aten.mm, lambda given: aten.mm(*given) * float("nan"), PRODUCT, "cpu")
    assert faults
    assert error == float("inf")


def test_results_stay_whole_numbers_that_their_dtype_holds() -> None:
    inputs = [torch.empty(64, 9000, dtype=torch.bfloat16), torch.empty(9000, 64, dtype=torch.bfloat16)]
    drawn, exact = integer_results(aten.mm, inputs, 0)
    assert all(set(t.unique().tolist()) <= {-1.0, 0.0, 1.0} for t in drawn)
    assert 0 < int(exact[0].abs().max()) <= 128


def test_elements_that_share_memory_are_drawn_as_one() -> None:
    windows = torch.empty(100, dtype=torch.float64).unfold(0, 16, 4)
    drawn, _ = integer_results(aten.mm, [windows, torch.empty(16, 1).double().expand(16, 8)], 0)
    assert [t.stride() for t in drawn] == [(4, 1), (1, 0)]
    assert torch.equal(drawn[0][1:, :12], drawn[0][:-1, 4:])
    assert drawn[0].abs().sum() > 0


def test_each_way_that_a_cause_names_is_there_and_each_other_call_is_named() -> None:
    named = [cause.fix for cause in CAUSES if isinstance(cause.fix, Ways)]
    assert {way for one in named for way in (*one.ways, *(one.of_convolutions or ()))} <= set(WAYS)
    assert {other for one in named for other in one.others} == set(OTHERS)


def grouped(x: Any, weight: Any) -> Any:
    return aten.convolution(x, weight, None, [2], [1], [1], False, [0], 4)


def patched(x: Any, weight: Any, bias: Any) -> Any:
    return aten.convolution(x, weight, bias, [4, 2], [0, 0], [1, 1], False, [0, 0], 1)


def way_tried(eager: Any, way: Way, inputs: Any, ulp: float | None, device: str) -> dict[str, Any]:
    return ways_tried(eager, {"way": way}, inputs, ulp, device)["way"]


CALLED = [
    (grouped, Way("", call=lambda x, w: unfolded_product(x, w, None, [2], [1], [1], 4)), ((2, 16, 9), (8, 4, 3))),
    (patched, Way("", call=patches_multiplied), ((2, 3, 9, 7), (5, 3, 4, 2), (5,))),
]


@pytest.mark.parametrize(("eager", "way", "shapes"), CALLED, ids=["grouped", "patches"])
def test_another_call_is_right_and_of_a_wrong_group_or_place_is_not(eager: Any, way: Any, shapes: Any) -> None:
    inputs = described(*shapes)
    found = way_tried(eager, way, inputs, None, "cpu")
    assert found["faults"] == []
    wrong = replace(way, call=lambda *given: way.call(*given).roll(1, 1))
    assert way_tried(eager, wrong, inputs, None, "cpu")["faults"]


def test_float32_in_place_of_float64_is_held_to_what_float32_rounds() -> None:
    inputs = described((6, 37), (37, 21), dtype=torch.float64)
    found = way_tried(aten.mm, WAYS["float32"], inputs, None, "cpu")
    assert found["faults"] == []
    assert way_tried(aten.mm, replace(WAYS["float32"], dtype=None), inputs, None, "cpu")["faults"]  # as float64 rounds
    half = Way("", lambda given: [t.bfloat16() for t in given], dtype=torch.float32)
    assert way_tried(aten.mm, half, inputs, None, "cpu")["faults"]


def test_bfloat16_in_place_of_float32_is_held_to_what_bfloat16_rounds() -> None:
    inputs = described((6, 37), (37, 21))
    assert way_tried(aten.mm, WAYS["half"], inputs, None, "cpu")["faults"] == []
    assert way_tried(aten.mm, replace(WAYS["half"], dtype=None), inputs, None, "cpu")["faults"]  # as TF32 rounds
    cut = replace(WAYS["half"], prepare=lambda given: [given[0].bfloat16() * 0.9, given[1].bfloat16()])
    assert way_tried(aten.mm, cut, inputs, None, "cpu")["faults"]


def chain(x: Any, y: Any) -> Any:
    return (torch.softmax(x + y, -1).view(-1, 5),)


def test_calls_that_are_not_bilinear_are_held_against_float64_in_whatever_shape_a_form_gives_them() -> None:
    inputs = described((4, 6, 5), (5,))
    right = Way("", call=lambda x, y: (torch.softmax(x + y, -1),))
    assert way_tried(chain, right, inputs, 2.0, "cpu")["faults"] == []
    wrong = [lambda x, y: (torch.softmax(x, -1),), lambda x, y: (torch.softmax(x + y, -2),), lambda x, y: ()]
    for call in wrong:
        assert way_tried(chain, Way("", call=call), inputs, 2.0, "cpu")["faults"]


def test_what_a_way_prepares_is_not_part_of_its_call() -> None:
    inputs = described((4, 6))
    once = Way("", lambda given: [given[0].half()], call=lambda half: (half,))
    assert way_tried(lambda x: (x.half(),), once, inputs, 1.0, "cpu")["faults"] == []


def test_a_way_that_raises_costs_itself_alone() -> None:
    inputs = described((4, 6, 5), (5,))

    def not_here(*given: Any) -> Any:
        raise RuntimeError("No available kernel")

    ways = {"right": Way("", call=lambda x, y: (torch.softmax(x + y, -1),)), "other": Way("", call=not_here)}
    found = ways_tried(chain, ways, inputs, 2.0, "cpu")
    assert found["right"]["faults"] == []
    assert found["other"] == {"faults": ["RuntimeError: No available kernel"], "error": None}


def test_a_way_that_raises_on_later_inputs_alone_costs_itself_alone() -> None:
    inputs = described((4, 6, 5), (5,))
    first = float(make_inputs(inputs, 0, "cpu")[1][0])

    def once(x: Any, y: Any) -> Any:
        if float(y[0]) != first:
            raise RuntimeError("an index is out of range")
        return (torch.softmax(x + y, -1),)

    ways = {"right": Way("", call=lambda x, y: (torch.softmax(x + y, -1),)), "once": Way("", call=once)}
    found = ways_tried(chain, ways, inputs, 2.0, "cpu")
    assert found["right"]["faults"] == []
    assert found["once"] == {"faults": ["RuntimeError: an index is out of range"], "error": None}


def test_what_leaves_no_results_is_compared_behind_what_reads_them() -> None:
    inputs = described((4, 6))
    way = Way("", call=lambda x: (), behind=(lambda x: (x.clone().zero_() + 0.5 * x,), lambda x: (0.5 * x,)))
    assert way_tried(lambda x: x.zero_(), way, inputs, 2.0, "cpu")["faults"] == []
    wrong = replace(way, behind=(lambda x: (x.clone().fill_(1) + 0.5 * x,), lambda x: (0.5 * x,)))
    assert way_tried(lambda x: x.fill_(1), wrong, inputs, 2.0, "cpu")["faults"]


HEADS, PLACES, WIDTH = 3, 32, 64
PEAKED = 0.5  # scale: four times what heads of this width have, so that rows are nearly one place
HEADED = [(name, (HEADS, PLACES, WIDTH), torch.bfloat16, (PLACES * WIDTH, WIDTH, 1), "moderate") for name in "qkvg"]


def later() -> Any:
    return torch.ones(PLACES, PLACES, dtype=torch.bool).triu(1)


def trained(scale: float, delta: bool = False) -> Callable[..., Any]:
    """Causal attention and its gradient as eager runs it; delta: as fused kernels order it, by the rounded result."""

    def turned(t: Any) -> Any:
        return aten.permute.default(t, [0, 2, 1])

    def calls(q: Any, k: Any, v: Any, g: Any) -> Any:
        scores = aten.mul.Tensor(aten.bmm.default(q, turned(k)), scale)
        weights = aten._softmax.default(aten.masked_fill.Scalar(scores, later(), -1e9), -1, False)
        out, of_weights = aten.bmm.default(weights, v), aten.bmm.default(g, turned(v))
        if delta:
            of_row = (g.float() * out.float()).sum(-1, keepdim=True)
            of_scores = (weights.float() * (of_weights.float() - of_row)).to(torch.bfloat16)
        else:
            of_scores = aten._softmax_backward_data.default(of_weights, weights, -1, torch.bfloat16)
        of_scores = aten.mul.Tensor(of_scores, scale)
        of_query, of_key = aten.bmm.default(of_scores, k), aten.bmm.default(turned(of_scores), q)
        return out, of_query, of_key, aten.bmm.default(turned(weights), g)

    return calls


def fused(scale: float, wrong: str = "") -> Way:
    """What a fused kernel does: float32 within, the result rounded before its gradient's row sums are made of it."""

    def call(*given: Any) -> Any:
        q, k, v, g = (t.float() for t in given)
        scores = q @ k.mT * (1.02 * scale if wrong == "scale" else scale)
        scores = scores if wrong == "mask" else scores.masked_fill(later(), -1e9)
        weights = scores.softmax(-1)
        out = (weights @ v).bfloat16()
        of_row = (g * out.float()).sum(-1, keepdim=True) * (wrong != "row sums")
        of_scores = (weights * (g @ v.mT - of_row)).bfloat16().float() * scale
        of_key = of_scores.mT @ q
        if wrong == "head":
            of_key[1] = 0
        results = (of_scores @ k, of_key, weights.bfloat16().float().mT @ g)
        return out, *(t.bfloat16() for t in results)

    return Way("", call=call)


def test_a_fused_gradient_may_round_as_fused_gradients_do_and_no_more() -> None:
    alone = ways_tried(trained(PEAKED), {"right": fused(PEAKED)}, HEADED, 8.0, "cpu")
    assert any("output 1: element" in fault for fault in alone["right"]["faults"])
    ways = {name: fused(PEAKED, name) for name in ("right", "scale", "row sums", "head", "mask")}
    found = ways_tried(trained(PEAKED), ways, HEADED, 8.0, "cpu", rounds=trained(PEAKED, delta=True))
    assert found["right"]["faults"] == []
    assert all(found[name]["faults"] for name in ways if name != "right")


def test_another_function_allows_nothing_and_is_told() -> None:
    ways, other = {"wrong": fused(1.02 * PEAKED)}, trained(1.02 * PEAKED, delta=True)
    alone = ways_tried(trained(PEAKED), ways, HEADED, 8.0, "cpu")["wrong"]["faults"]
    found = ways_tried(trained(PEAKED), ways, HEADED, 8.0, "cpu", rounds=other)["wrong"]["faults"]
    assert alone
    assert [fault for fault in found if "another function" not in fault] == alone
    assert len(found) == len(alone) + 3  # a seed each
