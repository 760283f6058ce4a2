"""What a scan found, for programs: a sequence, a table, a piece of a notebook."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracemine
from tests.report.scans import (
    EMPTY,
    GAP,
    HOSTILE_STRINGS,
    LITTLE,
    NORM,
    QUIET,
    SCAN,
    VERIFIED,
    hostile,
    hostile_verdicts,
)
from tracemine.findings.record import Identity, Range, Scan
from tracemine.report import html
from tracemine.report.html import MOST_ROWS

FIXTURES = Path(__file__).parents[2] / "fixtures"
REPORT = tracemine.Report(SCAN)
# The same, in which each finding has an identity of its own.
NAMED = tracemine.Report(
    msgspec.structs.replace(
        SCAN,
        findings=tuple(
            one if one is NORM else msgspec.structs.replace(one, identity=Identity(one.fingerprint), variants=())
            for one in SCAN.findings
        ),
    )
)
Run = Callable[..., tuple[int, str, str]]


# --- a sequence -------------------------------------------------------------------------------------------------------


def test_a_finding_is_printed_in_a_line() -> None:
    line = str(NORM)
    assert line.startswith(f"{NORM.fingerprint[:4]} {NORM.title}: saves ")
    assert "of GPU time" in line and line.endswith(" over the trace") and "\n" not in line
    none = msgspec.structs.replace(NORM, gpu_saving_ns=Range(0, 0, 0), step_saving_ns=Range(0, 0, 0))
    assert str(none).endswith(": saves nothing over the trace")


def test_a_report_is_a_sequence_of_what_is_worth_showing() -> None:
    assert len(REPORT) == 3
    assert [*REPORT] == [*REPORT.findings] == [one for one in SCAN.findings if one.reported]
    assert REPORT[0] is SCAN.findings[0]
    assert REPORT[-1] is SCAN.findings[2]
    assert REPORT[1:] == SCAN.findings[1:3]
    assert LITTLE not in REPORT
    assert LITTLE in REPORT.scan.findings
    with pytest.raises(IndexError):
        REPORT[3]


def test_a_finding_is_found_by_the_first_digits_of_any_of_its_names() -> None:
    assert NAMED["0123"] is NAMED[NORM.fingerprint] is NORM
    assert NAMED["89ab"] is NORM  # an alias
    assert NAMED[NORM.variants[1].identity.finding] is NORM
    assert (
        NAMED[LITTLE.fingerprint].fingerprint == LITTLE.fingerprint
    )  # one that is not shown has its name all the same


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("012", "a fingerprint has 16 digits; give 4 at least"),
        ("", "give 4 at least"),
        ("zzzz", "0 findings begin with 'zzzz'"),
        ("0000", "3 findings begin with '0000'"),  # a variant's name, and two findings'
        ("\x1b[2Jzz", "0 findings begin with '\\x1b[2Jzz'"),
    ],
)
def test_a_name_that_is_no_findings_is_an_error_that_says_so(mark: str, says: str) -> None:
    with pytest.raises(tracemine.UsageError) as caught:
        NAMED[mark]
    assert says in str(caught.value)


def test_a_report_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.scan = EMPTY  # type: ignore[misc]
    with pytest.raises(AttributeError):
        REPORT[0].severity = "high"  # type: ignore[misc]


def test_worth_shows_what_saves_enough_and_the_sums_stay() -> None:
    everything = REPORT.worth("0ns")
    assert len(everything) == len(SCAN.findings)
    assert [*REPORT.worth("3ms")] == [GAP]
    assert len(REPORT.worth("100%")) == 0
    for report in (everything, REPORT.worth("3ms"), REPORT.worth("100%")):
        assert len(report.scan.findings) == len(SCAN.findings)
        assert report.summary == REPORT.summary
    assert [*REPORT.worth("100%").worth("0ns")] == [*everything]


def test_a_share_is_of_the_steps_with_nobody_recording_or_of_gpu_time() -> None:
    # 2 steps of 5 ms unprofiled; 2.35 ms of GPU time
    assert SCAN.summary.per_step is not None
    assert SCAN.summary.per_step.unprofiled_ns is not None
    assert (SCAN.summary.per_step.unprofiled_ns.mid, SCAN.summary.gpu_time_ns) == (5_000_000, 2_350_000)
    norm = msgspec.structs.replace(NORM, gpu_saving_ns=Range(0, 235_000, 300_000), step_saving_ns=Range(0, 0, 0))
    gap = msgspec.structs.replace(GAP, step_saving_ns=Range(0, 990_000, 999_000))
    report = tracemine.Report(msgspec.structs.replace(SCAN, findings=(norm, gap)))
    assert [one.rule for one in report.worth("10%")] == ["rmsnorm_unfused"]
    assert [one.rule for one in report.worth("9.8%")] == ["launch_gap", "rmsnorm_unfused"]


@pytest.mark.parametrize("least", ["5", "1 parsec", "", "-1%", "200%", 5, None])
def test_a_threshold_that_is_none_is_an_error(least: object) -> None:
    with pytest.raises(tracemine.UsageError, match=re.escape(f"least={least!r}")):
        REPORT.worth(least)  # type: ignore[arg-type]


# --- a table ----------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_finding_that_is_shown() -> None:
    assert REPORT.to_arrow()["fingerprint"].to_pylist() == [one.fingerprint for one in REPORT]
    assert REPORT.worth("0ns").to_arrow().num_rows == len(SCAN.findings)
    assert REPORT.to_arrow()["rank"].to_pylist() == [1, 2, 3]


def test_pandas_keeps_whole_numbers_whole_and_says_what_is_not_known() -> None:
    frame = REPORT.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert str(frame.dtypes["traffic_before_bytes"]) == "Int64"
    gap = frame[frame.rule == "launch_gap"].iloc[0]
    assert gap.traffic_before_bytes is pd.NA
    assert gap.step_saving_ns == GAP.step_saving_ns.mid
    assert frame.query("severity == 'high'")[["title", "file", "line", "per_step_saving_ns"]].shape[1] == 4
    huge = msgspec.structs.replace(NORM, flops=(1 << 53) + 1)  # no floating-point number has this value
    assert tracemine.Report(msgspec.structs.replace(SCAN, findings=(huge, GAP))).to_pandas().flops[0] == (1 << 53) + 1


def test_whoever_speaks_arrow_takes_a_report_as_it_is() -> None:
    report = REPORT
    assert pl.DataFrame(report)["fingerprint"].to_list() == [one.fingerprint for one in report]
    counted = duckdb.sql("select count(*), sum(measured_ns) from report")
    assert counted is not None
    assert counted.fetchall() == [(3, sum(one.measured_ns for one in report))]
    assert pa.table(report) == report.to_arrow()


def test_occurrences_are_of_the_findings_that_are_shown() -> None:
    assert set(REPORT.occurrences()["fingerprint"].to_pylist()) == {one.fingerprint for one in REPORT}


# --- files ------------------------------------------------------------------------------------------------------------


def test_what_is_written_as_json_is_what_scan_prints_and_is_read_back(run: Run, tmp_path: Path) -> None:
    trace = FIXTURES / "captures" / "chain"
    report = tracemine.scan(trace)
    text = report.to_json(tmp_path / "f.json")
    assert run("scan", trace, "--format", "json", "--quiet")[1] == text == (tmp_path / "f.json").read_text()
    assert tracemine.load(tmp_path / "f.json") == report
    assert json.loads(text)["findings"]


def test_markdown_is_what_scan_prints(run: Run, tmp_path: Path) -> None:
    trace = FIXTURES / "captures" / "chain"
    report = tracemine.scan(trace)
    assert report.to_markdown(tmp_path / "f.md") == run("scan", trace, "-f", "markdown", "--top", "0", "-q")[1]
    assert (tmp_path / "f.md").read_text() == report.to_markdown()


def test_a_place_that_cannot_be_written_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (REPORT.to_json, REPORT.to_markdown, REPORT.to_parquet):
        with pytest.raises(tracemine.UsageError, match="cannot be written"):
            write(tmp_path / "file" / "below")


def test_tables_are_written_beside_the_timeline_of_their_trace(run: Run, tmp_path: Path) -> None:
    trace = FIXTURES / "captures" / "chain"
    assert run("scan", trace, "--parquet", tmp_path / "out", "--quiet")[0] == 0
    report = tracemine.scan(trace)
    report.to_parquet(tmp_path / "out")
    report.to_parquet(tmp_path / "out")  # again
    assert pq.read_table(tmp_path / "out" / "findings.parquet").num_rows == len(report.scan.findings)
    assert tracemine.scan(tmp_path / "out").findings == report.findings
    with pytest.raises(tracemine.UsageError, match="holds a timeline of 8 activities, and these findings are of 684"):
        REPORT.to_parquet(tmp_path / "out")
    (tmp_path / "out" / "activities.parquet").write_bytes(b"PAR1")
    with pytest.raises(tracemine.UsageError, match="holds a damaged timeline"):
        report.to_parquet(tmp_path / "out")


def test_tables_are_written_into_a_folder_of_their_own_and_through_no_link(tmp_path: Path) -> None:
    REPORT.to_parquet(tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "findings.parquet",
        "occurrences.parquet",
    ]
    reported = pq.read_table(tmp_path / "new" / "folder" / "findings.parquet")["reported"].to_pylist()
    assert reported == [True, True, True, False]
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "findings.parquet").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(tracemine.UsageError, match="is a link"):
        REPORT.to_parquet(tmp_path / "other")
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_report_is_drawn_by_name() -> None:
    assert REPORT.render("text", top=1).count("saves ") == 1
    with pytest.raises(tracemine.UsageError, match="there is no report 'pie'"):
        REPORT.render("pie")


# --- people -----------------------------------------------------------------------------------------------------------


def test_what_python_prints_of_a_report_is_one_useful_line() -> None:
    assert repr(REPORT) == "Report(decoder.json.gz: 3 findings, 2.57 ms of each 5.00 ms step could be saved)"
    assert repr(tracemine.Report(EMPTY)).endswith("0 findings, 0 ns could be saved)")
    for text in HOSTILE_STRINGS:
        assert repr(tracemine.Report(hostile(text))).isprintable()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(name in _OURS and _OURS[name].fullmatch(value or "") for name, value in attrs), attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]  # other names of its argument


_WORD = re.compile(r"[a-z _0-9-]*")
_SIZE = re.compile(r"[0-9.]+%?")
_OURS = {
    **dict.fromkeys(("class", "scope", "role", "aria-hidden"), _WORD),
    **dict.fromkeys(("width", "height", "x", "y", "font-size"), _SIZE),
    **dict.fromkeys(("fill", "stroke"), re.compile(r"#[0-9a-f]{6}")),
    "style": re.compile("text-align: left"),
    **dict.fromkeys(("aria-label", "data-label"), re.compile(r".*", re.DOTALL)),  # a text
}
ATTACKS = (
    *HOSTILE_STRINGS,
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</td></table></div><iframe srcdoc='x'>",
    "&lt;script&gt;",
    "$$\\href{javascript:alert(1)}{x}$$",
    "<!-- --><![CDATA[x]]>",
)


def tags(scan: Scan) -> tuple[list[str], str]:
    parsed = _Tags()
    parsed.feed(tracemine.Report(scan)._repr_html_())
    parsed.close()
    return parsed.tags, " ".join(parsed.texts)


@pytest.mark.parametrize("made", [hostile, hostile_verdicts])
@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_of_a_trace_is_markup_in_a_notebook(text: str, made: Callable[[str], Scan]) -> None:
    found, ordinary = (
        [tag for tag in tags(made(name))[0] if tag != "text"]  # of a bar: there where the name fits, else not
        for name in (text, "name")
    )
    assert sorted(set(found)) == sorted(set(ordinary))
    assert len(found) <= len(ordinary)


def test_the_test_of_markup_sees_a_text_that_is_put_in_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = html._environment.__wrapped__()
    careless.autoescape = False
    monkeypatch.setattr("tracemine.report.html._environment", lambda: careless)
    with pytest.raises(AssertionError):
        test_nothing_of_a_trace_is_markup_in_a_notebook("<script>alert(1)</script>", hostile)


def test_a_notebook_shows_the_head_and_a_table() -> None:
    found, text = tags(SCAN)
    assert found.count("tr") == 1 + 3
    for part in (
        "runs/decoder.json.gz",
        "NVIDIA H200",
        "per step",
        "Unfused RMSNorm ×17",
        "modeling_llama.py:71",
        "2,550",
    ):
        assert part in text
    assert "Host-bound: the GPU idles 77% of the step" in text
    assert [share in text for share in ("GEMM/conv 9%", "memory-bound 12%", "communication <1%")] == [True] * 3
    assert "1 smaller finding hidden" in text


def test_a_notebook_shows_twenty_rows_at_most_and_says_how_many_more() -> None:
    many = tuple(msgspec.structs.replace(NORM, fingerprint=f"{number:016x}") for number in range(33))
    found, text = tags(msgspec.structs.replace(SCAN, findings=many))
    assert found.count("tr") == 1 + MOST_ROWS
    assert MOST_ROWS == 20
    assert "13 more findings" in text


@pytest.mark.parametrize(
    ("scan", "says"),
    [
        (EMPTY, "Nothing was looked for. The trace holds no GPU activity:"),
        (QUIET, "The GPU was busy for 99.0% of the time, and no rule matched."),
    ],
)
def test_a_notebook_says_why_there_is_no_finding(scan: Scan, says: str) -> None:
    found, text = tags(scan)
    assert "table" not in found
    assert says in " ".join(text.split())


def test_what_verdicts_refuted_is_counted_and_claims_nothing() -> None:
    _, text = tags(VERIFIED)
    refuted = [one for one in VERIFIED.reported if one.refuted]
    assert refuted
    assert f"Refuted by verdicts: {len(refuted)} finding" in text
    assert not any(one.fingerprint in text for one in refuted)
