"""Causes of slowness: a room each, named like the rule, with all Python that only this cause needs.

A cause without Python is a rule alone. A room's `CAUSE` says what it brings (cause.py); no list of rooms is kept.
Packages bring more by entry points (known.py).
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from tracemine.causes.cause import Cause
from tracemine.causes.known import Known, columns_of, vocabulary_of, with_installed
from tracemine.matching import load
from tracemine.matching.rule import Rule

__all__ = ["CAUSES", "VOCABULARY", "Cause", "columns_of", "known", "load_rule", "load_rules"]

CAUSES: tuple[Cause, ...] = tuple(
    import_module(f"{__name__}.{room.name}").CAUSE for room in iter_modules(__path__) if room.ispkg
)
VOCABULARY = vocabulary_of(CAUSES)


def known() -> Known:
    """Return all causes: CAUSES, and those of installed packages.

    >>> set(CAUSES) <= set(known().causes)
    True
    """
    return _known(tuple(sys.path))


@lru_cache(maxsize=8)
def _known(path: tuple[str, ...]) -> Known:
    return with_installed(CAUSES)


def load_rules(*directories: str | Path) -> tuple[Rule, ...]:
    """Return the rules of tracemine, of installed packages and in further directories, in the order in which they
    claim: priority, then id.

    Raises RuleError, UsageError: as in `tracemine.matching.load`.

    >>> all(rule.title for rule in load_rules())
    True
    """
    found = known()
    return load.load_rules(*found.folders, *directories, vocabulary=found.vocabulary)


def load_rule(folder: str | Path) -> Rule:
    """Return the rule in one folder. Raises RuleError."""
    return load.load_rule(folder, known().vocabulary)
