"""Requests when the network fails, when a service slows down or refuses, and who gets to see the token."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.scans import GAP
from tests.tickets.build import BOTH, FAST, GAP_KEY, SERVICES, carrying, github, scan_of
from tests.tickets.server import FAULTS, Faults, World, running
from tracemine.errors import ServiceError, TracemineError, UsageError
from tracemine.tickets import GitHub, Jira, http, sync
from tracemine.tickets.access import GITHUB, Secret, github_token, jira_token, origin_of
from tracemine.tickets.http import Client

QUICK = dataclasses.replace(FAST, timeout_s=0.5)
TOKEN = "t0ken-of-tests"  # noqa: S105


@pytest.fixture
def world() -> Iterator[World]:
    with running(World(faults=Faults(pause_s=0.8))) as world:
        yield world


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("service", sorted(SERVICES))
def test_no_fault_of_any_request_doubles_or_loses_a_ticket(
    world: World, service: str, fault: str, tmp_path: Path
) -> None:
    """One fault, at each request of a run in turn."""
    requests = 3 if "time-out" not in fault else 2
    for number in range(requests):
        world.faults.plan = [None] * number + [fault]
        with SERVICES[service](world, QUICK) as where:
            sync(scan_of(GAP), where, f"p{number}", apply=True, locks=tmp_path)
        key = f"p{number}/{GAP_KEY.partition('/')[2]}"
        assert [one["state"] for one in carrying(world, key)] == ["open"]
    assert world.faults.made == {fault: requests}
    assert not world.violations


def test_a_create_whose_answer_was_lost_is_looked_for_before_it_is_repeated(world: World, tmp_path: Path) -> None:
    world.faults.only = lambda method, path: method == "POST"
    world.faults.plan = ["500 after"]
    with github(world, QUICK) as service:
        (action,) = sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
    assert (action.kind, action.issue) == ("create", "#1")
    assert [method for method, _, _ in world.requests] == ["GET", "POST", "GET"]


def test_a_service_that_stays_away_is_an_error_of_one_line(world: World, tmp_path: Path) -> None:
    world.faults.share, world.faults.kinds = 1.0, ("500 before",)
    with github(world, QUICK) as service, pytest.raises(ServiceError) as failed:
        sync(BOTH, service, "decoder", apply=True, locks=tmp_path)
    message, _, hint = str(failed.value).partition("\n")
    assert message == "127.0.0.1: GET /repos/you/model/issues: answered 502; tried 8 times"
    assert hint == "  hint: run it again later: what was done is found again"


def test_nobody_listening_is_an_error_of_one_line(tmp_path: Path) -> None:
    with running() as world:
        pass
    with github(world, QUICK) as service, pytest.raises(ServiceError, match="no connection; tried 8 times"):
        sync(BOTH, service, "decoder", apply=True, locks=tmp_path)


def waits(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], status: int = 429) -> list[float]:
    """How long a client sleeps between two requests that are answered so."""
    slept: list[float] = []
    answers = [http.Answer(status, headers, b'{"message": "slow down"}'), http.Answer(200, {}, b"[]")]
    patience = dataclasses.replace(FAST, sleep=slept.append, longest_wait_s=120.0)
    with Client("http://127.0.0.1:1", Secret("Bearer x"), {}, patience) as client:
        monkeypatch.setattr(client, "_once", lambda *_: answers.pop(0))
        client.get("/x", list[int])
    return slept


def test_a_client_waits_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, {"retry-after": "7"}) == [7.0]
    assert waits(monkeypatch, {"retry-after": "7"}, status=403) == [7.0]
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 30)}
    assert 28 < waits(monkeypatch, reset, status=403)[0] < 32
    assert waits(monkeypatch, {})[0] < 1.0, "nothing was asked for"
    assert waits(monkeypatch, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})[0] < 1.0


def test_a_rate_limit_that_lasts_too_long_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError, match="its rate limit is reached, for 3,600 s"):
        waits(monkeypatch, {"retry-after": "3600"})


def test_a_refusal_is_no_rate_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError, match=r"answered 403 \(slow down\)"):
        waits(monkeypatch, {"x-ratelimit-remaining": "4999"}, status=403)


def test_a_redirect_within_the_service_is_followed_and_one_elsewhere_is_not(world: World, tmp_path: Path) -> None:
    world.redirects["/repos/old/model/issues"] = "/repos/you/model/issues?labels=tracemine&state=all"
    with GitHub("old/model", url=world.address, token=TOKEN, patience=QUICK) as service:
        assert service.issues() == []
    with running() as elsewhere:
        for there in (elsewhere.address, "https://127.0.0.1", "//evil.example", "http://127.0.0.1:1\\@evil.example"):
            world.redirects["/repos/old/model/issues"] = f"{there}/repos/you/model/issues"
            with (
                GitHub("old/model", url=world.address, token=TOKEN, patience=QUICK) as service,
                pytest.raises(ServiceError, match=r"another place|no address"),
            ):
                service.issues()
        assert not elsewhere.requests


def test_a_next_page_elsewhere_is_not_asked_for(world: World) -> None:
    with running() as elsewhere, github(world, QUICK) as service:
        world.address = elsewhere.address  # which links of pages are made of
        for number in range(3):
            world._new("you/model", f"{number}", "", ["tracemine"])
        world.page = 2
        with pytest.raises(ServiceError, match="leads to another place"):
            service.issues()
        assert not elsewhere.requests


@pytest.mark.parametrize(
    "url",
    [
        "http://github.example.com/api/v3",
        "ftp://localhost",
        "https://user@github.example.com",
        "https://user:secret@github.example.com",
        "https://github.example.com/?x=1",
        "https://github.example.com/#x",
        "https://",
        "github.example.com",
        "https://[::1",
        "https://github.example.com:port",
        "https://git hub.example.com",
        "http://localhost.evil.example",
        "http://127.0.0.1@evil.example",
        "file:///etc/passwd",
    ],
)
def test_an_address_that_is_not_https_or_holds_more_than_a_place_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        origin_of(url, "--github-url")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["model", "you/", "/model", "you/model/x", "you/..", "../x", "you/a b", "you/x?y", "-a/b"]
)
def test_a_repository_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no repository"):
        GitHub(name, token=TOKEN)


@pytest.mark.parametrize("key", ["perf", "P", "PERF OR 1=1", 'PERF"', "PERF-1", ""])
def test_a_jira_project_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="is no project's key"):
        Jira("https://you.example", key, token="Basic x")


def test_a_token_stands_in_no_message(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def refuses(*_: Any) -> Any:
        return http.Answer(422, {}, f'{{"message": "Bearer {TOKEN} is not taken, {TOKEN} neither"}}'.encode())

    with github(world, QUICK) as service:
        said += [repr(service._client._authorization), repr(service._client._http.headers), repr(vars(service))]
        monkeypatch.setattr(service._client, "_once", refuses)
        with pytest.raises(TracemineError, match=r"\*\*\*") as refused:
            sync(BOTH, service, "decoder", apply=True, locks=tmp_path)
    said.append(str(refused.value))
    assert not [text for text in said if TOKEN in text]


def test_the_token_of_github_com_is_for_no_other_host() -> None:
    public = {"GITHUB_TOKEN": "public"}
    assert github_token(GITHUB, public).value == "Bearer public"
    assert github_token(GITHUB, {"GH_TOKEN": "first\n", "GITHUB_TOKEN": "second"}).value == "Bearer first"
    for url in ("https://github.example.com/api/v3", "https://api.github.com.evil.example", "https://xghe.com"):
        with pytest.raises(UsageError, match="there is no token for"):
            github_token(url, public)
    assert github_token("https://ghe.example/api/v3", {"GH_ENTERPRISE_TOKEN": "own"} | public).value == "Bearer own"
    of_actions = public | {"GITHUB_API_URL": "https://ghe.example/api/v3"}
    assert github_token("https://ghe.example/api/v3", of_actions).value == "Bearer public"


def test_a_token_of_jira_needs_its_address_too() -> None:
    assert jira_token("https://you.example", {"JIRA_EMAIL": "a@b", "JIRA_API_TOKEN": "c"}).value == "Basic YUBiOmM="
    with pytest.raises(UsageError, match=r"there is no token for you\.example"):
        jira_token("https://you.example", {"JIRA_API_TOKEN": "c"})


@pytest.mark.parametrize("token", ["", "two\nlines", "tök"])
def test_what_cannot_stand_in_a_header_is_no_token(token: str) -> None:
    with pytest.raises(UsageError, match="a token is empty, or holds what no token has") as refused:
        Secret(token)
    assert not token or token not in str(refused.value)


def test_an_answer_that_drips_or_never_ends_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LARGEST_BYTES", 1)
    with github(world, QUICK) as service, pytest.raises(ServiceError, match="an answer is larger than"):
        service.issues()
    monkeypatch.undo()
    with (
        github(world, dataclasses.replace(QUICK, deadline_s=-1.0)) as service,
        pytest.raises(ServiceError, match="half an answer, and the rest too slowly; tried 8 times"),
    ):
        service.issues()


def test_a_host_that_nobody_knows_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    waits: list[float] = []
    patience = dataclasses.replace(QUICK, sleep=waits.append)
    with (
        GitHub("you/model", url="http://localhost:9", token=TOKEN, patience=patience) as service,
        pytest.raises(ServiceError, match="localhost: no such host is known"),
    ):
        service.issues()
    assert waits == []


def test_a_web_page_in_place_of_an_answer_is_said_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "_read", lambda self, response: b"\n<!DOCTYPE html><title>Log in</title>")
    with github(world, QUICK) as service, pytest.raises(ServiceError, match="answered with a web page") as failed:
        service.issues()
    assert "/api/v3" in (failed.value.hint or "")
    assert len(world.requests) == 1


def test_who_waits_is_told_before_each_wait(world: World) -> None:
    world.faults.share, world.faults.kinds = 1.0, ("500 before",)
    told: list[str] = []
    patience = dataclasses.replace(QUICK, attempts=3, tell=told.append)
    with github(world, patience) as service, pytest.raises(ServiceError):
        service.issues()
    assert [text.rpartition(" (")[2] for text in told] == ["2 of 3)", "3 of 3)"]
    assert all("answered 5" in text and TOKEN not in text for text in told), told
