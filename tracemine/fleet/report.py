"""What a data set says over all jobs: which causes cost most, what recurs, what is gone, and how far predictions held.

A trace is a sample of its job: what its findings save, as a share of its unprofiled steps, counts as the job's share.
Of a job the newest day counts, as the mean over its traces of that day. GPU-hours of jobs are the caller's; without
them 1,000 are spread evenly over the jobs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tracemine.errors import InputError, Location, UsageError
from tracemine.extras import install
from tracemine.files import read_file
from tracemine.fleet.dataset import FLEET_FINDINGS, RUNS, Dataset
from tracemine.fleet.places import shown

Record = TypeVar("Record")
GROUPS = ("job", "model", "gpu", "day")
_LARGEST_BYTES = 1 << 24
_MOST_ROWS = 1 << 31
_COLUMNS = ("job", "gpu_hours")

ASSUMED_HOURS = 1000.0  # of all jobs together, where none are given


class FleetTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How much was looked at."""

    traces: int
    jobs: int
    days: int
    content_bytes: int
    not_scanned: int
    without_activities: int  # scanned, but nothing ran on a GPU: no sample of a job
    duplicates: int  # traces with the content of another: counted once
    without_steps: int  # traces whose shares are of their span, since no steps are known
    recurring: int  # findings that several jobs have
    gone: int  # that a job had and has no more
    gpu_hours: float  # of all jobs
    assumed: bool  # not given: 1,000 in all, the same of each job


class CauseCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule's findings cost over the jobs."""

    rule: str
    title: str
    jobs: int
    traces: int
    gpu_hours_low: float  # that fixes save
    gpu_hours: float
    gpu_hours_high: float
    cost: float | None  # of gpu_hours, at the price given
    fingerprint: str  # of the finding that saves most
    worst_job: str


class Recurring(msgspec.Struct, frozen=True, kw_only=True):
    """One finding that several jobs have."""

    fingerprint: str
    rule: str
    title: str
    jobs: int
    gpu_hours: float


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that a job had on an earlier day and has no more, and what became of the job's steps."""

    job: str
    fingerprint: str
    rule: str
    last_day: str  # with it
    next_day: str  # without it
    said_ns: int | None  # that it would save a step
    step_before_ns: int | None  # median of the day's traces, unprofiled
    step_after_ns: int | None


class GroupShare(msgspec.Struct, frozen=True, kw_only=True):
    """What all causes cost in one job, model, GPU or day."""

    name: str
    traces: int
    share: float  # of the GPU's hours that fixes save
    largest: str  # rule


class Hours(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-hours that all fixes save together."""

    gpu_hours_low: float
    gpu_hours: float
    gpu_hours_high: float
    cost: float | None = None  # of gpu_hours, at the price given


class DayShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule's fixes save on a day, the mean over the day's traces."""

    day: str
    traces: int
    rule: str  # "": nothing was found on that day
    share: float


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A job's step from a day to its next: what findings that are gone were predicted to save, and what it saved."""

    job: str
    last_day: str
    next_day: str
    findings: int  # that are gone
    said_ns: int
    step_before_ns: int
    step_after_ns: int


class Predictions(msgspec.Struct, frozen=True, kw_only=True):
    """Findings with a verdict that was timed, predicted and measured."""

    count: int
    mean_error: float | None  # |predicted − measured| as a share of the unfixed time
    refuted: int


class NotCounted(msgspec.Struct, frozen=True, kw_only=True):
    """Why traces do not count."""

    status: str
    message: str
    traces: int
    example: str


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `tracemine fleet report --format json` prints."""

    schema_version: int = 1
    dataset: str
    totals: FleetTotals
    price: float | None
    together: Hours
    causes: tuple[CauseCost, ...]
    groups: dict[str, tuple[GroupShare, ...]]  # by what was asked for: `job`, `model`, `gpu`, `day`
    days: tuple[DayShare, ...]
    recurring: tuple[Recurring, ...]
    gone: tuple[Gone, ...]
    changes: tuple[JobChange, ...]
    predictions: Predictions
    failures: tuple[NotCounted, ...]


def report(
    dataset: str,
    *,
    hours: Mapping[str, float] | None = None,
    price: float | None = None,
    by: Sequence[str] = ("job",),
    top: int = 20,
) -> FleetReport:
    """Read a data set and sum up.

    hours: GPU-hours by job; price: of one; by: some of GROUPS; top: rows of each table, 0 for all.

    Raises UsageError without DuckDB and for a group that is none, InputError where there is no data set.
    """
    for name in by:
        if name not in GROUPS:
            raise UsageError(f"--by: {name} is none of {', '.join(GROUPS)}")
    connection = connected(dataset, hours)
    limit = {"top": min(top or _MOST_ROWS, _MOST_ROWS)}

    def each(kind: type[Record], query: str, **how: Any) -> tuple[Record, ...]:
        return tuple(kind(**row) for row in rows(connection, query, **how))

    def paid(query: str, **how: Any) -> Iterator[dict[str, Any]]:
        for row in rows(connection, query, **how):
            yield {**row, "cost": None if price is None else row["gpu_hours"] * price}

    return FleetReport(
        dataset=shown(dataset),
        totals=FleetTotals(**rows(connection, "totals")[0], assumed=hours is None),
        price=price,
        together=Hours(**next(paid("together"))),
        causes=tuple(CauseCost(**row) for row in paid("causes", given=limit)),
        groups={
            name: each(GroupShare, "by_day" if name == "day" else "by_latest", given=limit, by=name) for name in by
        },
        days=each(DayShare, "days"),
        recurring=each(Recurring, "recurring", given=limit),
        gone=each(Gone, "gone", given=limit),
        changes=each(JobChange, "changes", given=limit),
        predictions=each(Predictions, "predictions")[0],
        failures=tuple(
            NotCounted(**row | {"example": shown(row["example"])}) for row in rows(connection, "failures", limit)
        ),
    )


def hours_of(path: Path) -> dict[str, float]:
    """Read GPU-hours by job: a CSV file with the columns job and gpu_hours. Raises InputError."""
    text = read_file(path, _LARGEST_BYTES).decode("utf-8", "replace")
    found: dict[str, float] = {}
    for number, row in enumerate(_csv_rows(text, path), 2):
        try:
            found[str(row["job"])] = hours = float(row["gpu_hours"])
        except (KeyError, TypeError, ValueError):
            says = f"needs a row of {' and '.join(_COLUMNS)}"
            raise InputError(says, where=Location(str(path), number), hint="the first line names the columns") from None
        if not 0 <= hours < math.inf:
            raise InputError(f"{hours} is no number of hours", where=Location(str(path), number))
    return found


def _csv_rows(text: str, path: Path) -> Iterator[Mapping[str, str]]:
    try:
        yield from csv.DictReader(text.splitlines())
    except csv.Error as error:
        raise InputError(f"is no table of hours: {error}", where=Location(str(path))) from None


def connected(dataset: str, hours: Mapping[str, float] | None) -> Any:
    """Return a connection with what counts of a data set and the jobs' hours; it reaches no file and no network.

    Raises UsageError without DuckDB, InputError where there is no data set.
    """
    duckdb = _duckdb()
    store = Dataset(dataset)
    if not store.about().generations:
        raise InputError(
            "there is no data set", where=Location(store.uri), hint="tracemine fleet PATH… -o DATASET makes one"
        )
    connection = duckdb.connect(config={"enable_external_access": "false", "lock_configuration": "true"})
    for table in (RUNS, FLEET_FINDINGS):
        connection.register(table.name, store.read(table))
    connection.execute("create table hours (job varchar, gpu_hours double)")
    if hours:
        connection.executemany("insert into hours values (?, ?)", list(hours.items()))
    connection.execute(f"create table said as select {hours is not None} as hours, {ASSUMED_HOURS} as assumed")
    connection.execute(_sql("base"))
    return connection


def rows(connection: Any, name: str, given: Mapping[str, Any] | None = None, by: str = "") -> list[dict[str, Any]]:
    """Return the rows of a query. by: a column of GROUPS, which no parameter can be. Raises InputError."""
    try:
        answer = connection.execute(_sql(name).replace("{by}", by), given or None)
    except _duckdb().DataError as error:  # numbers that no trace has
        raise InputError(f"cannot be summed up: {error}", where=Location("the data set")) from None
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise UsageError("fleet report needs DuckDB", hint=install("fleet")) from None
    return duckdb


def _sql(name: str) -> str:
    return resources.files(__package__).joinpath("sql", f"{name}.sql").read_text("utf-8")
