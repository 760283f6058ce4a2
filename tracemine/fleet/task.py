"""One trace to rows of the data set. Runs in a process of its own, here or on a cluster."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import of_values
from tracemine.errors import TracemineError
from tracemine.files import path_text, read_file
from tracemine.findings.record import FINDINGS_SCHEMA_VERSION, Scan
from tracemine.findings.tables import findings_table, occurrences_table
from tracemine.fleet.dataset import (
    DATASET_SCHEMA_VERSION,
    FLEET_FINDINGS,
    FLEET_OCCURRENCES,
    RUNS,
    STEPS,
    Dataset,
    Generation,
)
from tracemine.fleet.known import run_key, unread
from tracemine.fleet.places import without_secrets
from tracemine.fleet.traces import Labels, TraceSource, Unreachable, content_sha256, fetched
from tracemine.matching.rule_file import RULE_SIZE_LIMIT
from tracemine.pipeline import Analysis, ScanOptions, analyse, mined
from tracemine.scan_settings import ScanSettings
from tracemine.timeline import TableSchema
from tracemine.version import __version__

SCANNED, REFUSED, FAILED, KNOWN = "scanned", "refused", "failed", "known"


def generation(settings: ScanSettings, labels: str | None) -> Generation:
    """Return what stands in dataset.json: options, and a digest of them, of versions and of all rules' files.

    labels: the pattern that jobs, models and days are read off paths with.
    """
    files = sorted(file for folder in settings.rules for file in Path(folder).rglob("rule.toml"))
    said = {
        "gpu": settings.gpu,
        "only": settings.rule,
        "skip": settings.skip,
        "labels": None if labels is None else path_text(labels),
        "rules": [path_text(folder) for folder in settings.rules],
        "rule_files": [hashlib.sha256(read_file(file, RULE_SIZE_LIMIT)).hexdigest() for file in files],
        "schemas": [DATASET_SCHEMA_VERSION, FINDINGS_SCHEMA_VERSION],
    }
    digest = hashlib.sha256(msgspec.json.encode([__version__, said], order="sorted")).hexdigest()[:16]
    return Generation(digest=digest, tracemine=__version__, options=said)


@cache
def options_of(settings: ScanSettings) -> ScanOptions:
    """Return a scan's options, the same on every machine. Raises RuleError, UsageError."""
    return settings.options(of_this_machine=False)[0]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A trace to scan into a data set."""

    source: TraceSource
    labels: Labels
    dataset: str
    generation: int
    digest: str  # of the generation
    settings: ScanSettings
    ranks: tuple[TraceSource, ...] = ()  # that are one job, `source` the first of them; none: `source` alone
    known: tuple[str, ...] = ()  # digests of contents that are known of this place

    def key(self, content: str) -> str:
        """Return the name of the trace's files in the data set: one place, day, content and generation have one.

        content: digest of its own.
        """
        return run_key(self.source.name, self.labels.day, content, self.digest)


Packed = TypeVar("Packed", "Task", "TaskOutcome")


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a task."""

    uri: str
    key: str
    status: str  # SCANNED, REFUSED, FAILED; KNOWN: its rows were there
    findings: int = 0
    message: str | None = None
    again: bool = False  # another attempt may end otherwise
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0  # resident memory of the process until then
    each: tuple[TaskOutcome, ...] = ()  # of traces that seemed to be a job's ranks and are none


def packed(said: Task | TaskOutcome) -> bytes:
    """Return it as a line. A file's name need not be text, which msgspec's JSON must be."""
    return json.dumps(msgspec.to_builtins(said)).encode()


def unpacked(line: bytes, kind: type[Packed]) -> Packed:
    """Return what `packed` made. Raises ValueError, msgspec.ValidationError."""
    return msgspec.convert(json.loads(line), kind)


def scan_into(task: Task) -> TaskOutcome:
    """Scan a trace and write its rows. What is wrong with it is a row too, unless another attempt may end otherwise.

    Raises OSError where none can be written.
    """
    dataset, content = Dataset(task.dataset), None
    place = Path(task.source.uri)
    try:
        with fetched(task.source) as path:
            place = path
            content = content_sha256(path, task.source.names)
            if content in task.known or dataset.has(task.labels.day, task.key(content)):
                return TaskOutcome(uri=task.source.name, key=task.key(content), status=KNOWN)
            analysis = analyse(path)
            found = mined(replace(analysis, path=task.source.name), options_of(task.settings))
            dataset.write(task.labels.day, task.key(content), tables(task, content, analysis, found))
            findings = len(found.findings)
            return TaskOutcome(uri=task.source.name, key=task.key(content), status=SCANNED, findings=findings)
    except Unreachable as error:
        return TaskOutcome(uri=task.source.name, key="", status=FAILED, message=str(error), again=True)
    except TracemineError as error:
        return refused(task, REFUSED, str(error).replace(str(place), task.source.name), content)


def timed(scan: Callable[[Task], TaskOutcome], task: Task) -> TaskOutcome:
    """Scan by a function, and note what that took."""
    began, cpu_began = time.monotonic(), time.process_time()
    outcome = scan(task)
    return msgspec.structs.replace(
        outcome,
        seconds=time.monotonic() - began,
        cpu_seconds=time.process_time() - cpu_began,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def refused(task: Task, status: str, message: str, content: str | None = None) -> TaskOutcome:
    """Write the row of a trace that could not be scanned. Raises OSError."""
    message = path_text(without_secrets(message, task.source.uri, task.dataset))
    key = task.key(content or unread(task.source.size_bytes, task.source.modified_ns))
    row = {**_about(task, key, content), "status": status, "message": message}
    Dataset(task.dataset).write(task.labels.day, key, {RUNS.name: _table(RUNS, [row])})
    return TaskOutcome(uri=task.source.name, key=key, status=status, message=message)


def tables(task: Task, content: str, analysis: Analysis, found: Scan) -> dict[str, pa.Table]:
    """Return the rows of a trace: a table each of `runs`, `findings`, `occurrences`, `steps`."""
    key = task.key(content)
    own = {"key": key, "generation": task.generation}
    kinds = () if found.summary.per_step is None else found.summary.per_step.kinds
    steps = [
        {**own, "kind": kind.name}
        | {name: getattr(kind, name) for name in (column.name for column in STEPS.columns[3:])}
        for kind in kinds
    ]
    return {
        RUNS.name: _table(RUNS, [_run(task, content, analysis, found)]),
        STEPS.name: _table(STEPS, steps),
        FLEET_FINDINGS.name: _with(own, findings_table(found), FLEET_FINDINGS),
        FLEET_OCCURRENCES.name: _with(own, occurrences_table(found), FLEET_OCCURRENCES),
    }


def _about(task: Task, key: str, content: str | None) -> dict[str, Any]:
    return {
        "key": key,
        "generation": task.generation,
        "uri": task.source.name,
        "content_sha256": content,
        "size_bytes": task.source.size_bytes,
        "modified_ns": task.source.modified_ns,
        "job": task.labels.job,
        "model": task.labels.model,
        "tracemine": __version__,
    }


def _run(task: Task, content: str, analysis: Analysis, found: Scan) -> dict[str, Any]:
    summary, recorded, meta = found.summary, found.recorded, analysis.timeline.meta
    per_step, saving = summary.per_step, summary.step_saving_ns
    unprofiled = None if per_step is None else per_step.unprofiled_ns
    return {
        **_about(task, task.key(content), content),
        "status": SCANNED,
        "torch": None if recorded is None else recorded.torch,
        "gpu": found.trace.gpu,
        "rank": meta.rank,
        "world_size": meta.world_size,
        "devices": None if recorded is None else recorded.devices,
        "activities": found.trace.activities,
        "steps": found.trace.steps,
        "span_ns": summary.span_ns,
        "gpu_time_ns": summary.gpu_time_ns,
        "gpu_busy_ns": summary.gpu_busy_ns,
        "unprofiled_step_ns": None if unprofiled is None else unprofiled.mid,
        "step_saving_low_ns": saving.low,
        "step_saving_ns": saving.mid,
        "step_saving_high_ns": saving.high,
        "bound_by": None if summary.bound is None else summary.bound.by,
    }


def _table(table: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = [of_values([row.get(column.name) for row in rows], column.type) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _with(own: Mapping[str, Any], table: pa.Table, of: TableSchema) -> pa.Table:
    """Return a table behind the columns that name its run."""
    schema = of.schema
    first = [of_values([value] * table.num_rows, schema.field(name).type) for name, value in own.items()]
    return pa.Table.from_arrays([*first, *table.columns], schema=schema)
