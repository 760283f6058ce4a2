"""What needs no reading in a call: a text that is to be a text, a path that is to be a path.

Typer 0.29 loads pydantic to look at any value, a tenth of a second of every command. What is not plain, or wrong, is
still left to Typer: it says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import EnumType
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_origin

_LEFT_TO_TYPER: Final = object()


def take_plainly(command: Any) -> None:
    """Let a command of Typer, and all below it, take plain values as they stand."""
    command.get_params = partial(_parameters, command.get_params)
    for one in getattr(command, "commands", {}).values():
        take_plainly(one)


def _parameters(stock: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    """Return a command's parameters, --help included, each of which takes what is plain."""
    parameters = stock(context)
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)  # a Typer without it needs no pydantic either
        if described is not None and "process_value" not in vars(parameter):
            parameter.process_value = partial(_processed, parameter, described.annotation, parameter.process_value)
    return parameters


def _processed(parameter: Any, wanted: Any, stock: Callable[[Any, Any], object], context: Any, value: Any) -> object:
    plain = _plain_or_missing(parameter, wanted, value)
    if plain is _LEFT_TO_TYPER:
        return stock(context, value)
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _plain_or_missing(parameter: Any, wanted: Any, value: Any) -> object:
    several = parameter.multiple or parameter.nargs != 1
    if value is None or value in ((), []):
        return _LEFT_TO_TYPER if parameter.required else () if several else value
    if get_origin(wanted) is not list:
        return _plain(wanted, value)
    found = [_plain(get_args(wanted)[0], one) for one in value] if isinstance(value, list | tuple) else []
    return found if found and _LEFT_TO_TYPER not in found else _LEFT_TO_TYPER


def _plain(wanted: object, value: object) -> object:
    """Return a value as a parameter's type where nothing can be wrong with it.

    >>> _plain(str, "a"), _plain(int, 3)
    ('a', 3)
    >>> _plain(int, "three") is _LEFT_TO_TYPER
    True
    """
    if wanted is Path and isinstance(value, str | Path):
        path = Path(value)
        return path if not os.path.exists(value) or os.access(value, os.R_OK) else _LEFT_TO_TYPER  # noqa: PTH110
    if isinstance(wanted, EnumType):
        members: list[Any] = list(wanted)
        return next((each for each in members if value in (each, each.value)), _LEFT_TO_TYPER)
    return value if type(value) is wanted and wanted in (str, int, float, bool) else _LEFT_TO_TYPER
