"""Loops that wait for the device in each round: which idle time is the waits'."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.test_gaps import column
from tests.timelines import Trace
from tracemine.rows.gaps import gap_rows
from tracemine.rows.rounds import AHEAD_NS, FEWEST_WAITS, LAUNCHES_A_ROUND

LAUNCH_NS, KERNEL_NS = 20_000, 2_000


def looped(rounds: int, launches: int, *, kernel_ns: int = KERNEL_NS, waits: bool = True, pause_ns: int = 0) -> Trace:
    """A loop that launches some kernels a round, each as soon as the host can, and then waits for the device."""
    trace, now, free = Trace(), 1_000, 0
    line = trace.frame("train.py(7): loop")
    trace.step(0, 10**9)
    for _ in range(rounds):
        for _ in range(launches):
            begin = max(now + 5_000, free)
            trace.kernel("k", begin, kernel_ns, launch=(now, 4_000), op="aten::add")
            now, free = now + LAUNCH_NS, begin + kernel_ns
        if waits:
            end = max(now, free) + 1_000
            trace.call("cudaStreamSynchronize", now, end - now, stack_row=line)
            now = end + pause_ns
        else:
            now += 1_000
    return trace


def found(trace: Trace) -> list[str]:
    return column(gap_rows(trace.timeline()), "cause")


def test_gaps_behind_the_waits_of_a_loop_are_the_waits() -> None:
    rows = gap_rows(looped(FEWEST_WAITS + 2, 3).timeline())
    causes, sources = column(rows, "cause"), column(rows, "source")
    # Those before the first wait, and those behind the last, which no other follows, are the host's own.
    assert causes.count("after_wait") == 11 * 3
    assert {source for source, cause in zip(sources, causes, strict=True) if cause == "after_wait"} == {
        "train.py:7 loop"
    }
    assert set(causes) == {"after_wait", "host_bound"}


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(looped(FEWEST_WAITS - 1, 3), id="few waits"),
        pytest.param(looped(FEWEST_WAITS + 2, LAUNCHES_A_ROUND + 1), id="long rounds"),
        pytest.param(looped(FEWEST_WAITS + 2, 3, waits=False), id="no waits"),
        pytest.param(
            looped(FEWEST_WAITS + 2, 6, kernel_ns=LAUNCH_NS + AHEAD_NS), id="the queue fills up in each round"
        ),
    ],
)
def test_other_loops_have_none(trace: Trace) -> None:
    assert "after_wait" not in found(trace)


def test_a_round_counts_until_the_queue_is_full_again() -> None:
    """Two short kernels behind each wait, then one so long that the host gets ahead, then one more."""
    trace, now, free = Trace(), 1_000, 0
    trace.step(0, 10**9)
    for _ in range(FEWEST_WAITS + 2):
        for kernel_ns in (KERNEL_NS, KERNEL_NS, 3 * AHEAD_NS, KERNEL_NS):
            begin = max(now + 5_000, free)
            trace.kernel("k", begin, kernel_ns, launch=(now, 4_000), op="aten::add")
            now, free = now + LAUNCH_NS, begin + kernel_ns
        trace.call("cudaStreamSynchronize", now, free + 1_000 - now)
        now = free + 2_000
    causes = found(trace)
    # Of each round the first gap is the wait's own, two are its consequence, and then there is none.
    assert causes.count("synchronisation") == 11
    assert causes.count("after_wait") == 11 * 2
    assert causes.count("host_bound") == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["launch", "long", "wait", "pause"])), min_size=20, max_size=160
    )
)
@settings(max_examples=120, deadline=None)
def test_as_counted_one_by_one(events: list[tuple[int, str]]) -> None:
    trace, expected = _counted(events)
    rows = gap_rows(trace.timeline())
    ends: dict[str, set[int]] = {"after_wait": set(), "host_bound": set()}
    for start, dur, cause in zip(*(column(rows, each) for each in ("start_ns", "dur_ns", "cause")), strict=True):
        ends.setdefault(cause, set()).add(start + dur)
    assert ends["after_wait"] == expected & (ends["after_wait"] | ends["host_bound"])


def _counted(events: list[tuple[int, str]]) -> tuple[Trace, set[int]]:
    """A trace of two threads, and the begins of kernels whose launch a wait of their thread holds up."""
    trace, now, free = Trace(), 1_000, 0
    made: list[tuple[int, str, int, int]] = []  # thread, kind, launch's begin, kernel's begin
    for thread, kind in events:
        if kind == "pause":
            now += 30_000
        elif kind == "wait":
            end = max(now, free) + 1_000
            trace.call("cudaStreamSynchronize", now, end - now, tid=thread + 1)
            made.append((thread, kind, now, 0))
            now = end + 1_000
        else:
            begin = max(now + 5_000, free)
            dur = 2 * AHEAD_NS if kind == "long" else KERNEL_NS
            trace.kernel("k", begin, dur, launch=(now, 4_000), op="aten::add", tid=thread + 1)
            made.append((thread, kind, now, begin))
            now, free = now + LAUNCH_NS, begin + dur
    held = set()
    for thread in (0, 1):
        mine = [each for each in made if each[0] == thread]
        waits = [at for at, each in enumerate(mine) if each[1] == "wait"]
        if len(waits) < FEWEST_WAITS:
            continue
        for wait, after in pairwise(waits):
            if after - wait - 1 > LAUNCHES_A_ROUND:
                continue
            for _, _, launch, begin in mine[wait + 1 : after]:
                held.add(begin)
                if begin - (launch + 4_000) >= AHEAD_NS:
                    break
    return trace, held


def fetched(*, tid: int = 2, kind: str = "DtoH", wait: str = "np.asarray(jax.Array)") -> Trace:
    """A kernel, then a wait for its value in which another thread launches the copy that fetches it."""
    trace = Trace()
    trace.step(0, 10**9)
    trace.kernel("k", 10_000, 5_000, launch=(1_000, 4_000), op="aten::add")
    trace.call(wait, 20_000, 300_000)
    trace.copy(kind, 120_000, 1_000, 4, launch=trace.call("MemcpyD2H", 100_000, 4_000, tid=tid))
    return trace


def test_a_copy_that_fetches_a_value_for_a_waiting_thread_is_the_waits() -> None:
    assert found(fetched()) == ["after_wait"]


@pytest.mark.parametrize(
    "trace",
    [pytest.param(fetched(wait="step"), id="nobody waits"), pytest.param(fetched(kind="HtoD"), id="the next input")],
)
def test_other_copies_of_another_thread_are_not(trace: Trace) -> None:
    assert "after_wait" not in found(trace)
