"""How something that cannot be read looks, by its first bytes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tracemine.patterns import deferred


class Look(Struct, frozen=True):
    """How something that cannot be read looks, what it is, and the way out."""

    looks: Callable[[bytes], object]
    what: str
    hint: str


def begins(*prefixes: bytes) -> Callable[[bytes], bool]:
    """Return whether bytes begin with one of these.

    >>> begins(b"PAR1", b"ARROW1")(b"ARROW1...")
    True
    """
    return lambda head: head.startswith(prefixes)


def has(pattern: bytes) -> Callable[[bytes], object]:
    """Return what tells whether a pattern occurs.

    >>> has(rb"\\A\\d+")(b"12 a") is not None
    True
    """
    compiled = deferred(pattern)
    return lambda head: compiled.search(head)
