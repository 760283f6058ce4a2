"""Findings of both sides that are the same, with what they cost together on one scale."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tracemine.comparison.record import Item, Noise
from tracemine.comparison.scale import CostScale, noise_ns
from tracemine.comparison.sides import place
from tracemine.findings.record import NOTHING, Range

IDENTITY, ALIAS, SIGNATURE = "identity", "alias", "signature"
BY_NAME = (IDENTITY, ALIAS)


# Findings that are the same, by their positions on each side, and by what they match; on one side alone where nothing
# matches.
Component = tuple[tuple[int, ...], tuple[int, ...], str | None]


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


def components(before: Sequence[Item], after: Sequence[Item], *, alike: bool) -> list[Component]:
    """Return every finding of both sides in exactly one component.

    alike: modules were recorded on both sides or on neither. Then what has its own name on the other side is that, and
    aliases are for what is left. Where they were not, a name that several findings fall together under may hold any of
    them, so names and aliases count at once.
    """
    found: list[Component] = []
    rest = (tuple(range(len(before))), tuple(range(len(after))))
    rounds: list[tuple[str, Callable[..., Iterable[tuple[int, int]]]]] = [(ALIAS, _named), (SIGNATURE, _signed)]
    if alike:
        rounds.insert(0, (IDENTITY, _named_the_same))
    for matched_by, edges in rounds:
        here, there = [before[i] for i in rest[0]], [after[j] for j in rest[1]]
        linked = _linked(edges(here, there))
        found += [
            (tuple(rest[0][i] for i in ours), tuple(rest[1][j] for j in theirs), matched_by) for ours, theirs in linked
        ]
        rest = (_left(rest[0], [ours for ours, _ in linked]), _left(rest[1], [theirs for _, theirs in linked]))
    found = [_by_name(one, before, after) for one in found]
    return [*found, *(((i,), (), None) for i in rest[0]), *(((), (j,), None) for j in rest[1])]


def _left(rows: Sequence[int], groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Return the rows whose places are in no group."""
    taken = set().union(*groups)
    return tuple(row for at, row in enumerate(rows) if at not in taken)


def _by_name(one: Component, before: Sequence[Item], after: Sequence[Item]) -> Component:
    """Return matches by identity where both sides have the same ones, whatever else would have matched them too."""
    ours, theirs = {before[i].fingerprint for i in one[0]}, {after[j].fingerprint for j in one[1]}
    return (*one[:2], IDENTITY) if ours == theirs else one


_Names = frozenset[tuple[bool, str]]


def _own(item: Item) -> _Names:
    """Return the names of a finding and of its variants. GPU time is never idle time, whatever a file says."""
    return frozenset((item.on_gpu, name) for name in (item.fingerprint, *item.variants))


def _others(item: Item) -> _Names:
    """Return what else it may be called."""
    return frozenset((item.on_gpu, name) for name in item.aliases)


def _named_the_same(before: Sequence[Item], after: Sequence[Item]) -> Iterable[tuple[int, int]]:
    yield from _joined([_own(one) for one in before], [_own(one) for one in after])


def _named(before: Sequence[Item], after: Sequence[Item]) -> Iterable[tuple[int, int]]:
    """Yield pairs of which one is called what the other is, or may be. A name that both may have matches nothing."""
    own = [_own(one) for one in before], [_own(one) for one in after]
    yield from _joined(*own)
    yield from _joined(own[0], [_others(one) for one in after])
    yield from _joined([_others(one) for one in before], own[1])


def _joined(before: Sequence[_Names], after: Sequence[_Names]) -> Iterable[tuple[int, int]]:
    rows: dict[tuple[bool, str], list[int]] = {}
    for j, keys in enumerate(after):
        for key in keys:
            rows.setdefault(key, []).append(j)
    for i, keys in enumerate(before):
        for key in keys:
            yield from ((i, j) for j in rows.get(key, ()))


def _signed(before: Sequence[Item], after: Sequence[Item]) -> Iterable[tuple[int, int]]:
    """Yield the same cause in the same place, or on the same operators: a data type or a module's name is new."""
    yield from ((i, j) for i, one in enumerate(before) for j, other in enumerate(after) if alike_in_kind(one, other))


def alike_in_kind(one: Item, other: Item) -> bool:
    """Return whether two findings that share no name may be the same cause."""
    if one.rule != other.rule or one.on_gpu != other.on_gpu:
        return False
    here, there = place(one), place(other)
    if here is None or there is None:
        return bool(set(one.ops) & set(other.ops))
    if here == there:
        return True
    same_shapes = not one.shapes or not other.shapes or bool(set(one.shapes) & set(other.shapes))
    return same_shapes and set(one.ops) == set(other.ops)


def _linked(edges: Iterable[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Return the connected components of a bipartite graph, each as its sorted nodes on both sides."""
    leader: dict[tuple[int, int], tuple[int, int]] = {}

    def root(node: tuple[int, int]) -> tuple[int, int]:
        leader.setdefault(node, node)
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for i, j in edges:
        leader[root((0, i))] = root((1, j))
    found: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for node in sorted(leader):
        found.setdefault(root(node), ([], []))[node[0]].append(node[1])
    return list(found.values())
