"""Tickets as issues of a GitHub repository.

Paths, fields and limits as https://docs.github.com/en/rest/issues has them (version 2022-11-28), and
https://github.com/github/rest-api-description in a form for programs; tests/tickets/contract/github.json lists what is
used of them.

Issues are listed, not searched for: a search sees what was indexed, some time later. A list of issues by label comes
from the database, so what was created is in it in the order of creation, but for replicas that lag; `since` waits until
the issue in question is there, and then all before it are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from tracemine.errors import ServiceError, UsageError
from tracemine.tickets.access import Patience, Secret, origin_of
from tracemine.tickets.connect import client_of
from tracemine.tickets.document import Block
from tracemine.tickets.markdown import body, markdown, title
from tracemine.tickets.marks import comment_in, comment_line, mark_in, with_state, with_text
from tracemine.tickets.record import Comment, Draft, Issue, State
from tracemine.tickets.tokens import GITHUB, github_token

LABEL = "tracemine"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}", re.ASCII)
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,]*\brel="next"')
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_MOST_PAGES = 200
_STATES: Mapping[str, State] = {"not_planned": "not planned", "duplicate": "not planned"}


class GitHub:
    """Issues of a repository, those with the label `tracemine`."""

    def __init__(
        self, repository: str, *, url: str = GITHUB, token: str | None = None, patience: Patience | None = None
    ) -> None:
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"--github: {repository[:80]!a} is no repository", hint="name one as OWNER/REPO")
        base = origin_of(url, "--github-url")
        secret = github_token(base) if token is None else Secret(f"Bearer {token}")
        self._client = client_of(base, secret, _HEADERS, patience)
        self._path = f"/repos/{repository}"
        self._is_public = base == GITHUB
        self.place = f"{base.partition('://')[2]} {repository}" if base != GITHUB else repository

    def __enter__(self) -> GitHub:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.__exit__()

    def pause(self) -> None:
        self._client.pause()

    def issues(self, created: Sequence[str] = ()) -> list[Issue]:
        query: dict[str, str | int] = {"labels": LABEL, "state": "all", "sort": "created", "direction": "asc"}
        found = (self._issue(one) for one in self._every(f"{self._path}/issues", query))
        return [issue for issue in found if issue is not None]

    def since(self, created: Issue | None) -> tuple[list[Issue], bool]:
        issues = self.issues()
        return issues, created is None or any(issue.number == created.number for issue in issues)

    def create(self, draft: Draft) -> Issue:
        content = {"title": title(draft.title), "body": body(draft), "labels": [LABEL]}
        found = self._client.send("POST", f"{self._path}/issues", content).json()
        issue = self._issue(found)
        if issue is None:
            raise ServiceError(f"{self.place}: an issue was created that does not say what it was told to")
        if LABEL not in _labels(found):  # dropped without a word where the token may not label
            text = "tracemine closed this again: it may not set labels here."
            self._patch(issue, {"body": text, "state": "closed", "state_reason": "not_planned"})
            raise ServiceError(
                f"{self.place}: the label {LABEL} was not set, and #{issue.number} is closed again",
                hint="issues are found again by their label: the token needs triage or write access to the repository",
            )
        return issue

    def write(self, issue: Issue, draft: Draft, state: State) -> None:
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
        every = self._every(f"{self._path}/issues/{issue.number}/comments", {})
        found = (_comment(one, issue.mark.key) for one in every)
        return [comment for comment in found if comment is not None]

    def comment(self, issue: Issue, revision: int, blocks: Sequence[Block]) -> Comment:
        text = f"{comment_line(issue.mark.key, revision)}\n\n{markdown(tuple(blocks))}"
        found = self._client.send("POST", f"{self._path}/issues/{issue.number}/comments", {"body": text}).json()
        comment = _comment(found, issue.mark.key)
        if comment is None:
            raise ServiceError(f"{self.place}: a comment was created that does not say what it was told to")
        return comment

    def uncomment(self, issue: Issue, comment: Comment) -> None:
        self._client.delete(f"{self._path}/issues/comments/{comment.number}")

    def _patch(self, issue: Issue, content: Mapping[str, object]) -> None:
        self._client.send("PATCH", f"{self._path}/issues/{issue.number}", content)

    def _every(self, path: str, query: Mapping[str, str | int]) -> Iterator[Mapping[str, Any]]:
        """Yield what all pages of a list hold."""
        answer = self._client.get(path, {**query, "per_page": 100})
        for _ in range(_MOST_PAGES):
            found = answer.json()
            if not isinstance(found, list):
                raise ServiceError(f"{self.place}: a list was asked for, and something else came")
            yield from (one for one in found if isinstance(one, dict))
            following = _NEXT.search(answer.headers.get("link", ""))
            if following is None:
                return
            answer = self._client.get(following[1])
        raise ServiceError(f"{self.place}: a list has more than {_MOST_PAGES:,} pages")

    def _issue(self, found: Mapping[str, Any]) -> Issue | None:
        """Return an issue of ours; None: a pull request, which is listed too, or without a mark."""
        number, text = found.get("number"), found.get("body")
        mark = mark_in(text) if isinstance(text, str) else None
        if mark is None or not isinstance(number, int) or "pull_request" in found:
            return None
        state: State = "open"
        if found.get("state") != "open":
            state = _STATES.get(str(found.get("state_reason")), "completed")
        return Issue(
            name=f"#{number}",
            number=number,
            state=state,
            mark=mark,
            title=str(found.get("title")),
            url=str(found.get("html_url")),
            body=str(text),
        )


def _labels(found: Mapping[str, Any]) -> set[str]:
    labels = found.get("labels")
    names = (one.get("name") if isinstance(one, dict) else one for one in labels) if isinstance(labels, list) else ()
    return {name for name in names if isinstance(name, str)}


def _comment(found: Mapping[str, Any], key: str) -> Comment | None:
    number, text = found.get("id"), found.get("body")
    revision = comment_in(text, key) if isinstance(text, str) else None
    return Comment(str(number), number, revision) if isinstance(number, int) and revision is not None else None
