"""A timeline run in pieces gives what running it event by event gives, whatever waits for what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.findings.test_critical_path import Program, change, launches, programs, recorded, works
from tracemine.findings import replay as module
from tracemine.findings.replay import Change, Replay

SYNC, WAITS = st.just(("sync",)), st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2))


def one_by_one(replay: Replay, pace: float, changes: list[Change]) -> tuple[list[float], list[float]]:
    """Starts and ends of activities with all changes made, each event after what it waits for."""
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
    before = {}
    for place, row in enumerate(replay.segments.rows.tolist()):
        earlier = replay.segments.rows[place - 1] if place else -1
        if any(
            not isinstance(turn, int) and turn.begin <= place < turn.end and (place > turn.begin or turn.follows)
            for turn in replay.segments.turns
        ):
            before[row] = int(earlier)
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
    return [starts[row] for row in range(len(starts))], [ends[row] for row in range(len(ends))]


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
    ran = replay.run(np.array([pace, pace * 2] + [pace] * len(made)), made)  # all in all
    starts, ends = one_by_one(replay, pace, made)
    assert ran.starts[0] == pytest.approx(starts, abs=1e-3)
    assert ran.ends[0] == pytest.approx(ends, abs=1e-3)
    in_turn = replay.run(np.full(len(made) + 1, pace), made)
    for count in range(len(made) + 1):
        assert in_turn.ends[count] == pytest.approx(one_by_one(replay, pace, made[:count])[1], abs=1e-3)


def test_scenarios_run_in_parts_are_those_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Program = [("work", 9_000), ("launch", 0, 20_000), ("launch", 1, 3_000), ("wait", 0, 1), ("sync",)] * 4
    replay, order, _ = recorded(program)
    made = [change([row], [int(replay.dur[row]) // 2], (row,)) for row in order[1:]]
    together = replay.takes(made, 2.0)
    monkeypatch.setattr(module, "_MOST_TIMES", 3 * len(order))
    assert replay.takes(made, 2.0).tolist() == together.tolist()
    assert len(set(together.tolist())) > 3
