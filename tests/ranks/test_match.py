"""Matching: by number, by order where windows begin apart, by pairs; refused where no clocks allow it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec.structs import replace

from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.collectives import Collectives, ProcessGroup, SentPart
from tracemine.ranks.kernels import KernelTimes
from tracemine.ranks.match import MatchedCollectives, matched
from tracemine.ranks.summary import Meetings, RankSummary, Stretches

EVERYONE = 4
GROUP = ProcessGroup(tuple(range(EVERYONE)), EVERYONE, "default_pg")


def rank(
    number: int,
    start: list[int],
    dur: list[int],
    kind: list[str],
    *,
    nbytes: list[int] | None = None,
    sequence: list[int] | None = None,
    parts: list[tuple[SentPart, ...]] | None = None,
) -> RankSummary:
    """Return a rank that is nothing but its collectives."""
    count = len(start)
    none = np.zeros(0, np.int64)
    ones = np.ones(count, np.int64)
    nothing = Stretches(*(np.zeros(1, np.int64) for _ in range(6)))
    collectives = Collectives(
        activity=np.arange(count), kind=tuple(kind), group=np.zeros(count, np.int64), groups=(GROUP,),
        nbytes=np.array(nbytes or [8] * count, np.int64), sequence=np.array(sequence or [-1] * count, np.int64),
        elements_in=ones, elements_out=ones, blocks=ones, parts=tuple(parts or [()] * count),
    )  # fmt: skip
    return RankSummary(
        rank=number, file=f"rank{number}.json", device=None, world_size=EVERYONE, steps=1,
        window=(0, 1), collectives=collectives, start=np.array(start, np.int64), dur=np.array(dur, np.int64),
        exposed=ones * 0, stream=ones, computes=ones == 0, step=ones * 0, issue=ones, wait=ones,
        stretches=nothing, by_step=nothing, wait_ns_by_step=none, kernels=KernelTimes((), *(none for _ in range(6))),
        hosting_ns=0, silence=None, loading_ns=0, call_ns=ones, after_backward=ones == 0, part=-ones,
        queued_ns=ones * 0, meetings=Meetings(none, none.astype(np.float64)),
    )  # fmt: skip


def rows_of(found: MatchedCollectives) -> list[list[int]]:
    return [row for block in found.blocks for row in block.at.tolist()]


def job(seed: int, *, count: int = 30, numbered: bool = False, kinds: int = 2) -> tuple[list[RankSummary], list[range]]:
    """Return ranks whose recordings begin and end apart, on clocks of their own, and which collectives each one has."""
    chance = random.Random(seed)
    begun = [at * 1_000_000 + chance.randrange(300_000) for at in range(count)]
    kind = [["all_reduce", "all_gather"][chance.randrange(kinds)] for _ in range(count)]
    sizes = [1 << chance.randrange(4, 7) for _ in range(count)]
    found, has = [], []
    for number in range(EVERYONE):
        offset = chance.randrange(-(10**9), 10**9)
        first, last = chance.randrange(9), count - chance.randrange(9)
        own = range(first, last)
        start = [begun[at] + offset - chance.randrange(200_000) for at in own]
        dur = [begun[at] + 100_000 + offset - begin for at, begin in zip(own, start, strict=True)]
        found.append(
            rank(
                number, start, dur, [kind[at] for at in own], nbytes=[sizes[at] for at in own],
                sequence=list(own) if numbered else None,
            )
        )  # fmt: skip
        has.append(own)
    return found, has


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_all_that_every_rank_has_is_matched_and_nothing_else(seed: int, numbered: bool) -> None:
    ranks, has = job(seed, numbered=numbered)
    found = matched(ranks)
    common = set.intersection(*(set(own) for own in has))
    said = [{has[number][i] for number, i in enumerate(row)} for row in rows_of(found)]
    assert all(len(each) == 1 for each in said), "a wrong match"
    assert {each for row in said for each in row} == common


@pytest.mark.parametrize("ahead", [0, 20, 45])
def test_windows_that_begin_many_collectives_apart_are_put_together(ahead: int) -> None:
    kinds, start = ["all_reduce"] * 100, [at * 1_000_000 for at in range(100)]
    sizes = [8 + at % 50 for at in range(100)]
    first = rank(0, start, [1_000] * 100, kinds, nbytes=sizes)
    left = 100 - ahead
    other = rank(1, start[ahead:], [1_000] * left, kinds[ahead:], nbytes=sizes[ahead:])
    assert rows_of(matched([first, other])) == [[at, at - ahead] for at in range(ahead, 100)]


@pytest.mark.parametrize("ahead", [0, 2, 4])
def test_of_equal_collectives_those_of_one_step_are_one(ahead: int) -> None:
    start = [at * 1_000_000 for at in range(12)]
    first, other = (
        rank(number, start[by:], [1_000] * (12 - by), ["all_reduce"] * (12 - by)) for number, by in ((0, 0), (1, ahead))
    )
    first = replace(first, step=np.arange(12) // 2, numbers=tuple(range(6)))
    other = replace(other, step=np.arange(12 - ahead) // 2, numbers=tuple(range(ahead // 2, 6)))
    assert rows_of(matched([first, other])) == [[at, at - ahead] for at in range(ahead, 12)]


@pytest.mark.parametrize("seed", range(6))
def test_of_equal_collectives_the_clocks_decide_or_none_is_wrong(seed: int) -> None:
    ranks, has = job(seed, kinds=1)
    equal = [
        rank(each.rank, each.start.tolist(), each.dur.tolist(), ["all_reduce"] * len(each.start)) for each in ranks
    ]
    for row in rows_of(matched(equal)):
        assert len({has[number][i] for number, i in enumerate(row)}) <= 2  # clocks allow neighbours at most


def test_matches_that_no_clocks_allow_are_refused() -> None:
    start = [0, 1_000_000, 2_000_000]
    first = rank(0, start, [1_000] * 3, ["all_reduce"] * 3)
    other = rank(1, [0, 400_000, 3_000_000], [1_000] * 3, ["all_reduce"] * 3)
    found = matched([first, other])
    assert len(found) == 0
    assert found.unmatched["clocks refute the order"] == 6


def test_what_differs_in_size_is_dropped_and_counted() -> None:
    start = [0, 1_000_000, 2_000_000]
    first = rank(0, start, [1_000] * 3, ["all_reduce"] * 3, nbytes=[8, 8, 8])
    other = rank(1, start, [1_000] * 3, ["all_reduce"] * 3, nbytes=[8, 16, 8])
    found = matched([first, other])
    assert rows_of(found) == [[0, 0], [2, 2]]
    assert found.unmatched["kind or size differs"] == 2


def test_an_offset_lies_within_its_bound() -> None:
    for seed in range(6):
        ranks, has = job(seed, numbered=True)
        clocks = clocks_of(ranks, matched(ranks).blocks)
        for number in range(1, EVERYONE):
            common = sorted(set(has[0]) & set(has[number]))
            ends = [
                int((each.start + each.dur)[common[0] - own.start])
                for each, own in ((ranks[0], has[0]), (ranks[number], has[number]))
            ]
            true = ends[0] - ends[1]
            assert abs(clocks.offset_ns[number] - true) <= clocks.bound_ns[number]
            assert abs(clocks.offset_ns[number] - true) <= 5_000


def test_sends_are_matched_with_receives_in_order() -> None:
    to_next, from_first = SentPart("send", 1, 8), SentPart("recv", 0, 8)
    first = rank(0, [0, 10], [5, 5], ["send", "send"], parts=[(to_next,), (to_next,)])
    other = rank(1, [3, 13], [5, 5], ["recv", "recv"], parts=[(from_first,), (from_first,)])
    assert sorted(rows_of(matched([first, other]))) == [[0, 0], [1, 1]]


def test_kernels_that_exchange_with_several_are_one_match() -> None:
    both = [
        rank(0, [0], [5], ["send_recv"], parts=[(SentPart("send", 1, 8), SentPart("recv", 1, 4))]),
        rank(1, [1], [5], ["send_recv"], parts=[(SentPart("recv", 0, 8), SentPart("send", 0, 4))]),
    ]
    assert rows_of(matched(both)) == [[0, 0]]


def test_a_send_of_another_size_is_no_match() -> None:
    both = [
        rank(0, [0], [5], ["send"], parts=[(SentPart("send", 1, 8),)]),
        rank(1, [1], [5], ["recv"], parts=[(SentPart("recv", 0, 9),)]),
    ]
    found = matched(both)
    assert len(found) == 0
    assert found.unmatched["sends and receives without their pair"] == 2


@pytest.mark.parametrize("ranks", ["[0,1,...]", "[9999999999999999999999]", "[-1,2]", "{}", "[[0]]", "["])
def test_damaged_lists_of_ranks_are_no_group(ranks: str) -> None:
    from tracemine.ranks.collectives import ranks_in

    assert ranks_in(ranks) is None
