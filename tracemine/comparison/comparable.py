"""What is not the same on both sides besides the program: said first, and what it may explain is not called fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracemine.comparison.record import About, Differs, Item
from tracemine.findings.record import Recorded

_OPERATORS_LOST = 0.1  # share of GPU time whose operator is known on one side alone
_YES_NO = {True: "recorded", False: "not recorded"}


def differing(before: About, after: About) -> Iterator[Differs]:
    """What the two recordings say of themselves and do not agree in; what is not known is not held against them."""
    if bool(before.steps) != bool(after.steps):
        texts = [f"{one.steps} steps" if one.steps else "none are known" for one in (before, after)]
        yield Differs(what="steps", before=texts[0], after=texts[1], explains=True)
    yield from _unless_equal("gpu", before.gpu, after.gpu, explains=True)
    yield from _unless_equal("format", before.format, after.format)
    one, other = before.recorded, after.recorded
    if one is None or other is None:
        return
    yield from _recorded(one, other)


def _recorded(one: Recorded, other: Recorded) -> Iterator[Differs]:
    yield from _unless_equal("devices", one.devices, other.devices, explains=True)
    yield from _unless_equal("world_size", one.world_size, other.world_size, explains=True)
    if abs(one.operators - other.operators) > _OPERATORS_LOST:
        texts = [f"known of {each.operators:.0%} of GPU time" for each in (one, other)]
        yield Differs(what="operators", before=texts[0], after=texts[1], explains=False)
    for name in ("shapes", "stacks", "traced", "tensors"):
        yield from _unless_equal(name, *(_YES_NO[getattr(each, name)] for each in (one, other)))
    yield from _unless_equal("torch", one.torch, other.torch)
    yield from _unless_equal("tracemine", one.tracemine, other.tracemine)


def _unless_equal(what: str, one: object, other: object, *, explains: bool = False) -> Iterator[Differs]:
    if one is not None and other is not None and one != other:
        yield Differs(what=what, before=str(one), after=str(other), explains=explains)


def inputs(pairs: Sequence[tuple[Sequence[Item], Sequence[Item]]]) -> Iterator[Differs]:
    """Other shapes went through most of what is the same, by time of matched GPU findings."""
    known = [(ours, theirs) for ours, theirs in pairs if shapes(ours) and shapes(theirs)]
    other = [pair for pair in known if not shapes(pair[0]) & shapes(pair[1])]
    whole, moved = (sum(_ns([*ours, *theirs]) for ours, theirs in each) for each in (pairs, other))
    if other and 2 * moved > whole:
        texts = [min(shapes(side)) for side in max(other, key=lambda pair: _ns([*pair[0], *pair[1]]))]
        yield Differs(what="inputs", before=texts[0], after=texts[1], explains=True)


def _ns(items: Sequence[Item]) -> int:
    return sum(item.measured_ns for item in items)


def shapes(items: Sequence[Item]) -> set[str]:
    """All shapes of some findings."""
    return {shape for item in items for shape in item.shapes}
