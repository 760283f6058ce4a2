"""A scan's findings and a service's tickets brought together: `sync`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracemine.documents.screen import own_of
from tracemine.errors import ServiceError, TracemineError, UsageError
from tracemine.files import locked, make_folder, read_file, write_file, writing
from tracemine.findings.record import Finding, Scan, Source
from tracemine.tickets.content import drafts_of
from tracemine.tickets.document import Paragraph, Text
from tracemine.tickets.fixed import fixed_before
from tracemine.tickets.marks import MOST_ALIASES, check_project, key_of
from tracemine.tickets.names import ShownNames
from tracemine.tickets.once import one_comment, one_ticket
from tracemine.tickets.owners import CodeOwners
from tracemine.tickets.plan import PlannedStep, TicketsAsked, plan
from tracemine.tickets.record import Action, Filing, Issue, TicketDraft, TicketMark, Unanswered
from tracemine.tickets.service import Service

_CREATED = "created.txt"
_MOST_CREATED = 50
_UNSEEN = "existing tickets not checked"
_LARGEST_BYTES = 1 << 16
MOST = 5  # tickets that a run creates, where nothing else is said

Progress = Callable[[int, int], None]


class UnfinishedError(ServiceError):
    """A run that a service stopped. `actions`: all it was to do, those done marked so; run again, it does the rest."""

    def __init__(self, cause: ServiceError, actions: Sequence[Action]) -> None:
        due = [action for action in actions if action.kind != "leave"]
        done = sum(action.done for action in due)
        super().__init__(f"{cause.message}; {done:,} of {len(due):,} tickets are done", hint=cause.hint)
        self.actions = tuple(actions)


def sync(
    scan: Scan,
    service: Service,
    project: str,
    *,
    apply: bool = False,
    after: Path | Mapping[str, Any] | None = None,
    redact: bool = False,
    most: int = MOST,
    frames: Mapping[str, Source] | None = None,
    locks: Path | None = None,
    progress: Progress | None = None,
    actions: list[Action] | None = None,
) -> list[Action]:
    """Say what to do so that each finding has its ticket, and, where `apply` is set, do it.

    project: the label that keeps tickets of one model apart from those of others. after: what `tracemine diff` says, a
    file or its content, `scan` its later side: what is `fixed` there is closed. most: how many tickets to create.
    frames: the user's own lines of findings that hold none, by fingerprint. locks: a folder for this machine's locks;
    the user's own where none is given. actions: a list to keep what is due and what is done in, for one who is
    interrupted meanwhile.

    Without `apply` nothing is changed: the service is only read. Raises UnfinishedError where it stops midway: what
    was done stays done, and the next run finds it again; UsageError for a label or an identity that is none, for a
    comparison of others than `scan`, and where the tickets there are redacted and these are not, or the reverse.
    """
    found = findings_of(scan, project, after=after, redact=redact, frames=frames)
    return settle(found, service, apply=apply, most=most, locks=locks, progress=progress, actions=actions)


def settle(
    found: TicketsAsked,
    service: Service,
    *,
    apply: bool = False,
    most: int = MOST,
    locks: Path | None = None,
    progress: Progress | None = None,
    actions: list[Action] | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Action]:
    """Say what to do so that all that was found has its ticket, and, where `apply` is set, do it. As `sync`.

    tell: gets a sentence for what of a ticket's filing the service cannot take.
    """
    folder = _folder(locks, service.place, found.project)
    if apply:
        with writing(folder):
            make_folder(folder)
    with locked(folder) if apply else contextlib.nullcontext():  # one run of this machine and user at a time
        prefix = f"{found.project}/"
        issues = [issue for issue in service.issues(_created(folder)) if issue.mark.key.startswith(prefix)]
        _check_alike(issues, found.project, redact=found.redacted)
        steps = _fitted(service, plan(found, issues, most), tell or (lambda text: None))
        if not apply:
            return [_action(step) for step in steps]
        return _applied(service, steps, folder, progress, [] if actions is None else actions)


def _fitted(service: Service, steps: Sequence[PlannedStep], tell: Callable[[str], None]) -> list[PlannedStep]:
    """Return the steps, those that create with what the service can take of their filing; the rest is printed."""
    fitted, told = [], dict[str, None]()
    for step in steps:
        if step.kind == "create" and step.draft is not None and step.draft.filing != Filing():
            filing, problems = service.taken(step.draft.filing)
            told |= dict.fromkeys(problems)
            step = replace(step, draft=replace(step.draft, filing=filing))
        fitted.append(step)
    for text in told:
        tell(text)
    return fitted


def unseen(found: TicketsAsked, most: int = MOST) -> list[Action]:
    """Return what a service would get that holds nothing yet: what it holds is not looked at."""
    steps = plan(found, (), most)
    return [replace(_action(step), why=_UNSEEN if step.kind == "create" else step.why) for step in steps]


def findings_of(
    scan: Scan,
    project: str,
    *,
    after: Path | Mapping[str, Any] | None = None,
    redact: bool = False,
    frames: Mapping[str, Source] | None = None,
    filing: Filing = Filing(),  # noqa: B008 - frozen
    owners: CodeOwners | None = None,
) -> TicketsAsked:
    """Return the tickets that a scan's findings ask for. Arguments and errors as of `sync`.

    filing: labels, assignees and a milestone of those that are created. owners: who is assigned in place of those
    assignees, where the user's own line of a finding has owners.
    """
    check_project(project)
    names = ShownNames(project, redact)
    wanted: dict[str, Finding] = {}
    others: dict[str, str] = {}
    for finding in scan.findings:
        key = key_of(project, finding.identity.finding)
        if finding.refuted or not finding.reported:
            others[key] = "refuted" if finding.reported else "too small"
        else:
            wanted.setdefault(key, finding)
    lines, asked = frames or {}, tuple(wanted.values())
    drafts = tuple(
        replace(draft, filing=_of_owners(filing, finding, lines, owners))
        for finding, draft in zip(asked, drafts_of(asked, scan, names, lines), strict=True)
    )
    fixed = () if after is None else fixed_before(after, scan)
    closed = tuple((key_of(project, one.identity), one) for one in fixed)
    return TicketsAsked(project, redact, drafts, others, closed)


def _of_owners(filing: Filing, finding: Finding, frames: Mapping[str, Source], owners: CodeOwners | None) -> Filing:
    own = own_of(finding, frames)
    return filing if owners is None or own is None else owners.filing(filing, own.file)


def _check_alike(issues: Sequence[Issue], project: str, *, redact: bool) -> None:
    """Raises UsageError where a run would put names into redacted tickets, or leave them in others."""
    other = next((issue for issue in issues if issue.mark.redacted != redact), None)
    if other is None:
        return
    if redact:
        says, hint = "has the names themselves", "leave --redact out, or give redacted tickets another --project"
    else:
        says, hint = "is redacted", "say --redact, or give tickets with names another --project"
    raise UsageError(f"--redact: {other.name} of {project} {says}, and this run would mix them", hint=hint)


def _applied(
    service: Service, steps: Sequence[PlannedStep], folder: Path, progress: Progress | None, actions: list[Action]
) -> list[Action]:
    actions[:] = [_action(step) for step in steps]
    for number, step in enumerate(steps):
        if progress is not None:
            progress(number, len(steps))
        try:
            actions[number] = _done(service, step)
        except ServiceError as error:
            raise UnfinishedError(error, actions) from None
        except Unanswered as lost:
            raise UnfinishedError(ServiceError(str(lost)), actions) from None
        if actions[number].kind == "create" and actions[number].done:
            _keep(folder, str(actions[number].issue))
    return actions


def _done(service: Service, step: PlannedStep) -> Action:
    """Take a step. What it does last is what makes it needless: cut off before, it is taken again."""
    issue = step.issue
    if step.kind == "create" and step.draft is not None:
        issue = one_ticket(service, step.draft)
    elif step.kind == "withdraw" and issue is not None and step.winner is not None:
        service.withdraw(issue, step.winner)
    elif step.kind == "close" and issue is not None:
        _say(service, issue, step)
        service.end(issue, issue.mark.revision + 1)
    elif step.kind in ("update", "reopen") and issue is not None and step.draft is not None:
        _say(service, issue, step)
        service.write(issue, replace(step.draft, mark=_mark(issue, step.draft)), "open")
    else:
        return _action(step)
    return replace(_action(step), issue=issue.name, url=issue.url, done=True)


def _say(service: Service, issue: Issue, step: PlannedStep) -> None:
    if step.says is not None:
        one_comment(service, issue, issue.mark.revision + 1, (Paragraph((Text(step.says),)),))


def _mark(issue: Issue, now: TicketDraft) -> TicketMark:
    """Return the ticket's key, which stays, and under what else it may be looked for."""
    names = dict.fromkeys((*issue.mark.aliases, now.mark.key, *now.mark.aliases))
    aliases = tuple(name for name in names if name != issue.mark.key)[:MOST_ALIASES]
    return replace(now.mark, key=issue.mark.key, aliases=aliases, revision=issue.mark.revision + 1)


def _action(step: PlannedStep) -> Action:
    issue = step.issue
    name, url = (None, None) if issue is None else (issue.name, issue.url)
    filing = step.draft.filing if step.kind == "create" and step.draft is not None else Filing()
    return Action(step.kind, step.key, step.title, step.why, name, url, filing=filing)


def _folder(locks: Path | None, place: str, project: str) -> Path:
    """Return the folder of a place and a project: its lock, and the names of the tickets created last."""
    name = hashlib.sha256(f"{place}\0{project}".encode("utf-8", "replace")).hexdigest()[:16]
    return (_locks() if locks is None else locks) / name


def _created(folder: Path) -> list[str]:
    """Return names of tickets that this machine created and a search may not know yet; none where none are kept."""
    with contextlib.suppress(TracemineError, OSError, UnicodeDecodeError):
        return read_file(folder / _CREATED, _LARGEST_BYTES).decode().split()[-_MOST_CREATED:]
    return []


def _keep(folder: Path, name: str) -> None:
    """Put a ticket's name down. Where that fails, the next run finds out as those of other machines do."""
    with contextlib.suppress(TracemineError):
        names = (*_created(folder), name)[-_MOST_CREATED:]
        write_file(folder / _CREATED, "\n".join(names) + "\n", named=False)


def _locks() -> Path:
    """Return the XDG base directory for a user's state."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path("~/.local/state")
    with contextlib.suppress(RuntimeError):  # no home is known
        base = base.expanduser()
    return base / "tracemine" / "tickets"
