"""Findings of rules over who reads what: their evidence, and what names and order alone would have found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tracemine.causes import load_rules
from tracemine.findings import Finding, find
from tracemine.flow import Evidence
from tracemine.matching import Matches, mine
from tracemine.pipeline import Analysis, analyse

CAPTURE = Path(__file__).parents[2] / "fixtures" / "captures" / "decoder_prefill"


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(CAPTURE)


def norms(analysis: Analysis, evidence: Evidence | None) -> list[Finding]:
    """Findings of the norm's rule, its matches as sure as said; None: as they are."""
    matches = mine(analysis.rows, [rule for rule in load_rules() if rule.id == "rmsnorm_unfused"])
    if evidence is not None:
        matches = [replace(found, evidence=np.full(len(found), evidence, np.int8)) for found in matches]
    found = find(analysis.timeline, analysis.rows, matches, analysis.device, groups=analysis.groups, min_saving_ns=0)
    return list(found.findings)


@pytest.mark.parametrize(
    ("evidence", "said"), [(None, "proven"), (Evidence.CONSISTENT, "consistent"), (Evidence.ADJACENT, "adjacent")]
)
def test_a_finding_is_no_surer_than_the_weakest_edge_of_its_matches(
    analysis: Analysis, evidence: Evidence | None, said: str
) -> None:
    found = norms(analysis, evidence)
    assert [finding.evidence for finding in found] == [said]
    assert [finding.occurrences for finding in found] == [10]


def test_matches_that_are_not_equally_sure_are_counted_together_and_as_sure_as_the_weakest(analysis: Analysis) -> None:
    matches = mine(analysis.rows, [rule for rule in load_rules() if rule.id == "rmsnorm_unfused"])
    (found,) = matches
    mixed = np.where(np.arange(len(found)) == 3, Evidence.ADJACENT, Evidence.PROVEN).astype(np.int8)
    matches = [replace(found, evidence=mixed)]
    scan = find(analysis.timeline, analysis.rows, matches, analysis.device, groups=analysis.groups, min_saving_ns=0)
    (finding,) = scan.findings
    assert (finding.evidence, finding.occurrences) == ("adjacent", 10)


def test_in_a_recording_with_dataflow_each_norm_and_each_rotation_is_found_by_who_reads_what(
    analysis: Analysis,
) -> None:
    matches = {found.rule.id: found for found in mine(analysis.rows, load_rules())}
    for rule, count in (("rmsnorm_unfused", 10), ("rotary_unfused", 8)):
        evidence = matches[rule].evidence
        assert evidence is not None
        assert evidence.tolist() == [Evidence.PROVEN] * count


def test_without_dataflow_the_same_norms_are_found_by_name_and_order(analysis: Analysis) -> None:
    rows = {name: replace(each, graph=None) for name, each in analysis.rows.items()}
    (found,) = mine(rows, [rule for rule in load_rules() if rule.id == "rmsnorm_unfused"])
    assert found.evidence is not None
    assert found.evidence.tolist() == [-1] * 10


def test_attention_whose_sizes_do_not_fit_is_counted_and_claims_nothing(analysis: Analysis) -> None:
    (rule,) = (rule for rule in load_rules() if rule.id == "attention_unfused")
    rows = np.arange(9, 12)
    found = Matches(rule, rows, np.array([0, 3]), np.zeros(3, np.uint8), evidence=np.full(1, Evidence.PROVEN, np.int8))
    others = mine(analysis.rows, load_rules())
    alone = find(
        analysis.timeline, analysis.rows, [found], analysis.device, groups=analysis.groups, causes=analysis.causes
    )
    assert (alone.findings, alone.dropped["attention_sizes_unknown"]) == ((), 1)
    without, beside = (
        find(analysis.timeline, analysis.rows, each, analysis.device, groups=analysis.groups, causes=analysis.causes)
        for each in (others, [*others, found])
    )
    assert beside.findings == without.findings
