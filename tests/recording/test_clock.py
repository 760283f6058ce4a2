"""A step is as long as the middle one of those that were timed, whichever of them was slow."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tracemine.formats.graph_capture import with_step_times
from tracemine.recording.light import Clock, step_times
from tracemine.timeline import Meta, Timeline
from tracemine.units import uneven_text


@pytest.mark.parametrize("slow", range(10))
def test_one_slow_step_moves_a_step_by_less_than_a_hundredth(slow: int) -> None:
    steps = [10_000_000 + 1_000 * at for at in range(10)]
    even, uneven = step_times(steps), step_times([5 * ns if at == slow else ns for at, ns in enumerate(steps)])
    assert even is not None and uneven is not None
    assert abs(uneven[0] - even[0]) < 0.01 * even[0]
    assert None not in uneven


def test_the_spread_is_told_where_steps_differ() -> None:
    found = step_times([10_000_000] * 8 + [50_000_000] * 2)
    assert found is not None
    assert uneven_text(found[1], found[0], found[2]) == "8 of 10 steps took 10.0 ms to 50.0 ms"
    assert uneven_text(9_500_000, 10_000_000, 11_400_000) == ""  # a fifth is not more than a fifth
    few = step_times([1, 2, 9])
    assert few == (2, None, None)


def test_each_step_is_timed_from_the_one_before() -> None:
    clock = Clock(None, on_device=False)
    clock.lap()  # before the start: forgotten
    clock.restart()
    for length in (0.001, 0.02):
        time.sleep(length)
        clock.lap()
    short, long = clock.steps_ns()
    assert short < 15_000_000 and long >= 20_000_000


class _Event:
    """As torch.cuda.Event is used: the device comes to it 2 ms after the one before."""

    moment_ms = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        _Event.moment_ms += 2.0
        self.at_ms = _Event.moment_ms

    def elapsed_time(self, end: _Event) -> float:
        return end.at_ms - self.at_ms


class _Torch:
    class cuda:
        Event = _Event

        @staticmethod
        def synchronize() -> None:
            """Wait for a device that has nothing to do."""


def test_on_a_device_the_device_tells_when_a_step_ends() -> None:
    clock = Clock(_Torch, on_device=True)
    clock.restart()
    clock.lap()
    clock.lap()
    assert clock.steps_ns() == [2_000_000, 2_000_000]


def test_a_capture_written_before_is_read_and_a_new_ones_spread_too(tmp_path: Path) -> None:
    empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    file = tmp_path / "capture.json"
    about = {"alone_step_ns": 100, "recorded_step_ns": 300}
    file.write_text(json.dumps(about), encoding="utf-8")
    before = with_step_times(empty, file).meta
    assert (before.alone_step_ns, before.alone_step_p10_ns, before.alone_step_p90_ns) == (100, None, None)
    file.write_text(json.dumps({**about, "alone_step_p10_ns": 90, "alone_step_p90_ns": 180}), encoding="utf-8")
    after = with_step_times(empty, file).meta
    assert (after.alone_step_p10_ns, after.alone_step_p90_ns) == (90, 180)
