"""Python's garbage collector, held off where hundreds of thousands of objects are made and none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def paused() -> Iterator[None]:
    """Hold the collector off: it would look through all that lives again and again, and find nothing.

    >>> with paused():
    ...     gc.isenabled()
    False
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def ending_process() -> Iterator[None]:
    """Run what a process is for and ends with: nothing is looked through, nor what lives at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()


def collected_between(each: Iterable[T]) -> Iterator[T]:
    """Yield one by one, and collect what was left of the one before.

    >>> list(collected_between("ab"))
    ['a', 'b']
    """
    for number, one in enumerate(each):
        if number:
            gc.collect()
        yield one
