"""Collectives that need not be, by a rank's own trace: what is told of them, and what looks like them and is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.causes.communication import US, Rank
from tracemine.ranks.exposed import serialised
from tracemine.ranks.operators import collecting_ns
from tracemine.ranks.parts import NAMES
from tracemine.ranks.summary import RankSummary, summarise
from tracemine.rows.spans import Spans

PART, WHOLE = [1024, 512], [4096, 512]


def summary(rank: Rank, number: int = 0) -> RankSummary:
    return summarise(rank.trace.timeline(), f"rank{number}.json", number)


def parts(rank: Rank) -> dict[str, int]:
    """Return how many collectives are there for what."""
    found = summary(rank)
    return {name: int((found.part == at).sum()) for at, name in enumerate(NAMES) if (found.part == at).any()}


def gathers(between: list[tuple[str, list[list[int]]]], *, shape: list[int] = PART, stream: int = 7) -> Rank:
    """Steps of pairs of all-gathers on a stream, what is given between the two of each pair."""
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for _ in range(3):
            rank.compute("aten::add", 20, shapes=[PART, PART])
            rank.send("_allgather_base", 1 << 19, 60, stream=stream, shapes=[PART])
            for op, shapes in between:
                rank.compute(op, 50, shapes=shapes)
            rank.send("_allgather_base", 1 << 19, 60, stream=stream, shapes=[shape])
            rank.compute("aten::mm", 50, shapes=[WHOLE, [512, 64]])
    return rank


READS = ("aten::mm", [WHOLE, [512, 64]])


def test_what_is_gathered_again_with_nothing_but_readers_between() -> None:
    assert parts(gathers([READS])) == {"again": 6}
    assert parts(gathers([READS, READS])) == {"again": 6}


@pytest.mark.parametrize(
    "near",
    [
        gathers([READS, ("aten::add", [PART, PART])]),  # the input may be another one by then
        gathers([READS, ("aten::silu", [[4096, 64]])]),
        gathers([]),
        gathers([READS], shape=[1024, 256]),
        gathers([READS], stream=19),  # of a wrapper that gathers ahead
    ],
)
def test_layers_that_follow_each_other_are_not_gathered_again(near: Rank) -> None:
    assert parts(near) == {}


def sharded(passes: int, *, backward: bool = True, marked: bool = True) -> Rank:
    """Steps in which two modules' parameters are gathered for so many forward passes, and for the backward ones."""
    rank = Rank(steps=2 if marked else 0)
    if not marked:
        rank.steps = [{"start_ns": 1_000_000 + n * 20_000 * US, "row": None} for n in range(2)]
    for step in range(2):
        rank.host = rank.steps[step]["start_ns"] + US
        rank.at = rank.host + 50 * US
        rank.step = rank.steps[step] if marked else None  # type: ignore[assignment]
        for _ in range(passes):
            for around in ["FSDP::pre_forward ({})"] + ["FSDP::pre_backward ({})"] * backward:
                for module in "ab":
                    inside = (around.format(module), f"FSDP::all_gather ({module})", "c10d::_allgather_base_")
                    rank.send("_allgather_base", 1 << 20, 90, inside)
                    rank.compute(took_us=200)
    return rank


def test_parameters_that_a_step_gathers_for_each_of_its_batches() -> None:
    assert parts(sharded(4)) == {"regathered": 2 * 2 * 4}  # those of the backward passes
    assert parts(sharded(4, backward=False)) == {"regathered": 2 * 2 * 3}  # all but the first


@pytest.mark.parametrize("near", [sharded(1), sharded(1, backward=False), sharded(4, marked=False)])
def test_once_for_each_pass_is_chosen_and_without_marks_of_steps_nothing_is_known(near: Rank) -> None:
    assert parts(near) == {}


def two_groups(*, same: bool = False, elements: int = 3 << 20, late_us: int = 0) -> list[RankSummary]:
    """Ranks that reduce over one group and right behind it over another, on one stream."""
    found = []
    for number in range(2):
        rank = Rank()
        for step in range(2):
            rank.begin(step)
            for _ in range(3):
                rank.compute(took_us=500)
                rank.send(elements=1 << 20, took_us=400, ranks=2)
                behind: dict[str, Any] = {"ranks": 2 if same else 4, "start": rank.at + 2 * US}
                if late_us:
                    rank.host = rank.at
                rank.send(elements=elements, took_us=300, **behind)
        found.append(summary(rank, number))
    return found


def queued(ranks: list[RankSummary]) -> list[str]:
    from tracemine.ranks.clocks import clocks_of
    from tracemine.ranks.match import matched
    from tracemine.ranks.replay import JobReplay
    from tracemine.ranks.unprofiled import unprofiled

    matches = matched(ranks)
    job = JobReplay(ranks, matches, clocks_of(ranks, matches.blocks))
    none = np.zeros(len(job.members), np.bool_)
    job.is_whole[:] = True  # two ranks stand for the four of the other group
    return [one.rule for one in serialised(unprofiled(job), none)]


def test_a_collective_that_stands_behind_another_groups() -> None:
    assert queued(two_groups()) == ["serialised_collectives"]


@pytest.mark.parametrize(
    "near",
    [
        {"same": True},
        {"elements": 1 << 20},
        {"late_us": 1},
    ],  # order is kept; may read the first's result; just launched
)
def test_collectives_that_keep_their_order_may_depend_or_come_later_do_not(near: dict[str, Any]) -> None:
    assert queued(two_groups(**near)) == []


def test_garbage_is_told_where_it_is_marked_or_timed() -> None:
    rank = Rank()
    rank.begin(0)
    rank.compute()
    begin, end = rank.host + 10 * US, rank.host + 510 * US
    silence = Spans.of(np.array([begin]), np.array([end]))
    assert collecting_ns(rank.trace.timeline(), silence) == 0
    rank.trace.op("Python GC", begin + 100 * US, 300 * US)
    assert collecting_ns(rank.trace.timeline(), silence) == 300 * US
    timed = Rank()
    timed.begin(0)
    timed.compute()
    timeline = timed.trace.timeline()
    meta = replace(timeline.meta, garbage_ns=((begin, begin + 200 * US, 1),))
    assert collecting_ns(replace(timeline, meta=meta), silence) == 200 * US
