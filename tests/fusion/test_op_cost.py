"""What calls are taken to compute an element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.timelines import Trace
from tracemine.calls import Call
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.fusion.nodes import Meaning, meaning_of

IMAGE, CHANNELS = (32, 64, 56, 56), (64,)


def batch_norm(training: bool) -> Meaning:
    values = ("", "", "", "", "", str(training), "0.1", "1e-05")
    types = (*["float"] * 5, "Scalar", "Scalar", "Scalar")
    return meaning_of(Call("aten::native_batch_norm", (IMAGE, *[CHANNELS] * 4, (), (), ()), types, None, values))


def test_a_batch_norm_reduces_in_training_and_uses_its_channel_for_each_element_always() -> None:
    training, inference = batch_norm(training=True), batch_norm(training=False)
    assert training.steps == ("welford", "channel") and training.space is not None
    assert inference.steps == ("channel",) and inference.space is None


def test_a_batch_norm_backward_needs_two_sums_of_a_channel() -> None:
    shapes = (IMAGE, IMAGE, *[CHANNELS] * 5, (), (), ())
    types = (*["float"] * 7, "Scalar", "Scalar", "ScalarList")
    values = (*[""] * 7, "True", "1e-05", "[True, True, True]")
    backward = meaning_of(Call("aten::native_batch_norm_backward", shapes, types, None, values))
    assert backward.steps == ("sum", "sum", "channel")


def _fused_steps(calls: list[tuple[str, list[Any], list[str]]]) -> tuple[str, ...]:
    trace = Trace()
    for at, (name, shapes, concrete) in enumerate(calls):
        dtypes = ["float"] * len(shapes)
        op = trace.op(name, at * 10, 8, shapes=shapes, dtypes=dtypes, concrete=concrete)
        trace.kernel("k", at * 10 + 5, 4, op=op)
    found = groups(flow(trace.timeline()))
    assert len(found) == 1
    return found.kernels[int(found.kernel[0])].steps


def test_a_small_tensor_that_is_spread_is_computed_for_each_element_anew() -> None:
    calls = [("aten::cos", [[1, 64]], [""]), ("aten::mul", [[512, 64], [1, 64]], ["", ""])]
    assert _fused_steps(calls) == ("tanh", "scale")


def test_a_number_a_row_is_computed_once_a_row() -> None:
    decoder = Path(__file__).parents[2] / "fixtures" / "captures" / "decoder_prefill"
    found = groups(flow(open_trace(decoder)))
    norms = [kernel.steps for kernel in found.kernels if kernel.length > 1 and kernel.steps.count("sum") == 1]
    assert norms, "the decoder's RMS norms"
    assert all("divide" not in steps and steps[-3:] == ("scale", "simple", "scale") for steps in norms)
