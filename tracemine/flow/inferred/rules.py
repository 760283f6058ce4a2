"""What rules.toml says of operators, as sets to look names up in."""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from tracemine.tables import table_beside


class Rules(Struct, frozen=True):
    """See rules.toml for what each means."""

    side_by_side: frozenset[str]  # classes of operators
    partners: dict[str, str]
    shaped_inside: frozenset[str]
    hands_on_idle: frozenset[str]
    commutes: frozenset[str]
    keeps_nothing: frozenset[str]
    keeps_results: tuple[str, ...]
    parameters: dict[str, frozenset[int]]


@cache
def rules() -> Rules:
    """Return the rules, read once.

    >>> rules().partners["aten::sin"], sorted(rules().parameters["aten::linear"])
    ('aten::cos', [1, 2])
    """
    data = table_beside(__file__, "rules.toml")
    first, second = (f"aten::{name}" for name in data["partners"].split())
    return Rules(
        side_by_side=frozenset(data["side_by_side"].split()),
        partners={first: second, second: first},
        shaped_inside=frozenset(f"aten::{name}" for name in data["shaped_inside"].split()),
        commutes=frozenset(f"aten::{name}" for name in data["commutes"].split()),
        hands_on_idle=frozenset(f"aten::{name}" for name in data["hands_on_idle"].split()),
        keeps_nothing=frozenset(data["keeps_nothing"].split()),
        keeps_results=tuple(data["keeps_results"].split()),
        parameters={f"aten::{name}": frozenset(at) for name, at in data["parameters"].items()},
    )
