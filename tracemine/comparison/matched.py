"""Findings of both sides that are the same, with what they cost together on one scale."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tracemine.comparison.record import Item, Noise
from tracemine.comparison.scale import CostScale, noise_ns
from tracemine.findings.record import NOTHING, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A component with its findings and costs."""

    before: tuple[Item, ...]
    after: tuple[Item, ...]
    matched_by: str | None
    costs: tuple[Range, Range]
    noise_ns: int

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.before, *self.after)

    @property
    def on_gpu(self) -> bool:
        return self.items[0].on_gpu

    @property
    def one_sided(self) -> bool:
        return not self.before or not self.after

    @property
    def less_ns(self) -> int:
        """By how much it costs less, at least; negative: more, at least; 0: that is not known."""
        before, after = self.costs
        if before.low >= after.high:
            return before.low - after.high
        return min(before.high - after.low, 0)

    @property
    def saved_ns(self) -> int:
        """What its fixes were said to save of GPU time; 0: that is not known."""
        return sum(item.gpu_saving_ns.mid for item in self.items)

    @property
    def ops(self) -> tuple[str, ...]:
        """In an order that is the same whichever side is which."""
        return tuple(sorted({op for item in self.items for op in item.ops}))

    @property
    def mark(self) -> str:
        return min(item.fingerprint for item in self.items)


def matched(
    before: Sequence[Item],
    after: Sequence[Item],
    matched_by: str | None,
    *,
    scales: tuple[CostScale, CostScale],
    noise: Noise,
) -> Matched:
    """Return findings of one component, at least one, with what they cost on each side."""
    costs = (
        sum((scales[0].of(item) for item in before), NOTHING),
        sum((scales[1].of(item) for item in after), NOTHING),
    )
    on_gpu = (*before, *after)[0].on_gpu
    largest = max(cost.mid for cost in costs)
    return Matched(
        before=tuple(before),
        after=tuple(after),
        matched_by=matched_by,
        costs=costs,
        noise_ns=noise_ns(noise, largest, scales, on_gpu=on_gpu),
    )


def held_elsewhere(
    found: Sequence[Matched], believed: Collection[int], joined: Callable[[Matched, Matched], Matched]
) -> list[Matched]:
    """Join what is on one side alone to the finding that holds its kernels on the other side.

    Where two recordings tell unlike things, one divides into two findings what is one in the other. A finding of one
    side is joined where its operators take as long on both (it is not in `believed`), where a finding of both sides has
    all of its operators, and where they cost together what that one costs on the other side.
    """
    alone = [at for at, one in enumerate(found) if one.one_sided and one.on_gpu and at not in believed]
    alone.sort(key=lambda at: (-_largest(found[at]), found[at].mark))
    whole = dict(enumerate(found))
    hosts = [at for at, one in enumerate(found) if one.on_gpu and not one.one_sided]
    for at in sorted(hosts, key=lambda at: (-abs(found[at].less_ns), found[at].mark)):
        wider, parts = found[at], []
        for number in alone:
            part = found[number]
            both = joined(wider, part)
            if set(part.ops) <= set(wider.ops) and _apart(both) < _apart(wider):
                wider = both
                parts.append(number)
        if parts and abs(wider.less_ns) <= wider.noise_ns:
            whole[at] = wider
            alone = [number for number in alone if number not in parts]
            for number in parts:
                del whole[number]
    return list(whole.values())


def _apart(one: Matched) -> int:
    return abs(one.costs[0].mid - one.costs[1].mid)


def _largest(one: Matched) -> int:
    return max(cost.mid for cost in one.costs)
