"""torch.compile's own kernels for a graph, compiled within a time limit."""

from __future__ import annotations

import contextlib
import signal
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

# What a variant is called, and the mode that it is compiled with.
MODES: Mapping[str, str] = {"compiled": "default", "tuned": "max-autotune-no-cudagraphs"}


class TooLong(Exception):
    """The time was up."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLong in its body after so many seconds; no limit outside the main thread, or without alarms."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TooLong(f"it took longer than {seconds:g} s to compile")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again where something swallowed the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compiled_variants(
    eager: Callable[..., Any], inputs: Sequence[torch.Tensor], names: Sequence[str], seconds: float
) -> tuple[dict[str, Callable[..., Any]], dict[str, str]]:
    """Return what torch.compile makes of a graph in each mode, called once; and why a mode is left out.

    names: keys of MODES. seconds: of each.
    """
    found: dict[str, Callable[..., Any]] = {}
    failed: dict[str, str] = {}
    for name in names:
        # A code object of its own: torch keeps what it compiled by it.
        assert isinstance(eager, types.FunctionType)  # noqa: S101
        code = eager.__code__.replace(co_name=f"eager_{name}")
        own = types.FunctionType(code, eager.__globals__, f"eager_{name}", eager.__defaults__, eager.__closure__)
        own.__kwdefaults__ = eager.__kwdefaults__
        mode = MODES[name]
        try:
            with limited(seconds):
                work = torch.compile(own, dynamic=False, mode=mode)
                work(*inputs)
            found[name] = work
        except Exception as error:  # whatever it cannot compile is said, and the rest goes on
            text = (str(error).splitlines() or [""])[0][:200]
            failed[name] = f"{mode}: {type(error).__name__}: {text}"
    return found, failed
