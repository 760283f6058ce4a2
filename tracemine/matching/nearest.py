"""A hint for a name that is not in a list."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the names most like it; all of them where there are few, or none is like it.

    >>> nearest("dur", ["op", "dur_ns"]), nearest("durns", [f"column_{i}" for i in range(20)] + ["dur_ns"])
    ('there are: op, dur_ns', 'did you mean dur_ns?')
    """
    known = list(names)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close and len(known) > 6:
        return f"did you mean {' or '.join(close)}?"
    return f"there are: {', '.join(known)}"
