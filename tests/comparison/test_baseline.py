"""Baselines: what is kept, how a file reads in git, what a file may not say; and what --fail-on lets fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from tests.comparison.build import RECORDED, US, gap, item, side, sides
from tracemine.comparison import compared, diff
from tracemine.comparison.baseline import (
    BASELINE_SCHEMA_VERSION,
    Accepted,
    Baseline,
    accept,
    against,
    baseline_of,
    read_baseline,
    write_baseline,
)
from tracemine.comparison.compare import with_accepted
from tracemine.comparison.gates import parse_gate
from tracemine.comparison.record import ComparedSide
from tracemine.errors import InputError, UsageError
from tracemine.pipeline import scan

A, B, C = (digit * 16 for digit in "abc")
FIXTURES = Path(__file__).parents[2] / "fixtures/kineto"


def kept(one: ComparedSide, *accepted: Accepted) -> Baseline:
    return Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        tracemine="0",
        project="p",
        about=one.about,
        spent=one.spent,
        findings=one.items,
        accepted=accepted,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sides())
def test_what_is_written_is_read(tmp_path: Path, one: ComparedSide) -> None:
    path = tmp_path / "b.json"
    before = kept(one, Accepted(fingerprint=A, reason='a "reason" · \x9b2J'))
    write_baseline(before, path)
    assert read_baseline(path) == before
    assert path.read_bytes().isascii()  # a terminal acts on nothing in it


def test_a_difference_from_a_baseline_is_that_from_the_scan(tmp_path: Path) -> None:
    before, after = (scan(FIXTURES / f"{name}.json.gz") for name in ("decoder_prefill", "decoder_prefill_compiled"))
    write_baseline(baseline_of(before, "decoder"), tmp_path / "b.json")
    assert against(read_baseline(tmp_path / "b.json"), after) == diff(before, after)


def test_one_finding_stands_on_one_line_and_no_path_does(tmp_path: Path) -> None:
    found = scan((FIXTURES / "decoder_prefill.json.gz").resolve())
    path = tmp_path / "b.json"
    write_baseline(baseline_of(found, "decoder"), path)
    lines = path.read_text().splitlines()
    rows = [json.loads(line.rstrip(",")) for line in lines if '"fingerprint"' in line]
    marks = [(row["rule"], row["fingerprint"]) for row in rows]
    assert marks == sorted(marks)
    assert len(marks) == len(found.findings)
    assert str(FIXTURES.resolve()) not in path.read_text()


def test_a_baseline_keeps_what_it_accepts_and_marks_it() -> None:
    before = accept(kept(side(item(A, 100))), B, "ships in  Q3")
    before = accept(before, A[:4], "known")
    assert [(one.fingerprint, one.reason) for one in before.accepted] == [(A, "known"), (B, "ships in Q3")]
    after = side(item(A, 200), item(B, 50, ("aten::cat",), rule="norm"), item(C, 50, ("aten::mm",), rule="third"))
    reasons = {one.fingerprint: one.reason for one in before.accepted}
    found = with_accepted(compared(before.side, after), reasons)
    passed = {part.fingerprint: change.accepted for change in found.changes for part in change.after}
    assert passed == {A: "known", B: "ships in Q3", C: None}
    assert [one.text[-17:-1] for one in parse_gate("new")(found)] == [C]
    assert list(parse_gate("worse")(found)) == []


def test_what_is_accepted_of_several_findings_lets_none_of_the_others_pass() -> None:
    before, after = side(item(A, 100)), side(item(A, 100), item(B, 100, aliases=(A,), module="M_*"), recorded=None)
    found = with_accepted(compared(before, after), {A: "known"})
    (change,) = found.changes
    assert (change.status, change.accepted) == ("worse", None)


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 1_001])
def test_nothing_is_accepted_without_a_reason(reason: str) -> None:
    with pytest.raises(UsageError, match="--reason"):
        accept(kept(side(item(A, 100))), A, reason)


@pytest.mark.parametrize("mark", ["aaa", "abcd", "", "A" * 16, "z" * 16, "a" * 17])
def test_a_fingerprint_that_names_nothing_is_not_accepted(mark: str) -> None:
    with pytest.raises(UsageError, match="names no finding"):
        accept(kept(side(item(A, 100))), mark, "why")


def broken(change: Callable[[dict[str, Any]], Any], tmp_path: Path) -> Path:
    path = tmp_path / "b.json"
    write_baseline(kept(side(item(A, 100)), Accepted(fingerprint=A, reason="why")), path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: b.update(schema_version=2), "of version 2"),
        (lambda b: b.update(more=1), "unknown field"),
        (lambda b: b.pop("about"), "missing required field"),
        (lambda b: b["findings"].append(b["findings"][0]), "twice"),
        (lambda b: b["accepted"].append(b["accepted"][0]), "twice"),
        (lambda b: b["accepted"][0].update(reason=" "), "without a reason"),
        (lambda b: b["accepted"][0].update(fingerprint="../../etc"), "is no fingerprint"),
        (lambda b: b["findings"][0].update(fingerprint="\x1b[2J"), "is no fingerprint"),
        (lambda b: b["findings"][0].update(measured_ns=-1), "out of range"),
        (lambda b: b["findings"][0].update(measured_ns=1 << 63), "out of range|is no baseline"),
        (lambda b: b["findings"][0]["step_saving_ns"].update(low=9**9, high=1), "low end"),
        (lambda b: b["spent"]["gpu_ns"].update({"aten::mm": -5}), "out of range"),
        (lambda b: b["about"].update(span_ns=0.5), "is no baseline"),
        (lambda b: b["about"].update(steps=-1), "out of range"),
    ],
)
def test_a_file_that_cannot_be_is_refused(change: Callable[[dict[str, Any]], Any], says: str, tmp_path: Path) -> None:
    read_baseline(broken(lambda b: None, tmp_path))  # as it was it is read
    with pytest.raises(InputError, match=says):
        read_baseline(broken(change, tmp_path))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"schema_version": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_baseline_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no baseline"):
        read_baseline(path)


def test_a_gate_is_shut_by_what_it_names_and_by_nothing_else() -> None:
    before = side(item(A, 100), gap(B, 200, ("aten::item",)))
    after = side(item(A, 130), item(C, 40, ("aten::cat",), rule="norm", reported=False), idle={"aten::mm": 200})
    found = compared(before, after)
    assert found.counts == {"new": 1, "worse": 1, "unknown": 1}
    shut = {
        text: [one.text[-17:-1] for one in parse_gate(text)(found)] for text in ("new", "worse", "unknown", "moved")
    }
    assert shut == {"new": [], "worse": [A], "unknown": [B], "moved": []}  # what no report shows is no new finding
    assert [one.text[-17:-1] for one in parse_gate("30us")(found)] == [C, A]
    assert [one.text[-17:-1] for one in parse_gate("4%")(found)] == [C]
    assert list(parse_gate("41us")(found)) == []


def test_where_nothing_compares_every_gate_is_shut() -> None:
    before = side(item(A, 100))
    cut = side(item(A, 100), recorded=replace(RECORDED, cut_off=True))
    for gate in map(parse_gate, ("new", "2%")):
        assert [str(one) for one in gate(compared(before, cut))] == ["unknown: nothing compares, as is said first"]
        assert list(gate(compared(before, before))) == []


def test_a_step_that_takes_longer_shuts_a_gate_without_any_finding() -> None:
    found = compared(side(), side(span_ns=1_200 * US))
    assert [str(one) for one in parse_gate("20%")(found)] == ["worse: the step takes 200 µs longer"]
    assert list(parse_gate("21%")(found)) == []
    assert list(parse_gate("0%")(compared(side(), side(span_ns=1_099 * US)))) == []  # within noise


@pytest.mark.parametrize("text", ["", "newer", "3", "-1%", "101%", "new,worse"])
def test_a_gate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_gate(text)
