"""Memory that is filled before a chain writes a part of it: whether the fills are the chain's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tests.verify.traces import event, launched
from tracemine.codegen import Graph, generate
from tracemine.flow import flow
from tracemine.flow.record import Evidence
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.ops import lookup
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor
from tracemine.verify.rebuild.call_forms import Form, form_of
from tracemine.verify.rebuild.rebuilder import SAYS, Rebuilder, Rebuilt
from tracemine.verify.rebuild.view_recovery import Layout

WHOLE, PART = [16, 64, 256], [64, 256]
STEPS, ROWS = [16384, 256, 1], [256, 1]
TYPE, HALF = "float", "c10::Half"
SIZES = ["[16, 64, 256]", "6", "", "", ""]


def recorded(folder: Path, *, read_by_others: bool = False) -> Rebuilt:
    """The chain of what autograd does for one of sixteen rows: zeros, a row copied into them, a sum with others."""
    events = [
        event("aten::zeros", 0, 30, [[], [], [], [], []], ["ScalarList", "Scalar", "", "", ""], [[]] * 5, SIZES),
        event("aten::zero_", 5, 29, [WHOLE], [TYPE], [STEPS], [""]),
        event("aten::fill_", 6, 28, [WHOLE, []], [TYPE, "Scalar"], [STEPS, []], ["", "0"]),
        *launched(1, 20, "fill"),
        event("aten::select", 40, 50, [WHOLE, [], []], [TYPE, "Scalar", "Scalar"], [STEPS, [], []], ["", "0", "3"]),
        event("aten::copy_", 60, 70, [PART, PART, []], [TYPE, HALF, "Scalar"], [ROWS, ROWS, []], ["", "", "False"]),
        *launched(2, 65, "copy"),
        event("aten::add", 80, 90, [WHOLE, PART, []], [TYPE, HALF, "Scalar"], [STEPS, ROWS, []], ["", "", "1"]),
        *launched(3, 85, "add"),
    ]
    if read_by_others:
        events += [event("aten::sum", 32, 38, [WHOLE, []], [TYPE, ""], [STEPS, []], ["", ""]), *launched(4, 35, "sum")]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = flow(open_trace(path))
    grouped = groups(found)
    names = found.timeline.activities.column("name").to_pylist()
    # What reads filled memory is a guess: it may wait for what is added.
    return Rebuilder(found, grouped, guesses=True).rebuild([names.index("copy"), names.index("add")], "chain")


def first_two(path: Path) -> Graph:
    """The chain of the first two operators, with reads as sure as an execution trace has them."""
    found = flow(open_trace(path))
    found = replace(found, reads=replace(found.reads, evidence=np.full_like(found.reads.evidence, Evidence.PROVEN)))
    return Rebuilder(found, groups(found)).rebuild([0, 1], "chain").graph


def test_what_is_filled_and_then_written_in_part_is_the_chains_own(tmp_path: Path) -> None:
    found = recorded(tmp_path)
    labels = [call.label.removeprefix("aten::") for call in found.graph.calls]
    assert labels == ["full", "select.int", "copy_", "add.Tensor"]
    assert not found.graph.written
    assert SAYS in found.assumptions
    assert len(found.activities) == 3
    assert generate(found.graph)


def test_what_another_reads_of_it_keeps_the_fill_out(tmp_path: Path) -> None:
    found = recorded(tmp_path, read_by_others=True)
    assert found.graph.calls[0].label != "aten::full"
    assert SAYS not in found.assumptions


def test_a_fill_with_a_tensor_of_the_host_is_a_fill_with_a_number() -> None:
    """A chain holds it as a number, and the overload that takes a tensor takes none."""
    taken = [
        RecordedTensor(
            row=k, position=k, member=-1, buffer=("buffer", k), layout=layout, dtype="float16", on_host=k == 1
        )
        for k, layout in enumerate([Layout(0, (4, 4), (16, 1)), Layout(0, (), ())])
    ]
    facts = CallFacts(
        node=0,
        op_row=0,
        operator="aten::fill_",
        overload="Tensor",
        parents=(),
        inputs=tuple(taken),
        outputs=(),
        types=("c10::Half", "c10::Half"),
        texts=("", ""),
        shapes=((4, 4), ()),
        strides=((16, 1), ()),
        kernels=(),
    )
    operator = lookup("aten::fill_.Tensor")
    assert operator is not None
    form = form_of(facts, operator.overloads[0])
    assert isinstance(form, Form)
    assert form.overload.name == "Scalar"


def test_new_memory_that_is_filled_with_random_numbers_is_new_in_the_chain(tmp_path: Path) -> None:
    """Not somebody's memory that is written in place: `randn` allocates, and `normal_` within it fills."""
    events = [
        event("aten::randn", 0, 30, [[], [], [], [], []], ["ScalarList", "Scalar", "", "", ""], [[]] * 5, SIZES),
        event("aten::normal_", 5, 29, [WHOLE, [], []], [TYPE, "Scalar", "Scalar"], [STEPS, [], []], ["", "0.", "1."]),
        *launched(1, 20, "normal"),
        event("aten::mul", 40, 50, [WHOLE, WHOLE], [TYPE, TYPE], [STEPS, STEPS], ["", ""]),
        *launched(2, 45, "mul"),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    graph = first_two(path)
    assert [call.label for call in graph.calls] == ["aten::randn", "aten::mul.Tensor"]
    assert not graph.written
    assert generate(graph)


def test_what_is_filled_in_another_order_of_its_axes_is_a_view_of_what_is_filled(tmp_path: Path) -> None:
    """`zeros_like` keeps the layout of what it is asked for."""
    turned, steps = [64, 256, 16], [256, 1, 16384]
    events = [
        event("aten::zeros_like", 0, 30, [turned, *[[]] * 5], [TYPE, *[""] * 5], [steps, *[[]] * 5], [""] * 6),
        event("aten::zero_", 5, 29, [turned], [TYPE], [steps], [""]),
        event("aten::fill_", 6, 28, [turned, []], [TYPE, "Scalar"], [steps, []], ["", "0"]),
        *launched(1, 20, "fill"),
        event("aten::maximum", 40, 50, [turned, turned], [TYPE, TYPE], [steps, steps], ["", ""]),
        *launched(2, 45, "maximum"),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    graph = first_two(path)
    assert [call.label for call in graph.calls] == ["aten::full", "aten::permute", "aten::maximum"]
    assert [spec.strides for spec in (graph.calls[1].outputs[0], graph.calls[2].outputs[0])] == [tuple(steps)] * 2
    assert generate(graph)
