"""Gradients that are summed over ranks and that no optimizer step reads: steps made up, and a recorded job's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.causes.communication import US, Rank
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined
from tracemine.rows.table import number
from tracemine.timeline import Timeline

ACCUMULATED = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
RECORDED = Path("benchmarks/results/h200/jobs/broadcast_buffers/planted/rank0.json.gz")


def step(read: int, *, around: tuple[str, ...] = (ACCUMULATED, "c10d::allreduce_"), gathers: int = 0) -> Rank:
    """Steps that sum four million elements and whose optimizer reads so many, of two parameters."""
    rank = Rank()
    for number_of in range(2):
        rank.begin(number_of)
        rank.compute(took_us=2_000)
        for _ in range(4):
            rank.send(elements=1 << 20, took_us=900, around=around)
        lists = [[[read // 2], [read - read // 2]]] * 2
        rank.compute("aten::_foreach_add_", 50, ("Optimizer.step#SGD.step",), shapes=lists)
        if gathers:
            rank.send("_allgather_base", elements=gathers, took_us=90)
        rank.compute(took_us=2_000)
    return rank


def test_the_part_that_no_optimizer_reads_is_sent_for_nothing() -> None:
    (found,) = step(3 << 20).findings("gradient_unused")
    assert (found.occurrences, found.measured_ns) == (8, 8 * 900 * US)
    assert found.gpu_saving_ns.low == 0
    assert found.gpu_saving_ns.mid == pytest.approx(8 * 900 * US / 4, rel=0.01)
    assert "requires_grad_(False)" in found.fix


def test_what_is_read_or_shared_out_or_sent_by_the_program_itself_is_used() -> None:
    assert not step(4 << 20).findings("gradient_unused")
    assert not step((4 << 20) - 100_000).findings("gradient_unused")
    assert not step(1 << 20, gathers=1 << 20).findings("gradient_unused")  # each rank's optimizer reads its part
    assert not step(3 << 20, around=("c10d::allreduce_",)).findings("gradient_unused")


def frozen(timeline: Timeline, keeps: int) -> Timeline:
    """Return a recording whose optimizer was given some of the parameters alone: those that come last."""
    names, shapes = (timeline.ops[name].to_pylist() for name in ("name", "input_shapes"))
    for row, (name, text) in enumerate(zip(names, shapes, strict=True)):
        if name.startswith("aten::_foreach_"):
            shapes[row] = json.dumps([each[-keeps:] for each in json.loads(text)[:2]])
    field = timeline.ops.schema.field("input_shapes")
    column = pa.array(shapes, pa.string()).cast(field.type)
    place = timeline.ops.schema.get_field_index("input_shapes")
    return replace(timeline, ops=timeline.ops.set_column(place, field, column))


def test_a_recorded_job_is_told_so_only_once_parameters_are_taken_from_its_optimizer() -> None:
    recorded = open_trace(RECORDED)
    for timeline, share in ((recorded, 0.0), (frozen(recorded, 26), 0.0), (frozen(recorded, 12), 0.7)):
        analysis = analysed(timeline)
        unused, whole = (number(analysis.rows["activities"], name) for name in ("unused_bytes", "message_bytes"))
        of = unused > 0
        assert (int(unused.sum()) > share * int(whole[of].sum())) == (share > 0)
        assert bool([one for one in mined(analysis).findings if one.rule == "gradient_unused"]) == (share > 0)
