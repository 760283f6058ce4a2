"""Variants grouped into findings, one a cause and place, and taken apart again for what looks at one at a time.

What is estimated, judged and verified is a variant: operators and shapes that all its occurrences share. It has the
form of a finding without variants, under its own identity. What a person reads is a finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from tracemine.findings.identity import Place
from tracemine.findings.record import Finding, Identity, Scan, Variant, Verified
from tracemine.findings.variant import common, intensity, totals

# What a variant says of itself, and its finding of all.
_OWN = tuple(
    name for name in Variant.__struct_fields__ if name in Finding.__struct_fields__ and name not in ("identity",)
)
_OTHERS = ("TensorRT::", "onnx::", "xla::")
_MOST_IN_TITLE, _MOST_NAMES = 3, 2  # operators, and places


def grouped(variants: Iterable[Finding], places: Mapping[str, Place]) -> list[Finding]:
    """Group variants into findings, one a cause and thing to change. `places`: of each variant, by its fingerprint."""

    def mark(one: Finding) -> str:
        return places[one.fingerprint].mark

    found = []
    of_place = [list(members) for _, members in groupby(sorted(variants, key=mark), key=mark)]
    for members in _to_change(of_place):
        parts = sorted(members, key=_worth)
        every = [places[part.fingerprint] for part in parts]
        own = min(place.mark for place in every)
        aliases = {alias for place in every for alias in (place.mark, *place.aliases)} - {own}
        names = list(dict.fromkeys(place.name for place in every))
        title = _title(parts[0], ", ".join(filter(None, names[:_MOST_NAMES])) if len(names) > 1 else names[0])
        found.append(_finding_of(parts, Identity(own, tuple(sorted(aliases))), title))
    return _distinguished(found)


def _to_change(of_place: Iterable[list[Finding]]) -> list[list[Finding]]:
    """Join the places of a cause that one function makes: called by several modules, it is one thing to change."""
    found: dict[tuple[object, ...], list[Finding]] = {}
    for members in of_place:
        first = min(members, key=_worth)
        source = first.source[0] if first.source and first.on_gpu else None
        place = None if source is None else (source.file, source.line, source.function)
        key = (first.fingerprint,) if place is None else (first.rule, first.dtype, place)
        found.setdefault(key, []).extend(members)
    return list(found.values())


def of_torch(ops: Iterable[str]) -> bool:
    """Return whether operators are such as PyTorch has, and none is an engine's or another compiler's.

    >>> of_torch(["aten::mul"]), of_torch(["xla::product", "memcpy"])
    (True, False)
    """
    return not any(op.startswith(_OTHERS) for op in ops)


def one_kernel_fixes(finding: Finding) -> bool:
    """Return whether one kernel would fix a finding, or a variant of it: others close gaps or change copies, or are of
    programs whose kernels are not generated here.
    """
    every = finding.variants or (finding,)
    return (
        bool(finding.activities)
        and of_torch(finding.ops)
        and any(one.fused_ns is not None and one.gpu_saving_ns.high > 0 for one in every)
    )


def variants_of(finding: Finding) -> tuple[Finding, ...]:
    """Return the variants of a finding, each as a finding under its own identity; itself where it has none."""
    found, start = [], 0
    for variant in finding.variants:
        stop = start + variant.occurrences
        own = {name: getattr(variant, name) for name in _OWN} | {"dtype": variant.dtype or finding.dtype}
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


def scan_of_variants(scan: Scan) -> Scan:
    """Return a scan whose findings are the variants of all, in the same order."""
    return replace(scan, findings=tuple(one for finding in scan.findings for one in variants_of(finding)))


def with_variants(finding: Finding, parts: Sequence[Finding]) -> Finding:
    """Return a finding of which `parts` are the variants now, as `variants_of` gives them."""
    if not finding.variants:
        return parts[0]
    whole = _finding_of(sorted(parts, key=_worth), finding.identity, finding.title)
    return replace(whole, per_step=finding.per_step, counters=finding.counters)


def _worth(one: Finding) -> tuple[int, int, int, str]:
    """Order by worth, most first; where nothing tells, what takes longest."""
    return -one.step_saving_ns.mid, -one.gpu_saving_ns.mid, -one.measured_ns, one.fingerprint


def _finding_of(parts: Sequence[Finding], identity: Identity, title: str) -> Finding:
    first = parts[0]
    sums = totals(parts)
    of_parts = [part.arithmetic_intensity for part in parts]
    ridge = common(None if each is None else each.ridge for each in of_parts)
    return replace(
        first,
        fingerprint=identity.finding,
        identity=identity,
        title=title,
        occurrences=sum(part.occurrences for part in parts),
        activities=tuple(occurrence for part in parts for occurrence in part.activities),
        shapes=common(part.shapes for part in parts),
        dtype=common(part.dtype for part in parts),
        arithmetic_intensity=of_parts[0] if len(parts) == 1 else intensity(sums["flops"], sums["traffic_bytes"], ridge),
        reported=any(part.reported for part in parts),
        counters=first.counters if len(parts) == 1 else None,
        verdict=_verdict(parts),
        variants=tuple(
            Variant(identity=part.identity, **{name: getattr(part, name) for name in _OWN}) for part in parts
        ),
        **sums,
    )


def _verdict(parts: Sequence[Finding]) -> Verified | None:
    verdicts = [part.verdict for part in parts if part.verdict is not None]
    standing = [verdict for verdict in verdicts if verdict.basis != "refuted"]
    if len(verdicts) < len(parts) and not standing:
        return None  # some of it is refuted, and the rest stands
    return next(iter((*standing, *verdicts)), None)


# --- titles ----------------------------------------------------------------------------------------------------------


def _title(first: Finding, place: str | None) -> str:
    """Return the rule's title and place: the module's class, else the function, else the operators; None has none."""
    return first.title if place is None else f"{first.title}: {place or _operators(first)}"


def _distinguished(findings: Sequence[Finding]) -> list[Finding]:
    """Distinguish equal titles by operators, by data type, in the end by fingerprint."""
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
