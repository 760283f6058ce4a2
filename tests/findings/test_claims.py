"""Nothing is claimed twice: between rules, within a rule, and after a finding was not worth reporting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.findings.build import kernel, matches, rows_of_timeline, rule, timeline_of
from tracemine.causes import load_rule
from tracemine.columns import codes
from tracemine.findings import Scan, device_of, find
from tracemine.findings.classes import groups_of_sequences, without_overlaps
from tracemine.matching import find as match
from tracemine.matching.rule import Matches, Rule

US = 1_000


def scanned(*found: Matches, kernels: int = 8, dur_ns: int = 60 * US, **more: Any) -> Scan:
    timeline = timeline_of([kernel(i * dur_ns, dur_ns) for i in range(kernels)])
    return find(timeline, rows_of_timeline(timeline), found, device_of(timeline), **more)


def claims(scan: Scan) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for finding in scan.findings:
        found.setdefault(finding.rule, set()).update(row for once in finding.activities for row in once)
    return found


def test_the_rule_with_the_lower_priority_number_claims_first() -> None:
    first, second = rule("z", priority=1), rule("a", priority=2)
    scan = scanned(matches(second, [0, 1, 2]), matches(first, [1, 2, 3]), min_saving_ns=0)
    assert claims(scan) == {"z": {1, 2, 3}}
    assert scan.dropped == {"claimed_by_another_rule": 1}


def test_rules_of_one_priority_claim_in_order_of_their_names() -> None:
    scan = scanned(matches(rule("b"), [0, 1, 2]), matches(rule("a"), [0, 1, 2]))
    assert set(claims(scan)) == {"a"}


def chain(folder: Path) -> Rule:
    """A real rule: any kernels in a row, the first however late."""
    text = """
title = "A run"
status = "experimental"
what = "What."
why = "Why."
fix = "Fix."
priority = 900
saving = "fuse"
pattern = "first next+"
[define]
first = { kind = "kernel" }
next = { kind = "kernel", gap_ns.lt = 1000 }
"""
    (folder / "chain").mkdir()
    (folder / "chain" / "rule.toml").write_text(text)
    return load_rule(folder / "chain")


def test_a_rule_is_matched_against_what_those_before_it_left(tmp_path: Path) -> None:
    timeline = timeline_of([kernel(i * 60 * US, 60 * US) for i in range(8)])
    rows, norm, run = rows_of_timeline(timeline), rule("norm", priority=1), chain(tmp_path)
    found = [matches(norm, [2, 3, 4]), match(run, rows["activities"])]
    assert [list(each.rows) for each in found[1]] == [list(range(8))]
    scan = find(timeline, rows, found, device_of(timeline))
    assert claims(scan) == {"norm": {2, 3, 4}, "chain": {0, 1, 5, 6, 7}}
    assert "claimed_by_another_rule" not in scan.dropped


def test_a_match_of_which_nothing_is_left_is_counted(tmp_path: Path) -> None:
    timeline = timeline_of([kernel(i * 60 * US, 60 * US) for i in range(4)])
    rows, norm, run = rows_of_timeline(timeline), rule("norm", priority=1), chain(tmp_path)
    scan = find(timeline, rows, [matches(norm, [1, 2, 3]), match(run, rows["activities"])], device_of(timeline))
    assert claims(scan) == {"norm": {1, 2, 3}}
    assert scan.dropped == {"claimed_by_another_rule": 1}


def test_overlapping_matches_of_one_rule_never_share_an_activity() -> None:
    scan = scanned(matches(rule(), [0, 1], [1, 2], [2, 3]))
    assert [f.activities for f in scan.findings] == [((0, 1), (2, 3))]


def test_what_a_rule_finds_not_worth_reporting_is_free_for_the_next() -> None:
    timeline = timeline_of([kernel(i * 20 * US, 20 * US, op=None) for i in range(6)])
    narrow, wide = rule("narrow", priority=1), rule("wide", priority=2)
    found = [matches(narrow, [0, 1]), matches(wide, range(6))]
    scan = find(timeline, rows_of_timeline(timeline), found, device_of(timeline), min_saving_ns=15 * US)
    assert claims(scan) == {"wide": set(range(6))}
    assert scan.dropped == {"below_threshold": 1}


def test_a_gap_is_claimed_by_one_rule() -> None:
    timeline = timeline_of([kernel(i * 200 * US, 60 * US) for i in range(5)])
    both = [matches(rule(name, "close_gap"), *([i] for i in range(4))) for name in ("a", "b")]
    scan = find(timeline, rows_of_timeline(timeline), both, device_of(timeline))
    assert set(claims(scan)) == {"a"}
    assert scan.dropped == {"claimed_by_another_rule": 4}


def test_matches_without_rows_and_no_matches_at_all_leave_nothing() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    rows, offsets = without_overlaps(nothing, np.array([0]))
    assert (len(rows), offsets.tolist()) == (0, [0])
    assert groups_of_sequences(nothing, np.array([0])).tolist() == []


def test_sequences_are_equal_only_where_every_member_is() -> None:
    values = np.array([1, 2, 3, 1, 2, 1, 2, 3, 2, 1])
    groups = groups_of_sequences(values, np.array([0, 3, 5, 8, 10])).tolist()
    assert groups[0] == groups[2]
    assert len(set(groups)) == 3


def test_numbers_of_any_size_can_tell_matches_apart() -> None:
    huge = np.array([2**63 - 1, -1, 2**63 - 1, 0])
    assert codes(huge, huge, huge).tolist() == [2, 0, 2, 1]
