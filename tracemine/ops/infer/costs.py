"""costs.toml, read once: how traffic and arithmetic of single operators differ from their class's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Costs:
    """The tables of costs.toml."""

    unread: dict[str, frozenset[str]]  # operator → arguments whose elements are not all read
    looked_up: frozenset[str]
    placed: dict[str, str]  # operator → the argument with what is placed
    replaced: frozenset[str]
    unknown: frozenset[str]
    flops_per_element: dict[str, int]


@cache
def costs() -> Costs:
    """Return the tables."""
    document = tomllib.loads(resources.files(__package__).joinpath("costs.toml").read_text("utf-8"))
    return Costs(
        unread={name: frozenset(arguments.split()) for name, arguments in document["unread"].items()},
        looked_up=frozenset(document["looked_up"]["operators"].split()),
        placed=document["placed"],
        replaced=frozenset(document["replaced"]["operators"].split()),
        unknown=frozenset(document["unknown"]["operators"].split()),
        flops_per_element=document["flops_per_element"],
    )
