"""Which fingerprint a finding has in a trace: one that comes from a file may name another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tracemine.findings.facts import activity_facts
from tracemine.findings.find import fingerprint
from tracemine.findings.labels import label_of
from tracemine.findings.record import Finding
from tracemine.matching.rule import Rule
from tracemine.rows.table import Rows
from tracemine.timeline import Timeline


def identities(timeline: Timeline, rows: Rows, rules: Iterable[Rule]) -> Callable[[Finding], str | None]:
    """What tells the fingerprint of a finding that is in this trace, by its first occurrence.

    `rows` is the row set "activities". None: its rule is not among `rules`, or is about gaps.
    """
    facts = activity_facts(timeline, rows)
    known = {rule.id: rule for rule in rules if rule.rows == "activities"}

    def of(finding: Finding) -> str | None:
        rule = known.get(finding.rule)
        if rule is None:
            return None
        return fingerprint(label_of(timeline, facts, np.array(finding.activities[0])).signature(rule))

    return of
