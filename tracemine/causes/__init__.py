"""Causes of slowness: a room each, named like the rule, with all Python that only this cause needs.

A cause without Python is a rule alone. A room's `CAUSE` says what it brings (cause.py); no list of rooms is kept.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tracemine.causes.cause import Cause

__all__ = ["CAUSES", "Cause"]

CAUSES: tuple[Cause, ...] = tuple(
    import_module(f"{__name__}.{room.name}").CAUSE for room in iter_modules(__path__) if room.ispkg
)
