"""Findings of recordings whose compiled graphs break: one a line, with its reason, and never more than was idle."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.findings import Scan, find
from tracemine.findings.labels import sources
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.pipeline import scan
from tracemine.rows import row_sets
from tracemine.rows.arrow import rows_of
from tracemine.rows.compiled import compiled

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
BREAKS = {
    "compiled_breaks": {25: "graph_break_value", 28: "graph_break_print"},
    "compiled_islands": {48: "graph_break_size", 50: "graph_break"},
    "compiled_loop": {87: "graph_break_value"},  # a function that was given up: where it begins
}


@cache
def scanned(name: str) -> Scan:
    return scan(FIXTURES / f"{name}.json.gz")


@pytest.mark.parametrize("name", BREAKS)
def test_each_line_that_breaks_a_graph_is_one_finding_of_its_reason(name: str) -> None:
    found = [f for f in scanned(name).findings if f.rule.startswith("graph_break")]
    assert {f.source[0].line: f.rule for f in found} == BREAKS[name]
    assert len(found) == len(BREAKS[name])
    for finding in found:
        assert (finding.source[0].file, finding.source[0].function) == ("compiled_models.py", "forward")
        assert finding.occurrences >= 2  # each of two steps
        assert finding.evidence == "proven"
        assert 0 < finding.step_saving_ns.mid <= finding.step_saving_ns.high < finding.measured_ns


def test_three_pointwise_kernels_between_two_graphs_are_an_island() -> None:
    (island,) = [f for f in scanned("compiled_islands").findings if f.gpu_saving_ns.high]
    assert (island.rule, island.ops) == ("eager_island", ("aten::div", "aten::tanh", "aten::mul"))
    assert island.source[0].function == "soft_cap"
    assert len(island.activities) == 2  # one a step


@pytest.mark.parametrize("name", BREAKS)
def test_a_gap_in_a_break_is_no_other_rules_as_well(name: str) -> None:
    waited = [row for f in scanned(name).findings if not f.gpu_saving_ns.high for part in f.activities for row in part]
    assert len(waited) == len(set(waited))  # each activity ends one gap


@pytest.mark.parametrize("name", BREAKS)
def test_no_fusion_group_reaches_from_one_break_into_another(name: str) -> None:
    timeline = open_trace(FIXTURES / f"{name}.json.gz")
    found = groups(flow(timeline))
    assert len(found)
    breaks = compiled(timeline).breaks
    launch = rows_of(timeline.activities["launch_row"])
    begun = rows_of(timeline.api["start_ns"])[launch]
    for begin, end in pairwise(found.activity_begin.tolist()):
        launched = begun[found.activity[begin:end]]
        # However many graphs have been called by then: the same for all of a group.
        assert len(set(np.searchsorted(breaks.end_ns, launched, side="right").tolist())) == 1


@pytest.mark.parametrize("name", ["decoder_prefill_compiled", "decoder_prefill", "triton_kernel", "convnet_train"])
def test_without_a_break_there_is_no_such_finding(name: str) -> None:
    assert not [f for f in scanned(name).findings if f.rule.startswith("graph_break")]


def test_a_function_resumed_twice_is_one_frame_at_the_last_line_that_broke_it() -> None:
    trace = Trace()
    forward = trace.frame("model.py(10): forward", trace.frame("train.py(3): step"))
    first = trace.frame("model.py(12): torch_dynamo_resume_in_forward_at_12", forward)
    trace.frame("model.py(17): torch_dynamo_resume_in_forward_at_17", first)
    trace.frame("torchinductor_me/ab/cab.py(80): call", first)
    timeline = trace.timeline()
    assert [(s.line, s.function) for s in sources(timeline, 3)] == [(17, "forward"), (3, "step")]
    assert [(s.line, s.function) for s in sources(timeline, 4)] == [(12, "forward"), (3, "step")]


def test_a_function_that_calls_itself_keeps_its_frames() -> None:
    trace = Trace()
    trace.frame("tree.py(5): walk", trace.frame("tree.py(5): walk"))
    assert len(sources(trace.timeline(), 1)) == 2


def test_a_compilation_within_the_recording_is_said() -> None:
    trace = Trace()
    trace.kernel("k", 0, 5)
    outer = trace.op("_compile.compile_inner (dynamo_timed)", 10, 2_000_000)
    trace.op("bytecode_tracing (dynamo_timed)", 20, 1_000_000, parent_row=outer)
    timeline = trace.timeline()
    (text,) = [each for each in find(timeline, row_sets(timeline), [], None).warnings if "compiled" in each]
    assert text.startswith("torch.compile compiled once while this was recorded, for 2.00 ms: ")
    assert not [each for each in scanned("decoder_prefill_compiled").warnings if "compiled" in each]
