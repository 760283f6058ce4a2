"""What is found of a job, as `tracemine scan FOLDER --format json` prints it. Times are integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

JOB_SCHEMA_VERSION = 1


class Interval(Struct, frozen=True):
    """What something may be: at least, likely, at most; nanoseconds."""

    low: int
    mid: int
    high: int


class JobStep(Struct, frozen=True):
    """The job's step: as recorded, and what it is without the profiler."""

    recorded: int
    low: int
    mid: int
    high: int


class JobRank(Struct, frozen=True, kw_only=True):
    """One recorded rank, a step: its own time, computing, waiting for others, and communication that nothing hides."""

    rank: int
    file: str
    device: str | None = None
    own_ns: int
    busy_ns: int
    silent_ns: int  # the host recorded nothing for long
    queued_idle_ns: int  # the device idled though work was queued
    wait_ns: int
    transfer_ns: int
    exposed_ns: int
    clock_offset_ns: int | None = None  # to be added to its times; null: not known
    clock_bound_ns: int | None = None


class JobGroup(Struct, frozen=True, kw_only=True):
    """One kind of collective of one process group, a step."""

    kind: str
    ranks: tuple[int, ...]
    description: str | None
    count: float
    bytes: int | None  # of a message, the median
    transfer_ns: int  # the median
    bus_gb_per_s: float | None
    exposed_ns: int
    wait_ns: int


class JobFinding(Struct, frozen=True, kw_only=True):
    """One finding of a job. A saving is of the job's step without the profiler; null: it cannot be said."""

    rule: str
    cause: str
    title: str
    ranks: tuple[int, ...]
    step_saving_ns: Interval | None
    evidence: str  # `measured`, `replayed`, `model`, `shapes` or `adjacent`: as of events that lie so
    facts: tuple[str, ...] = ()
    fix: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """What is found of a job: its ranks, its step, its groups of ranks, and its findings, best first."""

    name: str
    world_size: int | None
    steps: int
    step_ns: JobStep
    ranks: tuple[JobRank, ...]
    groups: tuple[JobGroup, ...]
    findings: tuple[JobFinding, ...]
    matched: int
    unmatched: dict[str, int]
    replay_error_percent: float | None
    notes: tuple[str, ...] = ()


class JobReport(Struct, frozen=True, kw_only=True):
    """What `tracemine scan FOLDER --format json` prints of a job."""

    schema_version: int = JOB_SCHEMA_VERSION
    job: Job


def named(ranks: Sequence[int], most: int) -> str:
    """Return ranks as prose has them, of many the first.

    >>> named((0, 1), 4), named(range(9), 2)
    ('0, 1', '0, 1, …')
    """
    return ", ".join(map(str, ranks[:most])) + (", …" if len(ranks) > most else "")
