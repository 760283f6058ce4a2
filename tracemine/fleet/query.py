"""Questions to a data set: its tables in DuckDB, and the queries of the folder sql, none of which a user writes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from tracemine.errors import InputError, Location, UsageError
from tracemine.extras import install
from tracemine.fleet.dataset import FLEET_FINDINGS, RUNS, Dataset

ASSUMED_HOURS = 1000.0  # of all jobs together, where none are given


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
