"""Make torch's profiler ready, stop it while other threads run operators, and note when garbage is collected."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tracemine.errors import UsageError
from tracemine.recording.files import RecordingOptions, everywhere

_MOST: Final = 4_000  # of which the file holds the times

_GRACE_S = 0.2  # a callback takes microseconds; a machine that is overloaded suspends its thread meanwhile


def let_go(torch: Any, profiler: Any, *, all_threads: bool) -> None:
    """Have no thread begin what records an operator any more, and wait until each has ended what it had begun.

    When a profiler of every thread stops, and when an execution trace does, torch frees what other threads write to at
    that moment, and waits for none of them: the process crashes.
    """
    observer = profiler.execution_trace_observer
    if observer is not None:
        observer.stop()
    if all_threads:
        with suppress(Exception):  # it did not begin
            # Operators alone, of which torch warns on standard error: with CUDA the kernels would be lost.
            profiler.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])
    if observer is not None or all_threads:
        _hold_still(_GRACE_S)


def _hold_still(seconds: float) -> None:
    """Sleep without giving way to other Python threads: what they do now would be recorded as Python lines alone."""
    sleep = _sleep()
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:  # a signal wakes it
        sleep(left)


def _sleep() -> Callable[[float], object]:
    with suppress(TypeError, OSError, AttributeError):  # Windows
        usleep = ctypes.PyDLL(None).usleep  # which, unlike CDLL's, keeps Python's lock
        return lambda seconds: usleep(int(seconds * 1e6) + 1)
    return time.sleep


def prepared(torch: Any, options: RecordingOptions, folder: Path) -> Any:
    """Return a profiler that is ready to record a whole window; its execution trace goes to `et.json` in the folder.

    Raises UsageError where another profiler is recording.
    """
    if torch.autograd._profiler_enabled():
        raise UsageError("a profiler is recording already", hint="take this block out of the other one")
    torch_profiler = torch.profiler
    observer = torch_profiler.ExecutionTraceObserver() if options.execution_trace else None
    # Driven by hand instead of by a schedule: the clock has to stop between the last step's end and the profiler's.
    profiler = torch_profiler.profile(
        record_shapes=True,
        profile_memory=options.memory,
        with_stack=options.stacks,
        execution_trace_observer=observer,
        experimental_config=everywhere(torch_profiler) if options.all_threads else None,
    )
    ready(profiler)
    if observer is not None:  # last: one that is left behind makes torch crash later
        observer.register_callback(str(folder / "et.json"))
    return profiler


def ready(profiler: Any) -> None:
    """Make a profiler ready. Before torch 2.13 also the first and only cycle warns that it clears those before it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events", category=UserWarning)
        profiler.prepare_trace()


class GarbageClock:
    """Times of collections, by the clock that torch's traces are written in."""

    def __init__(self) -> None:
        self._spans_ns: list[tuple[int, int, int]] = []  # begin, end, and the thread's number
        self._since_ns = 0

    @property
    def spans_ns(self) -> Sequence[tuple[int, int, int]] | None:
        """All collections that were noted; None: more than are kept."""
        return self._spans_ns if len(self._spans_ns) <= _MOST else None

    def begin(self) -> None:
        """Note each collection from here on."""
        gc.callbacks.append(self._called)

    def end(self) -> None:
        """Note no more."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: Any) -> None:
        if phase == "start":
            self._since_ns = time.time_ns()
        elif self._since_ns and len(self._spans_ns) <= _MOST:
            self._spans_ns.append((self._since_ns, time.time_ns(), threading.get_native_id()))
            self._since_ns = 0
