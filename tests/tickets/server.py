"""GitHub and Jira on this machine: what tickets use of their REST APIs, over HTTP, held to contract/*.json.

    python -m tests.tickets.server --port 8000

It begins empty. GitHub's repositories are below http://127.0.0.1:8000/repos/, Jira below http://127.0.0.1:8000/rest/;
any repository and any project is there. Every token is taken that is no empty string.

A request that the contract does not know, in its path, a parameter or a field, is refused and kept in `violations`.
`Faults` says what goes wrong: of which share of requests, and of which kinds.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

CONTRACTS = {name: Path(__file__).parent / "contract" / f"{name}.json" for name in ("github", "jira")}
_TYPES = {"string": str, "integer": int, "array": list, "object": dict}

# Before a request takes effect, and after it did.
FAULTS = (
    "429",
    "403",
    "500 before",
    "500 after",
    "time-out before",
    "time-out after",
    "half",
    "half json",
    "reset before",
    "reset after",
)

# Who writes, as both services say it: the token's user, one of the same repository, an app, and anyone else.
OWN = {"id": 1, "type": "User", "association": "COLLABORATOR", "account": "atlassian"}
FRIEND = OWN | {"id": 2}
APP = {"id": 3, "type": "Bot", "association": "NONE", "account": "app"}
STRANGER = {"id": 4, "type": "User", "association": "NONE", "account": "customer"}


class Refused(Exception):
    """A request that the service does not take."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Faults:
    """What goes wrong. `plan` says it of the next requests, by number from now; then `share` of them by chance."""

    share: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    seed: int = 0
    plan: list[str | None] = field(default_factory=list)
    only: Callable[[str, str], bool] = lambda method, path: True
    pause_s: float = 1.0  # how long a time-out lasts
    made: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = Lock()

    def next(self, method: str, path: str) -> str | None:
        with self._lock:
            if not self.only(method, path):
                return None
            chosen = self.plan.pop(0) if self.plan else None
            if chosen is None and self.share and self._random.random() < self.share:
                chosen = self._random.choice(self.kinds)
            if chosen:
                self.made[chosen] = self.made.get(chosen, 0) + 1
            return chosen


@dataclass
class Operation:
    """A row of a contract."""

    method: str
    path: str
    status: int
    answer: list[str]
    parameters: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(self.path))
        self.pattern = re.compile(pattern)

    def wrong(self, query: Mapping[str, str], content: Any) -> str | None:
        """What of a request is not in the contract."""
        for name, value in query.items():
            if name not in self.parameters:
                return f"no parameter {name}"
            kind = self.parameters[name]
            if isinstance(kind, list) and value not in kind:
                return f"{name} is not {value}"
            if kind == "integer" and not value.isdecimal():
                return f"{name} is no integer"
        if content is None:
            return "a body is missing" if self.request else None
        if not isinstance(content, dict):
            return "its body is no object"
        if missing := [name for name in self.required if name not in content]:
            return f"{missing} is missing"
        for name, value in content.items():
            if name not in self.request:
                return f"no field {name}"
            kind = self.request[name]
            if isinstance(kind, list) and value not in kind:
                return f"{name} is not {value}"
            if isinstance(kind, str) and not isinstance(value, _TYPES[kind]):
                return f"{name} is no {kind}"
        return None


def operations(name: str) -> list[Operation]:
    """A contract's rows."""
    contract = json.loads(CONTRACTS[name].read_text(encoding="utf-8"))
    return [Operation(**row) for row in contract["operations"]]


@dataclass
class World:
    """What the services hold."""

    faults: Faults = field(default_factory=Faults)
    late_s: float = 0.0  # how long Jira's search does not see what was created, and GitHub's list
    gate: int = 0  # so many clients are answered their first look only once all of them have looked
    may_label: bool = True
    is_app: bool = False  # whose token may not ask who it is
    people: frozenset[str] = frozenset({"ann", "bob"})  # who may be assigned
    milestones: tuple[str, ...] = ("v1", "v2")  # that are open
    page: int = 100  # at most so many on a page, whatever is asked for
    violations: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)  # path: where to
    lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.rows = [*operations("github"), *operations("jira")]
        self.address = ""
        self._looks = 0
        self._open = Event()

    def count(self, method: str, ending: str) -> int:
        """How many requests of a kind came."""
        return sum(m == method and re.search(ending, path) is not None for m, path, _ in self.requests)

    def answer(self, method: str, url: str, content: Any) -> tuple[int, Any, dict[str, str]]:
        """What a service says to a request, after doing what it asks."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if parts.path.endswith(("/issues", "/jql")) and (method, parts.path[-4:]) != ("POST", "sues"):
            said = self._answered(method, parts.path, query, content)
            self._at_the_gate()
            return said
        return self._answered(method, parts.path, query, content)

    def _at_the_gate(self) -> None:
        with self.lock:
            self._looks += 1
            if self._looks >= self.gate:
                self._open.set()
        self._open.wait(timeout=10)

    def _answered(self, method: str, path: str, query: dict[str, str], content: Any) -> tuple[int, Any, dict[str, str]]:
        for row in self.rows:
            found = row.pattern.fullmatch(path)
            if found and row.method == method:
                if wrong := row.wrong(query, content):
                    self.violations.append(f"{method} {path}: {wrong}")
                    raise Refused(422, wrong)
                with self.lock:
                    handler = getattr(self, _HANDLERS[method, row.path])
                    said, headers = handler(query, content, **found.groupdict())
                self._check(row, said)
                return row.status, said, headers
        self.violations.append(f"{method} {path}: no such operation")
        raise Refused(404, "Not Found")

    def _check(self, row: Operation, said: Any) -> None:
        """The server itself keeps to the contract."""
        for one in said if isinstance(said, list) else [said]:
            if one is not None:
                assert set(one) <= set(row.answer), (row.path, set(one) - set(row.answer))

    # GitHub

    def github_list(self, query: dict[str, str], _: Any, owner: str, repo: str) -> tuple[Any, dict[str, str]]:
        wanted = set(query["labels"].split(",")) if "labels" in query else set()
        seen = self._seen()
        every = [
            one
            for one in seen
            if one["place"] == f"{owner}/{repo}"
            and wanted <= set(one["labels"])
            and query.get("state", "open") in ("all", one["state"])
        ]
        return self._paged([_as_github(one, self.address) for one in every], query, f"/repos/{owner}/{repo}/issues")

    def github_create(self, _: Any, content: Any, owner: str, repo: str) -> tuple[Any, dict[str, str]]:
        labels = content.get("labels", []) if self.may_label else []
        if len(content.get("body", "")) > 65_536 or len(content["title"]) > 256:
            raise Refused(422, "Validation Failed")
        if unknown := set(content.get("assignees", [])) - self.people:
            raise Refused(422, f"Validation Failed: {unknown}")
        issue = self._new(f"{owner}/{repo}", content["title"], content.get("body"), labels)
        issue |= {"assignees": content.get("assignees", []), "milestone": content.get("milestone")}
        return _as_github(issue, self.address), {}

    def github_assignee(self, _: Any, __: Any, owner: str, repo: str, assignee: str) -> tuple[Any, dict[str, str]]:
        if assignee not in self.people:
            raise Refused(404, "Not Found")
        return None, {}

    def github_milestones(self, query: dict[str, str], _: Any, owner: str, repo: str) -> tuple[Any, dict[str, str]]:
        every = [{"number": number, "title": title} for number, title in enumerate(self.milestones, 1)]
        return self._paged(every, query, f"/repos/{owner}/{repo}/milestones")

    def github_patch(
        self, _: Any, content: Any, owner: str, repo: str, issue_number: str
    ) -> tuple[Any, dict[str, str]]:
        issue = self._of(f"{owner}/{repo}", int(issue_number))
        issue.update({name: content[name] for name in ("title", "body") if name in content})
        if "state" in content and content["state"] != issue["state"]:
            issue["state"] = content["state"]
            issue["reason"] = content.get("state_reason") or "completed"
        return _as_github(issue, self.address), {}

    def github_comments(
        self, query: dict[str, str], _: Any, owner: str, repo: str, issue_number: str
    ) -> tuple[Any, dict[str, str]]:
        issue = self._of(f"{owner}/{repo}", int(issue_number))
        every = [_as_github_comment(one) for one in self.comments if one["issue"] is issue]
        return self._paged(every, query, f"/repos/{owner}/{repo}/issues/{issue_number}/comments")

    def github_comment(
        self, _: Any, content: Any, owner: str, repo: str, issue_number: str
    ) -> tuple[Any, dict[str, str]]:
        return _as_github_comment(self._comment(self._of(f"{owner}/{repo}", int(issue_number)), content["body"])), {}

    def github_user(self, _: Any, __: Any) -> tuple[Any, dict[str, str]]:
        if self.is_app:
            raise Refused(403, "Resource not accessible by integration")
        return {"id": OWN["id"]}, {}

    def github_uncomment(self, _: Any, __: Any, owner: str, repo: str, comment_id: str) -> tuple[Any, dict[str, str]]:
        self._uncomment(int(comment_id))
        return None, {}

    def _paged(self, every: list[Any], query: dict[str, str], path: str) -> tuple[Any, dict[str, str]]:
        size, page = min(int(query.get("per_page", 30)), self.page), int(query.get("page", 1))
        rest = "&".join(f"{name}={value}" for name, value in query.items() if name != "page")
        url = f"{self.address}{path}?{rest}&page"
        link = f'<{url}={page + 1}>; rel="next", <{url}={-(-len(every) // size)}>; rel="last"'
        return every[size * (page - 1) : size * page], {"Link": link} if len(every) > size * page else {}

    # Jira

    def jira_search(self, _: Any, content: Any) -> tuple[Any, dict[str, str]]:
        asked = re.fullmatch(r'project = "(\w+)" AND labels = "(\w+)" ORDER BY created ASC', content["jql"])
        if asked is None:
            self.violations.append(f"JQL: {content['jql']}")
            raise Refused(400, "Error in the JQL Query")
        every = [one for one in self._seen() if one["place"] == asked[1] and asked[2] in one["labels"]]
        begin = int(content.get("nextPageToken", "0"))
        end = begin + min(content.get("maxResults", 50), self.page)
        said: dict[str, Any] = {"issues": [_as_jira(one, content["fields"], []) for one in every[begin:end]]}
        return said | ({"nextPageToken": str(end)} if end < len(every) else {}), {}

    def jira_fetch(self, _: Any, content: Any) -> tuple[Any, dict[str, str]]:
        if len(content["issueIdsOrKeys"]) > 100:
            raise Refused(400, "too many issues")
        wanted = set(content["issueIdsOrKeys"])
        found = [one for one in self.issues if _key(one) in wanted]
        return {"issues": [_as_jira(one, content["fields"], content["properties"]) for one in found]}, {}

    def jira_create(self, _: Any, content: Any) -> tuple[Any, dict[str, str]]:
        fields = content["fields"]
        _check_document(fields["description"])
        labels = fields["labels"] if self.may_label else []
        issue = self._new(fields["project"]["key"], fields["summary"], fields["description"], labels)
        issue["properties"] = {one["key"]: one["value"] for one in content.get("properties", [])}
        issue["assignees"] = [fields["assignee"]["accountId"]] if "assignee" in fields else []
        return {
            "id": str(10_000 + issue["number"]),
            "key": _key(issue),
            "self": f"{self.address}/rest/api/3/issue/1",
        }, {}

    def jira_assignable(self, query: dict[str, str], _: Any) -> tuple[Any, dict[str, str]]:
        each = [
            {"accountId": f"id-{name}", "displayName": name, "emailAddress": f"{name}@you.example"}
            for name in self.people
        ]
        return [one for one in each if any(query["query"] in text for text in one.values())], {}

    def jira_edit(self, _: Any, content: Any, **names: str) -> tuple[Any, dict[str, str]]:
        issue = self._of_key(names["issueIdOrKey"])
        fields = content.get("fields", {})
        issue["title"] = fields.get("summary", issue["title"])
        if "description" in fields:
            _check_document(fields["description"])
            issue["body"] = fields["description"]
        for one in content.get("update", {}).get("labels", []):
            issue["labels"] = [label for label in issue["labels"] if label != one["remove"]]
        issue["properties"] |= {one["key"]: one["value"] for one in content.get("properties", [])}
        return None, {}

    def jira_get(self, query: dict[str, str], _: Any, **names: str) -> tuple[Any, dict[str, str]]:
        found = _as_jira(self._of_key(names["issueIdOrKey"]), query.get("fields", "").split(","), [])
        return {"key": found["key"], "fields": found["fields"]}, {}

    def jira_transitions(self, _: Any, __: Any, **names: str) -> tuple[Any, dict[str, str]]:
        return {"transitions": _transitions(self._of_key(names["issueIdOrKey"]))}, {}

    def jira_move(self, _: Any, content: Any, **names: str) -> tuple[Any, dict[str, str]]:
        issue = self._of_key(names["issueIdOrKey"])
        if content["transition"]["id"] not in {one["id"] for one in _transitions(issue)}:
            raise Refused(400, "It seems that you have tried to perform an illegal workflow operation.")
        done = content["transition"]["id"] == "31"
        issue["state"] = "closed" if done else "open"
        issue["reason"] = content.get("fields", {}).get("resolution", {}).get("name", "Done") if done else None
        return None, {}

    def jira_comments(self, query: dict[str, str], _: Any, **names: str) -> tuple[Any, dict[str, str]]:
        issue = self._of_key(names["issueIdOrKey"])
        every = [_as_jira_comment(one) for one in self.comments if one["issue"] is issue]
        begin = int(query.get("startAt", 0))
        return {"comments": every[begin : begin + int(query.get("maxResults", 50))]}, {}

    def jira_comment(self, _: Any, content: Any, **names: str) -> tuple[Any, dict[str, str]]:
        _check_document(content["body"])
        return _as_jira_comment(self._comment(self._of_key(names["issueIdOrKey"]), content["body"])), {}

    def jira_uncomment(self, _: Any, __: Any, **names: str) -> tuple[Any, dict[str, str]]:
        self._uncomment(int(names["id"]))
        return None, {}

    # Both

    def _seen(self) -> list[dict[str, Any]]:
        now = datetime.now(UTC)
        return [one for one in self.issues if one["created"] + timedelta(seconds=self.late_s) <= now]

    def _new(self, place: str, title: str, body: Any, labels: list[str]) -> dict[str, Any]:
        number = 1 + sum(one["place"] == place for one in self.issues)
        issue = {
            "place": place,
            "number": number,
            "title": title,
            "body": body,
            "labels": list(labels),
            "state": "open",
            "reason": None,
            "properties": {},
            "created": datetime.now(UTC),
            "by": OWN,
        }
        self.issues.append(issue)
        return issue

    def _of(self, place: str, number: int) -> dict[str, Any]:
        found = [one for one in self.issues if one["place"] == place and one["number"] == number]
        if not found:
            raise Refused(404, "Not Found")
        return found[0]

    def _of_key(self, key: str) -> dict[str, Any]:
        place, _, number = key.rpartition("-")
        return self._of(place, int(number))

    def _comment(self, issue: dict[str, Any], body: Any) -> dict[str, Any]:
        made = {
            "id": 1 + max((one["id"] for one in self.comments), default=500),
            "issue": issue,
            "body": body,
            "by": OWN,
        }
        self.comments.append(made)
        return made

    def _uncomment(self, number: int) -> None:
        if number not in {one["id"] for one in self.comments}:
            raise Refused(404, "Not Found")
        self.comments = [one for one in self.comments if one["id"] != number]


_HANDLERS = {
    ("GET", "/repos/{owner}/{repo}/issues"): "github_list",
    ("POST", "/repos/{owner}/{repo}/issues"): "github_create",
    ("PATCH", "/repos/{owner}/{repo}/issues/{issue_number}"): "github_patch",
    ("GET", "/repos/{owner}/{repo}/issues/{issue_number}/comments"): "github_comments",
    ("POST", "/repos/{owner}/{repo}/issues/{issue_number}/comments"): "github_comment",
    ("DELETE", "/repos/{owner}/{repo}/issues/comments/{comment_id}"): "github_uncomment",
    ("GET", "/user"): "github_user",
    ("GET", "/repos/{owner}/{repo}/assignees/{assignee}"): "github_assignee",
    ("GET", "/repos/{owner}/{repo}/milestones"): "github_milestones",
    ("GET", "/rest/api/3/user/assignable/search"): "jira_assignable",
    ("POST", "/rest/api/3/search/jql"): "jira_search",
    ("POST", "/rest/api/3/issue/bulkfetch"): "jira_fetch",
    ("POST", "/rest/api/3/issue"): "jira_create",
    ("PUT", "/rest/api/3/issue/{issueIdOrKey}"): "jira_edit",
    ("GET", "/rest/api/3/issue/{issueIdOrKey}"): "jira_get",
    ("GET", "/rest/api/3/issue/{issueIdOrKey}/transitions"): "jira_transitions",
    ("POST", "/rest/api/3/issue/{issueIdOrKey}/transitions"): "jira_move",
    ("GET", "/rest/api/3/issue/{issueIdOrKey}/comment"): "jira_comments",
    ("POST", "/rest/api/3/issue/{issueIdOrKey}/comment"): "jira_comment",
    ("DELETE", "/rest/api/3/issue/{issueIdOrKey}/comment/{id}"): "jira_uncomment",
}


def _as_github(one: dict[str, Any], address: str) -> dict[str, Any]:
    found = {
        "number": one["number"],
        "title": one["title"],
        "body": one["body"],
        "state": one["state"],
        "state_reason": one["reason"],
        "labels": [{"name": name} for name in one["labels"]],
        "html_url": f"{address}/{one['place']}/issues/{one['number']}",
        **_by(one),
    }
    return found | ({"pull_request": {}} if one.get("pull_request") else {})


def _by(one: dict[str, Any]) -> dict[str, Any]:
    by = one["by"]
    return {"user": {"id": by["id"], "type": by["type"]}, "author_association": by["association"]}


def _as_github_comment(one: dict[str, Any]) -> dict[str, Any]:
    return {"id": one["id"], "body": one["body"], **_by(one)}


def _as_jira_comment(one: dict[str, Any]) -> dict[str, Any]:
    return {"id": str(one["id"]), "body": one["body"], "author": {"accountType": one["by"]["account"]}}


def _key(one: dict[str, Any]) -> str:
    return f"{one['place']}-{one['number']}"


def _as_jira(one: dict[str, Any], fields: list[str], properties: list[str]) -> dict[str, Any]:
    every = {
        "summary": one["title"],
        "status": {"statusCategory": {"key": "done" if one["state"] == "closed" else "new"}},
        "resolution": None if one["reason"] is None else {"name": one["reason"]},
        "created": one["created"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "+0000",
        "labels": one["labels"],
        "creator": {"accountType": one["by"]["account"]},
    }
    kept = {name: value for name, value in one["properties"].items() if name in properties}
    said = {
        "id": str(10_000 + one["number"]),
        "key": _key(one),
        "fields": {n: v for n, v in every.items() if n in fields},
    }
    return said | ({"properties": kept} if properties else {})


def _transitions(one: dict[str, Any]) -> list[dict[str, Any]]:
    if one["state"] == "closed":
        return [{"id": "11", "name": "To Do", "to": {"statusCategory": {"key": "new"}}}]
    values = [{"name": name} for name in ("Won't Do", "Duplicate", "Done")]
    moving = {"id": "21", "name": "In Progress", "to": {"statusCategory": {"key": "indeterminate"}}}
    fields = {"resolution": {"required": True, "allowedValues": values}}
    return [moving, {"id": "31", "name": "Done", "to": {"statusCategory": {"key": "done"}}, "fields": fields}]


_NODES = {
    "doc": {"paragraph", "bulletList", "codeBlock", "table", "expand"},
    "expand": {"paragraph", "bulletList", "codeBlock", "table"},
    "paragraph": {"text"},
    "bulletList": {"listItem"},
    "listItem": {"paragraph"},
    "codeBlock": {"text"},
    "table": {"tableRow"},
    "tableRow": {"tableHeader", "tableCell"},
    "tableHeader": {"paragraph"},
    "tableCell": {"paragraph"},
    "text": set(),
}


def _check_document(node: Any, within: str | None = None) -> None:
    """A document as Jira takes it: https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/."""
    kind = node["type"]
    if (kind != "doc" if within is None else kind not in _NODES[within]) or (kind == "text" and not node["text"]):
        raise Refused(400, f"INVALID_INPUT: {kind} within {within}")
    if within is None and node.get("version") != 1:
        raise Refused(400, "INVALID_INPUT: version")
    if kind == "codeBlock" and any("marks" in child for child in node["content"]):
        raise Refused(400, "INVALID_INPUT: marks within codeBlock")
    for child in node.get("content", []):
        _check_document(child, kind)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    world: World

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError, ValueError):  # whoever asked went away
            super().handle()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        path = urlsplit(self.path).path
        self.world.requests.append((self.command, path, dict(self.headers)))
        if path in self.world.redirects:
            self._say(301, None, {"Location": self.world.redirects[path]})
            return
        if not self.headers.get("Authorization"):
            self._say(401, {"message": "Requires authentication"}, {})
            return
        fault = self.world.faults.next(self.command, path) or ""
        if self._fails_before(fault):
            return
        try:
            content = json.loads(text) if text else None
            status, said, headers = self.world.answer(self.command, self.path, content)
        except Refused as refused:
            status, said, headers = refused.status, {"message": str(refused)}, {}
        if not self._fails_after(fault):
            self._say(status, said, headers)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

    def _fails_before(self, fault: str) -> bool:
        if fault == "429":
            self._say(429, {"message": "slow down"}, {"Retry-After": "0"})
        elif fault == "403":
            self._say(403, {"message": "You have exceeded a secondary rate limit."}, {})
        elif fault == "500 before":
            self._say(502, None, {})
        elif fault == "time-out before":
            self._hang()
        elif fault == "reset before":
            self._reset()
        else:
            return False
        return True

    def _fails_after(self, fault: str) -> bool:
        if fault == "500 after":
            self._say(500, {"message": "Server Error"}, {})
        elif fault == "time-out after":
            self._hang()
        elif fault == "half":  # fewer bytes than promised
            self._raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{"number": 1')
        elif fault == "half json":
            self._raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n[{"number": 1')
        elif fault == "reset after":
            self._reset()
        else:
            return False
        return True

    def _say(self, status: int, said: Any, headers: Mapping[str, str]) -> None:
        text = b"" if said is None else json.dumps(said).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _raw(self, text: bytes) -> None:
        self.wfile.write(text)
        self.wfile.flush()
        self.close_connection = True

    def _hang(self) -> None:
        time.sleep(self.world.faults.pause_s)
        self.close_connection = True

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # whoever asked went away; what a test cares for stands in `violations`


def serving(world: World, port: int = 0) -> ThreadingHTTPServer:
    """A server of a world, which is not listening yet to more than its queue: `serve_forever` answers."""
    handler = type("Handler", (_Handler,), {"world": world})
    server = _Server(("127.0.0.1", port), handler)
    world.address = f"http://127.0.0.1:{server.server_address[1]}"
    return server


@contextmanager
def running(world: World | None = None, port: int = 0) -> Iterator[World]:
    """A world that is served meanwhile, at its `address`."""
    world = world or World()
    server = serving(world, port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    world = World()
    with serving(world, arguments.port) as server:
        print(world.address, flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
