"""Ticket services that lie: answers of every shape to every request, and issues and comments that strangers wrote."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.report.scans import GAP
from tests.tickets import server
from tests.tickets.build import FAST, GAP_KEY, SERVICES, carrying, comparison, github, jira, scan_of, with_saving
from tests.tickets.server import APP, FRIEND, STRANGER, World, operations, running
from tracemine.errors import ServiceError, TracemineError
from tracemine.findings.record import Scan
from tracemine.tickets import GitHub, sync
from tracemine.tickets.access import Secret
from tracemine.tickets.marks import comment_line

PATIENCE = dataclasses.replace(FAST, attempts=2)
Said = Callable[[str, str], tuple[int, bytes, dict[str, str]] | None]
DEEP = b"[" * 100_000 + b"]" * 100_000
SHAPES = {
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"5",
    "nothing": b"",
    "no field": b"{}",
    "JSON that is deep": DEEP,
    "a document that is deep": b'{"comments":[{"id":"1","body":' + b'{"content":[' * 400 + b"]}" * 400 + b"}]}",
    "text that is no UTF-8": b'{"key":"\xff","message":"\xff\xfe"}',
    "texts for lists": b'{"issues":"abc","comments":"x","transitions":"x","fields":"x","message":5,"errorMessages":5}',
    "numbers for lists": b'{"issues":5,"comments":5,"transitions":3,"fields":7,"errorMessages":{"a":1},"errors":[1]}',
    "lists of nothing": b'{"issues":[null],"comments":[null],"transitions":[5,null],"nextPageToken":[1]}',
    "a list of nothing": b"[null]",
    "odd members": b'[{"number":1e300,"id":true,"body":3,"labels":{"a":1},"state":[]}]',
    "an odd member": b'{"number":-1,"id":"x","key":"OTHER-999999999999","body":[],"state":"open","labels":[[]]}',
    "the first year": json.dumps(
        {"issues": [{"key": f"PERF-{n}", "fields": {"created": "0001-01-01T00:00:00+14:00"}} for n in (1, 2)]}
    ).encode(),
}


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Said], None]:
    """Has the server say something else: what it is given says what, by method and path."""
    own = server._Handler._say

    def put(said: Said) -> None:
        def say(self: Any, status: int, answer: Any, headers: dict[str, str]) -> None:
            other = said(self.command, self.path.partition("?")[0])
            if other is None:
                own(self, status, answer, headers)
                return
            status, content, headers = other
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        monkeypatch.setattr(server._Handler, "_say", say)

    return put


def always(status: int, content: bytes, headers: dict[str, str] | None = None) -> Said:
    """One answer to every request."""
    return lambda method, path: (status, content, headers or {})


def every_request(world: World, name: str, locks: Path) -> Iterator[TracemineError]:
    """Runs that make each kind of request, and what stopped them."""
    fixed = comparison({"status": "fixed", "before": [{"fingerprint": GAP.fingerprint}]})
    runs: tuple[tuple[Scan, dict[str, Any]], ...] = (
        (scan_of(GAP), {}),
        (scan_of(with_saving(GAP, 9_000_000)), {}),
        (scan_of(), {"after": fixed}),
        (scan_of(GAP), {}),
    )
    for scan, how in runs:
        try:
            with SERVICES[name](world, PATIENCE) as service:
                sync(scan, service, "decoder", apply=True, locks=locks, **how)
                for issue in service.issues():
                    service.comments(issue)
        except TracemineError as error:
            yield error
        world.issues += [] if world.issues else [STRAY | {"place": "PERF" if name == "jira" else "you/model"}]


MARK = f"<!-- tracemine: {GAP_KEY} -->\n<!-- tracemine-state: 1 -->\n\ntext\n\n<!-- tracemine-end -->"
STRAY = {
    "number": 1, "title": "t", "body": MARK, "labels": ["tracemine"], "state": "open", "reason": None, "by": FRIEND,
    "properties": {"tracemine": {"mark": MARK}}, "created": datetime.now(UTC),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_answer_of_any_shape_is_an_error_in_a_line_or_taken(
    says: Callable[[Said], None], name: str, shape: str, tmp_path: Path
) -> None:
    errors = []
    for number, row in enumerate(operations(name)):
        with running() as world:

            def said(method: str, path: str, row: Any = row) -> tuple[int, bytes, dict[str, str]] | None:
                is_it = method == row.method and row.pattern.fullmatch(path)
                return (200, SHAPES[shape], {}) if is_it else None

            says(said)
            errors += [str(error) for error in every_request(world, name, tmp_path / str(number))]
    assert errors
    assert not [text for text in errors if "t0ken" in text or not text.partition("\n")[0].isprintable()]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_refusal_of_any_shape_is_an_error_in_a_line(says: Callable[[Said], None], name: str) -> None:
    with running() as world, SERVICES[name](world, PATIENCE) as service:
        for content in SHAPES.values():
            says(always(422, content))
            with pytest.raises(ServiceError, match="answered 422") as error:
                service.issues()
            assert str(error.value).partition("\n")[0].isprintable()


def test_what_is_packed_is_not_unpacked(says: Callable[[Said], None], tmp_path: Path) -> None:
    bomb = gzip.compress(gzip.compress(b"[" + b" " * (1 << 24) + b"]"))
    with running() as world:
        for encoding in ("gzip, gzip", "gzip", "br", "\x1b[2J"):
            says(always(200, bomb, {"Content-Encoding": encoding}))
            with github(world, PATIENCE) as service, pytest.raises(ServiceError, match="an answer is packed") as error:
                service.issues()
            assert str(error.value).isprintable()
    assert {headers["Accept-Encoding"] for _, _, headers in world.requests} == {"identity"}


@pytest.mark.parametrize("cut", [slice(None), slice(0, 12), slice(9, None), slice(5, 14)])
def test_no_part_of_a_token_that_a_service_repeats_is_shown(
    says: Callable[[Said], None], cut: slice, tmp_path: Path
) -> None:
    token = "ghp_SECRETSECRET1234567890"  # noqa: S105
    message = json.dumps({"message": f"bad token <{token[cut]}> of you"}).encode()
    says(always(401, message))
    with running() as world, GitHub("you/model", url=world.address, token=token, patience=PATIENCE) as service:
        with pytest.raises(ServiceError, match=r"bad token <\*\*\*> of you") as error:
            service.issues()
        assert token[cut] not in str(error.value)


def test_a_password_that_was_sent_packed_is_not_shown_either() -> None:
    secret = Secret("Basic bWVAaGVyZTpteS1wYXNzd29yZA==")
    assert secret.out_of("of me@here: my-password, bWVAaGVyZTpteS1wYXNz") == "of me@here: ***, ***"


def test_a_key_of_another_project_is_told_at_once(says: Callable[[Said], None], tmp_path: Path) -> None:
    says(lambda method, path: (201, b'{"key": "OTHER-999999999999"}', {}) if path.endswith("/issue") else None)
    with running() as world, jira(world, PATIENCE) as service:
        with pytest.raises(ServiceError, match="its key OTHER-999999999999 is of another project"):
            sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
        assert len(world.requests) < 5


# Whose words they are


def planted(world: World, name: str, **more: Any) -> dict[str, Any]:
    """An issue with our label and a mark, of a stranger where nothing else is said."""
    issue: dict[str, Any] = STRAY | {"place": "PERF" if name == "jira" else "you/model", "by": STRANGER} | more
    world.issues.append(issue)
    return issue


def run(world: World, name: str, locks: Path, saving_ns: int = 2_550_000) -> list[str]:
    """What a run does."""
    with SERVICES[name](world) as service:
        scan = scan_of(with_saving(GAP, saving_ns))
        return [action.kind for action in sync(scan, service, "decoder", apply=True, locks=locks)]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_stranger_wrote_is_no_ticket(name: str, tmp_path: Path) -> None:
    also = f"<!-- tracemine: decoder/{'0' * 16} -->\n<!-- tracemine-also: {GAP_KEY} -->\n<!-- tracemine-end -->"
    for mark in (MARK, also):
        for state in ({}, {"state": "closed", "reason": "not_planned" if name == "github" else "Won't Do"}):
            with running() as world:
                theirs = planted(world, name, body=mark, properties={"tracemine": {"mark": mark}}, **state)
                before = dict(theirs)
                assert run(world, name, tmp_path / str(len(mark))) == ["create"]
                assert run(world, name, tmp_path / str(len(mark))) == ["leave"]
                assert theirs == before
                assert [one["by"]["id"] for one in world.issues] == [STRANGER["id"], 1]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_older_issue_of_a_stranger_withdraws_none_of_ours(name: str, tmp_path: Path) -> None:
    with running() as world:
        theirs = planted(world, name, labels=[], body="", properties={})
        assert run(world, name, tmp_path) == ["create"]
        theirs |= {"labels": ["tracemine"], "body": MARK, "properties": {"tracemine": {"mark": MARK}}}
        assert run(world, name, tmp_path) == ["leave"]
        assert [one["state"] for one in world.issues] == ["open", "open"]


@pytest.mark.parametrize("by", [FRIEND, APP])
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_others_of_the_repository_wrote_is_a_ticket(name: str, by: dict[str, Any], tmp_path: Path) -> None:
    with running(World(is_app=by is APP)) as world:
        planted(world, name, by=by)
        assert "create" not in run(world, name, tmp_path)
        assert len(carrying(world, GAP_KEY)) == 1


def test_an_app_is_a_stranger_to_a_user(tmp_path: Path) -> None:
    with running() as world:
        planted(world, "github", by=APP)
        assert run(world, "github", tmp_path) == ["create"]


@pytest.mark.parametrize("name", sorted(SERVICES))
@pytest.mark.parametrize("by", [STRANGER, FRIEND])
def test_a_strangers_comment_does_not_stand_for_ours(name: str, by: dict[str, Any], tmp_path: Path) -> None:
    with running() as world:
        run(world, name, tmp_path)
        for number in range(5):
            text: Any = comment_line(GAP_KEY, number)
            if name == "jira":
                text = {"content": [{"type": "text", "text": f"tracemine {GAP_KEY} #{number}"}]}
            world._comment(world.issues[0], text)["by"] = by
        assert run(world, name, tmp_path, 9_000_000) == ["update"]
        ours = [one for one in world.comments if one["by"]["id"] == 1]
        assert len(ours) == (1 if by is STRANGER else 0)


def test_what_stands_below_a_deleted_end_is_kept(tmp_path: Path) -> None:
    with running() as world:
        run(world, "github", tmp_path)
        issue = world.issues[0]
        issue["body"] = issue["body"].replace("<!-- tracemine-end -->", "") + "\n\nA person's notes."
        for number in range(1, 4):
            assert run(world, "github", tmp_path, 9_000_000 * 2**number) == ["update"]
            assert issue["body"].rstrip().endswith("A person's notes.")
            assert issue["body"].count("Tracemine kept what follows") == issue["body"].count("<!-- tracemine: ") == 1
            assert issue["body"].index("<!-- tracemine-end -->") < issue["body"].index("kept what follows")
