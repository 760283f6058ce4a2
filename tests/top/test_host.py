"""Tables of host time: what they add up to, and whose it is."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.screens import Reading, host_tables, in_turn
from tests.timelines import Trace
from tracemine.cli import main
from tracemine.errors import TracemineError
from tracemine.formats.discover import traces
from tracemine.pipeline import Analysis, analyse, analysed, mined
from tracemine.top import HostTop

ROOT = Path(__file__).parents[2]
TRACES = os.environ.get("TRACEMINE_COMPAT_TRACES")
FIXTURES = (
    *("captures/convnet_train", "captures/decoder_prefill", "memory/whisper_train", "nsys/block_train.sqlite"),
    *("kineto/decoder_decode_graph.json.gz", "kineto/compiled_breaks.json.gz", "nsys/block_graph_nodes.sqlite"),
)


def tables(analysis: Analysis, *, whole: bool = False) -> dict[str, HostTop]:
    return host_tables(analysis, mined(analysis), whole=whole)


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("whole", [False, True])
def test_rows_add_up_to_the_steps(name: str, whole: bool) -> None:
    add_up(tables(analyse(ROOT / "fixtures" / name), whole=whole))


@pytest.mark.skipif(not TRACES, reason="TRACEMINE_COMPAT_TRACES is not set")
def test_rows_add_up_to_the_steps_of_every_trace(reading: Callable[[Path], Reading]) -> None:
    count = 0
    for path in in_turn(path for path in traces(TRACES or "") if isinstance(path, Path)):
        try:
            found = reading(path).host
        except TracemineError:
            continue
        add_up(found)
        count += bool(found["tree"].rows)
    assert count > 40


def add_up(found: dict[str, HostTop]) -> None:
    """Rows, kinds and what is critical of them are the steps, to the nanosecond; a part is of what it is part of."""
    assert len({top.host_ns for top in found.values()}) == 1
    for top in found.values():
        assert sum(row.own_ns for row in top.rows) == top.host_ns == sum(kind.host_ns or 0 for kind in top.kinds)
        assert sum(row.host_ns for row in top.rows if row.parent is None) == top.host_ns
        outer = [row for row in top.rows if row.parent is None]
        assert sum(row.critical_ns for row in outer) == top.critical_ns <= top.host_ns
        for at, row in enumerate(top.rows):
            parts = (row.operator_ns, row.launch_ns, row.wait_ns, row.python_ns, row.other_ns)
            assert sum(parts) == row.host_ns
            assert min(parts) >= 0
            inside = sum(part.host_ns for part in top.rows if part.parent == at)
            assert inside + row.own_ns == row.host_ns
    for kind in found["tree"].kinds:
        leaves = [row for row in found["tree"].rows if row.kind == kind.kind]
        assert sum(row.host_ns for row in leaves) == (kind.host_ns or 0)
        assert sum(row.critical_ns for row in leaves) == (kind.critical_ns or 0)
    assert all((row.kind is None) == (row.own_ns == 0) for row in found["tree"].rows)


def of_kinds(trace: Trace) -> dict[str, tuple[int | None, int | None]]:
    """Time of each kind of work, and how much of it is critical."""
    found = tables(analysed(trace.timeline()))
    add_up(found)
    return {kind.kind: (kind.host_ns, kind.critical_ns) for kind in found["tree"].kinds}


def test_a_tree_leads_from_modules_over_lines_to_kinds_of_work() -> None:
    trace = Trace(with_stack=True)
    trace.step(0, 1000)
    main_frame = trace.frame("train.py(1): main")
    attend = trace.frame("model.py(5): attend", main_frame, module="Net_0.Block_1")
    add = trace.op("aten::add", 100, 100, module="Net_0.Block_1", stack_row=attend)
    trace.kernel("add", 170, 10, launch=(150, 20), op=add, module="Net_0.Block_1", stack=attend)
    trace.call("cudaMalloc", 120, 20, op_row=add, module="Net_0.Block_1", stack_row=attend)
    trace.kernel(
        "mul", 300, 10, launch=(280, 10), op=trace.op("aten::mul", 270, 40, stack_row=main_frame), stack=main_frame
    )
    rows = tables(analysed(trace.timeline()))["tree"].rows

    def path(at: int | None) -> tuple[str | None, ...]:
        return () if at is None else (*path(rows[at].parent), rows[at].name)

    told = {path(at): row.host_ns for at, row in enumerate(rows) if row.kind}
    assert told["Net", "Block", "model.py:5 attend", "operators"] == 60
    assert told["Net", "Block", "model.py:5 attend", "launches"] == 20
    assert told["Net", "Block", "model.py:5 attend", "allocations"] == 20
    assert told["train.py:1 main", "operators"] == 30
    assert told["train.py:1 main", "launches"] == 10


def test_what_the_driver_gives_before_a_step_is_not_in_it() -> None:
    trace = Trace()
    trace.call("cudaMalloc", 0, 400)
    trace.step(500, 1000)
    trace.kernel("add", 700, 10, launch=(610, 10), op=trace.op("aten::add", 600, 100))
    assert of_kinds(trace)["allocator"] == (0, 0)


def test_no_call_of_the_runtime_says_nothing_of_allocations() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.op("aten::add", 600, 100)
    assert of_kinds(trace)["allocator"] == (None, None)


@pytest.mark.parametrize(("start", "critical"), [(300, 100), (620, 0)])
def test_garbage_collected_while_a_device_works_is_not_critical(start: int, critical: int) -> None:
    trace = Trace(garbage_ns=((start, start + 100, 1), (2_000, 2_100, 1), (310, 320, 99)))
    trace.step(0, 1000)
    trace.kernel("add", 120, 80, launch=(100, 10), op=trace.op("aten::add", 100, 30))
    trace.kernel("mul", 500, 400, launch=(470, 20), op=trace.op("aten::mul", 460, 40))
    assert of_kinds(trace)["garbage_collection"] == (100, critical)


def test_garbage_collected_in_an_operator_counts_for_its_line_and_not_for_it() -> None:
    trace = Trace(with_stack=True, garbage_ns=((120, 150, 1),))
    trace.step(0, 1000)
    log = trace.frame("metrics.py(3): log", trace.frame("train.py(1): main"))
    trace.kernel("add", 420, 80, launch=(180, 10), op=trace.op("aten::add", 100, 100, stack_row=log), stack=log)
    rows = {(row.parent, row.kind): row for row in tables(analysed(trace.timeline()))["tree"].rows}
    of_line = {kind: row.host_ns for (parent, kind), row in rows.items() if parent is not None and kind}
    assert (of_line["garbage_collection"], of_line["operator"]) == (30, 60)


@pytest.mark.parametrize("steps", ["all", "one", "none"])
def test_a_light_window_says_how_long_each_part_took(steps: str) -> None:
    trace = Trace(with_stack=True, garbage_ns=((610, 630, 1),))
    log = trace.frame("metrics.py(3): log")
    marks = [trace.step(0, 1000), trace.step(1000, 1000)]
    calls = []
    for at in (0, 1000):
        trace.kernel("add", at + 300, 100, launch=(at + 200, 50), op=trace.op("aten::add", at + 100, 200), stack=log)
        item = trace.op("aten::_local_scalar_dense", at + 600, 300, stack_row=log)
        calls.append(trace.call("cudaStreamSynchronize", at + 650, 200, op_row=item, stack_row=log))
    shown = {"all": 2, "one": 1, "none": 0}[steps]
    for at, mark, call in zip((0, 400), marks[:shown], calls[:shown], strict=False):
        trace.add("light", start_ns=at, dur_ns=400, step_row=mark)
        trace.add("light", start_ns=at + 330, dur_ns=50, api_row=call)
    top = tables(analysed(trace.timeline()))["line"]
    kinds = {kind.kind: kind.host_ns for kind in top.kinds}
    if steps != "all":  # a step that the light window does not have leaves all as recorded
        assert (top.window, top.host_ns, kinds["wait"], kinds["garbage_collection"]) == ("whole", 2000, 400, 20)
        return
    assert (top.window, top.host_ns, kinds["wait"]) == ("light", 800, 100)
    assert kinds["garbage_collection"] == 10  # as all between the step's begin and the call: half of it
    assert sum(row.own_ns for row in top.rows) == 800


def test_threads_at_once_wait_for_no_lock_unless_ranges_say_so() -> None:
    def trace() -> Trace:
        found = Trace()
        found.step(0, 1000)
        found.kernel("add", 700, 10, launch=(610, 10), op=found.op("aten::add", 600, 100))
        found.op("aten::mm", 100, 500, tid=2)  # which computes without the lock
        return found

    computes, holds, waits = trace(), trace(), trace()
    for one, names in ((holds, ["Holding GIL"]), (waits, ["Holding GIL", "Waiting for GIL"])):
        for at, name in enumerate(names):
            one.add("ops", kind="annotation", name=name, start_ns=100 + 200 * at, dur_ns=100, pid=1, tid=1)
    told = [of_kinds(one)["lock"] for one in (computes, holds, waits)]
    assert told == [(None, None), (0, 0), (100, 0)]


def test_a_backward_pass_counts_for_the_line_of_its_forward_operator() -> None:
    trace = Trace(with_stack=True)
    trace.step(0, 1000)
    main_frame = trace.frame("train.py(1): main")
    model = trace.frame("model.py(5): forward", main_frame)
    forward = trace.op("aten::mul", 100, 50, sequence_number=3, forward_thread_id=0, stack_row=model)
    trace.kernel("mul", 140, 20, launch=(110, 10), op=forward, stack=model)
    node = trace.op("autograd::engine::evaluate_function: MulBackward0", 300, 200, tid=2, sequence_number=3)
    backward = trace.op("aten::mul", 320, 100, tid=2, parent_row=node, sequence_number=3, forward_thread_id=1)
    trace.kernel("mul", 380, 20, launch=(330, 10), op=backward, tid=2)
    lines = {row.name: row for row in tables(analysed(trace.timeline()))["line"].rows}
    assert lines["model.py:5 forward"].operator_ns == 40 + 190
    assert lines["model.py:5 forward"].launch_ns == 20


def test_a_wait_counts_for_its_line() -> None:
    trace = Trace(with_stack=True)
    trace.step(0, 1000)
    main_frame = trace.frame("train.py(1): main")
    log = trace.frame("metrics.py(3): log", main_frame)
    trace.kernel("add", 150, 400, launch=(110, 10), op="aten::add", stack=main_frame)
    item = trace.op("aten::_local_scalar_dense", 200, 400, stack_row=log)
    trace.call("cudaStreamSynchronize", 210, 345, op_row=item, stack_row=log)
    lines = {row.name: row for row in tables(analysed(trace.timeline()))["line"].rows}
    assert (lines["metrics.py:3 log"].wait_ns, lines["metrics.py:3 log"].operator_ns) == (345, 55)


def test_text_csv_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(ROOT / "fixtures/captures/convnet_train")

    def printed(*arguments: str) -> str:
        assert main(["top", trace, "--host", "-q", *arguments]) == 0
        return capsys.readouterr().out

    whole = json.loads(printed("--format", "json"))
    rows = list(csv.DictReader(StringIO(printed("--format", "csv"))))
    assert [row["line"] for row in rows] == [row["name"] or "" for row in whole["rows"]]
    assert [int(row["host_ns"]) for row in rows] == [row["host_ns"] for row in whole["rows"]]
    text = printed("--all").splitlines()
    assert text[0].endswith("of host time a step, as recorded")
    assert text[3].split() == ["µs", "share", "critical", "launching", "waiting", "Python", "other", "line"]
    assert text[4].startswith(f"{whole['rows'][0]['host_ns'] / whole['steps'] / 1e3:,.0f}")
    assert all(len(row) <= 100 for row in text)


@pytest.mark.parametrize("by", ["kernel", "stream", "device"])
def test_a_host_has_no_kernels(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(ROOT / "fixtures/captures/chain"), "--host", "--by", by]) == 2
    assert "there are: line, module, operator" in capsys.readouterr().err


def test_a_trace_without_a_host_says_so() -> None:
    trace = Trace()
    trace.kernel("add", 0, 10)
    found = tables(analysed(trace.timeline()))["line"]
    assert (found.rows, found.host_ns) == ((), 0)
    assert found.notes == ("nothing of the host was recorded: record with CPU activities",)
