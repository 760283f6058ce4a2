"""One ticket a key, and one comment a revision, with services that cannot create a thing only where it is not there.

Neither GitHub's nor Jira's REST API has a conditional create. What they have is an order: every ticket has a number,
and a later one a larger. So, with the key k:

1. Look for k, in open and closed tickets. Where it is, nothing is created.
2. Create.
3. Look again, until the list surely holds all that was created before ours (`Service.since`). Of the tickets with k
   the one with the smallest number stays. If that is not ours, we close ours as its duplicate, and take k from it.

Never none: a ticket is withdrawn only by a run that sees an older one with the same key, and so the oldest never is,
however stale a list is, whoever stops where. (A person may close it; that is an answer, and it keeps its key.)

At most one, once no run is under way: take two tickets with k, i < j. Whoever created j looked after j was there, at a
list that holds all before j: it saw i, and withdrew j. Two hundred runs at once make at most two hundred, of which
all but the oldest are withdrawn by those who made them.

A create whose answer was lost is not repeated before the list was read again. From then on any of those that carry k
may be ours, and it is unknown which: all but the oldest are withdrawn. Two runs that withdraw one ticket do no harm:
it then reads the same.

A run that is cut off between 2 and 3 leaves its ticket. So does a create without an answer that takes effect only after
step 3. Both carry k, so the next run finds both in step 1, keeps the older one and withdraws the other: a run begins by
healing (plan.py, `one_each`).

A lock on this machine (run.py) lets one run at a time through for each place and project, so that two runs of one
machine never come so far as to create twice. It is not needed for the above, and cannot replace it: another machine has
another.

Comments are written by the same function: their numbers have an order as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tracemine.errors import ServiceError
from tracemine.tickets.document import Block
from tracemine.tickets.record import Comment, Issue, TicketDraft, Unanswered
from tracemine.tickets.service import Service

_MOST_CREATES = 4
_MOST_LOOKS = 8

Thing = TypeVar("Thing", Issue, Comment)


@dataclass(frozen=True, slots=True)
class Keeper(Generic[Thing]):
    """How a kind of thing is looked for, created and taken away."""

    look: Callable[[Thing | None], tuple[list[Thing], bool]]  # those with the key; and are all before this one there?
    create: Callable[[], Thing]
    withdraw: Callable[[Thing, Thing], None]  # the first, for the second stays
    pause: Callable[[], None]


def one(keeper: Keeper[Thing]) -> Thing:
    """Create a thing unless another run has, and return the one that stays. Called where a look found none."""
    problem = ""
    for _ in range(_MOST_CREATES):
        try:
            made: Thing | None = keeper.create()
        except Unanswered as lost:
            made, problem = None, str(lost)
        there = settled(keeper, made)
        if there:
            stays = min(there, key=lambda thing: thing.number)
            ours = [thing for thing in there if problem or (made is not None and thing.number == made.number)]
            for later in ours:
                if later.number != stays.number:
                    keeper.withdraw(later, stays)
            return stays
    raise ServiceError(f"{problem}; it was not there afterwards, {_MOST_CREATES} times")


def settled(keeper: Keeper[Thing], made: Thing | None) -> list[Thing]:
    """Return the things with the key, ours among them, once no older one can be missing; none where there are none."""
    there: list[Thing] = []
    for number in range(_MOST_LOOKS):
        if number:
            keeper.pause()
        there, complete = keeper.look(made)
        if complete and (there or made is None):
            break
    if made is not None and made.number not in {thing.number for thing in there}:
        there.append(made)  # the list is slow: the next run sees to what it hides
    return there


def one_ticket(service: Service, draft: TicketDraft) -> Issue:
    """Return the ticket of a draft, created unless another run has."""

    def look(made: Issue | None) -> tuple[list[Issue], bool]:
        issues, complete = service.since(made)
        return [issue for issue in issues if issue.mark.key == draft.mark.key], complete

    return one(Keeper(look, lambda: service.create(draft), service.withdraw, service.pause))


def one_comment(service: Service, issue: Issue, revision: int, blocks: Sequence[Block]) -> None:
    """Write the comment about a revision of a ticket, unless another run has."""

    def look(made: Comment | None) -> tuple[list[Comment], bool]:
        every = service.comments(issue)
        return [each for each in every if each.revision == revision], made is None or made in every

    def uncomment(comment: Comment, _: Comment) -> None:
        service.uncomment(issue, comment)

    if not look(None)[0]:
        one(Keeper(look, lambda: service.comment(issue, revision, blocks), uncomment, service.pause))
