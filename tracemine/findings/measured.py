"""Counters of Nsight Compute joined to findings: what was counted of their kernels, and how much of it was used."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from tracemine.counters import Counters
from tracemine.counters.match import EXACT, NAME_AND_GRID, REASON_TEXTS
from tracemine.findings.grouping import variants_of, with_variants
from tracemine.findings.record import Counted, Finding, Intensity, Scan, Traffic, activity_rows
from tracemine.ops.facts import MEMORY_BOUND_CLASSES
from tracemine.rows import Numbers, Rows
from tracemine.rows.table import IntArray, category, numbers_of
from tracemine.units import count_text

_MEASURED = (
    "Bytes read before fusing are as Nsight Compute counted them, from empty caches; bytes written as modelled, or as "
    "counted where that is more: the counter misses what stays in L2."
)


def with_counters(scan: Scan, activities: Rows, counters: Counters) -> Scan:
    """Return the scan with `Finding.counters`, and with notes on how the reports' kernels were found.

    Where it is known of all kernels of a finding, measured traffic stands in place of the modelled, and that is said.
    Idle time has no counters: findings about gaps stay as they are.
    """
    findings = tuple(_with_all(finding, activities) for finding in scan.findings)
    return replace(scan, findings=findings, warnings=(*scan.warnings, *match_texts(counters), *_left_out(activities)))


def _left_out(activities: Rows) -> tuple[str, ...]:
    """Note the chains that are not formed any more because compute limits them."""
    classes, bounds = category(activities, "op_class"), category(activities, "measured_bound")
    memory = np.array([*(name in MEMORY_BOUND_CLASSES for name in classes.values), False], np.bool_)[classes.codes]
    count = int((memory & (bounds.codes == bounds.values.index("compute"))).sum())
    if not count:
        return ()
    kernels, are = count_text(count, "activity"), "is" if count == 1 else "are"
    return (
        f"{kernels} that would count as memory-bound {are} bound by compute, as Nsight Compute measured: what saves "
        "traffic saves no time there, so no chain is made of them.",
    )


def match_texts(counters: Counters) -> tuple[str, ...]:
    """Return how the profiled kernels were found in the timeline, a sentence; and why some were not, another.

    >>> none = np.full(1, -1, np.int64)
    >>> match_texts(Counters((), none, none > 0, {"exact": 2}, {"not_in_timeline": 1}, ("r.csv",)))[1]
    'Not used, of the kernels that Nsight Compute profiled: 1 (no activity has its name).'
    """
    matched, unmatched = counters.matched, counters.unmatched
    total = sum(matched.values()) + sum(unmatched.values())
    found = sum(matched.values())
    how = " and ".join(
        f"{matched[each]:,} by {by}"
        for each, by in ((EXACT, "name, grid and order"), (NAME_AND_GRID, "name and grid"))
        if each in matched
    )
    texts = [
        f"Of {count_text(total, 'kernel')} that Nsight Compute profiled, {found:,} were found here"
        + (f", {how}: {count_text(int((counters.of >= 0).sum()), 'activity')}." if found else ".")
    ]
    if unmatched:
        why = "; ".join(f"{count:,} ({REASON_TEXTS[reason]})" for reason, count in unmatched.items())
        texts.append(f"Not used, of the kernels that Nsight Compute profiled: {why}.")
    if found * 2 < total:
        texts.append("Most of what was profiled is not here: is the report of this program, with the same sizes?")
    return tuple(texts)


def _with_all(finding: Finding, activities: Rows) -> Finding:
    """Return a finding and each of its variants, with what was counted of their kernels."""
    variants = [_with(one, activities) for one in variants_of(finding)]
    return replace(_with(finding, activities), variants=with_variants(finding, variants).variants)


def _with(finding: Finding, activities: Rows) -> Finding:
    rows = activity_rows([finding])
    if not finding.gpu_saving_ns.high or not len(rows):
        return finding
    counted = counted_of(rows, activities)
    if counted is None:
        return finding
    return _with_traffic(replace(finding, counters=counted), rows, activities)


def _with_traffic(finding: Finding, rows: IntArray, activities: Rows) -> Finding:
    """Return the finding with measured in place of modelled traffic, where it is known of all its kernels."""
    traffic = finding.traffic_bytes
    read = numbers_of(activities, "dram_read_bytes")
    before = _sum(activities, "bytes", rows) if _all(read, rows) else None
    if traffic is None or before is None or before < traffic.after:
        return finding
    intensity = finding.arithmetic_intensity
    if intensity is not None and finding.flops is not None and before:
        intensity = Intensity(before=round(finding.flops / before, 4), after=intensity.after)
    return replace(
        finding,
        traffic_bytes=Traffic(before=before, after=traffic.after),
        arithmetic_intensity=intensity,
        assumptions=(*finding.assumptions, _MEASURED),
    )


def counted_of(rows: IntArray, activities: Rows) -> Counted | None:
    """Return what was counted of these activities; None where nothing was."""
    how = category(activities, "counters").codes[rows]
    known = rows[how >= 0]
    if not len(known):
        return None
    traffic, flops = _sum(activities, "dram_bytes", known), _sum(activities, "flops", known)
    sources, bounds = category(activities, "dram_bytes_from"), category(activities, "measured_bound")
    counts = np.bincount(bounds.codes[known] + 1, minlength=len(bounds.values) + 1)[1:].tolist()
    return Counted(
        kernels=len(rows),
        known=len(known),
        exact=int((how == 0).sum()),
        dram_bytes=traffic,
        derived=bool((sources.codes[known] > sources.values.index("counters")).any()),
        flops=flops,
        arithmetic_intensity=round(flops / traffic, 4) if flops is not None and traffic else None,
        ridge=_ridge(activities, known),
        bounds={name: count for name, count in zip(bounds.values, counts, strict=True) if count},
    )


def _sum(activities: Rows, name: str, rows: IntArray) -> int | None:
    column = numbers_of(activities, name)
    return int(column.values[rows].sum()) if _all(column, rows) else None


def _ridge(activities: Rows, rows: IntArray) -> float | None:
    """Return the ridge of all of them: of kernels of different types, weighed by what they compute."""
    ridge, flops = numbers_of(activities, "ridge"), numbers_of(activities, "flops")
    if not (_all(ridge, rows) and _all(flops, rows)):
        return None
    weight: Any = np.maximum(flops.values[rows], 1)
    return round(float(weight.sum() / (weight / ridge.values[rows]).sum()), 4)


def _all(column: Numbers, rows: IntArray) -> bool:
    return column.valid is None or bool(column.valid[rows].all())
