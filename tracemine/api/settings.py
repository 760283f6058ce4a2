"""What is asked of a scan, as programs say it: texts and paths, read once for many traces."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tracemine import verdicts
from tracemine.causes import load_rules
from tracemine.devices import Device, device_named
from tracemine.errors import UsageError
from tracemine.matching import Rule
from tracemine.matching.selection import selected
from tracemine.perfmodel import of_this_user, read_measured
from tracemine.pipeline import ScanOptions
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
    if not isinstance(given, Iterable) or not all(isinstance(one, str) for one in names):
        raise UsageError(f"{name}={given!r} is neither a name nor several"[:200])
    return names


def threshold_of(given: str, name: str) -> Threshold:
    """Return a time or a share. Raises UsageError."""
    try:
        return parse_threshold(given)
    except (ValueError, TypeError) as error:
        hint = 'write a time or a share of the trace: "0.1ms", "50us", "1%"'
        raise UsageError(f"{name}={given!r}: {error}"[:300], hint=hint) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments that hold for every trace. They travel to other processes; what they name is read there."""

    gpu: str | None = None
    rules: tuple[Path, ...] = ()
    rule: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    evidence: tuple[Path, ...] = ()
    min_saving: str | None = None
    calibration: Path | None = None
    why_not: bool = False

    def options(self) -> tuple[ScanOptions, tuple[str, ...]]:
        """Return what the pipeline is asked, and what was left out of the files that are named.

        Raises TracemineError where one of them cannot be used.
        """
        evidence = verdicts.read_evidence(self.evidence) if self.evidence else None
        own, unread = of_this_user()
        named = () if self.calibration is None else (read_measured(self.calibration),)
        asked = ScanOptions(
            rules=_selected(load_rules(*self.rules), self.rule, self.skip),
            device=None if self.gpu is None else _device(self.gpu),
            threshold=None if self.min_saving is None else threshold_of(self.min_saving, "min_saving"),
            evidence=evidence,
            why_not=self.why_not,
            calibrations=(*named, *own),
        )
        return asked, (*unread, *(() if evidence is None else evidence.notes))


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
) -> Settings:
    """Return the arguments of a call, checked for their types. Raises UsageError."""
    return Settings(
        gpu=gpu,
        rules=paths_of(rules, "rules"),
        rule=names_of(rule, "rule"),
        skip=names_of(skip, "skip"),
        evidence=paths_of(evidence, "evidence"),
        min_saving=min_saving,
        calibration=None if calibration is None else path_of(calibration, "calibration"),
        why_not=why_not,
    )


def _selected(rules: Sequence[Rule], rule: tuple[str, ...], skip: tuple[str, ...]) -> Sequence[Rule]:
    try:
        return selected(rules, rule, skip) if rule or skip else rules
    except UsageError as error:
        raise UsageError(error.message.removeprefix("--"), hint=error.hint) from None


def _device(name: str) -> Device:
    if not isinstance(name, str):
        raise UsageError(f"gpu={name!r} is not a name"[:200])
    try:
        return device_named(name)
    except UsageError as error:
        raise UsageError(f"gpu={error.message}", hint=error.hint) from None
