"""Which findings of two scans are the same: parts of a bipartite graph that hang together, n to m.

Without stacks the findings of several modules are one, and that one is many again with stacks. So no pairs are made:
findings that share a name are in one component, and a component's costs are compared as sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tracemine.comparison.record import Item
from tracemine.comparison.sides import place

IDENTITY, ALIAS, SIGNATURE = "identity", "alias", "signature"
BY_NAME = (IDENTITY, ALIAS)


# Findings that are the same, by their positions on each side, and by what they match; on one side alone where nothing
# matches.
Component = tuple[tuple[int, ...], tuple[int, ...], str | None]


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
