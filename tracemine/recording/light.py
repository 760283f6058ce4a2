"""Record a light window: what the device did and what was called of its runtime, and nothing of operators.

A step that is recorded whole has gaps longer than in production, for the profiler slows the host down. Recorded so, its
launches and its kernels are the same, and the host is slowed down little: how long gaps and waits are is measured here.

No operator is recorded, so nothing in the trace marks a step. The host's clock does: torch writes times of that clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracemine.recording.files import LIGHT, LightAbout, RecordingOptions, pack
from tracemine.recording.profilers import ready

_MILLISECOND_NS = 1_000_000
_FEWEST_OF_SPREAD = 5  # steps of which a tenth and nine tenths say something

# Length of a step, nanoseconds: the middle one, and what a tenth and nine tenths do not exceed; None: too few.
StepTimes = tuple[int, int | None, int | None]


def alone_fields(times: StepTimes | None) -> dict[str, Any]:
    """Return the fields of a `Capture` that say how long a step takes alone."""
    names = ("alone_step_ns", "alone_step_p10_ns", "alone_step_p90_ns")
    return dict(zip(names, times or (None, None, None), strict=True))


def step_times(steps_ns: Sequence[int]) -> StepTimes | None:
    """Return what so long steps say of one; None of none.

    >>> step_times([100, 100, 500, 100, 100, 110]), step_times([7]), step_times([])
    ((100, 100, 305), (7, None, None), None)
    """
    if not steps_ns:
        return None
    p50 = int(statistics.median(steps_ns))
    if len(steps_ns) < _FEWEST_OF_SPREAD:
        return p50, None, None
    tenths = statistics.quantiles(steps_ns, n=10, method="inclusive")
    return p50, int(tenths[0]), int(tenths[-1])


class Clock:
    """Moments at which steps end, and how long each took: from its start on a drained device."""

    def __init__(self, torch: Any, *, on_device: bool) -> None:
        self._torch = torch
        self._on_device = on_device
        self._moments: list[Any] = []

    def restart(self) -> None:
        """Begin with the step that follows, on a device that has nothing to do."""
        if self._on_device:
            self._torch.cuda.synchronize()
        self._moments = []
        self.lap()

    def lap(self) -> None:
        """Say that a step ended. The host does not wait for the device here."""
        if not self._on_device:
            self._moments.append(time.perf_counter_ns())
            return
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        self._moments.append(event)

    def steps_ns(self) -> list[int]:
        """Return how long each step took; the device is done with all of them."""
        pairs = zip(self._moments, self._moments[1:], strict=False)
        if not self._on_device:
            return [end - begin for begin, end in pairs]
        return [int(begin.elapsed_time(end) * _MILLISECOND_NS) for begin, end in pairs]


_MORE = 2  # steps than the whole window has: it may have begun elsewhere in a program that repeats every few steps


def possible(torch: Any) -> bool:
    """Return whether a light window holds anything here."""
    return bool(torch.cuda.is_available())


class LightWindow:
    """A light window while it runs. Whatever goes wrong in it leaves the rest of the capture as it is."""

    def __init__(self, torch: Any, *, on_device: bool) -> None:
        self._torch, self._on_device = torch, on_device
        self._clock = Clock(torch, on_device=on_device)
        self._profiler: Any = None  # while it is ready or recording
        self._stopped: Any = None
        self._recording = False
        self._since_ns = 0
        self._marks_ns: list[tuple[int, int]] = []
        self.failed: str | None = None  # why nothing was recorded

    def agenda(self, after: int, options: RecordingOptions) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what happens once so many steps have ended, where `after` have been when the whole window closes."""
        begins = after + options.warmup
        ends = begins + (options.steps or 0) + _MORE
        yield after, self.prepare
        yield begins, self.begin
        for ended in range(begins + 1, ends + 1):
            yield ended, self.lap
        yield ends, self.end

    def prepare(self) -> None:
        """Make a profiler ready."""
        self._guarded(self._prepare)

    def begin(self) -> None:
        """Record from here on, from an idle device."""
        self._guarded(self._begin)

    def lap(self) -> None:
        """Say that a step has ended here."""
        if self._recording:
            self._marks_ns.append((self._since_ns, time.time_ns()))
            self._guarded(self._clock.lap)
            self._since_ns = time.time_ns()

    def end(self) -> None:
        """Stop, if it records or is ready to."""
        if self._profiler is not None:
            self._guarded(self._end)

    def write(self, folder: Path, least: int, alone_ns: int | None) -> LightAbout | None:
        """Write the trace into a folder, and return what there is to say of it; None: fewer steps than `least`."""
        if self._stopped is None or len(self._marks_ns) < least:
            return None
        plain = folder / "light.json"
        self._guarded(lambda: self._stopped.export_chrome_trace(str(plain)))
        if self.failed is not None or not plain.is_file():
            plain.unlink(missing_ok=True)
            return None
        pack(plain, folder / LIGHT, {str(plain): LIGHT})
        times = step_times(self._clock.steps_ns())
        step_ns = None if times is None else times[0]
        slowdown = round(step_ns / alone_ns, 3) if step_ns and alone_ns else None
        return LightAbout(marks_ns=self._marks_ns, step_ns=step_ns, slowdown=slowdown)

    def _prepare(self) -> None:
        torch = self._torch
        if torch.autograd._profiler_enabled():
            raise RuntimeError("another profiler is recording")
        activity = torch.profiler.ProfilerActivity
        # Of CUDA alone: kernels, copies and calls of the runtime; no callback runs at an operator.
        profiler = torch.profiler.profile(activities=[activity.CUDA if self._on_device else activity.CPU])
        ready(profiler)
        self._profiler = profiler

    def _begin(self) -> None:
        if self._profiler is None:
            return
        if self._on_device:
            self._torch.cuda.synchronize()
        self._recording = True
        self._profiler.start_trace()
        self._clock.restart()
        self._since_ns = time.time_ns()

    def _end(self) -> None:
        profiler, self._profiler = self._profiler, None
        if not self._recording:
            profiler.start_trace()  # one that is only prepared cannot be stopped, and is in the next one's way
            profiler.stop_trace()
            return
        self._recording = False
        if self._on_device:
            self._torch.cuda.synchronize()
        profiler.stop_trace()
        self._stopped = profiler

    def _guarded(self, act: Callable[[], None]) -> None:
        if self.failed is not None:
            return
        try:
            act()
        except Exception as error:
            self.failed = str(error).partition("\n")[0] or type(error).__name__
            self._recording, profiler, self._profiler = False, self._profiler, None
            with suppress(Exception):
                if profiler is not None:
                    profiler.stop_trace()
