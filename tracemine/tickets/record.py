"""What tickets are made of: the text of one, the mark by which it is found again, and what a run did. Frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tracemine.errors import ServiceError, UsageError
from tracemine.units import time_text

if TYPE_CHECKING:
    from tracemine.tickets.document import Block

State = Literal["open", "completed", "not planned"]
Kind = Literal["create", "update", "close", "reopen", "withdraw", "leave"]
NS_AN_HOUR = 3_600_000_000_000


class Unanswered(Exception):
    """A request that must not be repeated blindly got no whole answer: it may have taken effect or not."""


class RefusedError(ServiceError):
    """A service says that a request is not to be made."""


class UnseenError(UsageError):
    """A service cannot even be read."""


class NoTokenError(UnseenError):
    """There is no token for a service."""


class NoClientError(UnseenError):
    """What speaks HTTP is not installed."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a finding costs and saves, in ns: a step where steps are known, else over the trace; or over a fleet."""

    saving_ns: int  # of the step; of GPU time, where the step gains nothing; of a fleet's GPU-hours
    measured_ns: int  # of a fleet: GPU-hours of the jobs that have it
    of: Literal["step", "trace", "fleet"]

    @property
    def each(self) -> str:
        """What the figures are of, in words."""
        return {"step": "a step", "trace": "in the trace", "fleet": "over the fleet"}[self.of]

    def __str__(self) -> str:
        """Return the figures in words.

        >>> print(Figures(236_000, 292_365, "step"))
        saves 236 µs of 292 µs a step
        >>> print(Figures(9_000_000_000_000, 360_000_000_000_000, "fleet"))
        saves 2.5 of 100.0 GPU-hours over the fleet
        """
        if self.of == "fleet":
            saving, measured = self.saving_ns / NS_AN_HOUR, self.measured_ns / NS_AN_HOUR
            return f"saves {saving:,.1f} of {measured:,.1f} GPU-hours {self.each}"
        return f"saves {time_text(self.saving_ns)} of {time_text(self.measured_ns)} {self.each}"


@dataclass(frozen=True, slots=True)
class TicketMark:
    """What a ticket carries hidden in it: which finding of which project it is about, and what it said last."""

    key: str  # PROJECT/IDENTITY; never changes once the ticket is there
    aliases: tuple[str, ...] = ()  # keys too: what the finding is called where no module was recorded, for example
    figures: Figures | None = None
    revision: int = 0  # counts what was written to the ticket
    redacted: bool = False  # pseudonyms stand in it for names of modules, files and functions


@dataclass(frozen=True, slots=True)
class Filing:
    """How a ticket is filed once it is created; what people change of it later stays."""

    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()  # as they were named; of a draft that a service has looked at, as the service does
    milestone: str | None = None  # its title; of such a draft its number

    def __str__(self) -> str:
        """Return it in words; "" of nothing.

        >>> print(Filing(("perf",), ("@ann", "bob"), "v2"))
        label perf, for ann and bob, milestone v2
        """
        whom = " and ".join(one.removeprefix("@") for one in self.assignees)
        parts = [*(f"label {one}" for one in self.labels), *([f"for {whom}"] if whom else [])]
        return ", ".join([*parts, *([f"milestone {self.milestone}"] if self.milestone else [])])


@dataclass(frozen=True, slots=True)
class TicketDraft:
    """A ticket as it should read now."""

    mark: TicketMark
    title: str
    blocks: tuple[Block, ...]
    filing: Filing = Filing()


@dataclass(frozen=True, slots=True)
class Issue:
    """A ticket as the service holds it."""

    name: str  # "12" of GitHub, "PERF-12" of Jira
    number: int  # in the order of creation
    state: State
    mark: TicketMark
    title: str
    url: str
    body: str = ""  # of GitHub


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of ours. `revision` says what it is about: one is written for each."""

    name: str
    number: int
    revision: int


@dataclass(frozen=True, slots=True)
class Action:
    """What a run did to one ticket, or would do, and why."""

    kind: Kind
    key: str
    title: str
    why: str
    issue: str | None = None  # null: there is none yet
    url: str | None = None
    done: bool = field(default=False)  # false: only said (a dry run), or nothing was to do
    filing: Filing = Filing()  # of one that is created
