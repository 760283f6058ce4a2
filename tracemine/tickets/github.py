"""Tickets as issues of a GitHub repository.

Paths, fields and limits as https://docs.github.com/en/rest/issues has them (version 2022-11-28), and
https://github.com/github/rest-api-description in a form for programs; tests/tickets/contract/github.json lists what is
used of them.

Issues are listed, not searched for: a search sees what was indexed, some time later. A list of issues by label comes
from the database, so what was created is in it in the order of creation, but for replicas that lag; `since` waits until
the issue in question is there, and then all before it are.

A mark counts where its issue or comment was written by the token's own user, or by someone of the repository: anyone
may open an issue that reads like a ticket. The token of an app cannot ask who it is; it takes what apps wrote, which
strangers cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TypeVar

import msgspec

from tracemine.errors import ServiceError, UsageError
from tracemine.patterns import deferred
from tracemine.report.escape import line
from tracemine.tickets.access import GITHUB, Patience, Secret, github_token, origin_of
from tracemine.tickets.answers import GitHubComment, GitHubIssue, Milestone, Person, Written
from tracemine.tickets.document import Block
from tracemine.tickets.markdown import body, markdown, title
from tracemine.tickets.marks import comment_in, comment_line, mark_in, with_state, with_text
from tracemine.tickets.record import Comment, Filing, Issue, RefusedError, State, TicketDraft
from tracemine.tickets.service import Service

LABEL = "tracemine"
_REPOSITORY = deferred(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}", re.ASCII)
_NEXT = deferred(r'<([^<>]+)>\s*;[^,]*\brel="next"')
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_MOST_PAGES = 200
_AN_APP = -1  # in place of a user's id
_MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_LOGIN = deferred(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", re.ASCII)
_MOST_ASSIGNEES, _SHOWN = 10, 10
Listed = TypeVar("Listed", GitHubIssue, GitHubComment, Milestone)
_STATES: Mapping[str, State] = {"not_planned": "not planned", "duplicate": "not planned"}


class GitHub(Service):
    """Issues of a repository, those with the label `tracemine`."""

    def __init__(
        self, repository: str, *, url: str = GITHUB, token: str | None = None, patience: Patience | None = None
    ) -> None:
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"--github: {repository[:80]!a} is no repository", hint="name one as OWNER/REPO")
        base = origin_of(url, "--github-url")
        secret = github_token(base) if token is None else Secret(f"Bearer {token}")
        super().__init__(base, secret, _HEADERS, patience)
        self._path = f"/repos/{repository}"
        self._cannot_assign = cache(self._asked_of)
        self._is_public = base == GITHUB
        self.place = f"{base.partition('://')[2]} {repository}" if base != GITHUB else repository

    def issues(self, created: Sequence[str] = ()) -> list[Issue]:
        query: dict[str, str | int] = {"labels": LABEL, "state": "all", "sort": "created", "direction": "asc"}
        every = self._every(f"{self._path}/issues", GitHubIssue, query)
        return [issue for one in every if (issue := _issue(one)) is not None and self._is_ours(one)]

    def since(self, created: Issue | None) -> tuple[list[Issue], bool]:
        issues = self.issues()
        return issues, created is None or any(issue.number == created.number for issue in issues)

    def taken(self, filing: Filing) -> tuple[Filing, tuple[str, ...]]:
        names, problems = self._assignees(filing)
        milestone = None if filing.milestone is None else str(self._milestone(filing.milestone))
        return replace(filing, assignees=names, milestone=milestone), problems

    def _assignee(self, name: str, taken: int) -> tuple[str | None, str]:
        problem = self._cannot_assign(name)
        if not problem and taken == _MOST_ASSIGNEES:
            problem = f"an issue has at most {_MOST_ASSIGNEES} assignees"
        return None if problem else name, problem

    def _asked_of(self, name: str) -> str:
        """Return why a user of this name cannot be assigned; "": they can."""
        if "/" in name:
            return "issues are assigned to people, and this is a team"
        if not _LOGIN.fullmatch(name):
            return "this is no login of GitHub"
        try:
            self._client.send("GET", f"{self._path}/assignees/{name}", None)
        except RefusedError:
            return f"{self.place} lets no such user be assigned"
        return ""

    def _milestone(self, wanted: str) -> int:
        """Return the number of an open milestone."""
        every = list(self._every(f"{self._path}/milestones", Milestone, {"state": "open"}))
        found = next((one.number for one in every if one.title == wanted), None)
        if found is None:
            known = ", ".join(line(one.title, 40) for one in every[:_SHOWN]) or "none"
            raise UsageError(f"--milestone: there is no open one {wanted[:80]!a}", hint=f"there are: {known}")
        return found

    def create(self, draft: TicketDraft) -> Issue:
        filing = draft.filing
        content: dict[str, object] = {"title": title(draft.title), "body": body(draft)}
        content["labels"] = list(dict.fromkeys((LABEL, *filing.labels)))
        content |= {"assignees": list(filing.assignees)} if filing.assignees else {}
        content |= {"milestone": int(filing.milestone)} if filing.milestone else {}
        found = self._client.ask("POST", f"{self._path}/issues", GitHubIssue, content)
        issue = _issue(found)
        if issue is None:
            raise ServiceError(f"{self.place}: an issue was created that does not say what was sent")
        if LABEL not in found.label_names:  # dropped without a word where the token may not label
            text = "tracemine closed this again: it may not set labels here."
            self._patch(issue, {"body": text, "state": "closed", "state_reason": "not_planned"})
            raise ServiceError(
                f"{self.place}: the label {LABEL} was not set, and #{issue.number} is closed again",
                hint="issues are found again by their label: the token needs triage or write access to the repository",
            )
        return issue

    def write(self, issue: Issue, draft: TicketDraft, state: State) -> None:
        content = {"title": title(draft.title), "body": with_text(issue.body, body(draft))}
        if state != issue.state:
            content |= {"state": "open", "state_reason": "reopened"}
        self._patch(issue, content)

    def end(self, issue: Issue, revision: int) -> None:
        mark = replace(issue.mark, revision=revision)
        self._patch(issue, {"body": with_state(issue.body, mark), "state": "closed", "state_reason": "completed"})

    def withdraw(self, issue: Issue, winner: Issue) -> None:
        text = f"Duplicate of #{winner.number}: two runs of tracemine found the same at once."
        reason = "duplicate" if self._is_public else "not_planned"  # servers of before 2025 have no such reason
        self._patch(issue, {"body": with_text(issue.body, text), "state": "closed", "state_reason": reason})

    def comments(self, issue: Issue) -> list[Comment]:
        every = self._every(f"{self._path}/issues/{issue.number}/comments", GitHubComment, {})
        found = ((one, _comment(one, issue.mark.key)) for one in every)
        return [comment for one, comment in found if comment is not None and self._is_ours(one)]

    def comment(self, issue: Issue, revision: int, blocks: Sequence[Block]) -> Comment:
        text = f"{comment_line(issue.mark.key, revision)}\n\n{markdown(tuple(blocks))}"
        path = f"{self._path}/issues/{issue.number}/comments"
        found = self._client.ask("POST", path, GitHubComment, {"body": text})
        comment = _comment(found, issue.mark.key)
        if comment is None:
            raise ServiceError(f"{self.place}: a comment was created that does not say what was sent")
        return comment

    def uncomment(self, issue: Issue, comment: Comment) -> None:
        self._client.delete(f"{self._path}/issues/comments/{comment.number}")

    def _patch(self, issue: Issue, content: Mapping[str, object]) -> None:
        self._client.send("PATCH", f"{self._path}/issues/{issue.number}", content)

    def _every(self, path: str, kind: type[Listed], query: Mapping[str, str | int]) -> Iterator[Listed]:
        """Yield what all pages of a list hold."""
        found, headers = self._client.get(path, list[kind], {**query, "per_page": 100})  # type: ignore[valid-type]
        for _ in range(_MOST_PAGES):
            yield from found
            following = _NEXT.search(headers.get("link", ""))
            if following is None:
                return
            found, headers = self._client.get(following[1], list[kind])  # type: ignore[valid-type]
        raise ServiceError(f"{self.place}: a list has more than {_MOST_PAGES:,} pages")

    def _is_ours(self, found: Written) -> bool:
        """Return whether the token's user wrote it, or someone of the repository."""
        if found.author_association in _MEMBERS:
            return True
        if found.user is None:
            return False
        return found.user.id == self._own or (self._own == _AN_APP and found.user.type == "Bot")

    @cached_property
    def _own(self) -> int:
        """Return the token's user."""
        try:
            return self._client.get("/user", Person)[0].id
        except RefusedError:
            return _AN_APP


def _issue(found: GitHubIssue) -> Issue | None:
    """Return an issue of ours; None: a pull request, which is listed too, or without a mark."""
    mark = mark_in(found.body or "")
    if mark is None or found.pull_request is not msgspec.UNSET:
        return None
    state: State = "open"
    if found.state != "open":
        state = _STATES.get(found.state_reason or "", "completed")
    return Issue(f"#{found.number}", found.number, state, mark, found.title, found.html_url, found.body or "")


def _comment(found: GitHubComment, key: str) -> Comment | None:
    revision = comment_in(found.body or "", key)
    return None if revision is None else Comment(str(found.id), found.id, revision)
