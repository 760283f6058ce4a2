"""What a run does to each ticket, decided from what was found and what the service holds; nothing is asked here.

    there is none                 create
    open                          update where figures moved by more than a tenth; else leave
    open, and fixed               close
    closed as completed           reopen where the finding is back
    closed as not planned         leave

Only a comparison of recordings says `fixed`. A finding that a recording does not have says nothing: it may have been
made without stacks, or of another part of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tracemine.tickets.fixed import FixedFinding
from tracemine.tickets.marks import MOST_ALIASES, key_of
from tracemine.tickets.record import Figures, Issue, Kind, TicketDraft
from tracemine.units import count_text

_MOVED = 0.1
_OTHERS = {
    "too small": "it is still there, and too small to report",
    "refuted": "a verdict took away what it claimed",
    "gone": "no job has it any more: fixed, or not recorded; close it if it is fixed",
}


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """What to do to a ticket."""

    kind: Kind
    key: str
    title: str
    why: str
    issue: Issue | None = None
    draft: TicketDraft | None = None
    winner: Issue | None = None  # of a ticket to withdraw: the one that stays
    says: str | None = None  # the comment; None: none is written


@dataclass(frozen=True, slots=True)
class TicketsAsked:
    """What was found of a project, in a scan or over a fleet, by what is to be done about it; most worth first."""

    project: str
    redacted: bool  # pseudonyms stand in the drafts
    drafts: tuple[TicketDraft, ...]  # to have a ticket
    others: Mapping[str, str]  # keys of findings that get none, and why: `too small`, `refuted`, `gone`
    fixed: tuple[tuple[str, FixedFinding], ...] = ()  # by key

    def of_one(self, identity: str) -> TicketsAsked:
        """Return what is asked of one finding, by its identity: nothing is done to the others' tickets."""
        key = key_of(self.project, identity)
        return replace(
            self,
            drafts=tuple(one for one in self.drafts if one.mark.key == key),
            others={name: why for name, why in self.others.items() if name == key},
            fixed=(),
        )


def plan(found: TicketsAsked, issues: Sequence[Issue], most: int) -> list[PlannedStep]:
    """Return the steps, duplicates first. `most`: so many tickets are created, and no more."""
    kept, duplicates = one_each(issues)
    why = "{} is the ticket of this finding"
    steps = [
        PlannedStep("withdraw", one.mark.key, one.title, why.format(winner.name), one, winner=winner)
        for one, winner in duplicates
        if one.state == "open"
    ]
    fixed = dict(found.fixed)
    matched = _matched(
        [draft.mark.key for draft in found.drafts], {d.mark.key: d.mark.aliases for d in found.drafts}, kept
    )
    taken = {issue.name for issue in matched.values()}
    created = 0
    for draft in found.drafts:
        issue = matched.get(draft.mark.key)
        if issue is None and draft.mark.key not in fixed:
            created += 1
        step = _of_finding(draft, issue, fixed.get(draft.mark.key), beyond=created > most)
        if step is not None:
            steps.append(step)
    left = [issue for issue in kept if issue.name not in taken]
    return [*steps, *_of_fixed(found, left), *_of_others(found, left)]


def one_each(issues: Iterable[Issue]) -> tuple[list[Issue], list[tuple[Issue, Issue]]]:
    """Return the ticket of each key, the first that was created, and those after it, each with that first one."""
    first: dict[str, Issue] = {}
    duplicates = []
    for issue in sorted(issues, key=lambda issue: issue.number):
        winner = first.setdefault(issue.mark.key, issue)
        if winner is not issue:
            duplicates.append((issue, winner))
    return list(first.values()), duplicates


def moved(before: Figures | None, now: Figures | None) -> bool:
    """Return whether figures moved by more than a tenth.

    >>> before = Figures(100, 500, "step")
    >>> moved(before, Figures(109, 549, "step")), moved(before, Figures(111, 500, "step"))
    (False, True)
    """
    if before is None or now is None or before.of != now.of:
        return before != now
    pairs = ((before.saving_ns, now.saving_ns), (before.measured_ns, now.measured_ns))
    return any(abs(after - then) > _MOVED * then for then, after in pairs)


def _matched(keys: Sequence[str], aliases: Mapping[str, tuple[str, ...]], issues: Sequence[Issue]) -> dict[str, Issue]:
    """Return the ticket of each finding: of its key, else one that has the key as alias, else one of an alias's key.

    Two findings may share an alias, for it names operators wherever they are: a ticket is of one finding, and
    aliases are never compared with aliases.
    """
    of_key = {issue.mark.key: issue for issue in issues}
    matched = {key: of_key[key] for key in keys if key in of_key}
    taken = {issue.name for issue in matched.values()}

    def take(key: str, candidates: Iterable[Issue]) -> None:
        found = next((issue for issue in candidates if issue.name not in taken), None)
        if key not in matched and found is not None:
            matched[key] = found
            taken.add(found.name)

    for key in keys:
        take(key, (issue for issue in issues if key in issue.mark.aliases))
    for key in keys:
        take(key, (of_key[alias] for alias in aliases.get(key, ()) if alias in of_key))
    return matched


def _of_finding(
    draft: TicketDraft, issue: Issue | None, fixed: FixedFinding | None, *, beyond: bool
) -> PlannedStep | None:
    key, title = draft.mark.key, draft.title
    if fixed is not None:
        return None if issue is None else _closing(issue, fixed)
    if issue is None:
        kind: Kind = "leave" if beyond else "create"
        return PlannedStep(kind, key, title, "--max is reached" if beyond else "it has no ticket", draft=draft)
    now, before = draft.mark.figures, issue.mark.figures
    says = f"Before: {before or 'not said'}. Now: {now}."
    if issue.state == "not planned":
        return PlannedStep("leave", key, title, "it was closed as not planned", issue, draft)
    if issue.state == "completed":
        return PlannedStep("reopen", key, title, "it is back", issue, draft, says=f"It is back. {says}")
    if moved(before, now):
        return PlannedStep("update", key, title, "figures moved by more than 10%", issue, draft, says=says)
    if key != issue.mark.key and key not in issue.mark.aliases and len(issue.mark.aliases) < MOST_ALIASES:
        return PlannedStep("update", key, title, "it has another name now", issue, draft)
    return PlannedStep("leave", key, title, "it says what was found", issue, draft)


def _of_fixed(found: TicketsAsked, issues: Sequence[Issue]) -> Iterator[PlannedStep]:
    """Yield tickets of findings that are fixed and that the scan does not have."""
    drafted = {draft.mark.key for draft in found.drafts}
    fixed = {key: one for key, one in found.fixed if key not in drafted}
    for key, issue in _matched(list(fixed), {}, issues).items():
        yield _closing(issue, fixed[key])


def _of_others(found: TicketsAsked, issues: Sequence[Issue]) -> Iterator[PlannedStep]:
    fixed = {key for key, _ in found.fixed}
    for issue in issues:
        reason = found.others.get(issue.mark.key)
        if reason is not None and issue.mark.key not in fixed:
            yield PlannedStep("leave", issue.mark.key, issue.title, _OTHERS[reason], issue)


def _closing(issue: Issue, fixed: FixedFinding) -> PlannedStep:
    key, title = issue.mark.key, issue.title
    if issue.state != "open":
        return PlannedStep("leave", key, title, "it is closed already", issue)
    return PlannedStep("close", key, title, "the comparison says fixed", issue, says=str(fixed))


def summary(kinds: Sequence[Kind]) -> str:
    """Return how many tickets get what.

    >>> summary(["create", "leave", "create"])
    '2 to create, 1 to leave'
    """
    order: tuple[Kind, ...] = ("create", "update", "close", "reopen", "withdraw", "leave")
    parts = [f"{kinds.count(kind):,} to {kind}" for kind in order if kind in kinds]
    return ", ".join(parts) or count_text(0, "ticket")
