"""A timeline run in pieces gives what running it event by event gives, whatever waits for what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.findings.test_critical_path import RETURN, Program, change, launches, programs, recorded, works
from tests.timelines import Trace
from tracemine.findings import replay as module
from tracemine.findings.critical_path import Lanes, replay_of, segments_of
from tracemine.findings.happened import WAIT, Across, HostEvents
from tracemine.findings.replay import Replay
from tracemine.findings.scenarios import Change

SYNC, WAITS = st.just(("sync",)), st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2))


def one_by_one(replay: Replay, pace: float, changes: list[Change]) -> tuple[list[float], list[float], float]:
    """Starts and ends of activities with all changes made, each event after what it waits for; and when all is done."""
    host, saved, shorter = replay.host, dict[int, int](), dict[int, tuple[bool, bool]]()
    longer, unblocked = dict[int, int](), set[int]()
    for one in changes:
        saved.update(zip(one.rows.tolist(), one.saved_ns.tolist(), strict=True))
        calls = replay.sole_calls(one.unlaunched)
        kept = replay.operators.kept(calls).tolist()
        shorter.update({call: (one.whole or keep, True) for call, keep in zip(calls.tolist(), kept, strict=True)})
        longer.update(dict.fromkeys(replay.sole_calls(one.called).tolist(), one.call_ns))
        unblocked.update(replay.sole_calls(one.unblocked).tolist())
    ends, starts, called = dict[int, float](), dict[int, float](), dict[int, float]()
    order, segments = replay.segments.rows.tolist(), replay.segments
    first = set(segments.begins[~segments.follows].tolist())  # of each stream
    before = {row: order[place - 1] for place, row in enumerate(order) if place not in first}
    across: dict[int, list[tuple[int, int]]] = {}
    for row, source, delay in zip(
        replay.across.row.tolist(), replay.across.source.tolist(), replay.across.delay_ns.tolist(), strict=True
    ):
        across.setdefault(row, []).append((source, delay))

    def ended(row: int) -> float:
        if row not in ends:
            begins = [ended(source) + delay for source, delay in across.get(row, [])]
            if row in before:
                begins.append(ended(before[row]) + int(replay.follow_delay[row]))
            if replay.launch[row] >= 0:
                begins.append(called[int(replay.launch[row])] + int(replay.launch_delay[row]))
            elif not replay.inside[row]:
                begins.append(int(replay.start[row]))
            starts[row] = max(begins)
            ends[row] = starts[row] + int(replay.dur[row]) - saved.get(row, 0)
        return ends[row]

    now, left, gone, held = float(replay.begins), 0, False, True
    for at, call in enumerate(host.call.tolist()):
        step = int(host.work_ns[at]) / pace
        if gone:
            step = max(step - left / pace, 0.0)
        if host.blocks[at]:
            gone = False
            now += step
            if held:
                now += int(host.own_ns[at])
                if host.waits_for[at] >= 0:
                    now = max(now, ended(int(host.waits_for[at])) + int(host.after_ns[at]))
            continue
        whole, unmade = shorter.get(call, (False, False))
        if unmade:
            step = 0.0 if whole or gone else int(replay.operators.lead_ns[call]) / pace
        gone, left = unmade, 0 if whole else int(replay.operators.tail_ns[call])
        now += step + longer.get(call, 0)
        called[call] = now
        held = call not in unblocked
    for row in range(len(replay.start)):
        ended(row)
    done = []
    for activity, call, delay, took in replay.last:
        done.append(ends[activity])
        if call >= 0:
            done.append(called[call] + delay + min(took, replay.interval_ns / pace))
    return (
        [starts[row] for row in range(len(starts))],
        [ends[row] for row in range(len(ends))],
        max(done) - min(starts.values()),
    )


@settings(max_examples=150)
@given(
    program=st.one_of(
        programs(works, launches(3), launches(3), launches(1), WAITS, SYNC),
        programs(launches(3), st.tuples(st.just("launch"), st.integers(0, 2), st.just(90_000)), WAITS),
    ),
    seed=st.integers(0, 999),
    pace=st.sampled_from([1.0, 2.0, 3.7, 16.0]),
)
def test_in_pieces_and_one_by_one_is_the_same(program: Program, seed: int, pace: float) -> None:
    if all(step[0] != "launch" for step in program):
        return
    replay, order, _ = recorded(program)
    chosen = np.random.default_rng(seed)
    rows = chosen.permutation(order).tolist()
    made = [
        change(
            [row],
            [int(replay.dur[row]) // 2],
            (row,) if chosen.random() < 0.3 else (),
            (row,) if chosen.random() < 0.2 else (),
            7_000,
            (row,) if chosen.random() < 0.2 else (),
            whole=bool(chosen.random() < 0.5),
        )
        for row in rows[: len(rows) // 2 + 1]
    ]
    ran = replay.run(np.array([pace, pace * 2]), made)
    starts, ends, _ = one_by_one(replay, pace, made)
    assert ran.starts[0] == pytest.approx(starts, abs=1e-3)
    assert ran.ends[0] == pytest.approx(ends, abs=1e-3)
    (faster, fastest), (takes,) = replay.takes([(made[1:], [pace * 2, pace * 4]), (made, [pace])])
    for count in range(len(made) + 1):
        _, ends, done = one_by_one(replay, pace, made[:count])
        ran = replay.run(np.array([pace]), made[:count])
        assert ran.ends[0] == pytest.approx(ends, abs=1e-3)
        assert takes[count] == ran.done[0] == pytest.approx(done, abs=1e-3)
    assert faster[-1] == pytest.approx(one_by_one(replay, pace * 2, made[1:])[2], abs=1e-3)
    assert fastest[-1] == pytest.approx(one_by_one(replay, pace * 4, made[1:])[2], abs=1e-3)


def test_of_activities_that_overlap_on_a_stream_a_later_one_may_start_first() -> None:
    trace = Trace()
    trace.kernel("a", 90_000, 20_000, launch=(1_000, 500))
    trace.kernel("b", 95_000, 30_000, launch=(2_000, 500))
    trace.kernel("c", 125_000, 5_000, launch=(3_000, 500))
    replay = replay_of(trace.timeline())
    made = [change([0], [20_000]), change([1], [1_000])]
    ran = [replay.run(np.ones(1), made[:count]) for count in range(3)]
    assert [int(each.starts.argmin()) for each in ran] == [0, 1, 1]
    assert [each.done[0] for each in ran] == [one_by_one(replay, 1.0, made[:count])[2] for count in range(3)]


def test_of_two_changes_both_are_made_on_hosts_of_three_paces() -> None:
    replay, order, _ = recorded([("launch", 0, 20_000)] * 3)
    made = [change([row], [5_000]) for row in order[:2]]
    assert replay.run(np.ones(3), made).done.tolist() == [one_by_one(replay, 1.0, made)[2]] * 3


def test_scenarios_run_in_parts_are_those_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Program = [("work", 9_000), ("launch", 0, 20_000), ("launch", 1, 3_000), ("wait", 0, 1), ("sync",)] * 4
    replay, order, _ = recorded(program)
    made = [change([row], [int(replay.dur[row]) // 2], (row,)) for row in order[1:]]
    cases = [(made, [2.0, 1.0]), (made[1:], [2.0])]
    together = [each.tolist() for each in replay.takes(cases)]
    monkeypatch.setattr(module, "_MOST_TIMES", 6 * len(replay.segments.begins))
    assert [each.tolist() for each in replay.takes(cases)] == together
    assert len(set(together[0][0])) > 3


def test_a_call_that_does_not_block_any_more_takes_none_of_the_hosts_time() -> None:
    replay, order, _ = recorded([("launch", 0, 500), ("work", 60_000), ("sync",), ("launch", 0, 500)])
    made = [change([], [], unblocked=(order[0],))]
    before, after = replay.takes([(made, [1.0])])[0][0].tolist()
    assert (before, after) == (one_by_one(replay, 1.0, [])[2], one_by_one(replay, 1.0, made)[2])
    assert before - after == RETURN


@pytest.mark.parametrize("seed", range(20))
def test_what_is_asked_for_ends_a_segment_and_what_waits_begins_one(seed: int) -> None:
    chosen = np.random.default_rng(seed)
    count, blocking = 24, 4
    launch = np.where(chosen.random(count) < 0.9, np.arange(count), -1)
    order = np.sort(chosen.permutation(count + blocking)[:count])  # of launches, in between what blocks
    events = np.full(count + blocking, -1)
    events[order] = np.arange(count)
    call = np.where(events >= 0, events, count + np.cumsum(events < 0) - 1)
    host = HostEvents(
        call=call,
        blocks=events < 0,
        work_ns=np.ones(len(call), np.int64),
        loading_ns=np.zeros(len(call), np.int64),
        within_ns=np.zeros(len(call), np.int64),
        own_ns=np.zeros(len(call), np.int64),
        waits_for=np.where(events < 0, chosen.integers(0, count, len(call)), -1),
        after_ns=np.zeros(len(call), np.int64),
        launch=np.append(order, np.full(blocking, -1)),
    )
    row = chosen.choice(np.arange(1, count), 3, replace=False)
    across = Across(row, chosen.integers(0, row), np.zeros(3, np.int64))
    stream, start = chosen.integers(0, 3, count), np.arange(count) * 10
    lanes = Lanes(stream, start, launch, np.where(chosen.random(count) < 0.1, -1, 5))
    ends = np.sort(chosen.integers(0, count * 10, count + blocking))  # calls that block return one after another
    last = chosen.integers(0, count, 2).tolist()
    found = segments_of(lanes, host, ends, across, last)
    parts = np.split(found.rows, found.begins[1:])
    assert np.concatenate(parts).tolist() == np.lexsort((start, stream)).tolist()
    behind = np.append(found.waited, 0)[np.append(host.launch, -1)[launch]]
    turn = {number: at for at, number in enumerate(found.turns)}
    waits = np.flatnonzero(np.array(found.turns) == WAIT).tolist()
    for number, part in enumerate(parts):
        assert len(set(stream[part].tolist())) == len(set(behind[part].tolist())) == 1
        assert found.follows[number] == (number > 0 and stream[parts[number - 1][-1]] == stream[part[0]])
        for at, event in zip(waits, found.waits.tolist(), strict=True):  # all that began before the call's end is run
            assert set((start[part] < ends[call[event]]).tolist()) == {turn[number] < at}
    assert {int(part[0]) for part in parts} >= set(across.row.tolist())
    assert {int(part[-1]) for part in parts} >= {*across.source.tolist(), *host.waits_for[found.waits].tolist(), *last}
    overlapping = set(np.flatnonzero(lanes.follow_delay < 0).tolist())
    first = {int(np.flatnonzero(stream == each)[0]) for each in range(3)}
    assert {int(parts[number][-1]) for number in found.openers.tolist()} == overlapping | first
    assert {
        (int(parts[number][0]), int(parts[source][-1]), at)
        for number, each in found.across.items()
        for source, at in each
    } == set(zip(across.row.tolist(), across.source.tolist(), range(3), strict=True))
