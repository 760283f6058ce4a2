"""All causes that are known: tracemine's, and those of packages installed next to it, found by their entry points.

A package's cause brings its rule's folder and whatever a room may have. What is wrong with it leaves it out, with a
note; where its Python fails later, the error names the package. A folder of rules alone never brings Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracemine import plugins
from tracemine.causes.cause import Cause
from tracemine.errors import TracemineError
from tracemine.matching.advice import FACTS
from tracemine.matching.load import Vocabulary, load_rule, rules_directory
from tracemine.rows import ROW_DOCS, Columns


class Known(Struct, frozen=True, eq=False):
    """Causes, the folders of rules that packages bring, what rules may name, and which causes were left out."""

    causes: tuple[Cause, ...]
    folders: tuple[Path, ...]
    vocabulary: Vocabulary
    notes: tuple[str, ...] = ()


def columns_of(causes: Sequence[Cause]) -> tuple[Columns, ...]:
    """Return the columns that causes bring."""
    return tuple(cause.columns for cause in causes if cause.columns is not None)


def vocabulary_of(causes: Sequence[Cause]) -> Vocabulary:
    """Return what rules may name: the engine's columns and facts, and those of causes."""
    columns = tuple(doc for each in columns_of(causes) for doc in each.docs)
    facts = {name: doc for cause in causes if cause.facts is not None for name, doc in cause.facts.docs.items()}
    return Vocabulary({**ROW_DOCS, "activities": (*ROW_DOCS["activities"], *columns)}, {**FACTS, **facts})


def with_installed(built_in: tuple[Cause, ...]) -> Known:
    """Return tracemine's causes with those of installed packages, as far as these can be used."""
    known, notes = Known(built_in, (), vocabulary_of(built_in)), list[str]()
    try:
        found = plugins.plugins(plugins.CAUSES)
    except TracemineError as error:
        return replace(known, notes=(f"left out: causes of other packages: {error.message}",))
    for plugin in found:
        try:
            known = _with(known, plugin)
        except TracemineError as error:
            notes.append(f"left out: {error.message}")
    return replace(known, notes=tuple(notes))


def _with(known: Known, plugin: plugins.Plugin) -> Known:
    """Return what is known with one more cause. Raises TracemineError that names its package."""
    cause = plugin.load()
    if not isinstance(cause, Cause) or cause.rule != plugin.name or cause.folder is None:
        raise plugin.error("is no tracemine.causes.Cause of this name with its rule's folder")
    if cause.savings:
        raise plugin.error("estimates other rules too: a package's cause has an `estimate` of its own")
    if any(each.rule == cause.rule for each in known.causes) or (rules_directory() / cause.rule).is_dir():
        raise plugin.error("is there already")
    there = (*(doc.name for doc in known.vocabulary.columns["activities"]), *known.vocabulary.facts)
    if twice := sorted(_names(cause).intersection(there)):
        raise plugin.error(f"brings what is there already: {', '.join(twice)}")
    causes = (*known.causes, _guarded(cause, plugin))
    vocabulary = vocabulary_of(causes)
    try:
        if load_rule(cause.folder, vocabulary).id != cause.rule:
            raise plugin.error(f"has a rule in a folder of another name: {cause.folder.name!r}")
    except (TracemineError, OSError) as error:
        raise plugin.error("has no rule that can be used", error) from error
    return Known(causes, (*known.folders, cause.folder), vocabulary)


def _names(cause: Cause) -> frozenset[str]:
    """Return the columns and the facts that a cause brings."""
    columns = () if cause.columns is None else (doc.name for doc in cause.columns.docs)
    return frozenset((*columns, *({} if cause.facts is None else cause.facts.docs)))


def _guarded(cause: Cause, plugin: plugins.Plugin) -> Cause:
    """Return a cause whose every failure names its package."""

    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except TracemineError:
                raise
            except Exception as error:
                raise plugin.error("failed", error) from error

        return called

    columns, facts, estimate, more = cause.columns, cause.facts, cause.estimate, cause.more
    return replace(
        cause,
        columns=None if columns is None else replace(columns, derive=guarded(columns.derive)),
        facts=None if facts is None else replace(facts, find=guarded(facts.find)),
        estimate=None if estimate is None else guarded(estimate),
        more=None if more is None else guarded(more),
    )
