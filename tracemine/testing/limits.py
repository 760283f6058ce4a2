"""What a step in a test may take, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from tracemine.errors import UsageError

SEVERITIES = ("low", "medium", "high")
_DEVICES = ("cuda", "cpu")
_HINT = "docs: guide/pytest.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What a step may take, and how it is run."""

    step_ms: float | None = None  # unprofiled, median
    max_findings: int | None = None  # of those that count; None: they are not counted
    severity: str | None = None  # findings count from this one on
    rule: tuple[str, ...] = ()  # findings of these rules count, names or patterns; none: of all
    device: str = "cuda"
    steps: int = 3  # recorded
    warmup: int = 3
    timed: int = 10  # with nothing recording

    @property
    def most_findings(self) -> int | None:
        """Return how many findings may count: none where only said which."""
        return 0 if self.max_findings is None and (self.severity or self.rule) else self.max_findings

    def counts(self, rule: str, severity: str) -> bool:
        """Return whether a finding counts.

        >>> StepLimits(severity="medium", rule=("*_unfused",)).counts("rmsnorm_unfused", "high")
        True
        """
        severe = self.severity is None or SEVERITIES.index(severity) >= SEVERITIES.index(self.severity)
        return severe and (not self.rule or any(fnmatchcase(rule, pattern) for pattern in self.rule))


def limits_of(places: Sequence[object], given: Mapping[str, Any]) -> StepLimits:
    """Return the limits that a marker or a call gives. Raises UsageError where they are none."""
    names = [field.name for field in fields(StepLimits)]
    if places:
        raise UsageError("limits are given by name", hint="@pytest.mark.tracemine(step_ms=12)")
    if unknown := next((name for name in given if name not in names), None):
        raise UsageError(f"there is no limit {unknown!r}", hint=f"there are: {', '.join(names)}")
    rule = given.get("rule") or ()
    limits = StepLimits(**{**given, "rule": (rule,) if isinstance(rule, str) else tuple(rule)})
    for wrong, says in _checks(limits):
        if wrong:
            raise UsageError(says, hint=_HINT)
    return limits


def _checks(limits: StepLimits) -> list[tuple[bool, str]]:
    counted = ("steps", 1), ("warmup", 0), ("timed", 1)
    return [
        (not _is_time(limits.step_ms), f"step_ms={limits.step_ms!r}: milliseconds are needed, more than 0"),
        (
            limits.max_findings is not None and not _is_count(limits.max_findings, 0),
            f"max_findings={limits.max_findings!r}: an integer from 0 on is needed",
        ),
        (
            limits.severity not in (None, *SEVERITIES),
            f"severity={limits.severity!r}: one of {', '.join(SEVERITIES)} is needed",
        ),
        (limits.device not in _DEVICES, f"device={limits.device!r}: one of {', '.join(_DEVICES)} is needed"),
        *(
            (
                not _is_count(getattr(limits, name), least),
                f"{name}={getattr(limits, name)!r}: from {least} on is needed",
            )
            for name, least in counted
        ),
        (
            limits.step_ms is None and limits.most_findings is None,
            "no limit is given: step_ms, max_findings, severity or rule",
        ),
        (
            limits.device == "cpu" and limits.most_findings is not None,
            "findings are about a GPU: on a CPU there is step_ms alone",
        ),
    ]


def _is_time(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    )


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
