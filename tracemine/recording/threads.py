"""Stop a profiler while other threads of the process run operators."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
