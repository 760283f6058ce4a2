"""What can be in the way of one graph, and what each way of launching less does then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tracemine.findings.graphs.record import WAYS, Effect, Outcome, WayName
from tracemine.tables import table_beside


class Kind(Struct, frozen=True):
    """A kind of obstacle: the words for it, and what each of WAYS does."""

    says: str
    effects: dict[WayName, Effect]


_LETTERS: Final[Mapping[str, Effect]] = {
    "E": "raises",
    "B": "breaks",
    "S": "skips",
    "O": "overwrites",
    "A": "records_again",
    "R": "recompiles",
    "T": "stale",
    "G": "already",
    "?": "not_known",
}


def _kind(says: str, effects: str) -> Kind:
    """Return a kind; effects: a letter a way, in the order of WAYS, `-` where it is not in the way."""
    return Kind(says, {way: _LETTERS[each] for way, each in zip(WAYS, effects, strict=True) if each != "-"})


_TABLE = table_beside(__file__, "kinds.toml")
# Kinds of waits are those of tracemine/host/waits.py. What holds of compiled code holds of torch 2.4 to 2.11.
KINDS: Final[Mapping[str, Kind]] = {name: _kind(*says) for name, says in _TABLE["kinds"].items()}

# The gravest first, and what each makes of a way.
GRAVITY: Final[Mapping[Effect, Outcome]] = {
    "raises": "fails",
    "overwrites": "fails",
    "stale": "fails",
    "breaks": "fails",
    "records_again": "fails",
    "skips": "fails",
    "not_known": "unknown",
    "recompiles": "works",
    "already": "works",
}
