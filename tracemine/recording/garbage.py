"""When Python collects garbage in a recorded window: it may do so anywhere, and no operator says so."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

_MOST: Final = 4_000  # of which the file holds the times


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
