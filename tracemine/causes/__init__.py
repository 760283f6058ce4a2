"""Causes of slowness: a room each, named like the rule, with all Python that only this cause needs.

A cause without Python is a rule alone. A room's `CAUSE` says what it brings (cause.py); no list of rooms is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from tracemine.causes.cause import Cause
from tracemine.matching import load
from tracemine.matching.advice import FACTS
from tracemine.matching.load import Vocabulary
from tracemine.matching.rule import Rule
from tracemine.rows import ROW_DOCS, Columns

__all__ = ["CAUSES", "VOCABULARY", "Cause", "columns_of", "load_rule", "load_rules", "vocabulary_of"]

CAUSES: tuple[Cause, ...] = tuple(
    import_module(f"{__name__}.{room.name}").CAUSE for room in iter_modules(__path__) if room.ispkg
)


def columns_of(causes: Sequence[Cause]) -> tuple[Columns, ...]:
    """Return the columns that causes bring."""
    return tuple(cause.columns for cause in causes if cause.columns is not None)


def vocabulary_of(causes: Sequence[Cause]) -> Vocabulary:
    """Return what rules may name: the engine's columns and facts, and those of causes."""
    columns = tuple(doc for each in columns_of(causes) for doc in each.docs)
    facts = {name: doc for cause in causes if cause.facts is not None for name, doc in cause.facts.docs.items()}
    return Vocabulary({**ROW_DOCS, "activities": (*ROW_DOCS["activities"], *columns)}, {**FACTS, **facts})


VOCABULARY = vocabulary_of(CAUSES)


def load_rules(*directories: str | Path) -> tuple[Rule, ...]:
    """Return the built-in rules and those in further directories, in the order in which they claim: priority, then id.

    Raises RuleError, UsageError: as in `tracemine.matching.load`.

    >>> all(rule.title for rule in load_rules())
    True
    """
    return load.load_rules(*directories, vocabulary=VOCABULARY)


def load_rule(folder: str | Path) -> Rule:
    """Return the rule in one folder. Raises RuleError."""
    return load.load_rule(folder, VOCABULARY)
