"""Fused kernels in place keep the order of all that touches the same bytes; brute force says what the order means."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.examples import examples
from tracemine.verify.step.placing import Touch, follows, schedule

BYTES = 4


def programs(draw: random.Random) -> tuple[list[list[Touch]], dict[int, list[int]]]:
    """Items that touch bytes of a few buffers, and disjoint groups of them."""
    count = draw.randint(1, 12)
    items: list[list[Touch]] = []
    for _ in range(count):
        touched = []
        for _ in range(draw.randint(0, 3)):
            begin = draw.randint(0, BYTES - 1)
            end = draw.randint(begin + 1, BYTES)
            touched.append(Touch(draw.randint(0, 2), begin, end, draw.choice((False, True))))
        items.append(touched)
    groups: dict[int, list[int]] = {}
    for item in range(count):
        group = draw.randint(-1, 2)
        if group >= 0:
            groups.setdefault(group, []).append(item)
    return items, groups


def run(items: Sequence[Sequence[Touch]], order: Sequence[int]) -> dict[tuple[int, int], object]:
    """Memory after the items ran in an order: each byte holds who wrote it, and what that one had read."""
    memory: dict[tuple[int, int], object] = {}
    for item in order:
        read = tuple(memory.get((t.buffer, b)) for t in items[item] if not t.writes for b in range(t.begin, t.end))
        for t in items[item]:
            if t.writes:
                memory.update({(t.buffer, b): hash((item, read)) for b in range(t.begin, t.end)})
    return memory


def flat(order: Sequence[int], groups: dict[int, list[int]]) -> list[int]:
    return [call for item in order for call in ([item] if item >= 0 else sorted(groups[-1 - item]))]


def possible(before: Sequence[set[int]], members: Sequence[int]) -> bool:
    """Whether calls can stand side by side: no way leads from one of them out and back into another."""
    reach = [set(b) for b in before]
    for call, mine in enumerate(reach):
        for other in list(mine):
            reach[call] |= reach[other]
    outside = [c for c in range(len(before)) if c not in members]
    return not any(any(m in reach[o] for m in members) and any(o in reach[m] for m in members) for o in outside)


@examples(400)
def test_memory_holds_the_same_whatever_is_fused(draw: random.Random) -> None:
    items, groups = programs(draw)
    planned, _ = schedule(follows(items), groups)
    order = flat(planned, groups)
    assert sorted(order) == list(range(len(items)))
    assert run(items, order) == run(items, range(len(items)))


@examples(400)
def test_a_group_stays_apart_only_where_it_cannot_stand_in_one_place(draw: random.Random) -> None:
    items, groups = programs(draw)
    before = follows(items)
    for number, members in groups.items():
        assert (number in schedule(before, {number: members})[1]) == possible(before, members)


def test_a_group_stands_as_soon_as_what_it_needs_is_there() -> None:
    makes = [Touch(0, 0, 4, writes=True)]
    before = follows(
        [makes, [Touch(0, 0, 4, writes=False)], [Touch(1, 0, 4, writes=True)], [Touch(1, 0, 4, writes=False)]]
    )
    assert schedule(before, {0: [1, 3]})[0] == (0, 2, -1)
    assert schedule(before, {0: [0, 1]})[0] == (-1, 2, 3)


def test_of_two_groups_that_need_each_other_one_stays_apart() -> None:
    # 0 gives to 1, 2 gives to 3; {0, 3} and {1, 2} would each have to come first.
    items = [
        [Touch(0, 0, 1, writes=True)],
        [Touch(0, 0, 1, writes=False)],
        [Touch(1, 0, 1, writes=True)],
        [Touch(1, 0, 1, writes=False)],
    ]
    _, placed = schedule(follows(items), {0: [0, 3], 1: [1, 2]})
    assert len(placed) == 1
