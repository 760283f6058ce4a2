"""What is asked of a scan, as programs say it: texts and paths, read once for many traces."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from tracemine.errors import UsageError
from tracemine.pipeline import ScanOptions
from tracemine.scan_settings import ScanSettings
from tracemine.units import Threshold, parse_threshold

PathLike: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = PathLike | Iterable[PathLike]
Names: TypeAlias = str | Iterable[str]


def path_of(given: PathLike, name: str = "path") -> Path:
    """Return a path. Raises UsageError for what is none."""
    try:
        found = Path(given)
    except TypeError:
        raise UsageError(f"{name}={given!r} is not a path"[:200]) from None
    if str(given) == "":
        raise UsageError(f"{name} is empty", hint="the current folder is .")
    return found


def paths_of(given: Paths | None, name: str) -> tuple[Path, ...]:
    """Return one path or several; None: none."""
    if given is None:
        return ()
    several = (given,) if isinstance(given, str | os.PathLike) else given
    try:
        return tuple(path_of(one, name) for one in several)
    except TypeError:
        raise UsageError(f"{name}={given!r} is neither a path nor several"[:200]) from None


def names_of(given: Names, name: str) -> tuple[str, ...]:
    """Return one name or several. Raises UsageError for what is neither."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not isinstance(given, Iterable) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{name}={given!r} is neither a name nor several"[:200])
    return names


def threshold_of(given: str, name: str) -> Threshold:
    """Return a time or a share. Raises UsageError."""
    try:
        return parse_threshold(given)
    except (ValueError, TypeError) as error:
        hint = 'write a time or a share of the trace: "0.1ms", "50us", "1%"'
        raise UsageError(f"{name}={given!r}: {error}"[:300], hint=hint) from None


def settings(
    *,
    gpu: str | None,
    rules: Paths | None,
    rule: Names,
    skip: Names,
    evidence: Paths | None,
    min_saving: str | None,
    calibration: PathLike | None,
    why_not: bool,
) -> ScanSettings:
    """Return the arguments of a call, checked for their types. Raises UsageError."""
    if gpu is not None and not isinstance(gpu, str):
        raise UsageError(f"gpu={gpu!r} is not a name"[:200])
    if min_saving is not None:
        threshold_of(min_saving, "min_saving")
    return ScanSettings(
        gpu=gpu,
        rules=tuple(map(str, paths_of(rules, "rules"))),
        rule=names_of(rule, "rule"),
        skip=names_of(skip, "skip"),
        evidence=tuple(map(str, paths_of(evidence, "evidence"))),
        min_saving=min_saving,
        calibration=None if calibration is None else str(path_of(calibration, "calibration")),
        why_not=why_not,
    )


def options_of(asked: ScanSettings) -> tuple[ScanOptions, tuple[str, ...]]:
    """Return what the pipeline is asked, and what was left out. An error names an argument where it named an option."""
    try:
        return asked.options()
    except UsageError as error:
        option, _, says = error.message.partition(": ")
        if not option.startswith("--"):
            raise
        name, given = option.removeprefix("--"), says.startswith("'")
        raise UsageError(f"{name}{'=' if given else ': '}{says}", hint=error.hint) from None
