"""What a ticket service does, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Self

from tracemine.extras import install
from tracemine.report.escape import line
from tracemine.tickets.access import Patience, Secret
from tracemine.tickets.document import Block
from tracemine.tickets.record import Comment, Filing, Issue, NoClientError, State, TicketDraft

if TYPE_CHECKING:
    from tracemine.tickets.http import Client


def client_of(base: str, authorization: Secret, headers: Mapping[str, str], patience: Patience | None) -> Client:
    """Return a client of a service. Raises NoClientError where httpx is not installed."""
    try:
        http = import_module("tracemine.tickets.http")
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise NoClientError("httpx is not installed", hint=install("tickets")) from None
    client: Client = http.Client(base, authorization, headers, patience)
    return client


class Service(ABC):
    """A place of tickets. What reads may be tried again; of what writes only `create` and `comment` may not.

    Each method raises ServiceError where the service refuses, or never answers.
    """

    place: str  # where the tickets are, as a person says it: one name for each place

    def __init__(self, base: str, secret: Secret, headers: Mapping[str, str], patience: Patience | None) -> None:
        self._client = client_of(base, secret, headers, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    def pause(self) -> None:
        """Wait a little before looking again."""
        self._client.pause()

    @abstractmethod
    def issues(self, created: Sequence[str] = ()) -> list[Issue]:
        """Return every ticket with a mark of ours, open and closed. created: names that a search may not see yet."""

    @abstractmethod
    def since(self, created: Issue | None) -> tuple[list[Issue], bool]:
        """Return tickets as `issues`, and whether none that was created before `created` can be missing."""

    @abstractmethod
    def taken(self, filing: Filing) -> tuple[Filing, tuple[str, ...]]:
        """Return what of it the service can take, in its own names, and what it cannot, a sentence each. Reads alone.

        Raises UsageError for a milestone that is not there, or a label that cannot be.
        """

    @abstractmethod
    def create(self, draft: TicketDraft) -> Issue:
        """Create a ticket. Raises Unanswered where it is unknown whether there is one now."""

    @abstractmethod
    def write(self, issue: Issue, draft: TicketDraft, state: State) -> None:
        """Make a ticket read as the draft does, in this state."""

    @abstractmethod
    def end(self, issue: Issue, revision: int) -> None:
        """Close a ticket as completed; its text stays, but for the revision."""

    @abstractmethod
    def withdraw(self, issue: Issue, winner: Issue) -> None:
        """Close a ticket as a duplicate, and take its mark away."""

    @abstractmethod
    def comments(self, issue: Issue) -> list[Comment]:
        """Return the comments of ours on a ticket."""

    @abstractmethod
    def comment(self, issue: Issue, revision: int, blocks: Sequence[Block]) -> Comment:
        """Add a comment. Raises Unanswered where it is unknown whether there is one now."""

    @abstractmethod
    def uncomment(self, issue: Issue, comment: Comment) -> None:
        """Take a comment away."""

    @abstractmethod
    def _assignee(self, name: str, taken: int) -> tuple[str | None, str]:
        """Return who can be assigned by this name beside so many others; else None, and why not."""

    def _assignees(self, filing: Filing) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return who can be assigned, and a sentence for each who cannot."""
        names: list[str] = []
        problems: list[str] = []
        for name in dict.fromkeys(one.removeprefix("@") for one in filing.assignees):
            found, problem = self._assignee(name, len(names))
            if found is None:
                problems.append(f"{line(name, 80)} is not assigned: {problem}")
            else:
                names.append(found)
        return tuple(names), tuple(problems)
