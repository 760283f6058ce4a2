"""What a ticket service does, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tracemine.tickets.document import Block
from tracemine.tickets.record import Comment, Filing, Issue, State, TicketDraft


class Service(Protocol):
    """A place of tickets. What reads may be tried again; of what writes only `create` and `comment` may not.

    Each method raises ServiceError where the service refuses, or never answers.
    """

    @property
    def place(self) -> str:
        """Where the tickets are, as a person says it: one name for each place."""
        ...

    def issues(self, created: Sequence[str] = ()) -> list[Issue]:
        """Return every ticket with a mark of ours, open and closed. created: names that a search may not see yet."""
        ...

    def since(self, created: Issue | None) -> tuple[list[Issue], bool]:
        """Return tickets as `issues`, and whether none that was created before `created` can be missing."""
        ...

    def taken(self, filing: Filing) -> tuple[Filing, tuple[str, ...]]:
        """Return what of it the service can take, in its own names, and what it cannot, a sentence each. Reads alone.

        Raises UsageError for a milestone that is not there, or a label that cannot be.
        """
        ...

    def create(self, draft: TicketDraft) -> Issue:
        """Create a ticket. Raises Unanswered where it is unknown whether there is one now."""
        ...

    def write(self, issue: Issue, draft: TicketDraft, state: State) -> None:
        """Make a ticket read as the draft does, in this state."""
        ...

    def end(self, issue: Issue, revision: int) -> None:
        """Close a ticket as completed; its text stays, but for the revision."""
        ...

    def withdraw(self, issue: Issue, winner: Issue) -> None:
        """Close a ticket as a duplicate, and take its mark away."""
        ...

    def comments(self, issue: Issue) -> list[Comment]:
        """Return the comments of ours on a ticket."""
        ...

    def comment(self, issue: Issue, revision: int, blocks: Sequence[Block]) -> Comment:
        """Add a comment. Raises Unanswered where it is unknown whether there is one now."""
        ...

    def uncomment(self, issue: Issue, comment: Comment) -> None:
        """Take a comment away."""
        ...

    def pause(self) -> None:
        """Wait a little before looking again."""
        ...
