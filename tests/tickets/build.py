"""Scans and services for tests of tickets."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from tests.report.scans import GAP, NORM, SCAN
from tests.tickets.server import World
from tracemine.comparison import diff, side_of
from tracemine.findings.record import Finding, Identity, Range, Scan
from tracemine.tickets import GitHub, Jira, Patience

FAST = Patience(attempts=8, timeout_s=5.0, backoff_s=0.001, settle_s=0.002, longest_wait_s=0.5, deadline_s=5.0)
NORM_KEY, GAP_KEY = "decoder/0123456789abcdef", "decoder/fedcba9876543210"


def with_saving(finding: Finding, ns: int) -> Finding:
    """A finding that saves so much of each step."""
    assert finding.per_step is not None
    a_step = msgspec.structs.replace(finding.per_step, step_saving_ns=Range(0, ns, 2 * ns))
    return msgspec.structs.replace(finding, per_step=a_step)


def named(finding: Finding, identity: str, *aliases: str) -> Finding:
    """A finding of another identity."""
    return msgspec.structs.replace(finding, fingerprint=identity, identity=Identity(identity, aliases))


def scan_of(*findings: Finding) -> Scan:
    """A scan with these findings."""
    return msgspec.structs.replace(SCAN, findings=findings)


def many(count: int) -> Scan:
    """A scan with so many findings."""
    return scan_of(*(named(GAP, f"{number:016x}") for number in range(count)))


_CHANGE = {
    "rule": "gap", "title": "", "on_gpu": False, "matched_by": None, "before": [], "after": [], "before_ns": 0,
    "after_ns": 0, "noise_ns": 0,
}  # fmt: skip
# A part of a change, as `tracemine diff --format json` prints it.
PART = {
    "fingerprint": GAP.fingerprint,
    "title": GAP.title,
    "module": None,
    "source": None,
    "reported": True,
    "cost_ns": 3_000_000,
    "step_saving_ns": {"low": 1_000_000, "mid": 2_550_000, "high": 3_000_000},
    "gpu_saving_ns": {"low": 0, "mid": 0, "high": 0},
}
BOTH = scan_of(GAP, NORM)


def comparison(*changes: dict[str, object], after: Scan = SCAN, **more: object) -> dict[str, object]:
    """What `tracemine diff --format json` prints, where `after` is the later side; of a change what is given of it."""
    made: dict[str, object] = msgspec.to_builtins(diff(after, after))
    about = msgspec.to_builtins(side_of(after).about)
    return made | {"before": about | {"span_ns": 1}} | more | {"changes": [_CHANGE | change for change in changes]}


def github(world: World, patience: Patience = FAST) -> GitHub:
    """The repository you/model of a world."""
    return GitHub("you/model", url=world.address, token="t0ken-of-tests", patience=patience)


def jira(world: World, patience: Patience = FAST) -> Jira:
    """The project PERF of a world."""
    return Jira(world.address, "PERF", token="Basic dDBrZW4=", patience=patience)


SERVICES: dict[str, Callable[..., GitHub | Jira]] = {"github": github, "jira": jira}


def carrying(world: World, key: str) -> list[dict[str, object]]:
    """The issues that carry a key, straight from what the server holds."""
    line = f"<!-- tracemine: {key} -->"
    return [
        one
        for one in world.issues
        if "tracemine" in one["labels"]
        and (line in str(one["body"]) or line in str(one["properties"].get("tracemine", {}).get("mark")))
    ]


def wait(seconds: float) -> None:
    """Let a clock go on."""
    time.sleep(seconds)
