"""Write the folder of a capture, and say what it holds."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracemine.errors import Location, UsageError
from tracemine.programs import program, run
from tracemine.units import count_text, ratio_text, time_text, uneven_text

TRACE, EXECUTION_TRACE, LIGHT, ABOUT = "trace.json.gz", "et.json.gz", "light.json.gz", "capture.json"
_DISTORTING = 1.5  # a step that takes so many times as long was waiting for the recording
_SHOWN = 3  # names in a message

_GPU_ACTIVITY = re.compile(rb'"cat": "(?:kernel|gpu_memcpy|gpu_memset)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class LightAbout:
    """The light window: the same program's next steps, recorded by GPU activities and runtime calls alone."""

    trace: str = LIGHT
    # When each step began and ended on the host: nanoseconds since 1970, the clock of the trace's baseTimeNanoseconds
    marks_ns: Sequence[tuple[int, int]]
    step_ns: int | None  # median of its steps, timed as those that ran alone
    slowdown: float | None  # that over the step alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What was recorded, with what, and what that cost; `capture.json` holds the same."""

    schema_version: int = 1
    tracemine: str
    torch: str
    cuda: str | None  # torch was built for; so `hip`
    hip: str | None
    driver: str | None
    python: str
    gpus: Sequence[str]  # that torch sees, in its order
    trace: str = TRACE
    execution_trace: str | None  # null: not asked for, or torch wrote none
    gpu_activities: int
    steps: int  # marked in the trace
    steps_asked: int | None  # null: the whole block was recorded
    warmup: int
    timed: int
    stacks: bool
    memory: bool
    alone_step_ns: int | None  # median of the steps that ran with nothing recording; null: not measured
    # What a tenth of those did not exceed, and nine tenths; null: fewer than five
    alone_step_p10_ns: int | None = None
    alone_step_p90_ns: int | None = None
    host_step_ns: int | None  # from an idle device until the host is done with a step, median; null: not measured
    recorded_step_ns: int | None  # mean of the recorded ones
    slowdown: float | None  # their ratio
    light: LightAbout | None = None  # null: not asked for, no GPU, or the program ended before
    # Of each collection of Python's garbage in the window its begin, its end and its thread; null: too many to list
    garbage_ns: Sequence[tuple[int, int, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    steps: int | None
    warmup: int
    timed: int
    stacks: bool
    memory: bool
    execution_trace: bool
    light: bool = False  # a light window after the whole one, where there is a GPU
    marks: bool = True  # marks a step; False: the program does
    all_threads: bool = False  # also those in which it does not begin

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("warmup", 0), ("timed", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise UsageError(f"capture({name}={value!r}): an integer from {least} on is needed")


def everywhere(torch_profiler: Any) -> Any:
    """Return what makes a profiler record every thread; None where this torch cannot."""
    with suppress(AttributeError, TypeError):
        return torch_profiler._ExperimentalConfig(profile_all_threads=True)
    return None


def pack(source: Path, target: Path, renamed: Mapping[str, str]) -> int:
    """Compress `source` into `target` with some texts renamed, and remove it. Returns how many GPU activities it holds.

    The trace calls itself by a folder that is gone.
    """
    pairs = [(json.dumps(old).encode(), json.dumps(new).encode()) for old, new in renamed.items()]
    activities = 0
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=6) as packed:
        for line in plain:
            activities += len(_GPU_ACTIVITY.findall(line))
            for old, new in pairs:
                line = line.replace(old, new)
            packed.write(line)
    source.unlink()
    return activities


def driver() -> str | None:
    """Return the GPU driver's version; null where nvidia-smi does not say."""
    tool = program("nvidia-smi")
    if tool is None:
        return None
    question = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = run(question, 10)
        return (answer.stdout.split("\n")[0].strip() or None) if answer.returncode == 0 else None
    return None


def may_be_written(target: Path, given: str) -> bool:
    """Return whether `target` is there and replaced. Raises UsageError if it is anything but a capture or empty."""
    if not os.path.lexists(target):
        return False
    hint = "pass another folder; only an earlier capture is replaced"
    if not target.is_dir():
        raise UsageError("is a file", where=Location(given), hint=hint)
    held = {path.name for path in target.iterdir()}
    others = sorted(held - {TRACE, EXECUTION_TRACE, LIGHT, ABOUT} if ABOUT in held else held)
    if others:
        names = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        raise UsageError(f"holds what no capture wrote: {names}", where=Location(given), hint=hint)
    return True


def publish(staging: Path, target: Path, *, replaces: bool) -> None:
    """Give the finished folder its name."""
    if not replaces:
        staging.rename(target)  # fails where another process, a rank of the same job say, was first
        return
    may_be_written(target, str(target))
    earlier = staging.with_suffix(".old")
    target.rename(earlier)
    try:
        staging.rename(target)
    except OSError:
        earlier.rename(target)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


@contextmanager
def says_where(given: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}",
            where=Location(given),
            hint="each process of a job needs a folder of its own" if Path(given).exists() else None,
        ) from None


def line_of(given: str, written: Capture, how: str = "", timed_by: str = "capture(..., steps=3)") -> str:
    """Return what was recorded, what it cost, and what to do with it; `how` says what ended each step."""
    steps = count_text(written.steps, "step") if written.steps else "no steps marked"
    steps += f" {how}" if how else "" if written.steps else " (recording.step() marks them)"
    seen = count_text(written.gpu_activities, "GPU activity") if written.gpus else "no GPU here, the host side only"
    if written.gpus and not written.gpu_activities:
        seen += " (nothing ran there, or another profiler holds its events)"
    cost = f"what recording cost the step was not measured ({timed_by} does)"
    if written.alone_step_ns is not None and written.recorded_step_ns is not None and written.slowdown is not None:
        cost = (
            f"a step took {time_text(written.alone_step_ns)} alone and {time_text(written.recorded_step_ns)} "
            f"recorded ({ratio_text(written.slowdown)} times)"
        )
        if written.slowdown >= _DISTORTING:
            cost += ": the gaps between its kernels are longer than in production"
        if (light := written.light) is not None and light.step_ns is not None and light.slowdown is not None:
            cost += f"; {time_text(light.step_ns)} in the light window ({ratio_text(light.slowdown)} times)"
        if spread := uneven_text(written.alone_step_p10_ns, written.alone_step_ns, written.alone_step_p90_ns):
            cost += f"; alone {spread}"
    return f"{given}: {steps}, {seen}; {cost}. Next: tracemine scan {shlex.quote(given)}"


def doubts(written: Capture, options: RecordingOptions, light_failed: str | None = None) -> Iterator[str]:
    """Yield what keeps a capture from being the evidence that was asked for; `light_failed`: why it has no light
    window.
    """
    if options.steps is not None and written.steps < options.steps:
        yield f"recording ended after {written.steps} of {count_text(options.steps, 'recorded step')}"
    if options.execution_trace and written.execution_trace is None:
        yield "torch wrote no execution trace (is another ExecutionTraceObserver registered?): edges will not be proven"
    if light_failed is not None:
        yield f"no light window was recorded ({light_failed}): how long gaps are unprofiled is estimated"
