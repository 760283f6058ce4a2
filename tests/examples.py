"""Tests of many examples by lot, the same at each run.

They take a tenth of what Hypothesis takes where an example is made of many choices; no example is made smaller.
Where it is a few numbers of any size, Hypothesis finds more: it tries the ends of ranges.
"""

from __future__ import annotations

import random
from collections.abc import Callable


def examples(count: int) -> Callable[[Callable[[random.Random], None]], Callable[[], None]]:
    """Call a test once an example, with what it draws by; a failure says of which example it is."""

    def decorated(test: Callable[[random.Random], None]) -> Callable[[], None]:
        def on_all() -> None:
            for seed in range(count):
                try:
                    test(random.Random(seed))
                except BaseException as error:
                    error.add_note(f"in the example that random.Random({seed}) draws")
                    raise

        on_all.__name__, on_all.__doc__, on_all.__module__ = test.__name__, test.__doc__, test.__module__
        return on_all

    return decorated
