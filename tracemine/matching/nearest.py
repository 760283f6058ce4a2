"""A hint for a name that is not in a list."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

RULE_NAMES = "tracemine rules list names them"


_MANY = 24  # more names than a hint should hold


def nearest(name: str, names: Iterable[str], many: str = "") -> str:
    """Return the names most like it; all of them where there are few, or none is like it.

    many: what to say in place of all, where there are many.

    >>> nearest("dur", ["op", "dur_ns"]), nearest("durns", [f"column_{i}" for i in range(20)] + ["dur_ns"])
    ('there are: op, dur_ns', 'did you mean dur_ns?')
    """
    known = list(names)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close and len(known) > 6:
        return f"did you mean {' or '.join(close)}?"
    if many and len(known) > _MANY:
        return many
    return f"there are: {', '.join(known)}"
