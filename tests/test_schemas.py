"""The JSON Schemas under docs/schemas/ hold for what commands print, and catch what no command prints."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import tracemine
from tests.ranks.simulated import Program, Rank, write
from tests.report.scans import EMPTY, SCAN, VERIFIED, hostile, hostile_verdicts
from tests.verdicts.test_verdict import VALIDATION, judged, ran
from tracemine.findings.record import Scan
from tracemine.verdicts.verdict import Verdicts

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
SCHEMAS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "docs" / "schemas").glob("*.json")
}
Run = Callable[..., tuple[int, str, str]]


def wrong(name: str, value: object, schema: dict[str, Any] | None = None) -> list[str]:
    """What a schema says against a value."""
    validator = jsonschema.Draft202012Validator(schema or SCHEMAS[name])
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]


def closed(name: str) -> dict[str, Any]:
    """A schema that takes no key that it does not name."""
    schema: dict[str, Any] = copy.deepcopy(SCHEMAS[name])
    for component in schema["$defs"].values():
        if "properties" in component:
            component["additionalProperties"] = False
    return schema


def as_printed(record: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(record))


def test_each_is_a_schema_and_there_is_one_for_each_contract() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        printed = importlib.import_module("pages_schemas").PRINTED
    finally:
        sys.path.pop(0)
    assert set(SCHEMAS) == set(printed) >= {"findings", "verdicts"}
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


TRACES = [
    *(path for path in sorted((FIXTURES / "captures").iterdir())),
    *sorted((FIXTURES / "kineto").glob("*.json.gz")),
    *sorted((FIXTURES / "nsys").glob("*.sqlite")),
]


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_what_scan_prints_is_as_the_schema_says(run: Run, trace: Path) -> None:
    options = ("--why-not", "--evidence", FIXTURES / "verdicts", "--min-saving", "0ns")
    code, out, _ = run("scan", trace, "--format", "json", "--quiet", *options)
    assert code == 0
    assert wrong("findings", json.loads(out), closed("findings")) == []


@pytest.mark.parametrize("trace", TRACES[:1] + TRACES[-1:], ids=lambda path: path.name)
def test_what_scan_prints_where_nothing_is_asked_for_is_as_the_schema_says(run: Run, trace: Path) -> None:
    assert wrong("findings", json.loads(run("scan", trace, "--format", "json", "--quiet")[1]), closed("findings")) == []


def test_counters_and_verdicts_on_findings_are_as_the_schema_says() -> None:
    counted = FIXTURES / "ncu" / "chain"
    report = tracemine.scan(counted / "trace.json.gz", ncu=counted / "raw.csv.gz", min_saving="0ns")
    assert any(finding.counters for finding in report)
    assert wrong("findings", json.loads(report.to_json()), closed("findings")) == []
    judged = tracemine.scan(FIXTURES / "captures" / "decoder_prefill", evidence=FIXTURES / "verdicts")
    assert any(finding.verdict for finding in judged)
    assert wrong("findings", json.loads(judged.to_json()), closed("findings")) == []


@pytest.mark.parametrize("scan", [SCAN, EMPTY, VERIFIED, hostile("\x1b<b>"), hostile_verdicts("\x1b<b>")])
def test_scans_made_by_hand_are_as_the_schema_says(scan: Scan) -> None:
    assert wrong("findings", as_printed(scan), closed("findings")) == []


VERDICTS = Verdicts(
    trace="t",
    gpu="NVIDIA H200",
    verdicts=(
        judged(),
        judged(validation=VALIDATION),
        judged(validation=VALIDATION, ran=ran()),
        judged(refused="no shapes"),
    ),
    skipped={"beyond_top": 3},
)


@pytest.mark.parametrize(("before", "after"), [("chain", "chain"), ("chain", "decoder_prefill")])
def test_what_diff_prints_is_as_the_schema_says(before: str, after: str) -> None:
    printed = json.loads(tracemine.diff(*(FIXTURES / "captures" / name for name in (before, after))).to_json())
    assert printed["changes"]
    assert wrong("differences", printed, closed("differences")) == []
    assert wrong("differences", printed | {"basis": 3}) != []


@pytest.mark.parametrize("trace", TRACES[:1] + TRACES[-1:], ids=lambda path: path.name)
def test_what_doctor_prints_is_as_the_schema_says(run: Run, trace: Path) -> None:
    printed = json.loads(run("doctor", trace, "--format", "json", "--quiet")[1])
    assert wrong("checkups", printed, closed("checkups")) == []
    assert wrong("checkups", printed | {"parts": None}) != []


@pytest.mark.parametrize(("name", "option"), [("host", "--host"), ("host", "--host --by tree"), ("waits", "--waits")])
def test_what_top_prints_of_the_host_is_as_the_schema_says(name: str, option: str, run: Run) -> None:
    printed = json.loads(
        run("top", FIXTURES / "captures/convnet_train", *option.split(), "--format", "json", "--quiet")[1]
    )
    assert printed["rows"]
    assert wrong(name, printed, closed(name)) == []
    del printed["rows"][0]["line" if name == "waits" else "critical_ns"]
    assert wrong(name, printed) != []


def test_what_scan_and_diff_print_of_jobs_is_as_the_schema_says(run: Run, tmp_path: Path) -> None:
    for name, silent in (("before", 2_000_000), ("after", 0)):
        write(Program([Rank(), Rank(silence_ns=silent), Rank()]), tmp_path / name)
    scanned = json.loads(run("scan", tmp_path / "before", "--format", "json", "--quiet")[1])
    (finding,) = scanned["job"]["findings"]
    assert wrong("jobs", scanned, closed("jobs")) == []
    assert {"rule", "cause", "title", "ranks", "step_saving_ns"} <= finding.keys()
    assert wrong("jobs", planted(scanned, "job/findings/0/ranks", [1.5])) != []
    assert wrong("jobs", planted(scanned, "job/ranks/0/wait_ns", GONE)) != []
    differs = json.loads(run("diff", tmp_path / "before", tmp_path / "after", "--format", "json", "--quiet")[1])
    assert [change["status"] for change in differs["changes"]] == ["fixed"]
    assert wrong("job-differences", differs, closed("job-differences")) == []
    assert wrong("job-differences", planted(differs, "changes/0/status", GONE)) != []
    assert wrong("job-differences", planted(differs, "step_after_ns/mid", "4 ms")) != []


def test_verdicts_are_as_the_schema_says() -> None:
    assert wrong("verdicts", as_printed(VERDICTS), closed("verdicts")) == []


def test_what_verify_prints_is_as_the_schema_says(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    trace = FIXTURES / "captures" / "chain"
    code, out, _ = run("verify", trace, "--format", "json", "--top", "1", "-o", tmp_path, "--quiet")
    assert code == 0
    assert json.loads(out)["verdicts"]
    assert wrong("verdicts", json.loads(out), closed("verdicts")) == []


def planted(value: Any, path: str, put: object) -> Any:
    found = copy.deepcopy(value)
    *way, last = path.split("/")
    inner = found
    for name in way:
        inner = inner[int(name) if name.isdecimal() else name]
    if put is GONE:
        del inner[last]
    else:
        inner[last] = put
    return found


GONE = type(None)


@pytest.mark.parametrize(
    ("path", "put"),
    [
        ("schema_version", 3),
        ("schema_version", GONE),
        ("findings/0/occurrences", "34"),
        ("findings/0/measured_ns", 1.5),
        ("findings/0/measured_ns", None),
        ("findings/0/identity", GONE),
        ("findings/0/reported", GONE),
        ("findings/0/reported", "yes"),
        ("findings/0/activities", [[1, "2"]]),
        ("findings/0/gpu_saving_ns/mid", GONE),
        ("findings/0/per_step/share_of_unprofiled", "4 %"),
        ("findings/0/variants/0/shapes", 4),
        ("findings/0/source/0/line", None),
        ("summary/span_ns", GONE),
        ("trace/gpu", 7),
        ("trace/path", GONE),
        ("dropped/below_threshold", -0.5),
        ("warnings", "one"),
    ],
)
def test_a_wrong_field_is_caught_in_findings(path: str, put: object) -> None:
    right = as_printed(tracemine.scan(FIXTURES / "captures" / "decoder_prefill").scan)
    assert wrong("findings", right) == []
    assert wrong("findings", planted(right, path, put)) != []


@pytest.mark.parametrize(
    ("path", "put"),
    [
        ("schema_version", 1),
        ("trace", None),
        ("verdicts/0/level", 4),
        ("verdicts/0/predicted_ns/high", "1"),
        ("verdicts/0/says", GONE),
        ("verdicts/2/measured/eager_ns", 1.5),
        ("skipped/beyond_top", "3"),
    ],
)
def test_a_wrong_field_is_caught_in_verdicts(path: str, put: object) -> None:
    assert wrong("verdicts", planted(as_printed(VERDICTS), path, put)) != []


def test_a_key_that_no_schema_names_is_seen_by_the_closed_one_and_taken_by_the_open_one() -> None:
    more = as_printed(SCAN) | {"new_key": 1}
    assert wrong("findings", more) == []  # others may be added
    assert wrong("findings", more, closed("findings")) != []
