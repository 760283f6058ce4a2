"""What a fixed form is, and what it is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tracemine.verify.rebuild.memory import Lies


class NoFixedForm(Exception):
    """There is none for these calls; its text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What is known of a graph besides its calls."""

    unread: Collection[int] = ()  # live values without a known consumer
    remains: bool = True  # whether the fix is said to leave work in each step
    lies: Sequence[Lies | None] = ()  # where each input lies, and each live value


NOTHING_KNOWN = Around()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Ways to compute what some calls do. Python source that a reproduction takes as it is."""

    ways: tuple[str, ...] = ()  # keys of gpu/library_call.py's WAYS: the same calls, prepared or set up in another way
    own: Mapping[str, str] = field(default_factory=dict)  # by name the arguments of a `Way`
    source: str = ""  # the functions that those name
    uses: tuple[str, ...] = ()  # names of the harness that they call
    rounds: str | None = None  # a function of the source: the calls in the order of the ways, whose roundings count too
    numbers: Mapping[str, float] = field(default_factory=dict)  # by name, of such as are not recorded
    holds: Mapping[int, object] = field(default_factory=dict)  # what inputs hold, by number, as `make_inputs` makes it
    assumptions: tuple[str, ...] = ()
