"""What findings ask to be tried in a step, and what they say it saves. Processes that run a step load none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tracemine.apply.variants import VARIANTS
from tracemine.findings.grouping import variants_of
from tracemine.findings.record import Finding

_MOST: Final = 0.98  # of a step: something stays, however much findings add up to

Shares = tuple[float, float, float]
"""Of the step: least, likely, most."""
Wanted = dict[str, Mapping[str, Shares | None]]
"""Variants to try; by the fingerprint of each finding that asks for one, the share of the step that it is to save."""


def asked_for(findings: Sequence[Finding], named: Sequence[str] = ()) -> Wanted:
    """Return what is to be tried: what is named; else torch.compile's modes and what findings ask for."""
    wanted: Wanted = {}
    for name, variant in VARIANTS.items():
        asking = shares_of(findings, variant.rules)
        unasked = not named and not variant.asked and not variant.instead and (variant.usual or asking)
        if name in named or unasked:
            wanted[name] = asking
    return wanted


def shares_of(findings: Sequence[Finding], rules: Sequence[str]) -> dict[str, Shares | None]:
    """Return, of findings of some rules or fingerprints, the share of the step that each is to save."""
    asking = [f for f in findings if f.rule in rules or any(len(r) >= 4 and f.fingerprint.startswith(r) for r in rules)]
    return {variants_of(finding)[0].fingerprint: _shares(finding) for finding in asking}  # what verdicts name


def _shares(finding: Finding) -> Shares | None:
    step = finding.per_step
    if step is None or not step.step_saving_ns.mid:
        return None
    scale = step.share_of_unprofiled / step.step_saving_ns.mid
    low, middle, high = (
        value * scale for value in (step.step_saving_ns.low, step.step_saving_ns.mid, step.step_saving_ns.high)
    )
    return low, middle, high


def predicted(wanted: Wanted, names: Sequence[str]) -> dict[str, Any]:
    """Return what findings say that variants save together, as fields of `Tried`: each finding once."""
    asked = [wanted.get(name) or wanted.get(VARIANTS[name].instead if name in VARIANTS else "", {}) for name in names]
    asking = {print_: shares for each in asked for print_, shares in each.items()}
    known = [shares for shares in asking.values() if shares]
    sums = [round(min(sum(values), _MOST), 4) for values in zip(*known, strict=True)] or [None] * 3
    low, middle, high = sums
    return {"findings": tuple(asking), "predicted": middle, "predicted_low": low, "predicted_high": high}
