"""Before and after, from Python: what the command line says, of reports, files and traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import tracemine
from tracemine.files import read_file
from tracemine.findings import stored

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"


def test_reports_their_files_and_their_traces_are_compared_alike(tmp_path: Path) -> None:
    before, after = CAPTURES / "chain", CAPTURES / "decoder_prefill"
    reports = tracemine.scan(before), tracemine.scan(after)
    reports[0].to_json(tmp_path / "before.json")
    found = tracemine.diff(*reports)
    assert len(found) > 1
    for one, other in ((before, after), (tmp_path / "before.json", after), (str(before), reports[1])):
        assert tracemine.diff(one, other) == found


def test_what_is_shown_is_what_the_command_line_shows(run: Callable[..., tuple[int, str, str]]) -> None:
    before, after = str(CAPTURES / "chain"), str(CAPTURES / "decoder_prefill")
    found = tracemine.diff(before, after)
    for form, text in (("json", found.to_json()), ("markdown", found.to_markdown())):
        code, out, _ = run("diff", before, after, "--format", form, "--top", 0, "--quiet")
        assert (code, out) == (0, text)
    assert json.loads(found.to_json())["counts"] == found.counts == {c: len(found.of(c)) for c in found.counts}
    assert sum(found.counts.values()) == len(found) == len(list(found))
    assert repr(found) == "Comparison(" + ", ".join(f"{n} {status}" for status, n in found.counts.items()) + ")"


def test_a_notebook_shows_changes_as_a_table_and_runs_nothing_of_them() -> None:
    found = tracemine.diff(CAPTURES / "chain", CAPTURES / "decoder_prefill")
    table = found.to_pandas()
    assert list(table.status) == [change.status for change in found]
    assert list(table.after_ns) == [change.after_ns for change in found]
    change = msgspec.structs.replace(found[0], title="<script>alert(1)</script>")
    spoilt = tracemine.Comparison(msgspec.structs.replace(found.difference, changes=(change,)))
    assert "&lt;script&gt;" in spoilt._repr_html_()
    assert "<script" not in spoilt._repr_html_()


def test_a_status_that_there_is_none_of_and_a_path_that_is_none_are_said() -> None:
    found = tracemine.diff(CAPTURES / "chain", CAPTURES / "chain")
    with pytest.raises(tracemine.UsageError, match="there is no status 'mended'"):
        found.of("mended")
    with pytest.raises(tracemine.InputError, match="nowhere"):
        tracemine.diff(CAPTURES / "chain", "nowhere.json")


def test_a_file_of_findings_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracemine.scan(CAPTURES / "chain").to_json(tmp_path / "before.json")
    read: list[Path] = []

    def counted(path: Path, *most: int) -> bytes:
        read.append(path)
        return read_file(path, *most)

    monkeypatch.setattr(stored, "read_file", counted)
    tracemine.diff(tmp_path / "before.json", tracemine.scan(CAPTURES / "chain"))
    assert read == [tmp_path / "before.json"]


def test_a_folder_of_findings_is_a_side_as_on_the_command_line(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    tracemine.scan(CAPTURES / "chain").to_json(tmp_path / "findings.json")
    (tmp_path / "notes.txt").write_text("beside it\n")
    found = tracemine.diff(tmp_path, CAPTURES / "chain")
    assert found.counts == {"same": 2}
    code, out, _ = run("diff", tmp_path, CAPTURES / "chain", "--format", "json", "--quiet")
    assert (code, out) == (0, found.to_json())
    tracemine.scan(CAPTURES / "chain").to_json(tmp_path / "again.json")
    with pytest.raises(tracemine.UsageError, match="2 scans, and one is compared with one"):
        tracemine.diff(tmp_path, CAPTURES / "chain")
    code, _, err = run("diff", tmp_path, CAPTURES / "chain", "--quiet")
    assert code == 2
    assert "2 scans, and one is compared with one" in err


def test_a_file_of_several_scans_is_not_one_side(tmp_path: Path) -> None:
    line = tracemine.scan(CAPTURES / "chain").to_json().strip()
    (tmp_path / "two.json").write_text(f"{line}\n{line}\n")
    with pytest.raises(tracemine.UsageError, match="2 scans, and one is compared with one"):
        tracemine.diff(tmp_path / "two.json", CAPTURES / "chain")
