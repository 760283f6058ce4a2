"""Variants put together to findings, one a cause and place, and taken apart again for what looks at one at a time.

What is estimated, judged and verified is a variant: operators and shapes of which every occurrence is alike. It has the
form of a finding without variants, under its own identity. What a person reads is a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from tracemine.findings.identity import Place
from tracemine.findings.record import NOTHING, Finding, Identity, Intensity, Scan, Traffic, Variant, Verified

# What a finding and a variant have in common, and a variant does not say again.
_SHARED = ("rule", "cause", "title", "severity", "reported", "dtype", "why", "fix")
_OWN = tuple(
    name for name in Variant.__struct_fields__ if name in Finding.__struct_fields__ and name not in ("identity",)
)
_EVIDENCE = ("adjacent", "consistent", "proven")
_MOST_IN_TITLE = 3  # operators


def grouped(variants: Iterable[Finding], places: Mapping[str, Place]) -> list[Finding]:
    """Findings of variants. `places`: of each variant, by its fingerprint."""
    ordered = sorted(variants, key=lambda one: places[one.fingerprint].mark)
    found = []
    for _, members in groupby(ordered, key=lambda one: places[one.fingerprint].mark):
        parts = sorted(members, key=_worth)
        place = places[parts[0].fingerprint]
        aliases = {alias for one in parts for alias in places[one.fingerprint].aliases}
        title = _title(parts[0], place.name)
        found.append(_one(parts, Identity(place.mark, tuple(sorted(aliases))), title))
    return _told_apart(found)


def apart(finding: Finding) -> tuple[Finding, ...]:
    """The variants of a finding, each in the form of a finding under its own identity; itself where it has none."""
    found, start = [], 0
    for variant in finding.variants:
        stop = start + variant.occurrences
        own = {name: getattr(variant, name) for name in _OWN}
        found.append(
            replace(
                finding,
                **own,
                fingerprint=variant.identity.finding,
                identity=variant.identity,
                activities=finding.activities[start:stop],
                per_step=None,
                variants=(),
            )
        )
        start = stop
    return tuple(found) or (finding,)


def all_apart(scan: Scan) -> Scan:
    """A scan whose findings are the variants of all, in the same order."""
    return replace(scan, findings=tuple(one for finding in scan.findings for one in apart(finding)))


def together(finding: Finding, parts: Sequence[Finding]) -> Finding:
    """A finding of which `parts` are the variants now, as `apart` gives them."""
    if not finding.variants:
        return parts[0]
    whole = _one(sorted(parts, key=_worth), finding.identity, finding.title)
    return replace(whole, per_step=finding.per_step, counters=finding.counters)


def _worth(one: Finding) -> tuple[int, int, int, str]:
    """Most worth first; where nothing tells, what takes longest."""
    return -one.step_saving_ns.mid, -one.gpu_saving_ns.mid, -one.measured_ns, one.fingerprint


def _one(parts: Sequence[Finding], identity: Identity, title: str) -> Finding:
    first = parts[0]
    flops = _sum_of([one.flops for one in parts])
    traffic = _traffic([one.traffic_bytes for one in parts])
    fused = [one.fused_ns for one in parts if one.fused_ns is not None]
    intermediates = [one.intermediate_bytes for one in parts if one.intermediate_bytes is not None]
    return replace(
        first,
        fingerprint=identity.finding,
        identity=identity,
        title=title,
        evidence=min((one.evidence for one in parts), key=_rank),
        occurrences=sum(one.occurrences for one in parts),
        activities=tuple(occurrence for one in parts for occurrence in one.activities),
        shapes=_same(one.shapes for one in parts),
        dtype=_same(one.dtype for one in parts),
        measured_ns=sum(one.measured_ns for one in parts),
        fused_ns=sum(fused, NOTHING) if len(fused) == len(parts) else None,
        traffic_bytes=traffic,
        flops=flops,
        arithmetic_intensity=_intensity(flops, traffic, [one.arithmetic_intensity for one in parts]),
        intermediate_bytes=max(intermediates) if len(intermediates) == len(parts) else None,
        gpu_saving_ns=sum((one.gpu_saving_ns for one in parts), NOTHING),
        step_saving_ns=sum((one.step_saving_ns for one in parts), NOTHING),
        reported=any(one.reported for one in parts),
        assumptions=tuple(dict.fromkeys(text for one in parts for text in one.assumptions)),
        counters=first.counters if len(parts) == 1 else None,
        verdict=_verdict(parts),
        variants=tuple(Variant(identity=one.identity, **{name: getattr(one, name) for name in _OWN}) for one in parts),
    )


def _verdict(parts: Sequence[Finding]) -> Verified | None:
    verdicts = [one.verdict for one in parts if one.verdict is not None]
    standing = [verdict for verdict in verdicts if verdict.basis != "refuted"]
    if len(verdicts) < len(parts) and not standing:
        return None  # some of it is refuted, and the rest stands
    return next(iter((*standing, *verdicts)), None)


def _rank(evidence: str) -> int:
    return _EVIDENCE.index(evidence) if evidence in _EVIDENCE else 0  # a stored file may say anything


def _sum_of(counts: Sequence[int | None]) -> int | None:
    """Their sum; None where one is not known, or beyond 64 bits."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) and sum(known) < 1 << 63 else None


def _traffic(traffics: Sequence[Traffic | None]) -> Traffic | None:
    before, after = (
        _sum_of([None if one is None else getattr(one, name) for one in traffics]) for name in ("before", "after")
    )
    return None if before is None or after is None else Traffic(before=before, after=after)


def _intensity(flops: int | None, traffic: Traffic | None, parts: Sequence[Intensity | None]) -> Intensity | None:
    """FLOP per byte of all of them; that of one alone as it is."""
    if len(parts) == 1:
        return parts[0]
    if flops is None or traffic is None or not traffic.before or not traffic.after:
        return None
    ridges = {None if one is None else one.ridge for one in parts}
    before, after = (round(flops / nbytes, 4) for nbytes in (traffic.before, traffic.after))
    return Intensity(before=before, after=after, ridge=ridges.pop() if len(ridges) == 1 else None)


def _same(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


# --- titles ----------------------------------------------------------------------------------------------------------


def _title(first: Finding, place: str | None) -> str:
    """The rule's title and where it is: the module's class, else the function, else the operators. Of a cause that is
    in no place, the rule's title alone."""
    return first.title if place is None else f"{first.title}: {place or _operators(first)}"


def _told_apart(findings: Sequence[Finding]) -> list[Finding]:
    """Titles that are the same get what differs: operators, the data type, in the end the fingerprint."""
    found = list(findings)
    for more in (_operators, lambda f: f.dtype or "", lambda f: f.fingerprint[:6]):
        titles = [finding.title for finding in found]
        found = [
            replace(one, title=f"{one.title} · {more(one)}") if titles.count(one.title) > 1 and more(one) else one
            for one in found
        ]
    return found


def _operators(finding: Finding) -> str:
    names = list(dict.fromkeys(name.removeprefix("aten::") for name in finding.ops))
    return ", ".join(names[:_MOST_IN_TITLE]) + (" …" if len(names) > _MOST_IN_TITLE else "")
