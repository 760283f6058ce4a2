"""What is said of public traces of serving engines: the kept file, and the script that judges it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.answers import serving
from benchmarks.answers.serving import Line, checked, equal, found_in, main, near, traces, union

COMPAT = os.environ.get("TRACEMINE_COMPAT_TRACES")
KEPT = Path(__file__).parent.parent / "benchmarks/results/serving.md"


def test_the_kept_file_has_every_trace_line_by_line_and_none_is_wrong() -> None:
    text = KEPT.read_text("utf-8")
    assert len(traces()) == 7
    assert "**wrong**" not in text
    assert "not at hand" not in text
    for row in traces():
        (name, *_) = row["names"]
        lines = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        assert len(lines) >= len(row["says"]) + len(row["never"]) + 4
        assert all(line.endswith("| right |") for line in lines)
        assert row["source"] in text


@pytest.mark.skipif(not COMPAT, reason="TRACEMINE_COMPAT_TRACES is not set")
def test_every_line_of_the_traces_at_hand_is_right() -> None:
    found = {name: lines for name, lines in checked([Path(str(COMPAT))]) if lines is not None}
    assert len(found) >= 5
    assert [(name, line) for name, lines in found.items() for line in lines if not line.right] == []


def test_a_line_is_right_only_where_both_agree() -> None:
    assert equal("engine", "vllm", "vllm", "vllm").right
    assert not equal("engine", "vllm", "sglang").right
    assert not equal("engine", "vllm", "vllm", "sglang").right
    assert near("ms", 10.0, 10.05).right
    assert not near("ms", 10.0, 10.3).right
    assert union([(0, 2), (1, 3), (5, 6)]) == 4


@pytest.mark.parametrize(("right", "code"), [([True, True], 0), ([True, False], 1), ([], 1)])
def test_the_script_ends_with_1_where_a_line_is_wrong_or_there_is_none(
    right: list[bool], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [Line("engine", "vllm", "vllm", each) for each in right]
    monkeypatch.setattr(serving, "checked", lambda _: [("one.json", lines or None)])
    monkeypatch.setattr("sys.argv", ["serving.py"])
    assert main() == code
    assert ("**wrong**" in capsys.readouterr().out) == (False in right)


def test_a_file_is_found_by_its_name_and_its_folder_where_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/graph.json").write_text("{}")
    assert found_in([tmp_path], ["vllm/graph.json"]) is None
    assert found_in([tmp_path], ["other/graph.json"]) == tmp_path / "other/graph.json"
