"""tracemine tickets: findings as tickets of GitHub or Jira, or as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tracemine.tickets as services
from tracemine.cli.console import say, write
from tracemine.cli.described import option
from tracemine.cli.findings import named_finding, stored_scans
from tracemine.cli.job import jobs_in
from tracemine.cli.options import FindingOption, FindingsArgument, QuietOption
from tracemine.cli.progress import reading
from tracemine.cli.request import ScanRequest, found_in
from tracemine.errors import InputError, Location, UsageError
from tracemine.report.escape import line

if TYPE_CHECKING:
    from tracemine.findings.record import Scan, Source
    from tracemine.tickets import Action, CodeOwners, Filing, GitHub, Jira, TicketsAsked

_NO_FINDING = "no finding asks for a ticket"
_PLACES = "--out DIR, --github OWNER/REPO, or --jira URL --jira-project KEY"
_LONGEST_NAME = 255
ProjectOption = Annotated[str | None, option("tickets.project")]
OutOption = Annotated[Path | None, option("tickets.out")]
GitHubOption = Annotated[str | None, typer.Option("--github", metavar="OWNER/REPO", help="Issues of this repository.")]
GitHubUrlOption = Annotated[str | None, option("tickets.git_hub_url")]
JiraOption = Annotated[str | None, typer.Option("--jira", metavar="URL", help="Issues of this Jira: https://HOST.")]
JiraProjectOption = Annotated[str | None, typer.Option("--jira-project", metavar="KEY", help="The project there.")]
JiraTypeOption = Annotated[str, typer.Option("--jira-type", metavar="TYPE", help="What kind of issue to create.")]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Do it. Without this nothing is changed, only said.")]
AfterOption = Annotated[Path | None, option("tickets.after")]
LabelOption = Annotated[list[str] | None, option("tickets.label")]
AssigneeOption = Annotated[list[str] | None, option("tickets.assignee")]
MilestoneOption = Annotated[str | None, option("tickets.milestone")]
CodeOwnersOption = Annotated[Path | None, option("tickets.code_owners")]
RedactOption = Annotated[bool, typer.Option("--redact", help="Pseudonyms for modules, files and functions.")]
MaxOption = Annotated[int, option("tickets.max")]


def tickets(
    path: FindingsArgument,
    project: ProjectOption = None,
    finding: FindingOption = None,
    out: OutOption = None,
    github: GitHubOption = None,
    github_url: GitHubUrlOption = None,
    jira: JiraOption = None,
    jira_project: JiraProjectOption = None,
    jira_type: JiraTypeOption = "Task",
    apply: ApplyOption = False,
    after: AfterOption = None,
    label: LabelOption = None,
    assignee: AssigneeOption = None,
    milestone: MilestoneOption = None,
    codeowners: CodeOwnersOption = None,
    redact: RedactOption = False,
    most: MaxOption = 5,
    quiet: QuietOption = False,
) -> int:
    """Give each finding a ticket: create, update, close or reopen it, and never two for one finding.

    Without --apply it says what it would do, and only reads; without a place the first ticket is printed. A ticket is
    found again by a hidden line, of the project's label and the finding's identity. It is updated when figures move by
    more than 10 %, closed when --after says fixed, and reopened when the finding is back; what was closed as not
    planned stays so.

    Tokens come from GITHUB_TOKEN or GH_TOKEN (GH_ENTERPRISE_TOKEN for another server), from JIRA_EMAIL and
    JIRA_API_TOKEN, or from the keyring: keyring set tracemine HOST.

    Exit code: 0 done, 2 the call is wrong, or a service refused or did not answer; then it may be run again.

    \b
    Examples:
      tracemine tickets trace.json.gz --finding 1
      tracemine tickets trace.json.gz --project decoder --finding 1 --out tickets/
      tracemine tickets trace.json.gz --project decoder --github you/model
      tracemine tickets after.json --project decoder --github you/model --after diff.json --apply
      tracemine tickets trace.json.gz --project decoder --github you/model --label perf --codeowners . --apply
      tracemine tickets findings.json --project decoder --jira https://you.atlassian.net --jira-project PERF
    """
    where = Where(out, github, github_url, jira, jira_project, jira_type, apply, most, quiet)
    where.check(project, prints=True)
    project = project or "trace"
    filing, owners = where.filed(label or (), assignee or (), milestone, codeowners)
    if (jobs := jobs_in([str(path)], quiet=quiet)) is not None:
        if finding is not None or after is not None:
            raise UsageError("--finding, --after: are of a trace, and this is a job of several ranks")
        deliver(services.tickets_of_job(jobs[0], project, redact=redact, filing=filing), where, unseen=True)
        return 0
    scan, frames = _read(path, quiet=quiet)
    found = services.findings_of(scan, project, after=after, redact=redact, frames=frames, filing=filing, owners=owners)
    if finding is not None:
        one, _ = named_finding(finding, [scan], "--finding")
        found = found.of_one(one.identity.finding)
    deliver(found, where, unseen=after is None)
    return 0


@dataclass(frozen=True, slots=True)
class Where:
    """Where tickets go, and whether they do."""

    out: Path | None
    github: str | None
    github_url: str | None
    jira: str | None
    jira_project: str | None
    jira_type: str
    apply: bool
    most: int
    quiet: bool

    def check(self, project: str | None, *, prints: bool = False) -> None:
        """Raise UsageError for a call that names two places, one without what it needs, or none. prints: none will."""
        if self.most < 0:
            raise UsageError(f"--max: {self.most} is negative")
        if self.github is not None and self.jira is not None:
            raise UsageError("--github and --jira: name one of them")
        if self.is_nowhere and (self.apply or not prints):
            raise UsageError("where to?", hint=_PLACES)
        if not project and not self.is_nowhere:
            raise UsageError("missing option '--project'", hint="a short name, the same each time: --project decoder")
        if self.github_url is not None and self.github is None:
            raise UsageError("--github-url: name the repository there with --github")
        if (self.jira is None) != (self.jira_project is None):
            raise UsageError("--jira and --jira-project: name both")

    @property
    def is_files_only(self) -> bool:
        """Return whether no service is named."""
        return self.github is None and self.jira is None

    @property
    def is_nowhere(self) -> bool:
        """Return whether no place is named."""
        return self.out is None and self.is_files_only

    def filed(
        self, labels: Sequence[str], assignees: Sequence[str], milestone: str | None, codeowners: Path | None
    ) -> tuple[Filing, CodeOwners | None]:
        """Return how new tickets are filed, and whose lines are whose. Raises UsageError: of no service."""
        filing = _filing(labels, assignees, milestone)
        if self.is_files_only and (codeowners is not None or filing != services.Filing()):
            says = "--label, --assignee, --milestone, --codeowners: are of a service"
            raise UsageError(says, hint="name --github or --jira")
        return filing, None if codeowners is None else services.read_owners(codeowners)

    def service(self) -> GitHub | Jira:
        """Return the service. Raises UnseenError."""
        patience = services.Patience(tell=None if self.quiet else say)
        if self.github is not None:
            address = {} if self.github_url is None else {"url": self.github_url}
            return services.GitHub(self.github, patience=patience, **address)
        return services.Jira(self.jira or "", self.jira_project or "", kind=self.jira_type, patience=patience)


def deliver(found: TicketsAsked, where: Where, *, unseen: bool) -> None:
    """Write drafts to files, and bring them and a service's tickets together, or say what that would do.

    unseen: without a token or a client it may be said what a service would get that holds nothing yet.
    """
    tell = (lambda text: None) if where.quiet else say
    if where.out is not None:
        paths = [*services.write_tickets(found.drafts, where.out), *services.write_fixed(found.fixed, where.out)]
        write("".join(f"{line(str(path))}\n" for path in paths))
        if not paths:
            tell(f"{_NO_FINDING}: no file was written")
    most = where.most or len(found.drafts)
    if where.is_files_only:
        if where.is_nowhere:
            _print_first(found, actions := services.unseen(found, most))
            _print(actions, stopped=False)
            tell(f"nothing was sent; a place for it: --project LABEL with {_PLACES}")
        return
    try:
        reached = where.service()
    except services.UnseenError as error:
        if where.apply or not unseen:
            raise
        _print_first(found, actions := services.unseen(found, most))
        _print(actions, stopped=False)
        tell(f"tickets that are there were not looked up: {error.message}: {error.hint}")
        return
    with reached as service, _saying(found, where) as said:
        with reading(Path(service.place), quiet=where.quiet) as bar:
            said[:] = services.settle(
                found, service, apply=where.apply, most=most, progress=bar, actions=said, tell=say
            )
        if not said:
            tell(f"{_NO_FINDING}, and there is none to change")
        if not where.apply:
            tell("nothing was changed: --apply does it")


def _read(path: Path, *, quiet: bool) -> tuple[Scan, Mapping[str, Source]]:
    """Return the findings, and of a trace the user's own lines of those that hold none."""
    scans = stored_scans(path)
    if scans is not None:
        if len(scans) != 1:
            where = Location(str(path))
            raise InputError(f"holds {len(scans):,} scans, and tickets are of one", where=where, hint="split the file")
        return scans[0], {}
    from tracemine.pipeline import ScanOptions

    found = found_in(path, ScanRequest(options=ScanOptions(), quiet=quiet))
    return found.scan, found.frames


def _filing(labels: Sequence[str], assignees: Sequence[str], milestone: str | None) -> Filing:
    """Return how tickets are filed. Raises UsageError for what is no label or name."""
    for flag, texts in (("--label", labels), ("--assignee", assignees), ("--milestone", [milestone or "-"])):
        for text in texts:
            if not text.strip() or not text.isprintable() or len(text) > _LONGEST_NAME:
                raise UsageError(f"{flag}: {text[:80]!a} is empty, too long, or holds what cannot be seen")
    return services.Filing(tuple(labels), tuple(assignees), milestone)


@contextmanager
def _saying(found: TicketsAsked, where: Where) -> Iterator[list[Action]]:
    """Print the actions at the end, on a dry run behind the first ticket's text; where a service stopped the run, those
    that were done, before its error.
    """
    said: list[Action] = []
    try:
        yield said
    except services.UnfinishedError as error:
        said[:] = error.actions
        _print(said, stopped=True)
        raise
    except KeyboardInterrupt:
        _print(said, stopped=True)
        if said:
            say("stopped: the first of those not done may be; run it again, it finds what was done and does the rest")
        raise
    if not where.apply:
        _print_first(found, said)
    _print(said, stopped=False)


def _print_first(found: TicketsAsked, actions: Sequence[Action]) -> None:
    """Print the text of the first ticket that would be written, as it would read."""
    due = [action.key for action in actions if action.kind in ("create", "update", "reopen")]
    draft = next((one for key in due for one in found.drafts if one.mark.key == key), None)
    if draft is not None:
        write(f"{line(draft.title)}\n\n{services.text_of(draft)}\n\n")


def _print(actions: Sequence[Action], *, stopped: bool) -> None:
    """Print a line a ticket: what is done to it, which it is, why."""
    for action in actions:
        due = stopped and not action.done and action.kind != "leave"
        name = "" if action.issue is None else f" {action.issue}"
        filed = f" · {action.filing}" if str(action.filing) else ""
        write(f"{line(f'{action.kind}{name}  {action.title}: {action.why}{filed}')}{', not done' if due else ''}\n")
