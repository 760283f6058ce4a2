"""What explains a finding: its figures, its rule, and what its evidence rests on."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tracemine import Report, scan
from tracemine.api.explain import explain
from tracemine.errors import UsageError

CAPTURE = Path(__file__).parents[2] / "fixtures" / "captures" / "decoder_prefill"


@pytest.fixture(scope="module")
def report() -> Report:
    return scan(CAPTURE)


def test_a_finding_comes_with_its_rule_and_its_evidence_in_words(report: Report) -> None:
    for finding in report:
        found = explain(report, finding.fingerprint)
        assert found.finding is finding
        assert found.rule is not None
        assert found.rule.id == finding.rule
        assert found.evidence


def test_a_variant_leads_to_its_finding(report: Report) -> None:
    finding = report.findings[0]
    assert len(finding.variants) == 2
    for variant in finding.variants:
        assert explain(report, variant.identity.finding).finding is finding


def test_a_rule_that_is_not_loaded_is_none(report: Report) -> None:
    strange = replace(report.findings[0], rule="of_another_package", evidence="hearsay")
    found = explain(Report(replace(report.scan, findings=(strange,))), strange.fingerprint)
    assert (found.finding, found.rule, found.evidence) == (strange, None, "")


def test_what_no_finding_is_called_is_refused(report: Report) -> None:
    with pytest.raises(UsageError, match="0 findings begin with 'ffff'"):
        explain(report, "ffff")
