"""A timeline run again: exactly as recorded where nothing changes, and as a simulator says where something does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine.findings.critical_path import replay_of
from tracemine.findings.replay import Replay
from tracemine.findings.scenarios import Change
from tracemine.findings.steps import Fix, Steps
from tracemine.formats import open_trace
from tracemine.matching.rule import CALLS
from tracemine.perfmodel import COMPILED_CALL_NS, Range, Slowdown

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
LAUNCH, CHANGE_OVER, RETURN, CALL = 6_000, 1_000, 4_000, 2_000

# A program: ("work", ns), ("launch", stream, ns), ("wait", stream, other) or ("sync",)
Program = list[tuple[object, ...]]
works = st.tuples(st.just("work"), st.sampled_from([0, 1_000, 9_000, 60_000]))
lengths = st.sampled_from([500, 3_000, 20_000, 90_000])


def launches(streams: int) -> st.SearchStrategy[tuple[object, ...]]:
    return st.tuples(st.just("launch"), st.integers(0, streams - 1), lengths)


def programs(*steps: st.SearchStrategy[tuple[object, ...]]) -> st.SearchStrategy[Program]:
    return st.lists(st.one_of(*steps), min_size=1, max_size=30)


@dataclass
class Device:
    """A device with streams and a host with one thread, simulated event by event."""

    trace: Trace = field(default_factory=Trace)
    now: int = 0
    free: dict[int, int] = field(default_factory=dict)  # of each stream: when what was launched on it is done
    held: dict[int, int] = field(
        default_factory=dict
    )  # of each stream: when the events that it waits for have happened
    next_like_the_last: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # its start, and how long the last took
    worked: int = 0  # the host's own time
    launched: int = 0
    mark: int | None = None  # until when that is counted
    interval: float | None = None  # of the host between launches, where another program tells it

    def launch(self, stream: int, dur: int, saved: int = 0) -> None:
        start = max(
            self.now + LAUNCH,
            self.free.get(stream, -CHANGE_OVER) + CHANGE_OVER,
            self.held.pop(stream, -CHANGE_OVER) + CHANGE_OVER,
        )
        self.trace.kernel("k", start, dur - saved, launch=(self.now, CALL), stream=stream)
        self.next_like_the_last[stream] = self.now + LAUNCH, dur
        self.free[stream] = start + dur - saved
        self._count(self.now, self.now)
        self.launched += 1
        self.now += CALL

    def run(self, program: Program, shorter: dict[int, int], gone: frozenset[int] = frozenset()) -> float:
        """Carry out a program in which some launches' activities are shorter; says when all is done.

        What is gone is not launched and takes no work of the host since the launch or wait before: its activity runs
        as part of the one launched before it.
        """
        number = 0
        unspent = 0  # host work that belongs to the next launch
        kept: list[tuple[int, int, int, int]] = []  # (host work before, stream, dur, saved) of launches to be made
        for step in program:
            if step[0] == "work":
                unspent += int(str(step[1]))
            elif step[0] == "launch":
                stream, dur = int(str(step[1])), int(str(step[2]))
                if number in gone:
                    work, on, so_far, saved = kept.pop()
                    kept.append((work, on, so_far + dur, saved + shorter.get(number, 0)))
                else:
                    kept.append((unspent, stream, dur, shorter.get(number, 0)))
                unspent = 0
                number += 1
            else:
                self._make(kept)
                self.now += unspent
                unspent = 0
                if step[0] == "wait":
                    on, other = int(str(step[1])), int(str(step[2]))
                    self.trace.call("cudaStreamWaitEvent", self.now, 100)
                    self.now += 100
                    self.held[on] = max(self.held.get(on, 0), self.free.get(other, 0))
                else:
                    end = max([self.now, *self.free.values()]) + RETURN
                    self._count(self.now, end)
                    self.trace.call("cudaDeviceSynchronize", self.now, end - self.now)
                    self.now = end
        self._make(kept)
        if self.interval is None:
            self.interval = self.worked / max(self.launched - 1, 1)
        return max(
            max(self.free[stream], start + min(took, self.interval))
            for stream, (start, took) in self.next_like_the_last.items()
        )

    def _count(self, until: int, then: int) -> None:
        self.worked += 0 if self.mark is None else until - self.mark
        self.mark = then

    def _make(self, kept: list[tuple[int, int, int, int]]) -> None:
        for work, stream, dur, saved in kept:
            self.now += work
            self.launch(stream, dur, saved)
        kept.clear()


def recorded(program: Program) -> tuple[Replay, list[int], float]:
    """The replay of a program's trace, rows of its launches in order, and when it was done, since the first start."""
    device = Device()
    done = device.run(program, {})
    timeline = device.trace.timeline()
    launch = timeline.activities["launch_row"].to_pylist()
    begins = timeline.api["start_ns"].to_pylist()
    order = sorted(range(len(launch)), key=lambda row: begins[launch[row]])
    return replay_of(timeline), order, done


def change(
    rows: list[int],
    saved: list[int],
    unlaunched: tuple[int, ...] = (),
    called: tuple[int, ...] = (),
    call_ns: int = 0,
    unblocked: tuple[int, ...] = (),
    whole: bool = False,
    most_ns: int = 1 << 40,
) -> Change:
    rows_, saved_, unlaunched_, called_, unblocked_ = (
        np.array(each, np.int64) for each in (rows, saved, unlaunched, called, unblocked)
    )
    return Change(rows_, saved_, unlaunched_, whole, most_ns, called_, call_ns, unblocked_)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json.gz")), ids=lambda path: path.name)
def test_run_again_unchanged_a_recording_is_what_was_recorded(path: Path) -> None:
    timeline = open_trace(path)
    ran = replay_of(timeline).run(np.ones(2))
    done, starts, ends = ran.done, ran.starts, ran.ends
    start, dur = (np.array(timeline.activities[name].to_pylist()) for name in ("start_ns", "dur_ns"))
    assert (starts == start - start[0]).all()
    assert (ends - starts == dur).all()
    assert done.tolist() == [(start + dur).max() - start[0]] * 2


@settings(max_examples=25)
@given(
    program=programs(
        works, launches(3), st.tuples(st.just("wait"), st.integers(0, 2), st.integers(0, 2)), st.just(("sync",))
    )
)
def test_run_again_unchanged_any_timeline_is_what_was_recorded(program: Program) -> None:
    if all(step[0] != "launch" for step in program):
        return
    replay, _, _ = recorded(program)
    starts = replay.run(np.ones(1)).starts
    assert (starts[0] == replay.start).all()


@settings(max_examples=40)
@given(program=programs(works, launches(1), st.just(("sync",))), data=st.data())
def test_on_one_stream_shorter_activities_save_what_a_simulator_says(program: Program, data: st.DataObject) -> None:
    made = [step for step in program if step[0] == "launch"]
    if not made:
        return
    shorter = {at: int(data.draw(st.sampled_from([0.0, 0.3, 0.9])) * int(str(step[2]))) for at, step in enumerate(made)}
    replay, order, before = recorded(program)
    after = Device(interval=replay.interval_ns).run(program, shorter)
    (gained,) = replay.gains([change([order[at] for at in shorter], list(shorter.values()))], 1.0)
    assert gained == pytest.approx(before - after)


@settings(max_examples=40)
@given(
    program=programs(works, launches(2), launches(2), st.tuples(st.just("wait"), st.integers(0, 1), st.integers(0, 1))),
    data=st.data(),
)
def test_over_streams_that_wait_for_each_other_no_more_is_promised_than_a_simulator_gains(
    program: Program, data: st.DataObject
) -> None:
    made = [step for step in program if step[0] == "launch"]
    if not made:
        return
    shorter = {at: int(data.draw(st.sampled_from([0.0, 0.5])) * int(str(step[2]))) for at, step in enumerate(made)}
    replay, order, before = recorded(program)
    after = Device(interval=replay.interval_ns).run(program, shorter)
    (gained,) = replay.gains([change([order[at] for at in shorter], list(shorter.values()))], 1.0)
    assert gained <= before - after + CHANGE_OVER


@settings(max_examples=40)
@given(program=programs(works, launches(1), launches(1), st.just(("sync",))), data=st.data())
def test_launches_that_are_not_made_save_what_a_simulator_says_but_for_change_overs(
    program: Program, data: st.DataObject
) -> None:
    number, gone, follows = 0, set(), False
    for step in program:
        if step[0] == "launch":
            if follows and data.draw(st.booleans()):
                gone.add(number)
            number, follows = number + 1, True
        elif step[0] == "sync":
            follows = False
    if not gone:
        return
    replay, order, before = recorded(program)
    after = Device(interval=replay.interval_ns).run(program, {}, frozenset(gone))
    (gained,) = replay.gains([change([], [], tuple(order[at] for at in sorted(gone)))], 1.0)
    assert gained <= before - after <= gained + len(gone) * (LAUNCH + CHANGE_OVER)


@settings(max_examples=25)
@given(program=programs(works, launches(2), st.just(("sync",))), seed=st.integers(0, 99))
def test_what_changes_gain_one_after_another_adds_up_to_what_all_gain_and_to_no_more_than_they_save(
    program: Program, seed: int
) -> None:
    if all(step[0] != "launch" for step in program):
        return
    replay, order, _ = recorded(program)
    chosen = np.random.default_rng(seed)
    # The first launch stays: time counts from the first start, and a chain's own first member is always launched.
    gone = {row for row in order if row not in (0, order[0]) and chosen.random() < 0.3}
    each = [change([row], [int(replay.dur[row]) // 2], (row,) if row in gone else ()) for row in order]
    gained = replay.gains(each, 1.0)
    together = replay.run(np.ones(1), each).done
    nothing = replay.run(np.ones(1)).done
    assert gained.sum() == nothing[0] - together[0]
    for one, got in zip(each, gained.tolist(), strict=True):
        if not len(one.unlaunched):
            assert got <= one.saved_ns.sum()


def test_a_host_that_launched_late_hides_nothing_of_what_a_faster_one_gains() -> None:
    """All of it then ends before the time at which the recording's first activity started."""
    program: Program = [("sync",), ("work", 5_000_000), *([("work", 160_000), ("launch", 0, 3_000)] * 5)]
    replay, order, _ = recorded(program)
    (done,) = replay.run(np.array([16.0])).done
    assert 40_000 < done < 60_000  # four times 10,125 ns of the host, and a launch
    (gained,) = replay.gains([change([], [], tuple(order[1:]))], 16.0)
    assert gained == done - 5 * 3_000 - 4 * CHANGE_OVER


def test_where_the_device_sets_the_pace_the_last_activity_counts_like_any_other() -> None:
    program: Program = [("work", 1_000), ("launch", 0, 90_000)] * 2
    replay, order, _ = recorded(program)
    assert replay.gains([change(order, [60_000] * 2)], 1.0).tolist() == [120_000]


def test_where_the_host_sets_the_pace_shorter_activities_gain_nothing_and_fewer_launches_do() -> None:
    program: Program = [("work", 60_000), ("launch", 0, 3_000)] * 8
    replay, order, _ = recorded(program)
    assert replay.gains([change(order, [1_500] * 8)], 1.0).tolist() == [0]
    assert replay.gains([change([], [], tuple(order[3:5]))], 1.0).tolist() == [2 * (60_000 + CALL)]


def test_where_the_device_sets_the_pace_shorter_activities_gain_and_fewer_launches_do_not() -> None:
    program: Program = [("launch", 0, 90_000)] * 8
    replay, order, _ = recorded(program)
    assert replay.gains([change(order[1:], [10_000] * 7)], 1.0).tolist() == [70_000]
    assert replay.gains([change([], [], tuple(order[3:5]))], 1.0).tolist() == [0]


def test_a_host_twice_as_fast_is_done_in_half_the_time_until_the_device_sets_the_pace() -> None:
    program: Program = [("work", 60_000), ("launch", 0, 20_000)] * 20
    replay, _, before = recorded(program)
    done = replay.run(np.array([1.0, 2.0, 100.0])).done
    assert done[0] == before - 66_000
    assert done[1] == pytest.approx(done[0] / 2, rel=0.03)
    assert done[2] == pytest.approx(20 * 21_000, rel=0.02)


@pytest.mark.parametrize(("launches", "own_ns"), [(400, 90_000), (1_200, 3_000)])
def test_where_the_queue_is_full_a_launch_that_waits_for_room_takes_none_of_the_hosts_time(
    launches: int, own_ns: int
) -> None:
    trace, dur = Trace(), 90_000
    for at in range(launches):
        waits = at >= launches // 4 * 3  # for as long as the device takes for one of them
        begin = 3_000 * min(at, launches // 4 * 3) + max(at - launches // 4 * 3, 0) * dur
        start = LAUNCH + at * (dur + CHANGE_OVER)
        trace.kernel("k", start, dur, launch=(begin, dur if waits else CALL))
    work = replay_of(trace.timeline()).host.work_ns
    assert work[-10:] == pytest.approx(own_ns, abs=CALL)


def queued(ahead: int, every: int = 30_000, lasting: int = 90_000) -> tuple[Replay, list[int]]:
    """Ten launches on a busy device, the first of which its stream is free for so long after."""
    trace = Trace()
    for at in range(10):
        start = 1_000_000 + ahead + at * (lasting + 1_000)
        trace.kernel("k", start, lasting, launch=(1_000_000 + at * every, CALL))
    return replay_of(trace.timeline()), list(range(10))


@pytest.mark.parametrize(("ahead", "left"), [(600_000, 9 * 30_000), (LAUNCH, 9 * 30_000)])
def test_launches_that_were_queued_before_a_recording_hide_nothing_of_the_hosts_own_time(ahead: int, left: int) -> None:
    """Kernels that take next to nothing leave the step with what the host takes to launch them, step after step."""
    replay, rows = queued(ahead)
    (done,) = replay.run(np.ones(1)).done
    assert done == 10 * 90_000 + 9 * 1_000
    (gained,) = replay.gains([change(rows, [89_000] * 10)], 1.0)
    assert done - gained == pytest.approx(left, abs=30_000)


def test_a_shorter_activity_on_a_stream_that_another_waits_for_gains_and_beside_it_does_not() -> None:
    program: Program = [("launch", 0, 90_000), ("launch", 1, 20_000), ("wait", 0, 1), ("launch", 0, 3_000)]
    replay, order, _ = recorded(program)
    assert replay.gains([change([order[1]], [10_000])], 1.0).tolist() == [0]
    assert replay.gains([change([order[0]], [10_000])], 1.0).tolist() == [10_000]
    assert replay.gains([change([order[0]], [90_000])], 1.0)[0] < 90_000


def of_modules() -> Replay:
    """Seven launches, 50 µs apart, in the middle of operators that take 20 µs; the fifth and sixth are of one."""
    trace = Trace()
    both = trace.op("aten::sort", 190_000, 70_000)
    for number in range(7):
        at = 50_000 * number
        op = both if number in (4, 5) else trace.op("aten::neg", at - 10_000, 20_000)
        trace.kernel("k", at + LAUNCH, 2_000, launch=(at, CALL), op=op)
    return replay_of(trace.timeline())


@pytest.mark.parametrize(
    ("gone", "whole", "gained"),
    [
        ((2,), False, 20_000),  # the operator goes, and what Python did around it stays
        ((2,), True, 50_000),
        ((2, 3), False, 70_000),  # nobody is there to do anything in between
        ((4, 5), False, 70_000),  # the operator of both
        ((5,), False, 50_000),  # half an operator: what it did since its launch before goes
    ],
)
def test_with_a_launch_goes_its_operator(gone: tuple[int, ...], whole: bool, gained: int) -> None:
    replay = of_modules()
    assert replay.gains([change([], [], gone, whole=whole)], 1.0).tolist() == [gained]
    assert replay.gains([change([], [], gone, whole=whole)], 2.0).tolist() == [gained / 2]


@pytest.mark.parametrize(
    ("gone", "most_ns", "gained"),
    [
        ((2,), 30_000, 20_000),  # the operator, which takes less
        ((2,), 15_000, 15_000),  # half of it before the launch, and half of the rest behind
        ((2,), 5_000, 5_000),
        ((2, 3), 30_000, 10_000 + 30_000),  # what lies between two that go is not all dispatch
        ((5,), 30_000, 30_000),  # an operator that stays
    ],
)
def test_with_a_launch_no_more_goes_than_a_launch_can_take(gone: tuple[int, ...], most_ns: int, gained: int) -> None:
    replay = of_modules()
    assert replay.gains([change([], [], gone, most_ns=most_ns)], 1.0).tolist() == [gained]


def test_what_a_launch_can_take_is_of_a_host_without_a_profiler() -> None:
    one = change([], [], (5,), most_ns=20_000)  # 50 µs as recorded
    assert [of_modules().gains([one], pace).tolist() for pace in (1.0, 2.0, 4.0)] == [[20_000], [20_000], [12_500]]


def python_between(pause: int) -> tuple[Steps, Fix]:
    """Ten pairs of additions with so much Python before each."""
    trace = Trace()
    for number in range(20):
        at = number * (pause + 20_000)
        trace.kernel("add", at + LAUNCH, 2_000, launch=(at, CALL), op=trace.op("aten::add", at - 8_000, 12_000))
    none = np.zeros(0, np.int64)
    rows = np.arange(20, dtype=np.int64).reshape(10, 2)
    nowhere = np.full(20, -1, np.int64)
    steps = Steps(replay_of(trace.timeline()), None, np.zeros(20, np.int64), none, none, none, np.zeros(0), nowhere)
    return steps, Fix([rows], [Range(5_000, 10_000, 15_000)])


def test_a_loop_that_one_call_does_takes_its_own_python_along_but_no_long_work() -> None:
    gains = {}
    for pause in (60_000, 1_000_000):
        steps, fix = python_between(pause)
        gains[pause] = [steps.gains([replace(fix, call=call)])[0].mid for call in ("operator", "loop")]
    (operator, loop), (_, of_long) = gains[60_000], gains[1_000_000]
    assert operator < 10 * 35_000 < 10 * 60_000 < loop  # the operator's own dispatch; and all of ten rounds
    assert of_long <= 10 * 125_000


def test_what_python_does_between_two_launches_is_not_saved_with_one() -> None:
    gains = {}
    for pause in (0, 1_000_000):
        steps, fix = python_between(pause)
        (gains[pause],) = steps.gains([fix])
    assert 0 < gains[1_000_000].mid <= 10 * 12_000
    assert gains[1_000_000].high <= 10 * 60_000
    assert gains[1_000_000].mid <= gains[0].mid + 10 * 12_000


def test_the_hosts_part_of_the_first_step_is_told_at_every_pace() -> None:
    trace = Trace()
    for begin in (0, 1_000_000):
        trace.step(begin, 500_000)
        for at in (100_000, 300_000):
            trace.kernel("k", begin + at + LAUNCH, 50_000, launch=(begin + at, CALL))
    host = replay_of(trace.timeline()).run(np.array([1.0, 2.0, 5.0])).host_step
    assert host is not None and host.tolist() == [500_000, 250_000, 100_000]


def test_the_hosts_part_of_a_step_does_not_get_shorter_than_what_it_waits_for() -> None:
    trace = Trace()
    trace.step(0, 500_000)
    trace.kernel("k", 100_000 + LAUNCH, 300_000, launch=(100_000, CALL))
    trace.call("cudaDeviceSynchronize", 110_000, 300_000)
    host = replay_of(trace.timeline()).run(np.array([1.0, 10.0])).host_step
    assert host is not None and host[0] == 500_000
    assert 300_000 < host[1] < 340_000


@pytest.mark.parametrize("launches", [0, 1])
def test_without_a_step_or_with_one_launch_the_hosts_part_is_not_known(launches: int) -> None:
    trace = Trace()
    if launches:
        trace.step(0, 500_000)
    trace.kernel("k", 100_000 + LAUNCH, 50_000, launch=(100_000, CALL))
    assert replay_of(trace.timeline()).run(np.ones(1)).host_step is None


def test_a_call_that_costs_the_host_more_takes_from_what_fewer_launches_gain_where_the_host_sets_the_pace() -> None:
    program: Program = [("work", 60_000), ("launch", 0, 3_000)] * 8
    replay, order, _ = recorded(program)
    fewer: dict[str, Any] = {"unlaunched": tuple(order[4:6]), "called": (order[3],)}
    saved = 2 * (60_000 + CALL)
    assert replay.gains([change([], [], **fewer, call_ns=25_000)], 1.0).tolist() == [saved - 25_000]
    assert replay.gains([change([], [], **fewer, call_ns=25_000)], 2.0).tolist() == [saved / 2 - 25_000]
    assert replay.gains([change([], [], **fewer, call_ns=200_000)], 1.0).tolist() == [0]


def test_a_call_that_costs_the_host_more_costs_nothing_where_the_device_sets_the_pace() -> None:
    program: Program = [("work", 1_000), ("launch", 0, 90_000)] * 8
    replay, order, _ = recorded(program)
    without, dear = (change(order[3:5], [10_000] * 2, called=(order[3],), call_ns=call_ns) for call_ns in (0, 25_000))
    assert replay.gains([dear], 1.0).tolist() == replay.gains([without], 1.0).tolist() == [20_000]


def test_a_copy_that_the_host_does_not_wait_for_lets_it_launch_meanwhile() -> None:
    program: Program = [("launch", 0, 500_000), ("sync",), *([("work", 40_000), ("launch", 0, 5_000)] * 4)]
    replay, order, _ = recorded(program)
    (gained,) = replay.gains([change([], [], unblocked=(order[0],))], 1.0)
    assert gained >= 3 * 40_000  # the host has launched them before the copy is done
    (still,) = replay.gains([change([], [], unblocked=(order[1],))], 1.0)
    assert still == 0  # another one's wait


STEP_OF = np.array([0, 0, 0, 0, 1, 1, 1, 1, -1, -1])


def made_fix(call: str, *, unblocks: bool = False) -> tuple[Steps, Fix]:
    """Five matches of two launches each: two in each of two steps, and one in none."""
    program: Program = [("work", 50_000), ("launch", 0, 3_000)] * 10
    replay, order, _ = recorded(program)
    matrix = np.array(order, np.int64).reshape(5, 2)
    none = np.zeros(0, np.int64)
    steps = Steps(replay, None, np.zeros(10, np.int64), none, none, none, np.zeros(0), STEP_OF)
    return steps, Fix([matrix], [Range(0, 0, 0)], call, unblocks)


def test_one_call_for_all_of_a_step_launches_once_a_step_and_once_for_what_is_in_none() -> None:
    steps, fix = made_fix("step")
    found = steps.change(fix)
    assert sorted(set(range(10)) - set(found.unlaunched.tolist())) == [0, 4, 8]
    assert not len(found.called)
    steps, fix = made_fix("operator")
    assert sorted(set(range(10)) - set(steps.change(fix).unlaunched.tolist())) == [0, 2, 4, 6, 8]


def test_a_compiled_function_gains_less_than_an_operator_and_one_call_a_step_more() -> None:
    gains = {}
    for call in CALLS:
        steps, fix = made_fix(call)
        (gains[call],) = steps.gains([fix])
    # Five calls, of which the first is before the first start, where time begins to count.
    assert gains["compiled"].mid == max(gains["operator"].mid - 4 * COMPILED_CALL_NS.mid, 0)
    assert gains["compiled"].high == gains["operator"].high - 4 * COMPILED_CALL_NS.low
    assert gains["step"].mid > gains["operator"].mid
    # Fewer launches gain nothing at the low end, but where a loop goes.
    assert {call for call, gain in gains.items() if gain.low} == {"loop"}


def test_what_the_device_takes_longer_alone_counts_for_what_is_saved_of_it() -> None:
    steps, fix = made_fix("operator")
    (gain,) = steps.gains([fix])
    (longer,) = replace(steps, longer=1.05).gains([fix])
    assert gain.mid > 0
    assert longer.mid == int(1.05 * gain.mid)


def test_no_gain_is_known_better_than_a_step_can_be_timed_where_recording_cost_something() -> None:
    steps, fix = made_fix("operator")
    (gain,) = replace(steps, slowdown=Slowdown("recording", 1.0, 1.0, 1.0)).gains([fix])
    assert gain.high >= 1.06 * gain.mid > 0


def test_only_a_copy_that_is_pinned_is_not_waited_for_any_more() -> None:
    for unblocks in (True, False):
        steps, fix = made_fix("operator", unblocks=unblocks)
        assert steps.change(fix).unblocked.tolist() == ([0, 2, 4, 6, 8] if unblocks else [])


def test_what_a_call_costs_the_host_besides_comes_off() -> None:
    steps, fix = made_fix("operator")
    (gain,) = steps.gains([fix])
    dearer = Fix(fix.matrices, fix.savings, fix.call, call_ns=Range(1_000, 2_000, 3_000))
    (less,) = steps.gains([dearer])
    assert less.mid == gain.mid - 4 * 2_000  # of five calls; the first is before the first start
    assert less.high == gain.high - 4 * 1_000
