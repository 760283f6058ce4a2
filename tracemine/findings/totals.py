"""Totals over the parts of a finding, be they classes of matches or variants: None where one part's is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.record import NOTHING, Finding, Intensity, Traffic

_T = TypeVar("_T")
_EVIDENCE = ("adjacent", "consistent", "proven")


def totals(parts: Sequence[ClassEstimate] | Sequence[Finding]) -> dict[str, Any]:
    """Return the fields of a finding that its parts add up to."""
    fused_ns = _known(part.fused_ns for part in parts)
    intermediate_bytes = _known(part.intermediate_bytes for part in parts)
    return {
        "evidence": min((part.evidence for part in parts), key=_rank),
        "measured_ns": sum(part.measured_ns for part in parts),
        "fused_ns": None if fused_ns is None else sum(fused_ns, NOTHING),
        "traffic_bytes": _traffic([part.traffic_bytes for part in parts]),
        "flops": _sum_of(part.flops for part in parts),
        "intermediate_bytes": None if intermediate_bytes is None else max(intermediate_bytes),
        "gpu_saving_ns": sum((part.gpu_saving_ns for part in parts), NOTHING),
        "step_saving_ns": sum((part.step_saving_ns for part in parts), NOTHING),
        "assumptions": tuple(dict.fromkeys(text for part in parts for text in part.assumptions)),
    }


def intensity(flops: int | None, traffic: Traffic | None, ridge: float | None) -> Intensity | None:
    """Return FLOP per byte, as it is and with one kernel, and the device's ridge point."""
    if flops is None or traffic is None or not traffic.before or not traffic.after:
        return None
    before, after = (round(flops / nbytes, 4) for nbytes in (traffic.before, traffic.after))
    return Intensity(before=before, after=after, ridge=None if ridge is None else round(ridge, 2))


def common(values: Iterable[_T | None]) -> _T | None:
    """Return what all values are; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _known(values: Iterable[_T | None]) -> list[_T] | None:
    """Return the values where all are known.

    >>> _known([1, 2]), _known([1, None])
    ([1, 2], None)
    """
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else None


def _sum_of(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None also beyond 64 bits, which only a made-up shape reaches."""
    known = _known(counts)
    return sum(known) if known is not None and sum(known) < 1 << 63 else None


def _traffic(traffics: Sequence[Traffic | None]) -> Traffic | None:
    before, after = (
        _sum_of(None if one is None else getattr(one, name) for one in traffics) for name in ("before", "after")
    )
    return None if before is None or after is None else Traffic(before=before, after=after)


def _rank(evidence: str) -> int:
    return _EVIDENCE.index(evidence) if evidence in _EVIDENCE else 0  # a stored file may say anything
