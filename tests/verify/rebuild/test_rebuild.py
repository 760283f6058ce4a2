"""Chains rebuilt from recordings: which calls, on what inputs, with which results; and what is refused, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.verify.traces import event, launched
from tracemine.causes.batch_norm_evaluated.fix import BEFORE_NORM
from tracemine.codegen.graph import Ref, Scalar
from tracemine.flow import flow
from tracemine.flow.record import Flow
from tracemine.formats import open_trace
from tracemine.fusion import Groups, groups
from tracemine.timeline import Timeline
from tracemine.verify.rebuild.assemble import DENSE
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"


@cache
def read(name: str) -> tuple[Flow, Groups]:
    found = flow(open_trace(CAPTURES / name))
    return found, groups(found)


def rebuilt(name: str, group: int) -> Rebuilt:
    found, grouped = read(name)
    begin = grouped.activity_begin.tolist()
    return Rebuilder(found, grouped).rebuild(grouped.activity[begin[group] : begin[group + 1]].tolist(), "chain")


def starting_with(name: str, call: str) -> int:
    """The first group of a capture whose chain starts so."""
    return next(g for g in range(len(read(name)[1])) if labels(rebuilt(name, g))[0] == call)


def labels(found: Rebuilt) -> list[str]:
    return [call.label.removeprefix("aten::") for call in found.graph.calls]


def test_a_residual_norm_is_its_calls_in_order_with_both_results_live() -> None:
    found = rebuilt("decoder_prefill", starting_with("decoder_prefill", "add.Tensor"))
    assert labels(found) == [
        *("add.Tensor", "_to_copy", "pow.Tensor_Scalar", "mean.dim", "add.Tensor", "rsqrt", "mul.Tensor"),
        *("_to_copy", "mul.Tensor"),
    ]
    assert [(i.spec.shape, i.spec.dtype) for i in found.graph.inputs] == [
        *[((8, 512, 1024), "bfloat16")] * 2,
        ((1024,), "bfloat16"),
    ]
    assert found.graph.live == (3, 11)  # the sum goes on as the residual, the norm into the next layer
    assert found.evidence == "proven"
    assert found.graph.calls[2].arguments[1] is not None
    unknown = [s for s in found.graph.scalars if not s.recorded]
    assert len(unknown) == 1  # the epsilon: a Python number that profilers do not record
    assert any("tried at several values" in text for text in found.assumptions)


def test_views_between_members_follow_from_where_tensors_lie() -> None:
    found = rebuilt("decoder_prefill", starting_with("decoder_prefill", "mul.Tensor"))
    turned = ("mul.Tensor", "slice.Tensor", "neg", "slice.Tensor", "cat", "mul.Tensor", "add.Tensor")
    assert labels(found) == [*turned, *turned]  # of queries and of keys, by the same sines and cosines
    assert len(found.graph.inputs) == 4  # the halves of either are slices of it, not inputs of their own
    assert {found.graph.inputs[k].spec.strides for k in (0, 3)} == {(524288, 64, 1024, 1)}
    assert found.graph.live == (10, 17)


def test_index_tensors_stay_within_what_they_point_into() -> None:
    found = rebuilt("decoder_prefill", 0)
    below = [i.below for i in found.graph.inputs if i.spec.dtype == "int64"]
    assert below == [8192]


def test_without_an_execution_trace_the_dataflow_is_an_assumption() -> None:
    found = rebuilt("chain/trace.json.gz", 0)
    assert labels(found) == ["add.Tensor", "clamp_min", "add.Tensor", "log"]
    assert found.evidence == "consistent"
    assert found.assumptions[0].startswith("dataflow is consistent")
    assert labels(rebuilt("chain", 0)) == labels(found)


@pytest.mark.parametrize("name", ["chain", "convnet_train", "decoder_decode", "decoder_prefill"])
def test_every_group_of_a_capture_is_rebuilt_soundly(name: str) -> None:
    _, grouped = read(name)
    for group in range(len(grouped)):
        found = rebuilt(name, group)  # check() has looked at it
        members = grouped.begin[group + 1] - grouped.begin[group]
        assert len(found.nodes) == members
        assert len(found.graph.calls) >= members


def test_replaying_the_rebuilt_calls_gives_what_was_recorded() -> None:
    """Run on torch's meta device: shapes, dtypes and strides of every call are those of the trace."""
    torch = pytest.importorskip("torch")
    from tracemine.verify.repro.eager import eager_text

    for name in ("chain", "decoder_prefill", "decoder_decode"):
        for group in range(len(read(name)[1])):
            graph = rebuilt(name, group).graph
            space: dict[str, Any] = {"torch": torch}
            exec(eager_text(graph).replace('"cuda"', '"meta"'), space)  # noqa: S102 - our own text of our own table
            inputs = [
                torch.empty_strided(
                    i.spec.shape, i.spec.strides, dtype=getattr(torch, str(i.spec.dtype)), device="meta"
                )
                for i in graph.inputs
            ]
            live = space["eager"](*inputs)
            for tensor, value in zip(live, graph.live, strict=True):
                spec = graph.specs[value]
                assert tuple(tensor.shape) == spec.shape
                assert tensor.dtype == getattr(torch, str(spec.dtype))
                assert all(
                    n <= 1 or a == b for n, a, b in zip(spec.shape, tensor.stride(), spec.strides or (), strict=True)
                )


# --- near misses ----------------------------------------------------------------------------------------------------


def changed(capture: str, **columns: object) -> tuple[Flow, Groups]:
    """The capture's flow as it is, over a timeline of which a column of `ops` holds other texts."""
    found, grouped = read(capture)
    ops = found.timeline.ops
    for column, text in columns.items():
        place = ops.schema.get_field_index(column)
        texts = pa.array([text] * ops.num_rows, pa.string()).dictionary_encode()
        ops = ops.set_column(place, ops.schema.field(place), texts)
    timeline = Timeline(
        meta=found.timeline.meta,
        activities=found.timeline.activities,
        ops=ops,
        api=found.timeline.api,
        steps=found.timeline.steps,
        stacks=found.timeline.stacks,
        tensors=found.timeline.tensors,
    )
    return (
        Flow(**{n: getattr(found, n) for n in Flow.__struct_fields__ if n != "timeline"}, timeline=timeline),
        grouped,
    )


def refusal(found: Flow, grouped: Groups) -> str:
    with pytest.raises(NotRebuilt) as reason:
        Rebuilder(found, grouped).rebuild(grouped.activity[: grouped.activity_begin[1]].tolist(), "chain")
    return reason.value.message


def test_an_operator_that_the_table_lacks_is_refused_and_its_name_is_not_repeated() -> None:
    found, grouped = changed("chain", name="evil::__import__('os')", op_schema="evil::run(Tensor x) -> Tensor")
    assert refusal(found, grouped) == "an operator that the table does not have is not in the operator table"


def test_without_a_schema_nothing_is_rebuilt() -> None:
    assert "read and wrote is not recorded" in refusal(*changed("chain", op_schema=None))


def test_what_nvtx_ranges_lack_is_named() -> None:
    assert refusal(*changed("chain", op_schema=None, input_dtypes=None)).startswith("the dtype of what aten::")


def with_strides(keep: int) -> tuple[Flow, Groups]:
    """A capture of which only the last tensors have strides."""
    found, grouped = read("chain")
    tensors = found.timeline.tensors
    place = tensors.schema.get_field_index("strides")
    column = tensors.column(place).combine_chunks()
    mask = pa.array([row < tensors.num_rows - keep for row in range(tensors.num_rows)])
    left = pa.array([None if gone else s for gone, s in zip(mask.to_pylist(), column.to_pylist(), strict=True)])
    untold = Timeline(
        **{n: getattr(found.timeline, n) for n in ("meta", "activities", "ops", "api", "steps", "stacks")},
        tensors=tensors.set_column(place, tensors.schema.field(place), left.cast(column.type)),
    )
    flow_ = Flow(**{n: getattr(found, n) for n in Flow.__struct_fields__ if n != "timeline"}, timeline=untold)
    return flow_, grouped


def test_memory_whose_strides_are_not_told_is_refused() -> None:
    assert "the strides of a tensor are not recorded" in refusal(*with_strides(1))


def test_where_no_strides_at_all_are_told_tensors_are_taken_to_lie_densely_and_that_is_said() -> None:
    found, grouped = with_strides(0)
    rows = grouped.activity[: grouped.activity_begin[1]].tolist()
    guessed = Rebuilder(found, grouped).rebuild(rows, "chain")
    assert guessed.graph == rebuilt("chain", 0).graph  # whose tensors do
    assert DENSE in guessed.assumptions
    assert DENSE not in rebuilt("chain", 0).assumptions


def test_damaged_arguments_are_refused() -> None:
    assert "is damaged" in refusal(*changed("chain", concrete_inputs='["", "1e999x", "[[[["]'))


def test_activities_of_no_operator_are_refused() -> None:
    found, grouped = read("chain")
    alone = Groups(
        **{n: getattr(grouped, n) for n in Groups.__struct_fields__ if n not in ("activity_group", "activity_node")},
        activity_group=np.full_like(grouped.activity_group, -1),
        activity_node=np.full_like(grouped.activity_node, -1),
    )
    assert refusal(found, alone) == "a kernel belongs to no operator whose inputs are recorded"
    without = changed("chain", input_shapes=None)[0]
    assert refusal(without, alone).endswith(": shapes are not recorded")


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("before_window", ": it was launched before recording began"),
        ("outside_any_op", ": it was launched outside of any operator"),
        ("something new", "are recorded"),
    ],
)
def test_why_an_activity_has_no_operator_is_said(reason: str, says: str) -> None:
    found, grouped = read("chain")
    alone = replace(
        grouped,
        activity_group=np.full_like(grouped.activity_group, -1),
        activity_node=np.full_like(grouped.activity_node, -1),
    )
    activities = found.timeline.activities
    nobody = {"op_row": pa.nulls(len(activities), pa.int64()), "unowned_reason": pa.array([reason] * len(activities))}
    for name, column in nobody.items():
        place = activities.schema.get_field_index(name)
        field = activities.schema.field(place)
        activities = activities.set_column(place, field, column.cast(field.type))
    assert refusal(replace(found, timeline=replace(found.timeline, activities=activities)), alone).endswith(says)


def test_recorded_numbers_are_arguments_and_never_part_of_the_code() -> None:
    graph = rebuilt("chain", 0).graph
    (low,) = [s for s in graph.scalars if s.recorded]
    assert isinstance(low, Scalar)
    assert low.value == 0


# --- arguments of which nothing was recorded --------------------------------------------------------------------------

SIZES, STEPS = [7, 1024], [1024, 1]
SOFTMAX: tuple[list[Any], ...] = [SIZES, [], []], ["float", "Scalar", "Scalar"], [STEPS, [], []], ["", "-1", "False"]
ADD: tuple[list[Any], ...] = [SIZES, SIZES, []], ["float", "float", "Scalar"], [STEPS, STEPS, []], ["", "", "1"]


def two_calls(folder: Path, softmax: int, add: int) -> Path:
    """A trace of a softmax and an addition of its result, of which so many arguments were recorded."""
    events = [
        event("aten::_softmax", 0, 50, *(told[:softmax] for told in SOFTMAX)),
        *launched(1, 45, "softmax"),
        event("aten::add", 60, 80, *(told[:add] for told in ADD)),
        *launched(2, 70, "add"),
    ]
    path = folder / "t.json"
    gpu = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150 << 30, "computeMajor": 9, "numSms": 132}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}))
    return path


def of_two_calls(folder: Path, softmax: int, add: int) -> Rebuilt:
    found = flow(open_trace(two_calls(folder, softmax, add)))
    return Rebuilder(found, groups(found), guesses=True).rebuild([0, 1], "chain")  # of two alike the addition takes one


@pytest.mark.parametrize(("softmax", "name"), [(1, "dim"), (2, "half_to_float")])
def test_without_an_argument_that_has_no_default_nothing_is_rebuilt(softmax: int, name: str, tmp_path: Path) -> None:
    with pytest.raises(NotRebuilt, match=f"^aten::_softmax: the value of {name} is not recorded$"):
        of_two_calls(tmp_path, softmax, 3)


def test_an_argument_that_has_a_default_may_be_left_out(tmp_path: Path) -> None:
    left_out, told = of_two_calls(tmp_path, 3, 2), of_two_calls(tmp_path, 3, 3)
    assert labels(left_out) == labels(told) == ["_softmax", "add.Tensor"]
    assert left_out.graph.calls[0] == told.graph.calls[0]
    assert left_out.graph.calls[1].arguments[2] is None


def test_of_a_chain_that_is_not_rebuilt_no_file_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    trace, emitted = two_calls(tmp_path, 1, 3), tmp_path / "emitted"
    code, out, _ = run("verify", trace, "--format", "json", "--emit", emitted)
    assert code == 0
    says = [verdict["says"] for verdict in json.loads(out)["verdicts"]]
    assert says == ["not rebuilt: aten::_softmax: the value of dim is not recorded"]
    assert list(emitted.iterdir()) == []


def test_calls_that_give_what_a_norm_reads_are_rebuilt_with_it_where_they_are_named() -> None:
    found, grouped = read("convnet_train")
    rebuilder = Rebuilder(found, grouped)
    operators = [rebuilder.recorded.facts(n).operator for n in range(len(found.nodes.activity_begin) - 1)]
    norm = operators.index("aten::cudnn_batch_norm")
    rows = found.nodes.activity[found.nodes.activity_begin[norm] : found.nodes.activity_begin[norm + 1]].tolist()
    assert labels(rebuilder.alone(rows, "norm")) == ["cudnn_batch_norm"]
    with_convolution = rebuilder.alone(rows, "norm", BEFORE_NORM)
    assert labels(with_convolution) == ["cudnn_convolution", "cudnn_batch_norm"]
    assert with_convolution.graph.calls[1].arguments[0] == Ref(with_convolution.graph.first_output(0))
    assert set(rows) < set(with_convolution.activities)
    assert labels(rebuilder.alone(rows, "norm", {"aten::cudnn_batch_norm": {"aten::mm"}})) == ["cudnn_batch_norm"]
