"""What a job's findings are called, and what to do: the table of causes.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from msgspec import Struct, convert


class CauseText(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule's text."""

    cause: str
    title: str
    fix: str
    parts: tuple[str, ...] = ()  # of collectives that need not be


@cache
def cause_texts() -> dict[str, CauseText]:
    """Return the text of each rule."""
    text = Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text), dict[str, CauseText])


@cache
def rule_of_part(part: str) -> str:
    """Return the rule of collectives of a part.

    >>> rule_of_part("sliced")
    'reduce_then_slice'
    """
    return next(rule for rule, text in cause_texts().items() if part in text.parts)
