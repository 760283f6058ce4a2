"""Tickets as issues of a Jira project.

Paths and fields as https://developer.atlassian.com/cloud/jira/platform/rest/v3/ has them;
tests/tickets/contract/jira.json lists those used. Texts are Atlassian Document Format, a tree in which no text can be
markup. A ticket's mark is the issue property `tracemine`; the label `tracemine` is what a search finds.

Jira's search sees what was indexed, seconds or even minutes later
(https://developer.atlassian.com/cloud/jira/platform/search-and-reconcile). So what it finds is only taken for names,
and the issues are fetched; and after a create, `since` fetches the issues before it by their keys, which are numbered
in the order of creation, as far back as an index may be late.

A mark counts where its issue was created, or its comment written, by an account of the site or an app: customers of a
service desk and people without an account may open issues too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

from tracemine.errors import ServiceError, UsageError
from tracemine.patterns import deferred
from tracemine.report.escape import line
from tracemine.tickets.access import Patience, Secret, jira_token, origin_of
from tracemine.tickets.adf import Node, document, title
from tracemine.tickets.answers import Account, JiraComment, JiraIssue, Page, Status, Transition
from tracemine.tickets.document import Block, Name, Paragraph, Text
from tracemine.tickets.marks import mark_in, mark_lines
from tracemine.tickets.record import Comment, Filing, Issue, State, TicketDraft, TicketMark, Unanswered
from tracemine.tickets.service import Service

LABEL = PROPERTY = "tracemine"
_PROJECT = deferred(r"[A-Z][A-Z0-9_]{1,254}", re.ASCII)
_NAME = deferred(r"[A-Z][A-Z0-9_]*-\d{1,12}", re.ASCII)
_FIELDS = ["summary", "status", "resolution", "created", "creator"]
_FETCHED = 100  # issues that one request may fetch, whatever their fields
_LATE = timedelta(minutes=10)
_BEGINNING = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)  # from which an offset and _LATE can be taken
_MOST_PAGES = 200
_MOST_MOVES = 4
_MEMBERS = frozenset({"atlassian", "app"})  # kinds of accounts; the other is "customer"
# Resolutions that say it will not be done: Jira's own, and those that its templates name.
_DECLINED = frozenset(
    {"won't do", "won't fix", "duplicate", "declined", "cannot reproduce", "rejected", "cancelled", "known error"}
)
_OF_DONE = ("done", "fixed", "resolved")
_OF_DUPLICATE = ("duplicate", "won't do", "won't fix", "declined")
_COMMENT = deferred(r"tracemine (\S+) #(\d{1,9})")


class Jira(Service):
    """Issues of a Jira project, those with the label `tracemine`."""

    def __init__(
        self, url: str, project: str, *, kind: str = "Task", token: str | None = None, patience: Patience | None = None
    ) -> None:
        """`token`: an authorization header's value, where the environment's is not to be used."""
        if not _PROJECT.fullmatch(project):
            raise UsageError(f"--jira-project: {project[:80]!a} is no project's key", hint="keys look like PERF")
        base = origin_of(url, "--jira")
        secret = jira_token(base) if token is None else Secret(token)
        super().__init__(base, secret, {"Accept": "application/json"}, patience)
        self._base, self._project, self._kind = base, project, kind
        self._account = cache(self._assignable)
        self.place = f"{base.partition('://')[2]} {project}"

    def issues(self, created: Sequence[str] = ()) -> list[Issue]:
        names = dict.fromkeys((*self._found(), *(name for name in created if _NAME.fullmatch(name))))
        return self._ours(self._fetch(list(names)))

    def since(self, created: Issue | None) -> tuple[list[Issue], bool]:
        every = {issue.name: issue for issue in self.issues()}
        every |= {issue.name: issue for issue in (self._before(created) if created is not None else ())}
        return list(every.values()), True

    def taken(self, filing: Filing) -> tuple[Filing, tuple[str, ...]]:
        if filing.milestone is not None:
            raise UsageError(
                "--milestone: Jira has none", hint="set the version there, or name the sprint as a --label"
            )
        if (spaced := next((one for one in filing.labels if re.search(r"\s", one)), None)) is not None:
            raise UsageError(f"--label: {spaced[:80]!a} has a space, and no label of Jira has", hint="write a hyphen")
        names, problems = self._assignees(filing)
        return replace(filing, assignees=names), problems

    def _assignee(self, name: str, taken: int) -> tuple[str | None, str]:
        if taken:
            return None, "an issue of Jira has one assignee"
        return self._account(name), "it names no one there, or several"

    def _assignable(self, name: str) -> str | None:
        """Return the account of who can be assigned and is named by it, an e-mail address or an account's id."""
        asked: dict[str, str | int] = {"project": self._project, "query": name, "maxResults": 20}
        every, _ = self._client.get("/rest/api/3/user/assignable/search", list[Account], asked)
        exact = [one for one in every if name in (one.account_id, one.email_address, one.display_name)]
        found = exact or every
        return found[0].account_id or None if len(found) == 1 else None

    def create(self, draft: TicketDraft) -> Issue:
        fields: dict[str, object] = {
            "project": {"key": self._project},
            "issuetype": {"name": self._kind},
            "summary": title(draft.title),
            "description": document(draft.blocks),
            "labels": list(dict.fromkeys((LABEL, *draft.filing.labels))),
        }
        fields |= {"assignee": {"accountId": draft.filing.assignees[0]}} if draft.filing.assignees else {}
        content = {"fields": fields, "properties": _property(draft.mark)}
        name = self._client.ask("POST", "/rest/api/3/issue", JiraIssue, content).key
        if not self._is_here(name):
            raise ServiceError(
                f"{self.place}: an issue was created, and its key {line(name, 40)} is of another project",
                hint="is the project's key another one now?",
            )
        return self._issue(name, "open", draft.mark, draft.title)

    def write(self, issue: Issue, draft: TicketDraft, state: State) -> None:
        if state != issue.state:
            self._move(issue, done=False, wishes=())
        fields = {"summary": title(draft.title), "description": document(draft.blocks)}
        self._put(issue, {"fields": fields, "properties": _property(draft.mark)})

    def end(self, issue: Issue, revision: int) -> None:
        self._move(issue, done=True, wishes=_OF_DONE)
        mark = replace(issue.mark, revision=revision)
        self._put(issue, {"properties": _property(mark)})

    def withdraw(self, issue: Issue, winner: Issue) -> None:
        self._move(issue, done=True, wishes=_OF_DUPLICATE)
        says = Text(f"Duplicate of {winner.name}: two runs of tracemine found the same at once.")
        content = {
            "fields": {"description": document((Paragraph((says,)),))},
            "update": {"labels": [{"remove": LABEL}]},
            "properties": [{"key": PROPERTY, "value": {"duplicate_of": winner.name}}],
        }
        self._put(issue, content)

    def comments(self, issue: Issue) -> list[Comment]:
        found: list[Comment] = []
        for page in range(_MOST_PAGES):
            query: dict[str, str | int] = {"startAt": 100 * page, "maxResults": 100, "orderBy": "created"}
            got, _ = self._client.get(f"/rest/api/3/issue/{issue.name}/comment", Page, query)
            found += [one for each in got.comments if (one := _comment(each, issue.mark.key)) is not None]
            if len(got.comments) < 100:
                break
        return found

    def comment(self, issue: Issue, revision: int, blocks: Sequence[Block]) -> Comment:
        says = Paragraph((Name(f"tracemine {issue.mark.key} #{revision}"),))
        content = {"body": document((*blocks, says))}
        found = self._client.ask("POST", f"/rest/api/3/issue/{issue.name}/comment", JiraComment, content)
        return Comment(found.id, int(found.id), revision)

    def uncomment(self, issue: Issue, comment: Comment) -> None:
        self._client.delete(f"/rest/api/3/issue/{issue.name}/comment/{comment.name}")

    def _found(self) -> Iterator[str]:
        """Yield names of issues with our label, of the index, oldest first."""
        asked: dict[str, object] = {
            "jql": f'project = "{self._project}" AND labels = "{LABEL}" ORDER BY created ASC',
            "fields": ["created"],
            "maxResults": 100,
        }
        for _ in range(_MOST_PAGES):
            answer = self._client.ask("POST", "/rest/api/3/search/jql", Page, asked, repeatable=True)
            yield from (one.key for one in answer.issues if _NAME.fullmatch(one.key))
            if not answer.next_page_token:
                return
            asked["nextPageToken"] = answer.next_page_token
        raise ServiceError(f"{self.place}: a search has more than {_MOST_PAGES:,} pages")

    def _before(self, created: Issue) -> list[Issue]:
        """Return the issues of ours that were created before this one, as far back as a search may not see them yet."""
        found: list[Issue] = []
        until: datetime | None = None
        first = created.number
        for _ in range(_MOST_PAGES):
            names = [f"{self._project}-{number}" for number in range(max(first - _FETCHED + 1, 1), first + 1)]
            issues = self._fetch(names)
            found += self._ours(issues)
            times = [_time(one.fields.created) for one in issues]
            if until is None:
                own = (_time(one.fields.created) for one in issues if one.key == created.name)
                until = next(own, datetime.now(UTC)) - _LATE
            first -= _FETCHED
            if first < 1 or (times and min(times) < until):
                return found
        return found

    def _fetch(self, names: Sequence[str]) -> list[JiraIssue]:
        """Return issues as they are now; those that are gone are left out."""
        found: list[JiraIssue] = []
        for begin in range(0, len(names), _FETCHED):
            asked = {
                "issueIdsOrKeys": list(names[begin : begin + _FETCHED]),
                "fields": _FIELDS,
                "properties": [PROPERTY],
            }
            answer = self._client.ask("POST", "/rest/api/3/issue/bulkfetch", Page, asked, repeatable=True)
            found += answer.issues
        return found

    def _ours(self, found: Sequence[JiraIssue]) -> list[Issue]:
        """Return those with a mark; an issue that was moved to another project is no longer ours."""
        issues = []
        for one in found:
            mark = _mark(one)
            if mark is not None and _is_member(one.fields.creator) and self._is_here(one.key):
                issues.append(self._issue(one.key, _state(one), mark, one.fields.summary or ""))
        return issues

    def _is_here(self, name: str) -> bool:
        """Return whether a key is of this project."""
        return _NAME.fullmatch(name) is not None and name.rpartition("-")[0] == self._project

    def _move(self, issue: Issue, *, done: bool, wishes: Sequence[str]) -> None:
        """Take an issue to a status that is done, or to one that is not; nothing where it is in one already."""
        path = f"/rest/api/3/issue/{issue.name}"
        problem = ""
        for _ in range(_MOST_MOVES):
            if self._is_moved(path, done):
                return
            offered, _ = self._client.get(f"{path}/transitions", Page, {"expand": "transitions.fields"})
            chosen = _transition(offered.transitions, done=done, wishes=wishes)
            if chosen is None:
                if self._is_moved(path, done):  # by another run meanwhile, which is why none leads there
                    return
                kind = "done" if done else "open"
                raise ServiceError(
                    f"{self.place}: {issue.name} has no transition to a status that is {kind}",
                    hint="its workflow offers none to this user: move it by hand, or let the user",
                )
            try:
                self._client.send("POST", f"{path}/transitions", chosen)
            except Unanswered as lost:
                problem = str(lost)
            except ServiceError:
                if not self._is_moved(path, done):
                    raise
        raise ServiceError(f"{self.place}: {issue.name} did not move: {problem or 'its status stays'}")

    def _is_moved(self, path: str, done: bool) -> bool:
        """Return whether an issue's status is done, or is not, as wished."""
        now, _ = self._client.get(path, JiraIssue, {"fields": "status"})
        return _is_done(now.fields.status) == done

    def _put(self, issue: Issue, content: Mapping[str, object]) -> None:
        self._client.send("PUT", f"/rest/api/3/issue/{issue.name}", content)

    def _issue(self, name: str, state: State, mark: TicketMark, summary: str) -> Issue:
        return Issue(name, int(name.rpartition("-")[2]), state, mark, summary, f"{self._base}/browse/{name}")


def _property(mark: TicketMark) -> list[Node]:
    return [{"key": PROPERTY, "value": {"mark": mark_lines(mark)}}]


def _mark(found: JiraIssue) -> TicketMark | None:
    value = found.properties.get(PROPERTY)
    text = value.get("mark") if isinstance(value, dict) else None
    return mark_in(text) if isinstance(text, str) else None


def _time(text: str) -> datetime:
    """Return when an issue was created; else the beginning of time, and nothing before it is searched."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _BEGINNING
    return max(time if time.tzinfo else time.replace(tzinfo=UTC), _BEGINNING)


def _state(found: JiraIssue) -> State:
    if not _is_done(found.fields.status):
        return "open"
    resolution = found.fields.resolution
    return "not planned" if resolution is not None and resolution.name.lower() in _DECLINED else "completed"


def _is_member(account: Account | None) -> bool:
    return account is not None and account.account_type in _MEMBERS


def _is_done(status: Status | None) -> bool:
    return status is not None and status.status_category is not None and status.status_category.key == "done"


def _transition(offered: Sequence[Transition], *, done: bool, wishes: Sequence[str]) -> Node | None:
    """Return the transition to take, and the resolution that it asks for; None where none leads there.

    >>> from tracemine.tickets.answers import Named
    >>> offered = [Transition("31", "Done", Status(Named(key="done")))]
    >>> _transition(offered, done=True, wishes=("done",)), _transition(offered, done=False, wishes=())
    ({'transition': {'id': '31'}}, None)
    """
    leading = [one for one in offered if _is_done(one.to) == done]
    if not leading:
        return None
    best = min(leading, key=lambda one: _rank(one.name, wishes))
    taken: Node = {"transition": {"id": best.id}}
    resolution = best.fields.resolution
    if done and resolution is not None and resolution.allowed_values:
        values = [one.name for one in resolution.allowed_values]
        taken["fields"] = {"resolution": {"name": min(values, key=lambda name: _rank(name, wishes))}}
    return taken


def _rank(name: str, wishes: Sequence[str]) -> int:
    """Return how near a name is to what is wished: its position among the wishes; others come last."""
    lower = name.lower()
    if lower in wishes:
        return wishes.index(lower)
    return len(wishes) + (lower in _DECLINED)


def _comment(found: JiraComment, key: str) -> Comment | None:
    says = None if found.body is None or not _is_member(found.author) else _COMMENT.fullmatch(found.body.last_text)
    return Comment(found.id, int(found.id), int(says[2])) if says is not None and says[1] == key else None
