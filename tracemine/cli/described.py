"""Options and arguments of commands as options.toml describes them."""

from __future__ import annotations

from typing import Any

import typer

from tracemine.tables import table_beside

_TABLE = table_beside(__file__, "options.toml")


def option(name: str, **more: Any) -> Any:
    """Return an option, by its module and name. more: what the table cannot say.

    >>> option("apply.edit").metavar
    '[FINDING=]FILE'
    """
    says = _of(name) | more
    flags: tuple[Any, ...] = tuple(says.pop("flags", ()))
    return typer.Option(*flags, **says)


def argument(name: str, **more: Any) -> Any:
    """Return an argument, likewise."""
    return typer.Argument(**_of(name), **more)


def _of(name: str) -> dict[str, Any]:
    module, _, own = name.partition(".")
    return {**_TABLE[module][own]}
