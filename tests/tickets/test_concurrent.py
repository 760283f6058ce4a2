"""Many runs at once, on one machine and on many, with a network that fails: one ticket a key, none lost, none doubled.

Runs begin by healing what others left (`plan.one_each`). Where a test asks what runs do themselves, that is off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.scans import GAP, NORM
from tests.tickets.build import FAST, GAP_KEY, NORM_KEY, SERVICES, carrying, scan_of, with_saving
from tests.tickets.server import Faults, World, running
from tracemine.errors import ServiceError
from tracemine.findings.record import Scan
from tracemine.tickets import Jira, Patience, once, plan, run, sync
from tracemine.tickets.plan import one_each

KEYS = (GAP_KEY, NORM_KEY)
BOTH = scan_of(GAP, NORM)
PATIENCE = dataclasses.replace(FAST, attempts=12, timeout_s=1.2)
RUNS, MACHINES = 200, 50


def storm(
    world: World,
    locks: Path,
    *,
    kind: str = "github",
    runs: int,
    machines: int,
    scan: Scan = BOTH,
    patience: Patience = PATIENCE,
) -> list[BaseException]:
    """So many runs at once, which share the locks of so many machines: what stopped those that were stopped."""
    stopped: list[BaseException] = []
    begin = threading.Barrier(runs)

    def one(number: int) -> None:
        begin.wait()
        try:
            with SERVICES[kind](world, patience) as service:
                sync(scan, service, "decoder", apply=True, locks=locks / str(number % machines))
        except (ServiceError, CutOffError) as error:
            stopped.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return stopped


class CutOffError(Exception):
    """As if the process had been killed."""


def check(world: World) -> None:
    """One ticket a key, open; every other was closed and says which one stays."""
    assert not world.violations
    for key in KEYS:
        assert len(carrying(world, key)) == 1, f"{len(carrying(world, key))} tickets of {key}"
        assert carrying(world, key)[0]["state"] == "open"
    kept = [one for key in KEYS for one in carrying(world, key)]
    for one in world.issues:
        if one not in kept:
            assert one["state"] == "closed"
            assert "Duplicate of" in str(one["body"])


def unmended(issues: Any) -> Any:
    """As `plan.one_each`, and no duplicate is seen."""
    return one_each(issues)[0], []


@pytest.fixture
def unhealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run mends what another left."""

    monkeypatch.setattr(plan, "one_each", unmended)


@pytest.fixture
def faulty() -> Iterator[World]:
    with running(World(faults=Faults(share=0.12, seed=7, pause_s=1.5), gate=MACHINES)) as world:
        yield world


def test_two_hundred_runs_at_once_make_one_ticket_a_key(
    faulty: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plan, "one_each", unmended)
        stopped = storm(faulty, tmp_path, runs=RUNS, machines=MACHINES)
    assert len(faulty.faults.made) == len(faulty.faults.kinds), "every kind of fault came"
    assert len(faulty.issues) > len(KEYS), "runs did create at once"
    left = sum(len(carrying(faulty, key)) - 1 for key in KEYS)
    assert 0 <= left <= len(stopped), "only a run that was stopped may leave a ticket behind, and none is lost"
    faulty.faults.share = 0.0
    assert not storm(faulty, tmp_path, runs=1, machines=1)
    check(faulty)


@pytest.mark.parametrize("looks", [True, False])
def test_without_looking_again_runs_of_many_machines_double_tickets(
    looks: bool, tmp_path: Path, unhealed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault, and beside it the same without it."""
    if not looks:
        monkeypatch.setattr(once, "settled", lambda keeper, made: [made])
    with running(World(gate=MACHINES)) as world:
        assert not storm(world, tmp_path, runs=MACHINES, machines=MACHINES)
    assert len(world.issues) > len(KEYS), "runs did create at once"
    if looks:
        check(world)
    else:
        with pytest.raises(AssertionError, match="tickets of"):
            check(world)


def test_runs_that_are_cut_off_anywhere_are_mended_by_the_next(
    faulty: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled, cut = once.settled, threading.Semaphore(5)

    def cut_off(keeper: Any, made: Any) -> Any:
        if cut.acquire(blocking=False):
            raise CutOffError
        return settled(keeper, made)

    with monkeypatch.context() as patch:
        patch.setattr(once, "settled", cut_off)
        assert len(storm(faulty, tmp_path, runs=MACHINES, machines=MACHINES)) >= 1
    faulty.faults.share = 0.0
    assert not storm(faulty, tmp_path, runs=1, machines=1)
    check(faulty)


def test_runs_of_one_machine_never_create_twice(tmp_path: Path) -> None:
    with running() as world:
        assert not storm(world, tmp_path, runs=30, machines=1)
    assert world.count("POST", "/issues$") == len(world.issues) == len(KEYS)
    check(world)


def test_without_the_lock_runs_of_one_machine_create_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "locked", lambda *_: contextlib.nullcontext())
    with running(World(gate=30)) as world:
        storm(world, tmp_path, runs=30, machines=1)
    assert world.count("POST", "/issues$") > len(KEYS)


def test_jira_gets_one_ticket_a_key_though_its_search_is_late(tmp_path: Path, unhealed: None) -> None:
    with running(World(late_s=3600.0, faults=Faults(share=0.1, seed=3, pause_s=1.5), gate=25)) as world:
        stopped = storm(world, tmp_path, kind="jira", runs=25, machines=25)
    left = sum(len(carrying(world, key)) - 1 for key in KEYS)
    assert 0 <= left <= len(stopped)
    assert not world.violations


def test_a_search_alone_would_double_tickets_of_jira(
    tmp_path: Path, unhealed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: what was created is looked for by a search, and not by its neighbours' names."""
    monkeypatch.setattr(Jira, "_before", lambda self, created: [])
    with running(World(late_s=3600.0, gate=10)) as world:
        assert not storm(world, tmp_path, kind="jira", runs=10, machines=10)
    with pytest.raises(AssertionError, match="10 tickets of"):
        check(world)


@pytest.mark.parametrize("waits", [True, False])
def test_a_list_of_github_that_lags_is_waited_for(
    waits: bool, tmp_path: Path, unhealed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And beside it the planted fault: a list that does not have our own ticket is taken for a whole one."""
    if not waits:
        monkeypatch.setattr(once, "_MOST_LOOKS", 1)
    slower = dataclasses.replace(PATIENCE, settle_s=0.15)
    with running(World(late_s=0.3, gate=10)) as world:
        assert not storm(world, tmp_path, runs=10, machines=10, patience=slower)
    assert len(world.issues) == 10 * len(KEYS)
    if waits:
        check(world)
    else:
        with pytest.raises(AssertionError, match="10 tickets of"):
            check(world)


def test_fifty_runs_that_update_write_one_comment(tmp_path: Path) -> None:
    with running() as world:
        storm(world, tmp_path, runs=1, machines=1)
        assert not storm(world, tmp_path, runs=50, machines=50, scan=scan_of(with_saving(GAP, 9_000_000), NORM))
    assert len(world.comments) == 1
    check(world)
