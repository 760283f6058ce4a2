"""Whether a cost is gone, or only its finding: what operators took on both sides, whoever claims it.

A finding may be missing because another one claims its activities, or because what the rule needs was not recorded.
Its operators then take as long as before. So a change is believed where they take less by half of it at least, and
what they take less, up to all of it, is used up: no two changes rest on one nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tracemine.findings.record import Range

_ENOUGH = 2  # one half of the change


@dataclass(frozen=True, slots=True, kw_only=True)
class ToConfirm:
    """A change to confirm: so many nanoseconds less on one side."""

    number: int  # of the change
    mark: str  # orders changes of the same size, on whatever side they are
    ns: int
    ops: Sequence[str]
    one_sided: bool  # then no idle time may have come in its place elsewhere


@dataclass(slots=True)
class Remaining:
    """How much less operators take on one side than on the other, as far as it is not used up."""

    more: Mapping[str, Range]  # on the side that had it
    less: Mapping[str, Range]
    whole_counts: bool  # of idle time: it must be gone, not be waited for elsewhere
    wanted: Mapping[str, int]  # by how many changes an operator's time is needed
    left: dict[str, int] = field(init=False)
    left_in_all: int = field(init=False)

    def __post_init__(self) -> None:
        none = Range(0, 0, 0)
        # What is known of estimates: the low end on one side, the high end on the other.
        self.left = {name: max(ns.low - self.less.get(name, none).high, 0) for name, ns in self.more.items()}
        self.left_in_all = sum(ns.low for ns in self.more.values()) - sum(ns.high for ns in self.less.values())

    def confirms(self, candidate: ToConfirm) -> bool:
        """Return whether there is room for a change; if so, it is used up."""
        ops = [op for op in dict.fromkeys(candidate.ops) if self.left.get(op)]
        had = sum(self.more[op].high for op in dict.fromkeys(candidate.ops) if op in self.more)
        need = min(candidate.ns, had)
        room = sum(self.left[op] for op in ops)
        if not need or _ENOUGH * room < need:
            return False
        if self.whole_counts and candidate.one_sided and _ENOUGH * self.left_in_all < need:
            return False
        used = min(need, room)
        self.left_in_all -= used
        for op in sorted(ops, key=lambda one: (self.wanted[one], one)):  # what no other needs first
            part = min(self.left[op], used)
            self.left[op] -= part
            used -= part
        return True


def confirmed(candidates: Iterable[ToConfirm], room: Remaining) -> set[int]:
    """Return the numbers of the changes that there is room for, the largest first."""
    return {one.number for one in sorted(candidates, key=lambda each: (-each.ns, each.mark)) if room.confirms(one)}
