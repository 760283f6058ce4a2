"""What is not the same on both sides besides the program: said first, and what it may explain is not called fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracemine.comparison.record import ComparedSide, Differs, Item
from tracemine.findings.record import Recorded
from tracemine.patterns import deferred
from tracemine.timeline import producer_named

_OPERATORS_LOST = 0.1  # share of GPU time whose operator is known on one side alone
_FEWEST_SHARED = 0.5  # share of GPU time whose operators the other side has too; with less it is another program
_WORDS = deferred(r"[A-Za-z]+(?:\d+[a-z]+)*")
# Of kernels that a compiler named: what is said besides the operators in them.
_BESIDE = frozenset(("triton", "poi", "red", "per", "tem", "fused", "to", "copy", "view", "unsafe", "aten"))
_WRAPPERS = frozenset(("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"))
_HOST_TIMED = {"onnxruntime"}  # formats whose runs of the host compare, where no GPU was recorded
_YES_NO = {True: "recorded", False: "not recorded"}


def incomparable(before: ComparedSide, after: ComparedSide, *, matched: bool) -> Iterator[Differs]:
    """Yield why nothing of both compares. matched: whether a finding of one is in the other, by name;
    that the device waits for the host says nothing.
    """
    sides = (before, after)
    cut = [side.about.recorded is not None and side.about.recorded.cut_off for side in sides]
    idle = [not side.about.gpu_busy_ns and not (side.spent is not None and side.spent.gpu_ns) for side in sides]
    if any(cut):
        yield Differs(what="cut_off", **_texts(cut, "cut off", "whole"), explains=True)
    host_timed = all(idle) and {side.about.format for side in sides} <= _HOST_TIMED
    if any(idle) and not host_timed:
        yield Differs(what="gpu_activity", **_texts(idle, "none", "recorded"), explains=True)
    elif not matched and not _producers(before, after) and _unrelated(before, after):
        yield Differs(what="program", before=before.about.trace, after=after.about.trace, explains=True)


def _producers(before: ComparedSide, after: ComparedSide) -> tuple[str, str] | None:
    """Return what made the kernels of both sides where that is not the same, torch.compile and PyTorch being so."""
    one, other = (producer_named(side.about.format) for side in (before, after))
    if one == other or before.spent is None or after.spent is None:
        return None
    return before.spent.made_by or one, after.spent.made_by or other


def _texts(wrong: Sequence[bool], yes: str, no: str) -> dict[str, str]:
    return dict(zip(("before", "after"), (yes if one else no for one in wrong), strict=True))


def _unrelated(before: ComparedSide, after: ComparedSide) -> bool:
    """Return whether no class of a module is in both, and less than half of one side's operator time in the other."""
    if before.spent is None or after.spent is None or _classes(before) & _classes(after):
        return False
    ours, theirs = before.spent.gpu_ns, after.spent.gpu_ns
    shares = [_shared(ours, theirs), _shared(theirs, ours)]
    return None not in shares and min(share for share in shares if share is not None) < _FEWEST_SHARED


def _classes(side: ComparedSide) -> set[str]:
    parts = {part.rstrip("*_") for item in side.items for part in (item.module or "").split(".")}
    return parts - _WRAPPERS - {""}


def _shared(ours: Mapping[str, int], theirs: Mapping[str, int]) -> float | None:
    """Return the share of our time whose operators are there too; None: no name says what runs.

    Only those of PyTorch's operators say it, and those that a compiler made of operators: of these one is enough.
    """
    there = {word for name in theirs for word in _words(name)}
    known = {name: ns for name, ns in ours.items() if _words(name)}
    also = (ns for name, ns in known.items() if (set.issubset if _is_operator(name) else _meet)(_words(name), there))
    return sum(also) / sum(known.values()) if any(known.values()) else None


def _meet(ours: set[str], theirs: set[str]) -> bool:
    return bool(ours & theirs)


def _is_operator(name: str) -> bool:
    return name.startswith("aten::")


def _words(name: str) -> set[str]:
    known = _is_operator(name) or name.startswith("triton_")
    return set(_WORDS.findall(name)) - _BESIDE if known else set()


def differing(ours: ComparedSide, theirs: ComparedSide) -> Iterator[Differs]:
    """Yield what the two recordings say of themselves and do not agree in; unknown facts are not held against them."""
    before, after = ours.about, theirs.about
    producers = _producers(ours, theirs)
    if producers is not None:
        yield Differs(what="producer", before=producers[0], after=producers[1], explains=True)
    if bool(before.steps) != bool(after.steps):
        texts = [f"{one.steps} steps" if one.steps else "none are known" for one in (before, after)]
        yield Differs(what="steps", before=texts[0], after=texts[1], explains=True)
    yield from _unless_equal("gpu", before.gpu, after.gpu, explains=True)
    if producers is None:
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
    """Yield other shapes went through most of what is the same, by time of matched GPU findings."""
    known = [(ours, theirs) for ours, theirs in pairs if shapes(ours) and shapes(theirs)]
    other = [pair for pair in known if not shapes(pair[0]) & shapes(pair[1])]
    whole, moved = (sum(_ns([*ours, *theirs]) for ours, theirs in each) for each in (pairs, other))
    if other and 2 * moved > whole:
        texts = [min(shapes(side)) for side in max(other, key=lambda pair: _ns([*pair[0], *pair[1]]))]
        yield Differs(what="inputs", before=texts[0], after=texts[1], explains=True)


def _ns(items: Sequence[Item]) -> int:
    return sum(item.measured_ns for item in items)


def shapes(items: Sequence[Item]) -> set[str]:
    """Return all shapes of some findings."""
    return {shape for item in items for shape in item.shapes}
