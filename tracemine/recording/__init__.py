"""Recording a trace with everything that `scan` can use: `with tracemine.capture("run/"):` around a few steps.

The only module that imports torch, and only once a capture begins. Who sees which kernel reads what another wrote has
to have recorded it: the profiler's trace (shapes, stacks, modules, steps) and PyTorch's execution trace of the same
window, joined by `Record function id`, which is 0 in a trace recorded without the other. Called `recording`, as a
submodule `tracemine.capture` would take the function's name away.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tracemine.errors import UsageError
from tracemine.files import beside
from tracemine.recording.files import (
    ABOUT,
    EXECUTION_TRACE,
    LIGHT,
    TRACE,
    Capture,
    LightAbout,
    RecordingOptions,
    doubts,
    line_of,
    may_be_written,
    pack,
    publish,
    says_where,
)
from tracemine.recording.installed import torch_here, versions
from tracemine.recording.light import Clock, LightWindow, StepTimes, alone_fields, possible, step_times
from tracemine.recording.profilers import GarbageClock, let_go, prepared
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.api.report import Report

__all__ = ["ABOUT", "EXECUTION_TRACE", "LIGHT", "TRACE", "Capture", "Recording", "capture", "torch_here"]

_NO_STEP = "in no step"  # what is called what came after the last step's end, and a block without steps
_FROM_IDLE = 3  # steps timed on the host alone, each from an idle device on
_WARM_NS = 500_000_000  # a host that was waiting is up to 38 % slower for half of that (results/light_h200.md)

Batch = TypeVar("Batch")


@contextmanager
def capture(
    folder: Path | str,
    *,
    steps: int | None = None,
    warmup: int = 3,
    timed: int = 10,
    stacks: bool = True,
    memory: bool = False,
    execution_trace: bool = True,
    light: bool = True,
    quiet: bool = False,
) -> Iterator[Recording]:
    """Record what runs in the block into `folder`, for `tracemine scan folder`.

        with tracemine.capture("run/", steps=3) as recording:
            for batch in recording.steps(loader):
                train_step(batch)

    After the block `recording.scan()` is `tracemine.scan(folder)`.

    With `steps`, that many steps are recorded and those before them prepare and compare: `warmup` steps that count for
    nothing, `timed` steps timed with nothing recording, where there is a GPU three more of which the host's part alone
    is timed, `warmup` steps with the profiler ready, then `steps` recorded ones. Where there is a GPU, `light` has as
    many and two more recorded after these, for `warmup` steps readied, by what the device did and what was called of
    its runtime alone: that costs the host little, so how long gaps are is measured there. Without `steps`, the whole
    block is recorded from its first line on, `Recording.step` marks where a step ends, and what recording cost is not
    measured.

    `folder` then holds `trace.json.gz` (torch.profiler: host and GPU activities, shapes, with `stacks` the modules and
    Python lines, with `memory` every allocation), `et.json.gz` (the execution trace of the same window; what costs the
    host most, and `execution_trace=False` leaves out), `light.json.gz` (the light window, unless the block ended first)
    and `capture.json` (a `Capture`). It appears whole or not at all, and replaces an earlier capture; where the block
    raises, nothing is written. Without a GPU the host side is recorded. `quiet`: no line says what was recorded.

    Raises TracemineError where torch is missing, UsageError where torch is older than 2.4, where `folder` is no capture
    or cannot be written, where a profiler is recording already, and where the block ended before a step was recorded.
    Warns where fewer steps were recorded than asked for, and where the execution trace or the light window is missing.
    """
    options = RecordingOptions(
        steps=steps,
        warmup=warmup,
        timed=timed,
        stacks=stacks,
        memory=memory,
        execution_trace=execution_trace,
        light=light,
    )
    recording = Recording(torch_here(), options, folder)
    try:
        recording._open()
        yield recording
    except BaseException:
        recording._drop()  # a step that failed half-way would be in it
        raise
    written = recording._keep()
    sys.stderr.write("" if quiet else line_of(str(folder), written) + "\n")
    for doubt in doubts(written, options, recording.lacks_light):
        warnings.warn(f"{folder}: {doubt}", stacklevel=3)


class Recording:
    """A capture while it runs: tell it where steps end, by `steps` or by `step`."""

    def __init__(self, torch: Any, options: RecordingOptions, folder: Path | str) -> None:
        self._torch = torch
        self._options = options
        self._given = str(folder)
        self._target = Path(folder).resolve()
        self._replaces = may_be_written(self._target, self._given)
        self._folder = beside(self._target)  # so that it can be renamed
        self._has_gpu: bool = torch.cuda.is_available()
        self._profiler: Any = None  # while it is ready or recording
        self._stopped: Any = None  # the same once it has stopped
        self._recording = False
        self._mark: Any = None  # of the step that is running
        self._ended = 0  # steps, whatever they were for
        self._recorded = 0  # those of them that were recorded
        self._since_ns = 0
        self._clock = Clock(torch, on_device=self._has_gpu)  # of the steps that are timed alone
        self._alone: StepTimes | None = None
        self._host_ns: list[int] = []  # of each step that began on an idle device, until the host was done with it
        self._recorded_ns: int | None = None
        self._garbage = GarbageClock()
        has_light = options.light and options.steps is not None and possible(torch)
        self._light = LightWindow(torch, on_device=self._has_gpu) if has_light else None
        self.written: Capture | None = None  # once the block has ended
        self.folder: Path | None = None  # where it lies then, as it was named
        # What happens once so many steps have ended, in order.
        self._agenda: deque[tuple[int, Callable[[], None]]] = deque()
        if options.steps is None:
            self._agenda += [(0, self._prepare), (0, self._begin)]
        else:
            timed = options.warmup + options.timed
            host = timed + self._from_idle
            recorded = host + options.warmup
            self._agenda += [
                (options.warmup, self._clock.restart),
                *((ended, self._clock.lap) for ended in range(options.warmup + 1, timed + 1)),
                (timed, self._take_time_alone),
                *((ended, self._take_host_time) for ended in range(timed + 1, host + 1)),
                (host, self._prepare),
                (recorded, self._begin),
                (recorded + options.steps, self._end),
            ]
            if self._light is not None:
                self._agenda += self._light.agenda(recorded + options.steps, options)

    @property
    def done(self) -> bool:
        """Whether every step that was asked for is recorded: a loop may end here."""
        return not self._agenda and not self._recording

    @property
    def whole(self) -> bool:
        """Whether what a scan needs is recorded: only the light window may be missing."""
        return bool(self._recorded) and not self._recording

    @property
    def lacks_light(self) -> str | None:
        """Why there is no light window, where one was asked for and GPU activities were recorded; else null."""
        written = self.written
        if self._light is None or written is None or written.light is not None or not written.gpu_activities:
            return None
        return self._light.failed or "the program ended before"

    @overload
    def steps(self) -> Iterator[int]: ...
    @overload
    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]: ...
    def steps(self, batches: Iterable[Any] | None = None) -> Iterator[Any]:
        """Yield as many batches as the capture needs, each the input of one step; without `batches`, numbers.

        Batches that run out begin again, so one is enough: `recording.steps([batch])`. Getting a batch counts into its
        step, as it does in training. On a GPU half a second more of them warms up, unless batches cannot begin again.
        Where the whole block is recorded (no `capture(steps=...)`), every batch is given once. Raises UsageError where
        that would never end.
        """
        if self._options.steps is None and batches is None:
            raise UsageError("steps() without batches would never end", hint="say how many: capture(folder, steps=3)")
        waits = self._from_idle and not (self._ended or isinstance(batches, Iterator))
        return self._each(count() if batches is None else batches, _WARM_NS if waits else 0)

    def _each(self, batches: Iterable[Any], warm_ns: int) -> Iterator[Any]:
        again, warm = True, time.perf_counter_ns() + warm_ns
        while again and not self.done:
            again = False
            for batch in batches:
                yield batch
                again = self._options.steps is not None
                if time.perf_counter_ns() >= warm:
                    self.step()
                if self.done:
                    return

    def scan(self, **options: Any) -> Report:
        """Return what is worth fixing in what was recorded: `tracemine.scan` of the folder, with its options.

        Raises UsageError while the block still runs, and where it ended with an error.
        """
        if self.folder is None:
            raise UsageError("nothing is recorded yet", hint="call scan() after the block of tracemine.capture")
        from tracemine import scan

        return scan(self.folder, **options)

    def step(self) -> None:
        """Say that a step has ended here. Once every step is recorded, it does nothing."""
        self._close_mark()
        self._ended += 1
        self._recorded += self._recording
        self._advance()
        self._open_mark()

    def _open(self) -> None:
        with says_where(self._given):
            self._folder.mkdir(parents=True)
        self._advance()

    def _keep(self) -> Capture:
        """Stop if need be, and give the folder with all files its name."""
        try:
            with says_where(self._given):
                written = self._write()
                publish(self._folder, self._target, replaces=self._replaces)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.written, self.folder = written, Path(self._given)
        return written

    def _drop(self) -> None:
        self._abandon()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _advance(self) -> None:
        while self._agenda and self._agenda[0][0] == self._ended:
            self._agenda.popleft()[1]()

    # A step is what lies between two marks, so whatever a loop does besides (loading data, logging) is in one of them.
    def _open_mark(self) -> None:
        if self._recording and self._mark is None and self._options.marks:
            self._mark = self._torch.profiler.record_function(f"ProfilerStep#{self._recorded}")
            self._mark.__enter__()

    def _close_mark(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

    def _restart_clock(self) -> None:
        self._drain()
        self._since_ns = time.perf_counter_ns()

    def _mean_step_ns(self, steps: int | None) -> int | None:
        # The queue is drained before the first step and after the last: in between the host may run ahead as it does.
        self._drain()
        return (time.perf_counter_ns() - self._since_ns) // steps if steps else None

    def _drain(self) -> None:
        if self._has_gpu:
            self._torch.cuda.synchronize()

    def _take_time_alone(self) -> None:
        self._drain()
        self._alone = step_times(self._clock.steps_ns())
        self._restart_clock()

    @property
    def _from_idle(self) -> int:
        return _FROM_IDLE if self._has_gpu and self._options.timed else 0

    def _take_host_time(self) -> None:
        """End a step that began on an idle device, on the host, which does not wait for the device here."""
        self._host_ns.append(time.perf_counter_ns() - self._since_ns)
        self._restart_clock()

    def _prepare(self) -> None:
        self._profiler = prepared(self._torch, self._options, self._folder)

    def _begin(self) -> None:
        self._drain()
        self._start()
        self._restart_clock()
        self._open_mark()

    def _end(self) -> None:
        self._recorded_ns = self._mean_step_ns(self._options.steps)
        self._stop()
        if self._light is not None:  # before another profiler begins
            with says_where(self._given):
                self._export()

    def _start(self) -> None:
        self._recording = True  # also where this fails half-way: it is to be stopped then
        self._profiler.start_trace()
        self._garbage.begin()

    def _stop(self) -> None:
        self._recording = False
        self._garbage.end()
        profiler, self._profiler = self._profiler, None
        try:
            self._close_mark()
            let_go(self._torch, profiler, all_threads=self._options.all_threads)
            profiler.stop_trace()
        finally:
            if profiler.execution_trace_observer is not None:
                profiler.execution_trace_observer.cleanup()
        self._stopped = profiler

    def _abandon(self) -> None:
        """Leave torch as it was; the error that is on its way matters more than one in here."""
        with suppress(Exception):
            if self._profiler is not None and not self._recording:
                self._start()  # one that is only prepared cannot be stopped, and is in the next one's way
        with suppress(Exception):
            if self._profiler is not None:
                self._stop()
        if self._light is not None:
            self._light.end()

    def _export(self) -> None:
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped.export_chrome_trace(str(self._folder / "trace.json"))

    def _write(self) -> Capture:
        """Stop if need be, and write the folder's files."""
        options = self._options
        if options.steps is not None and self._recorded == 0:
            needed = f"{options.warmup} + {options.timed + self._from_idle} + {options.warmup} + {options.steps}"
            self._abandon()
            raise UsageError(
                f"the block ended after {count_text(self._ended, 'step')}, before any was recorded",
                hint=f"it runs {needed} steps (warm-up, timed, warm-up, recorded): loop over recording.steps(...), "
                "or call recording.step() after each",
            )
        if self._recording:
            self._drain()
            self._stop()
        if self._light is not None:
            self._light.end()
        self._export()
        gpu_activities = self._pack(self._folder / "trace.json", TRACE)
        execution_trace = self._folder / "et.json"
        if has_execution_trace := execution_trace.is_file() and execution_trace.stat().st_size > 0:
            self._pack(execution_trace, EXECUTION_TRACE)
        execution_trace.unlink(missing_ok=True)
        light = None
        if self._light is not None and gpu_activities:
            light = self._light.write(self._folder, self._recorded, None if self._alone is None else self._alone[0])
        written = self._capture(gpu_activities, EXECUTION_TRACE if has_execution_trace else None, light)
        about = json.dumps(dataclasses.asdict(written), indent=1)
        (self._folder / ABOUT).write_text(about + "\n", encoding="utf-8")
        return written

    def _pack(self, source: Path, name: str) -> int:
        """Compress `source` into `name`. The mark that was open at the end is no step, and gets another name."""
        renamed = {f"ProfilerStep#{self._recorded}": _NO_STEP} if self._options.marks else {}
        return pack(source, self._folder / name, {**renamed, str(source): name})

    def _capture(self, gpu_activities: int, execution_trace: str | None, light: LightAbout | None) -> Capture:
        recorded, times = self._recorded_ns, alone_fields(self._alone)
        alone = times["alone_step_ns"]
        return Capture(
            **versions(self._torch),
            **times,
            execution_trace=execution_trace,
            gpu_activities=gpu_activities,
            steps=self._recorded,
            steps_asked=self._options.steps,
            warmup=self._options.warmup,
            timed=self._options.timed,
            stacks=self._options.stacks,
            memory=self._options.memory,
            host_step_ns=int(statistics.median(self._host_ns)) if self._host_ns else None,
            recorded_step_ns=recorded,
            slowdown=round(recorded / alone, 3) if alone and recorded else None,
            light=light,
            garbage_ns=self._garbage.spans_ns,
        )
