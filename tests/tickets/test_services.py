"""What a run does with GitHub and with Jira, each a real server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.report.scans import GAP, NORM
from tests.tickets.build import (
    BOTH,
    GAP_KEY,
    NORM_KEY,
    PART,
    SERVICES,
    carrying,
    comparison,
    many,
    named,
    scan_of,
    with_saving,
)
from tests.tickets.server import World, running
from tracemine.errors import InputError, ServiceError, UsageError
from tracemine.findings.record import Scan
from tracemine.tickets import Action, UnfinishedError, sync

FIXED = comparison(
    {"status": "fixed", "before": [PART], "after": [], "before_ns": 3_000_000, "after_ns": 0},
    basis="recorded",
    predicted={
        "fixed": 1,
        "improved": 0,
        "step_saving_ns": {"low": 1_000_000, "mid": 2_550_000, "high": 3_000_000},
        "gpu_saving_ns": {"low": 0, "mid": 0, "high": 0},
        "measured_step_ns": {"low": 2_400_000, "mid": 2_400_000, "high": 2_400_000},
        "measured_gpu_ns": -3_000,
    },
)


@pytest.fixture(params=sorted(SERVICES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world() -> Iterator[World]:
    with running() as world:
        yield world
    assert not world.violations


@pytest.fixture
def run(world: World, kind: str, tmp_path: Path) -> Any:
    """Runs tickets of a scan, as one process of this machine does."""

    def call(scan: Scan, **how: Any) -> list[Action]:
        with SERVICES[kind](world) as service:
            usual: dict[str, Any] = {"apply": True, "locks": tmp_path}
            return sync(scan, service, "decoder", **(usual | how))

    return call


def kinds(actions: list[Action]) -> dict[str, str]:
    return {action.key: action.kind for action in actions}


def close(world: World, key: str, reason: str) -> None:
    """As a person closes it."""
    for one in carrying(world, key):
        one |= {"state": "closed", "reason": reason}


def comments(world: World) -> list[str]:
    return [str(one["body"]) for one in world.comments]


def test_a_finding_without_a_ticket_gets_one_and_with_one_none(run: Any, world: World) -> None:
    first = run(BOTH)
    assert kinds(first) == {GAP_KEY: "create", NORM_KEY: "create"}
    assert all(action.done and action.url.startswith(world.address) for action in first)
    again = run(BOTH)
    assert kinds(again) == {GAP_KEY: "leave", NORM_KEY: "leave"}
    assert not any(action.done for action in again)
    assert len(world.issues) == 2
    assert not world.comments


def test_a_dry_run_says_the_same_and_only_reads(run: Any, world: World, kind: str) -> None:
    said = run(BOTH, apply=False)
    assert kinds(said) == {GAP_KEY: "create", NORM_KEY: "create"}
    assert not any(action.done for action in said)
    assert not world.issues
    reading = {"github": {("GET", "issues")}, "jira": {("POST", "jql")}}[kind]
    assert {(method, path.rpartition("/")[2]) for method, path, _ in world.requests} == reading


def test_another_projects_tickets_are_not_touched(run: Any, world: World, kind: str, tmp_path: Path) -> None:
    run(BOTH)
    with SERVICES[kind](world) as service:
        assert {a.kind for a in sync(BOTH, service, "encoder", apply=True, locks=tmp_path)} == {"create"}
    assert len(world.issues) == 4


def test_figures_that_move_by_more_than_a_tenth_update_the_ticket_with_one_comment(run: Any, world: World) -> None:
    run(scan_of(GAP))
    assert kinds(run(scan_of(with_saving(GAP, 2_700_000)))) == {GAP_KEY: "leave"}
    assert kinds(run(scan_of(with_saving(GAP, 2_900_000)))) == {GAP_KEY: "update"}
    assert len(world.comments) == 1
    assert "saves 2.55 ms of 3.00 ms a step" in comments(world)[0]
    assert "saves 2.90 ms of 3.00 ms a step" in comments(world)[0]
    assert "2.90 ms per step" in world.issues[0]["title"]
    assert kinds(run(scan_of(with_saving(GAP, 2_900_000)))) == {GAP_KEY: "leave"}
    assert kinds(run(scan_of(with_saving(GAP, 2_000_000)))) == {GAP_KEY: "update"}
    assert len(world.comments) == 2


def test_a_comparison_that_says_fixed_closes_the_ticket_and_says_predicted_beside_measured(
    run: Any, world: World
) -> None:
    run(BOTH)
    done = run(scan_of(NORM), after=FIXED)
    assert kinds(done) == {NORM_KEY: "leave", GAP_KEY: "close"}
    assert carrying(world, GAP_KEY)[0]["state"] == "closed"
    assert "It cost 3.00 ms a step and is gone; predicted to save 2.55 ms" in comments(world)[0]
    assert "of the step 2.55 ms (1.00–3.00 ms) predicted, 2.40 ms measured, with the profiler" in comments(world)[0]
    assert "of GPU time 0 ns (0 ns) predicted, −3.00 µs measured" in comments(world)[0]
    assert kinds(run(scan_of(NORM), after=FIXED)) == {NORM_KEY: "leave", GAP_KEY: "leave"}
    assert len(world.comments) == 1


def of_step(scan: Scan, span_ns: int) -> Scan:
    """A scan of another recording: its steps take so long."""
    step = scan.summary.per_step
    assert step is not None
    step = msgspec.structs.replace(step, span_ns=span_ns)
    return msgspec.structs.replace(scan, summary=msgspec.structs.replace(scan.summary, per_step=step))


def test_a_comparison_that_ends_at_other_findings_closes_nothing(run: Any, world: World) -> None:
    run(BOTH)
    stale, backwards = of_step(scan_of(NORM), 2), of_step(scan_of(NORM), 1)
    for scan, says in ((stale, "it is of other recordings"), (backwards, "they are its “before”")):
        with pytest.raises(UsageError, match=f"does not end at the findings given: {says}; nothing is closed") as error:
            run(scan, after=FIXED)
        assert "tracemine diff BEFORE AFTER" in (error.value.hint or "")
    with pytest.raises(InputError, match="is no comparison"):  # it does not say of what it is
        run(scan_of(NORM), after={"changes": FIXED["changes"]})
    assert [one["state"] for one in world.issues] == ["open", "open"]
    assert kinds(run(scan_of(NORM), after=FIXED)) == {NORM_KEY: "leave", GAP_KEY: "close"}


def test_what_the_findings_still_have_is_not_closed_whatever_a_comparison_says(run: Any, world: World) -> None:
    run(BOTH)
    with pytest.raises(UsageError, match=f"says fixed of {GAP.fingerprint}, and the findings given still have it"):
        run(BOTH, after=FIXED)
    assert [one["state"] for one in world.issues] == ["open", "open"]


@pytest.mark.parametrize("status", ["unknown", "improved", "same", "moved", "new", "worse", ""])
def test_nothing_but_fixed_closes_a_ticket(run: Any, world: World, status: str) -> None:
    run(BOTH)
    change: dict[str, object] = {"status": status, "before": [PART], "after": []}
    assert kinds(run(scan_of(NORM), after=comparison(change))) == {NORM_KEY: "leave"}
    assert carrying(world, GAP_KEY)[0]["state"] == "open"


@pytest.mark.parametrize("redacted", [False, True])
def test_redacted_tickets_and_others_are_never_mixed(run: Any, world: World, redacted: bool) -> None:
    run(BOTH, redact=redacted)
    before = [dict(one) for one in world.issues]
    for apply in (False, True):
        with pytest.raises(UsageError, match="this run would mix them") as error:
            run(scan_of(with_saving(GAP, 9_000_000), NORM), redact=not redacted, apply=apply)
        assert "another --project" in (error.value.hint or "")
    assert world.issues == before
    assert kinds(run(scan_of(with_saving(GAP, 9_000_000), NORM), redact=redacted))[GAP_KEY] == "update"
    run(scan_of(NORM), redact=redacted, after=FIXED)
    assert kinds(run(BOTH, redact=redacted)) == {NORM_KEY: "leave", GAP_KEY: "reopen"}  # it is remembered all the way


def test_a_finding_that_a_scan_does_not_have_leaves_its_ticket_open(run: Any, world: World) -> None:
    run(BOTH)
    assert kinds(run(scan_of(NORM))) == {NORM_KEY: "leave"}
    assert carrying(world, GAP_KEY)[0]["state"] == "open"


def test_a_finding_that_is_too_small_gets_no_ticket_and_closes_none(run: Any, world: World) -> None:
    small = msgspec.structs.replace(GAP, reported=False)
    assert run(scan_of(small)) == []
    run(scan_of(GAP))
    assert kinds(run(scan_of(small))) == {GAP_KEY: "leave"}
    assert carrying(world, GAP_KEY)[0]["state"] == "open"


def test_a_finding_that_is_back_reopens_what_was_closed_as_completed(run: Any, world: World, kind: str) -> None:
    run(BOTH)
    run(scan_of(NORM), after=FIXED)
    assert kinds(run(BOTH)) == {NORM_KEY: "leave", GAP_KEY: "reopen"}
    assert carrying(world, GAP_KEY)[0]["state"] == "open"
    assert "It is back" in comments(world)[1]
    assert kinds(run(BOTH)) == {NORM_KEY: "leave", GAP_KEY: "leave"}
    assert len(world.issues) == 2


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("github", "not_planned"), ("github", "duplicate"), ("jira", "Won't Do"), ("jira", "Duplicate")],
)
def test_what_was_closed_as_not_planned_stays_closed(run: Any, world: World, reason: str) -> None:
    run(scan_of(GAP))
    close(world, GAP_KEY, reason)
    (action,) = run(scan_of(with_saving(GAP, 9_000_000)))
    assert (action.kind, action.why) == ("leave", "it was closed as not planned")
    assert len(world.issues) == 1


def test_the_older_of_two_tickets_with_one_key_stays(run: Any, world: World) -> None:
    run(scan_of(GAP))
    twin = msgspec.json.decode(msgspec.json.encode(world.issues[0]))
    world.issues.append(world.issues[0] | {"number": 2, "labels": ["tracemine"], "properties": twin["properties"]})
    assert [action.kind for action in run(scan_of(GAP))] == ["withdraw", "leave"]
    assert [one["number"] for one in carrying(world, GAP_KEY)] == [1]
    assert world.issues[1]["state"] == "closed"
    assert "Duplicate of" in str(world.issues[1]["body"])
    assert [action.kind for action in run(scan_of(GAP))] == ["leave"]


def test_a_recording_without_modules_finds_the_ticket_of_one_with_them_and_the_other_way_round(
    run: Any, world: World
) -> None:
    placed, unplaced = named(NORM, "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"), named(NORM, "bbbbbbbbbbbbbbbb")
    run(scan_of(placed))
    assert kinds(run(scan_of(unplaced))) == {"decoder/bbbbbbbbbbbbbbbb": "leave"}
    assert len(world.issues) == 1
    elsewhere = named(NORM, "cccccccccccccccc", "bbbbbbbbbbbbbbbb")
    assert kinds(run(scan_of(placed, elsewhere))) == {
        "decoder/aaaaaaaaaaaaaaaa": "leave",
        "decoder/cccccccccccccccc": "create",
    }


def test_a_ticket_of_a_recording_without_modules_is_taken_by_one_finding_and_stays_with_it(
    run: Any, world: World
) -> None:
    first, second = (named(NORM, f"{letter * 16}", "bbbbbbbbbbbbbbbb") for letter in "ac")
    run(scan_of(named(NORM, "bbbbbbbbbbbbbbbb")))
    found = run(scan_of(first, second))
    assert kinds(found) == {"decoder/aaaaaaaaaaaaaaaa": "update", "decoder/cccccccccccccccc": "create"}
    assert not world.comments, "its figures did not move"
    again = run(scan_of(second, first))
    assert kinds(again) == {"decoder/aaaaaaaaaaaaaaaa": "leave", "decoder/cccccccccccccccc": "leave"}
    by_key = {action.key: action.issue for action in again}
    assert by_key == {action.key: action.issue for action in found}


def test_max_limits_what_is_created_and_the_rest_is_named(run: Any, world: World) -> None:
    said = run(many(7))
    assert [action.kind for action in said] == ["create"] * 5 + ["leave"] * 2
    assert {action.why for action in said[5:]} == {"--max is reached"}
    assert [action.kind for action in run(many(7), most=1)] == ["leave"] * 5 + ["create", "leave"]


def test_all_pages_of_a_list_are_read(run: Any, world: World) -> None:
    world.page = 3
    run(many(10), most=10)
    assert {action.kind for action in run(many(10), most=10)} == {"leave"}
    assert len(world.issues) == 10


def test_people_may_write_around_the_text(world: World, tmp_path: Path) -> None:
    def run_github(scan: Scan) -> None:
        with SERVICES["github"](world) as service:
            sync(scan, service, "decoder", apply=True, locks=tmp_path)

    run_github(scan_of(GAP))
    issue = world.issues[0]
    issue["body"] = "Ann looks at it.\r\n\r\n" + issue["body"].replace("\n", "\r\n") + "\r\n\r\nSee also the wiki."
    run_github(scan_of(with_saving(GAP, 9_000_000)))
    assert issue["body"].startswith("Ann looks at it.\r\n\r\n<!-- tracemine: ")
    assert issue["body"].rstrip().endswith("See also the wiki.")
    assert issue["body"].count("<!-- tracemine: ") == issue["body"].count("<!-- tracemine-end -->") == 1
    assert "saves 9000000 of" in issue["body"]


def test_issues_and_pull_requests_of_others_are_left_alone(world: World, tmp_path: Path) -> None:
    with SERVICES["github"](world) as service:
        sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
        world.issues[0]["pull_request"] = True
        world.issues.append(world.issues[0] | {"number": 2, "labels": [], "pull_request": False})
        (action,) = sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
    assert action.kind == "create"
    assert [one["state"] for one in world.issues] == ["open"] * 3


def test_a_token_that_may_not_label_is_told_so_and_leaves_nothing_open(world: World, tmp_path: Path) -> None:
    world.may_label = False
    with SERVICES["github"](world) as service, pytest.raises(UnfinishedError, match="label tracemine was not set"):
        sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
    assert [one["state"] for one in world.issues] == ["closed"]


def test_a_workflow_without_a_way_to_done_is_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.tickets.server._transitions", lambda one: [])
    with SERVICES["jira"](world) as service:
        sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
        with pytest.raises(UnfinishedError, match="PERF-1 has no transition to a status that is done"):
            sync(scan_of(NORM), service, "decoder", apply=True, locks=tmp_path, after=FIXED, most=0)


def test_an_issue_that_another_run_moves_meanwhile_is_moved(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tickets import server

    offered = server._transitions

    def moved_first(one: dict[str, Any]) -> list[Any]:
        """By the time that transitions are asked for, another has taken one: what is left leads back."""
        one["state"] = "closed"
        return offered(one)

    with SERVICES["jira"](world) as service:
        sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path)
        monkeypatch.setattr(server, "_transitions", moved_first)
        actions = sync(scan_of(NORM), service, "decoder", apply=True, locks=tmp_path, after=FIXED, most=0)
    assert [action.kind for action in actions if action.done] == ["close"]
    assert world.count("POST", "/transitions$") == 0


def test_a_run_that_is_stopped_says_what_was_done_and_the_next_does_the_rest(run: Any, world: World) -> None:
    made = 0

    def refused(method: str, path: str) -> bool:
        nonlocal made
        made += method == "POST" and path.endswith(("/issues", "/issue"))
        return made > 2

    world.faults.only, world.faults.share, world.faults.kinds = refused, 1.0, ("500 before",)
    with pytest.raises(UnfinishedError, match="2 of 4 tickets are done") as stopped:
        run(many(4))
    assert [action.done for action in stopped.value.actions] == [True, True, False, False]
    assert isinstance(stopped.value, ServiceError)
    world.faults.share = 0.0
    assert [action.kind for action in run(many(4))] == ["leave", "leave", "create", "create"]
    assert len(world.issues) == 4


def test_jiras_late_index_doubles_nothing(tmp_path: Path) -> None:
    """Another machine creates and withdraws; the same machine knows what it created."""
    with running(World(late_s=3600.0)) as world, SERVICES["jira"](world) as service:
        for machine, issues in (("a", 1), ("b", 2), ("a", 2), ("b", 2)):
            sync(scan_of(GAP), service, "decoder", apply=True, locks=tmp_path / machine)
            assert len(world.issues) == issues
            assert [one["number"] for one in carrying(world, GAP_KEY)] == [1]
    assert not world.violations
