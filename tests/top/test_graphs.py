"""Whether a graph would work, as it is printed: against steps that were timed as one CUDA graph."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from tracemine.api.pictures import tops_of
from tracemine.cli import main
from tracemine.pipeline import ScanOptions, analyse, mined

RECORDED = Path(__file__).parents[2] / "benchmarks/results/h200/programs"


def printed(capsys: pytest.CaptureFixture[str], program: str, *options: str) -> str:
    main(["top", str(RECORDED / program), "--graphs", *options])
    return capsys.readouterr().out


@pytest.mark.parametrize("program", ["encoder_small_batch", "transport", "ensemble", "products"])
def test_a_captured_step_takes_what_it_is_said_to(program: str) -> None:
    analysis = analyse(RECORDED / program)
    top = tops_of(analysis, mined(analysis), ScanOptions()).graphs()
    timed_ns = json.loads((RECORDED / "runs.json").read_text())["programs"][program]["cuda_graph"]["step_ns"]
    saving = top.step.way("cuda_graph").saving_ns
    assert top.unprofiled_ns is not None
    assert saving is not None
    assert (top.unprofiled_ns - saving.mid / top.steps) / timed_ns == pytest.approx(1, abs=0.15)
    assert all(span.saving_ns is None or span.saving_ns.mid <= saving.high for span in top.spans)


def test_the_answer_names_what_has_to_go_and_what_can_be_a_graph_now(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "clip_in_loop")
    assert "fails at `.item()`, `float()` or `int()` of a tensor (host.py:342" in text
    assert 'model = torch.compile(model, mode="reduce-overhead")' in text
    assert "overwritten" not in text
    assert len(text.splitlines()) <= 24


def test_nothing_that_loses_is_to_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    # Sixteen calls a step of thirteen launches: compiled, each call costs the host more than it saves.
    assert "torch.compile(" not in printed(capsys, "beam_search")
    assert 'forward = torch.compile(forward, mode="reduce-overhead")' in printed(capsys, "lstm_loop")


def test_other_formats_have_all_spans(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(printed(capsys, "power_iteration", "--format", "json"))
    rows = list(csv.DictReader(StringIO(printed(capsys, "power_iteration", "--format", "csv"))))
    assert [row["name"] for row in rows] == ["step", *(span["name"] for span in record["spans"])]
    (of_round,) = (row for row in rows if row["name"] == "round_of")
    assert (of_round["cuda_graph"], of_round["reduce_overhead"]) == ("works", "fails")
    assert of_round["reduce_overhead_effect"] == "overwrites"


@pytest.mark.parametrize("other", [["--waits"], ["--host"], ["--by", "line"]])
def test_it_is_a_table_of_its_own(other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(RECORDED / "products"), "--graphs", *other]) == 2
    assert "is a table of its own" in capsys.readouterr().err
