"""Record a light window: what the device did and what was called of its runtime, and nothing of operators.

A step that is recorded whole has gaps longer than in production, for the profiler slows the host down. Recorded so, its
launches and its kernels are the same, and the host is slowed down little: how long gaps and waits are is measured here.

No operator is recorded, so nothing in the trace marks a step. The host's clock does: torch writes times of that clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracemine.recording.clock import Clock, step_times
from tracemine.recording.files import LIGHT, LightAbout, RecordingOptions, pack
from tracemine.recording.profilers import ready

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
