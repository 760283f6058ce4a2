"""`tracemine.scan`, `scan_many`, `load`, `open`: what programs call, and what they are told that is wrong."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tracemine
from tracemine import pipeline
from tracemine.timeline import TABLES

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
CHAIN = FIXTURES / "captures" / "chain"
Run = Callable[..., tuple[int, str, str]]


# --- scan -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [str, Path, lambda path: os.fspath(path)])
def test_scan_says_what_the_pipeline_says(given: Callable[[Path], object]) -> None:
    report = tracemine.scan(given(CHAIN))  # type: ignore[arg-type]
    assert report.scan == pipeline.scan(CHAIN)
    assert report.trace.gpu == "NVIDIA H200"


def test_its_options_are_those_of_the_command_line(run: Run, tmp_path: Path) -> None:
    trace, counted = FIXTURES / "ncu" / "chain" / "trace.json.gz", FIXTURES / "ncu" / "chain" / "raw.csv.gz"
    command = ["scan", trace, "--ncu", counted, "--min-saving", "0.1us", "--why-not", "-f", "json", "-q"]
    report = tracemine.scan(trace, ncu=counted, min_saving="0.1us", why_not=True)
    assert json.loads(run(*command)[1]) == json.loads(report.to_json())
    assert report.scan.refused is not None
    assert any(finding.counters is not None for finding in report.scan.findings)


def test_further_rules_evidence_and_an_execution_trace_are_used(tmp_path: Path) -> None:
    bare = FIXTURES / "captures" / "decoder_prefill" / "trace.json.gz"
    with_it = tracemine.scan(bare, execution_trace=bare.with_name("et.json.gz"))
    assert {one.evidence for one in tracemine.scan(bare)} != {one.evidence for one in with_it}
    judged = tracemine.scan(bare.parent, evidence=FIXTURES / "verdicts")
    assert judged.scan.evidence is not None
    assert any(one.verdict is not None for one in judged)
    levels = judged.to_pandas().verdict_level.dropna()
    assert len(levels)
    rule = tmp_path / "mine" / "every_add"
    rule.mkdir(parents=True)
    like = next((ROOT / "rules").glob("*/rule.toml")).read_text()
    (rule / "rule.toml").write_text(like.replace("pattern", "pattern_of", 1))
    with pytest.raises(tracemine.RuleError):
        tracemine.scan(CHAIN, rules=tmp_path / "mine")


def test_rules_are_chosen_as_on_the_command_line() -> None:
    trace = FIXTURES / "captures" / "decoder_prefill"
    assert {finding.rule for finding in tracemine.scan(trace, rule="*_unfused")} == {
        "rmsnorm_unfused",
        "rotary_unfused",
    }
    chosen = tracemine.scan(trace, rule=["*_unfused", "launch_gap"], skip="rotary_unfused")
    assert {finding.rule for finding in chosen} == {"rmsnorm_unfused", "launch_gap"}
    (one,) = tracemine.scan_many(trace, rule="launch_gap", workers=1)
    assert {finding.rule for finding in one} == {"launch_gap"}


def test_another_gpu_is_named_as_on_the_command_line() -> None:
    trace = FIXTURES / "nsys" / "block_train.sqlite"
    with pytest.raises(tracemine.UsageError, match="gpu='h1000' is not in the device table"):
        tracemine.scan(trace, gpu="h1000")
    with pytest.raises(tracemine.UsageError, match="gpu=5 is not a name"):
        tracemine.scan(trace, gpu=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"path": "no/such/trace.json"}, tracemine.InputError, "there is no such file"),
        ({"path": ""}, tracemine.UsageError, "path is empty"),
        ({"path": None}, tracemine.UsageError, "path=None is not a path"),
        ({"path": 7}, tracemine.UsageError, "path=7 is not a path"),
        ({"path": "a\0b"}, tracemine.InputError, "is not a path"),
        ({"path": FIXTURES / "captures"}, tracemine.InputError, "no timeline lies in it"),
        ({"path": CHAIN, "min_saving": "much"}, tracemine.UsageError, "min_saving='much': 'much' is not a time"),
        ({"path": CHAIN, "min_saving": 5}, tracemine.UsageError, "min_saving=5"),
        ({"path": CHAIN, "rules": "no/such/folder"}, tracemine.UsageError, "there is no such directory"),
        ({"path": CHAIN, "rules": 5}, tracemine.UsageError, "rules=5 is neither a path nor several"),
        ({"path": CHAIN, "rule": 5}, tracemine.UsageError, "rule=5 is neither a name nor several"),
        ({"path": CHAIN, "skip": [5]}, tracemine.UsageError, "skip=[5] is neither a name nor several"),
        ({"path": CHAIN, "rule": "no_such"}, tracemine.UsageError, "rule: there is no rule 'no_such'"),
        ({"path": CHAIN, "skip": "*"}, tracemine.UsageError, "skip: no rule is left"),
        ({"path": CHAIN, "ncu": ["no/such/report"]}, tracemine.InputError, "there is no such file"),
        ({"path": CHAIN, "evidence": "no/such/folder"}, tracemine.InputError, "no/such/folder"),
        ({"path": CHAIN, "calibration": "no/such/file"}, tracemine.InputError, "there is no such file"),
        ({"path": CHAIN, "execution_trace": 7}, tracemine.UsageError, "execution_trace=7 is not a path"),
    ],
)
def test_what_is_wrong_with_a_call_is_an_error_of_ours(arguments: dict[str, object], error: type, says: str) -> None:
    with pytest.raises(error) as caught:
        tracemine.scan(**arguments)  # type: ignore[arg-type]
    assert isinstance(caught.value, tracemine.TracemineError)
    assert says in str(caught.value)


def test_progress_is_told_of_the_files_bytes() -> None:
    told: list[tuple[int, int]] = []
    tracemine.scan(FIXTURES / "kineto" / "chain.json.gz", progress=lambda done, total: told.append((done, total)))
    assert told
    assert told[-1][0] == told[-1][1] == (FIXTURES / "kineto" / "chain.json.gz").stat().st_size


def test_notes_on_what_was_left_out_are_warnings_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"schema_version":1,"gpu":null,"verdicts":[{}]}')
    report = tracemine.scan(CHAIN, evidence=tmp_path)
    assert any("bad.json" in warning for warning in report.warnings)


# --- open -------------------------------------------------------------------------------------------------------------


def test_open_gives_the_timeline_with_its_tables() -> None:
    timeline = tracemine.open(CHAIN)
    assert isinstance(timeline, tracemine.Timeline)
    assert timeline.table("activities")["row"].to_pylist() == list(range(8))
    assert all(timeline.table(name).column_names[0] == "row" for name in TABLES)
    activities = timeline.to_pandas("activities")
    assert str(activities.dtypes["correlation"]) == "Int64"  # null in some traces, and whole all the same
    assert activities.dur_ns.sum() == sum(timeline.activities["dur_ns"].to_pylist())
    with pytest.raises(tracemine.InputError, match="there is no such file"):
        tracemine.open("no/such/trace.json")


# --- load -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "findings.json"
    tracemine.scan(FIXTURES / "captures" / "decoder_prefill").to_json(path)
    return path


def test_load_reads_what_was_stored_whatever_the_file_is_called(stored: Path, tmp_path: Path) -> None:
    report = tracemine.load(stored)
    other = tmp_path / "kept"
    other.write_bytes(stored.read_bytes())
    assert tracemine.load(other) == report
    indented = tmp_path / "pretty.json"
    indented.write_text(json.dumps(json.loads(stored.read_text()), indent=2))
    assert tracemine.load(indented) == report


def test_several_scans_are_loaded_as_several(stored: Path, tmp_path: Path) -> None:
    several = tmp_path / "several.jsonl"
    several.write_text(stored.read_text() * 3)
    with pytest.raises(tracemine.InputError, match="holds the findings of 3 traces") as caught:
        tracemine.load(several)
    assert caught.value.hint == "tracemine.load_many reads them"
    assert len(tracemine.load_many(several)) == 3


def test_findings_of_schema_version_1_are_loaded(stored: Path, tmp_path: Path) -> None:
    found = json.loads(stored.read_text())
    found["schema_version"] = 1
    for finding in found["findings"]:
        for name in ("cause", "identity", "per_step", "variants", "reported"):
            del finding[name]
    (tmp_path / "old.json").write_text(json.dumps(found))
    report = tracemine.load(tmp_path / "old.json")
    assert len(report) == len(found["findings"])
    assert report.to_arrow()["per_step_saving_ns"].null_count == len(report)
    assert report.occurrences()["variant"].to_pylist() == [0] * report.occurrences().num_rows
    assert "Report(" in repr(report)
    assert "<table" in report._repr_html_()


def changed(text: str, **fields: object) -> str:
    found = json.loads(text)
    for path, value in fields.items():
        *way, last = path.split("__")
        inner = found
        for name in way:
            inner = inner[int(name) if name.isdecimal() else name]
        inner[last] = value
    return json.dumps(found)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: "", "holds no findings"),
        (lambda text: "\n\n", "holds no findings"),
        (lambda text: "[]", "is no findings file"),
        (lambda text: "{}", "is no findings file"),
        (lambda text: "null", "is no findings file"),
        (lambda text: text[: len(text) // 2], "is no findings file"),
        (lambda text: changed(text, schema_version=3), "its findings are of version 3; this tracemine reads 1 to 2"),
        (lambda text: changed(text, schema_version=99, findings="new"), "its findings are of version 99"),
        (lambda text: changed(text, schema_version=0), "its findings are of version 0"),
        (lambda text: changed(text, schema_version=-1), "its findings are of version -1"),
        (lambda text: changed(text, schema_version="2"), "is no findings file"),
        (lambda text: changed(text, schema_version=True), "is no findings file"),
        (lambda text: changed(text, findings__0__occurrences="34"), "Expected `int`, got `str`"),
        (lambda text: changed(text, findings__0__flops=10**30), "is no findings file"),
        (lambda text: changed(text, findings__0__flops=1 << 63), "a number beyond 64 bits"),
        (lambda text: changed(text, findings__0__source=[{"file": "f", "line": 1 << 63, "function": "g"}]), "64 bits"),
        (lambda text: changed(text, findings__0__measured_ns=-1), "saves more than was measured"),
        (lambda text: changed(text, summary__span_ns=1 << 63), "is no findings file"),
        (lambda text: changed(text, trace="path"), "is no findings file"),
        (lambda text: text.replace("rmsnorm", "\udcff"), "is no findings file"),
        (lambda text: '{"schema_version":2,"zz":' + "[" * 100_000 + "]" * 100_000 + "}", "is no findings file"),
        (lambda text: '{"schema_version":1,"trace":"t","gpu":null,"verdicts":[]}', "holds verdicts, not findings"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_of_ours(
    stored: Path, tmp_path: Path, spoil: Callable[[str], str], says: str
) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(spoil(stored.read_text()).encode("utf-8", "surrogateescape"))
    with pytest.raises(tracemine.InputError) as caught:
        tracemine.load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_folder_a_pipe_and_a_file_that_is_too_large_are_not_loaded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate((1 << 30) + 1)  # sparse: no disk is used
    for name, says in ((".", "is a folder"), ("pipe.json", "not a regular file"), ("huge.json", "is larger than")):
        began = time.monotonic()
        with pytest.raises(tracemine.InputError, match=says):
            tracemine.load(tmp_path / name)
        assert time.monotonic() - began < 10


HOLDERS: tuple[Any, ...] = ([], {}, [[]], {"low": 1})
VALUES = (None, True, -1, 0, 1 << 62, 1 << 63, 10**40, 1e308, 0.5, "", "x", "\x00\ud800", *HOLDERS)
LIKE = {
    int: (0, 1, 7, 1 << 40, 1 << 61, (1 << 63) - 1, -1, -(1 << 63)),
    float: (0.0, -1.5, 1e308, 5e-324, 3),
    str: ("", "x" * 5000, "\x1b[2J", "<b>", "a\nb", "`|*"),
}


def places(value: object) -> Iterator[tuple[object, object]]:
    """Every container of a JSON value with each of its keys."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places(inner)


def attacks(count: int, seed: int) -> Iterator[bytes]:
    """Stored scans, each changed at random: a value, a key, bytes."""
    r = random.Random(seed)
    prefill = FIXTURES / "captures" / "decoder_prefill"
    reports = (tracemine.scan(CHAIN), tracemine.scan(prefill, evidence=FIXTURES / "verdicts", why_not=True))
    originals = [msgspec.json.encode(report.scan) for report in reports]
    for _ in range(count):
        original = r.choice(originals)
        if r.random() < 0.25:
            damaged = bytearray(original)
            for _ in range(r.randint(1, 4)):
                damaged[r.randrange(len(damaged))] = r.randrange(256)
            yield bytes(damaged[: r.randint(1, len(damaged)) if r.random() < 0.3 else None])
            continue
        found = json.loads(original)
        for _ in range(r.choice((1, 1, 2))):
            inside, key = r.choice([*places(found)])
            if (like := LIKE.get(type(inside[key]))) and r.random() < 0.7:  # type: ignore[index]
                inside[key] = r.choice(like)  # type: ignore[index]
            elif r.random() < 0.2 and isinstance(inside, dict):
                inside.pop(key, None)
            else:
                inside[key] = r.choice(VALUES)  # type: ignore[index]
        yield json.dumps(found).encode()


def used(report: tracemine.Report) -> None:
    """Everything that a report can be asked."""
    report.to_arrow().validate(full=True)
    report.occurrences().validate(full=True)
    report.to_pandas()
    report.worth("1%").to_markdown()
    for text in (repr(report), report._repr_html_(), report.to_json(), report.render("text")):
        assert text


def test_a_damaged_file_is_an_error_of_ours_or_a_report_that_can_be_used(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "f.json"
    count = 5000 if request.config.getoption("--long") else 400
    loaded = refused = 0
    for number, content in enumerate(attacks(count, seed=11)):
        path.write_bytes(content)
        try:
            report = tracemine.load(path)
        except tracemine.InputError:
            refused += 1
            continue
        loaded += 1
        try:
            used(report)
        except Exception as error:
            kept = Path(tmp_path / f"{number}.json")
            kept.write_bytes(content)
            raise AssertionError(f"{kept}: {error!r}") from error
    assert loaded > count // 20
    assert refused > count // 20


# --- many -------------------------------------------------------------------------------------------------------------


def test_many_traces_are_scanned_in_processes_as_one_by_one() -> None:
    alone = tracemine.scan_many(FIXTURES / "captures", workers=1)
    together = tracemine.scan_many(FIXTURES / "captures", workers=2)
    assert together == alone
    assert [report.trace.path for report in alone] == sorted(report.trace.path for report in alone)
    assert len(alone) == 5
    assert alone[0].scan == pipeline.scan(alone[0].trace.path)
    frame = alone.to_pandas()
    assert len(frame) == sum(map(len, alone))
    assert frame.trace.nunique() == 4  # in the fifth nothing is worth fixing
    assert alone.occurrences().num_rows == sum(report.occurrences().num_rows for report in alone)
    assert repr(alone) == f"Reports(5 traces: {len(frame)} findings)"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trace_that_cannot_be_read_stops_no_other(tmp_path: Path, workers: int) -> None:
    (tmp_path / "bad.json").write_text('{"traceEvents": 5}')
    given: list[str | Path] = [CHAIN, tmp_path / "bad.json", "no/such/trace.json", str(tmp_path / "none" / "*.json")]
    reports = tracemine.scan_many(given, workers=workers)
    assert [report.trace.path for report in reports] == [str(CHAIN)]
    assert sorted(failure.path for failure in reports.errors) == sorted(map(str, given[1:]))
    for failure in reports.errors:
        assert isinstance(failure.error, tracemine.InputError)
        assert str(failure).startswith(failure.path)  # the error names its file, from another process too
    assert "3 errors" in repr(reports)


def test_patterns_and_folders_are_those_of_the_command_line(tmp_path: Path) -> None:
    reports = tracemine.scan_many([str(FIXTURES / "kineto" / "ch*.json.gz"), FIXTURES / "kineto" / "chain.json.gz"])
    assert len(reports) == 1
    (tmp_path / "notes.json").write_text('{"a": 1}')
    (tmp_path / "trace.json.gz").write_bytes((FIXTURES / "kineto" / "chain.json.gz").read_bytes())
    left = tracemine.scan_many(tmp_path, workers=1)
    assert len(left) == 1
    assert "left out, no traces: notes.json" in left.notes[0]


def test_no_trace_at_all_is_an_empty_table_with_its_columns(tmp_path: Path) -> None:
    reports = tracemine.scan_many(tmp_path)
    assert (len(reports), len(reports.errors)) == (0, 1)
    assert "per_step_saving_ns" in reports.to_arrow().column_names
    assert len(reports.to_pandas()) == 0


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_a_number_of_workers_that_is_none_is_an_error(workers: object) -> None:
    with pytest.raises(tracemine.UsageError, match="workers="):
        tracemine.scan_many(CHAIN, workers=workers)  # type: ignore[arg-type]


def test_a_wrong_argument_is_said_before_any_trace_is_read() -> None:
    with pytest.raises(tracemine.UsageError, match="gpu='h1000'"):
        tracemine.scan_many("no/such/trace.json", gpu="h1000")


def test_a_script_need_not_guard_its_main_part(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import tracemine\nreports = tracemine.scan_many({str(FIXTURES / 'captures')!r}, workers=2)\n"
        "print(len(reports), len(reports.errors))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    assert done.stdout == "5 0\n"
