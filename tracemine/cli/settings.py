"""Defaults of options: from the environment (TRACEMINE_GPU), else from `[tool.tracemine]` in pyproject.toml.

The file is looked for from the current folder upwards, as far as the root of its repository; outside of a repository in
the current folder alone. What it may say is a table of names and kinds: nothing in it is run, and none of its keys
names a file that is written.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import read_file
from tracemine.patterns import deferred

NO_SETTINGS: Final = "--no-settings"
_DECIDES: Final = (
    "gpu",
    "rules",
    "rule",
    "skip",
    "min-saving",
    "fail-on",
    "baseline",
    "calibration",
    "evidence",
)  # whether it fails
_INTEGER: Final = deferred(r"-?[0-9]{1,18}")
_FILE: Final = "pyproject.toml"
_SIZE_LIMIT: Final = 1 << 20
_SWITCHES: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
_SCAN: Final = ("scan",)


# Options whose defaults can be set, of KINDS; and of those that not all take that have them, the commands that do.
SETTINGS: Final[Mapping[str, str]] = {
    "gpu": "text",
    "rules": "paths",
    "rule": "texts",
    "skip": "texts",
    "min-saving": "text",
    "fail-on": "text",
    "baseline": "path",
    "calibration": "path",
    "evidence": "paths",
    "format": "text",
    "top": "integer",
    "quiet": "switch",
    "no-color": "switch",
}
_ONLY_OF: Final = {
    **dict.fromkeys(("rule", "skip"), ("scan", "diff", "write")),  # of baselines; verify's --rule is about findings
    **dict.fromkeys(("fail-on", "baseline", "format", "top"), _SCAN),
}
KINDS: Final = {
    "text": "a text",
    "texts": "a list of texts",
    "path": "a path",
    "paths": "a list of paths",
    "integer": "an integer",
    "switch": "true or false",
}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What stands in for options that a call does not give, and where each was said."""

    values: Mapping[str, Any]
    places: Mapping[str, Location]

    def of_commands(self, commands: Mapping[str, Any]) -> dict[str, Any]:
        """Return them as Click's default_map: by command, and in groups by command again, then by parameter."""
        found: dict[str, Any] = {}
        for name, command in commands.items():
            inner = getattr(command, "commands", None)
            found[name] = dict(self._of(name, command)) if inner is None else self.of_commands(inner)
        return found

    def _of(self, name: str, command: Any) -> Iterator[tuple[str, Any]]:
        for parameter in command.params:
            for option in parameter.opts:
                key = option.removeprefix("--")
                if key in self.values and name in _ONLY_OF.get(key, (name,)):
                    yield parameter.name, self.values[key]

    def said_of_gates(self, arguments: Sequence[str]) -> str | None:
        """Return what a file sets that decides whether a call fails, which has --fail-on; None where it sets nothing.

        The file may be a stranger's: whoever has a call decide something wants to know of it.
        """
        command = next(iter(arguments), "")
        if not (_is_given("fail-on", arguments) or (command in _SCAN and "fail-on" in self.values)):
            return None
        keys = [
            key
            for key in _DECIDES
            if key in self.values and self.places[key].key is not None and not _is_given(key, arguments)
            if command in _ONLY_OF.get(key, (command,))
        ]
        if not keys:
            return None
        said = ", ".join(f"{key} = {self.values[key]}" for key in keys)
        return f"{self.places[keys[0]].path} sets {said}: --fail-on depends on that; {NO_SETTINGS} leaves it out"

    def placed(self, error: TracemineError, arguments: Sequence[str]) -> TracemineError:
        """Return an error that names an option of the call; one that no argument gave is named by its place."""
        option, _, rest = error.message.partition(": ")
        key = option.removeprefix("--")
        if option == key or _is_given(key, arguments) or key not in self.places:
            return error
        return UsageError(rest, where=self.places[key], hint=error.hint)


def _is_given(key: str, arguments: Sequence[str]) -> bool:
    return any(one == f"--{key}" or one.startswith(f"--{key}=") for one in arguments)


NONE: Final = Defaults({}, {})


def defaults(folder: Path | None, environment: Mapping[str, str]) -> Defaults:
    """Read what holds in a folder and an environment. Raises InputError, UsageError that name the place and the key."""
    values: dict[str, Any] = {}
    places: dict[str, Location] = {}
    for file, table in _tables(folder):
        for key, value in table.items():
            places[key] = Location(str(file), key=f"tool.tracemine.{key}")
            values[key] = _of_file(key, value, places[key], file.parent)
    for key, kind in SETTINGS.items():
        name = variable(key)
        if name in environment:
            places[key] = Location(name)
            values[key] = _of_variable(kind, environment[name], places[key])
    return Defaults(values, places)


def variable(key: str) -> str:
    """Return the environment variable of a setting.

    >>> variable("min-saving")
    'TRACEMINE_MIN_SAVING'
    """
    return f"TRACEMINE_{key.upper().replace('-', '_')}"


def current_folder() -> Path | None:
    """Return the folder that the call is made in; None where it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _tables(folder: Path | None) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the nearest file that has the table, and the table."""
    for place in () if folder is None else _folders(folder):
        file = place / _FILE
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(read_file(file, _SIZE_LIMIT).decode())
        except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or a number of too many digits
            raise InputError(f"is not TOML: {error}", where=Location(str(file))) from None
        tool = content.get("tool")
        table = tool.get("tracemine") if isinstance(tool, dict) else None
        if table is None:
            continue
        if not isinstance(table, dict):
            raise InputError("is no table", where=Location(str(file), key="tool.tracemine"))
        yield file, table
        return


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folder, and those above it as far as the root of the repository that it lies in."""
    above = [folder, *folder.parents]
    root = next((number for number, place in enumerate(above) if (place / ".git").exists()), 0)
    yield from above[: root + 1]


def _of_file(key: str, value: object, where: Location, folder: Path) -> Any:
    """Return what a key of the file says; a path is meant from the file's folder."""
    if key not in SETTINGS:
        from tracemine.matching.nearest import nearest

        raise InputError("there is no such setting", where=where, hint=nearest(key, SETTINGS))
    kind = SETTINGS[key]
    several = kind in ("texts", "paths")
    given: list[Any] = value if several and isinstance(value, list) else [value]
    wanted = {"integer": int, "switch": bool}.get(kind, str)
    if not all(type(one) is wanted and one != "" for one in given):
        raise InputError(f"must be {KINDS[kind]}", where=where)
    if kind in ("path", "paths"):
        given = [str(folder / one) for one in given]
    return given if several else given[0]


def _of_variable(kind: str, text: str, where: Location) -> Any:
    """Return what a variable says: several paths as in PATH, several texts with commas between them."""
    if kind == "switch":
        if text.casefold() not in _SWITCHES:
            raise UsageError(f"must be 1 or 0, not {text[:100]!a}", where=where)
        return _SWITCHES[text.casefold()]
    if kind == "integer":
        if not _INTEGER.fullmatch(text):
            raise UsageError(f"must be {KINDS[kind]}, not {text[:100]!a}", where=where)
        return int(text)
    if kind in ("texts", "paths"):
        parts = text.split("," if kind == "texts" else os.pathsep)
        return [part.strip() for part in parts if part.strip()]
    return text or None
