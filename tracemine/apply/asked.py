"""What findings ask to be tried in a step, and what that saves. Processes that run a step load none of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tracemine.apply.variants import VARIANTS
from tracemine.findings.alone import MeasuredBySaid
from tracemine.findings.graphs.record import WAYS, WayName
from tracemine.findings.grouping import variants_of
from tracemine.findings.record import Finding, Scan, StepSummary
from tracemine.tables import table_beside
from tracemine.top.record import GraphTop

Shares = tuple[float, float, float]
"""Of the step: least, likely, most. The least is below zero where it may get slower."""


# What a mode left of a step, by what was said to be left.
LEFT: Final = msgspec.convert(table_beside(__file__, "modes.toml"), dict[str, MeasuredBySaid])
_LIKE: Final[dict[WayName, WayName]] = {"graphs_by_step": "reduce_overhead", "max_autotune": "reduce_overhead"}


def mode_row(way: WayName, step: StepSummary) -> str:
    """Return the row of a mode in the table: by who sets the pace of the step."""
    assert step.unprofiled_ns is not None  # noqa: S101 - whoever asks knows it
    idle = 2 * step.gpu_busy_ns < step.unprofiled_ns.mid
    return f"{_LIKE.get(way, way)}_{'host' if idle else 'device'}"


def likely_of(graphs: GraphTop, step: StepSummary) -> dict[WayName, float]:
    """Return what each mode is likely to save, of the step or of what in it it saves most of. Missing: not known."""
    assert step.unprofiled_ns is not None  # noqa: S101 - whoever asks knows it
    found = dict[WayName, float]()
    for way in WAYS:
        savings = [span.way(way).saving_ns for span in (graphs.step, *graphs.spans)]
        known = [saving.mid / graphs.steps / step.unprofiled_ns.mid for saving in savings if saving is not None]
        if known:
            found[way] = min(max(known), 1.0)
    return found


def within(likely: float, row: MeasuredBySaid) -> Shares:
    """Return a saving with its interval.

    >>> within(0.5, MeasuredBySaid(programs=9, least=0.8, most=1.4))
    (0.3, 0.5, 0.6)
    """
    low, high = (round(1 - times * (1 - likely), 4) for times in (row.most, row.least))
    return min(low, likely), likely, max(high, likely)


def saved_by_modes(graphs: GraphTop, step: StepSummary | None) -> dict[str, Shares]:
    """Return what each mode saves of a step. graphs: of the same recording."""
    if step is None or step.unprofiled_ns is None:
        return {}
    return {way: within(likely, LEFT[mode_row(way, step)]) for way, likely in likely_of(graphs, step).items()}


_MOST: Final = 0.98  # of a step: something stays, however much savings add up to


class AskedShares(NamedTuple):
    """Who asks for a variant, and what it saves."""

    findings: Mapping[str, Shares | None]
    """By fingerprint, the share of the step that each finding is to save."""
    whole: Shares | None = None
    """What a mode saves, of all that it touches; None: what its findings do."""


Wanted = dict[str, AskedShares]
_UNASKED: Final = AskedShares({})


def found_in(scan: Scan, graphs: GraphTop) -> tuple[list[Finding], dict[str, Shares]]:
    """Return the findings that are reported of a recording, and what each mode saves of its step."""
    return [finding for finding in scan.findings if finding.reported], saved_by_modes(graphs, scan.summary.per_step)


def asked_for(
    findings: Sequence[Finding], modes: Mapping[str, Shares] | None = None, named: Sequence[str] = ()
) -> Wanted:
    """Return what is to be tried: what is named; else torch.compile's modes and what findings ask for.

    A mode that is not known to work, where others are, is predicted by nothing: its findings say a part at best.
    """
    wanted = Wanted()
    for name, variant in VARIANTS.items():
        asking = asked_by(findings, variant.rules)
        unasked = not named and not variant.asked and not variant.instead and (variant.usual or asking.findings)
        if name in named or unasked:
            whole = (modes or {}).get(variant.way)
            said = asking.findings if whole or not modes or not variant.way else dict.fromkeys(asking.findings)
            wanted[name] = AskedShares(said, whole)
    return wanted


def asked_by(findings: Sequence[Finding], rules: Sequence[str]) -> AskedShares:
    """Return findings of some rules or fingerprints, with the share of the step that each is to save."""
    asking = [f for f in findings if f.rule in rules or any(len(r) >= 4 and f.fingerprint.startswith(r) for r in rules)]
    # By what verdicts name.
    return AskedShares({variants_of(finding)[0].fingerprint: _shares(finding) for finding in asking})


def _shares(finding: Finding) -> Shares | None:
    step = finding.per_step
    if step is None or not step.step_saving_ns.mid:
        return None
    scale = step.share_of_unprofiled / step.step_saving_ns.mid
    low, middle, high = (
        value * scale for value in (step.step_saving_ns.low, step.step_saving_ns.mid, step.step_saving_ns.high)
    )
    return low, middle, high


def predicted(wanted: Wanted, names: Sequence[str], alone: Mapping[str, Shares] | None = None) -> dict[str, Any]:
    """Return what variants are to save together, as fields of `Tried`: each of what the others leave.

    A finding counts once, with a mode that takes it where there is one. alone: what variants were measured to save, for
    those of several of which nothing else is known; where that is not either, nothing is predicted.
    """
    asked = [
        wanted.get(name) or wanted.get(VARIANTS[name].instead if name in VARIANTS else "", _UNASKED) for name in names
    ]
    parts = _parts(names, asked, alone or {})
    known = [part for part in parts if part]
    shares = _left_by(known) if known and len(known) == len(parts) else [None] * 3
    findings = tuple(dict.fromkeys(print_ for each in asked for print_ in each.findings))
    return {"findings": findings, **dict(zip(("predicted_low", "predicted", "predicted_high"), shares, strict=True))}


def _parts(names: Sequence[str], asked: Sequence[AskedShares], alone: Mapping[str, Shares]) -> list[Shares | None]:
    """Return what each variant adds; None: not known. What is counted elsewhere adds nothing."""
    taken = {print_ for each in asked if each.whole for print_ in each.findings}
    parts = list[Shares | None]()
    for name, each in zip(names, asked, strict=True):
        own = [shares for print_, shares in each.findings.items() if shares and print_ not in taken]
        measured = alone.get(name) if len(names) > 1 else None
        if each.whole or own:
            parts.append(each.whole or _sum(own))
        elif not any(each.findings.values()):  # else all of it is counted elsewhere
            parts.append(measured)
        taken |= {*each.findings}
    return parts


def _left_by(parts: Sequence[Shares]) -> list[float | None]:
    """Return what parts save together, low end first: each of what the others leave; at least what the best does."""
    left = [math.prod(1 - share for share in ends) for ends in zip(*parts, strict=True)]
    lows = [low for low, *_ in parts]
    if min(lows) > 0:  # a mode may shorten what a change has shortened already
        left[0] = 1 - max(lows)
    return [round(min(1 - each, _MOST), 4) for each in left]


def _sum(those: Sequence[Shares]) -> Shares:
    low, likely, high = (min(sum(ends), _MOST) for ends in zip(*those, strict=True))
    return low, likely, high
