"""Severity is by what is printed: what a step saves, of the step with nobody recording."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.report.scans import NORM
from tracemine.findings.inside import Inside
from tracemine.findings.ranking import RankScale, ranked


@pytest.mark.parametrize(
    ("inside", "severity"), [(Fraction(1), "high"), (Fraction(1, 2), "medium"), (Fraction(0), "low")]
)
def test_what_lies_outside_of_the_steps_makes_a_finding_no_more_severe(inside: Fraction, severity: str) -> None:
    scale = RankScale(steps=2, unprofiled_ns=3_000_000, gpu_time_ns=4_000_000)  # 412 µs of two steps are 6.9 %
    (found,) = ranked([NORM], scale, {NORM.fingerprint: Inside.alike(inside)})
    assert found.severity == severity
