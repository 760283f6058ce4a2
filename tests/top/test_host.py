"""Tables of host time: what they add up to, and whose it is."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from tests.timelines import Trace
from tracemine.api.tops import tops_of
from tracemine.cli import main
from tracemine.pipeline import Analysis, ScanOptions, analyse, analysed, mined
from tracemine.top import HOST_BY, HostTop

ROOT = Path(__file__).parents[2]
FIXTURES = (
    *("captures/convnet_train", "captures/decoder_prefill", "memory/whisper_train", "nsys/block_train.sqlite"),
    *("kineto/decoder_decode_graph.json.gz", "kineto/compiled_breaks.json.gz", "nsys/block_graph_nodes.sqlite"),
)


def tables(analysis: Analysis, *, whole: bool = False) -> dict[str, HostTop]:
    tops = tops_of(analysis, mined(analysis), ScanOptions(), whole=whole)
    return {by: tops.host(by) for by in HOST_BY}


@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("whole", [False, True])
def test_rows_add_up_to_the_steps(name: str, whole: bool) -> None:
    found = tables(analyse(ROOT / "fixtures" / name), whole=whole)
    assert len({top.host_ns for top in found.values()}) == 1
    for top in found.values():
        assert sum(row.own_ns for row in top.rows) == top.host_ns == sum(kind.host_ns for kind in top.kinds)
        assert sum(row.host_ns for row in top.rows if row.parent is None) == top.host_ns
        outer = [row for row in top.rows if row.parent is None]
        assert sum(row.critical_ns for row in outer) == top.critical_ns <= top.host_ns
        for at, row in enumerate(top.rows):
            parts = (row.operator_ns, row.launch_ns, row.wait_ns, row.python_ns, row.other_ns)
            assert sum(parts) == row.host_ns
            assert min(parts) >= 0
            inside = sum(part.host_ns for part in top.rows if part.parent == at)
            assert inside + row.own_ns == row.host_ns


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
