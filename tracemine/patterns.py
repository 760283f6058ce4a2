"""Regular expressions that are compiled where they are first used, so that start-up pays for none."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, AnyStr, Generic, cast


class DeferredPattern(Generic[AnyStr]):
    """A regular expression that acts as the compiled one, from its first use on as fast."""

    def __init__(self, text: AnyStr, flags: int = 0) -> None:
        self._asked: tuple[AnyStr, int] = text, flags

    @cached_property
    def _compiled(self) -> re.Pattern[AnyStr]:
        return re.compile(*self._asked)

    def __getattr__(self, name: str) -> Any:
        """Return what the compiled one has, and keep it."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._compiled, name)
        setattr(self, name, found)
        return found


def deferred(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    r"""Return a regular expression for the whole of a module.

    >>> deferred(r"a(\d)").sub("b", "a1 a2")
    'b b'
    """
    return cast("re.Pattern[AnyStr]", DeferredPattern(text, flags))
