"""All that is known of one finding: its figures, its rule, and what its evidence rests on."""

from __future__ import annotations

from dataclasses import dataclass

from tracemine.api.report import Report
from tracemine.api.settings import Paths, paths_of
from tracemine.causes import load_rules
from tracemine.documents.words import EVIDENCE
from tracemine.findings.record import Finding
from tracemine.matching import Rule


@dataclass(frozen=True, slots=True)
class Explanation:
    """A finding, and what explains it."""

    finding: Finding
    rule: Rule | None  # None: rules that are not loaded found it
    evidence: str  # what the finding's evidence rests on; "": not known


def explain(report: Report, fingerprint: str, *, rules: Paths | None = None) -> Explanation:
    """Explain the finding whose fingerprint, or that of one of its variants, begins so.

    rules: folders of further rules. Raises UsageError where no finding or several begin so.

    >>> from tracemine import scan
    >>> found = explain(scan("fixtures/captures/decoder_prefill"), "10bb")
    >>> found.rule.title, found.finding.evidence, found.evidence
    ('Unfused RMSNorm', 'proven', 'it follows from what the profiler recorded')
    """
    finding = report[fingerprint]
    rule = next((rule for rule in load_rules(*paths_of(rules, "rules")) if rule.id == finding.rule), None)
    return Explanation(finding, rule, EVIDENCE.get(finding.evidence, ""))
