"""Traces that are the ranks of one job: stored once, as one trace whose findings are the job's.

Files of one folder, job and day that say different ranks are one task. What they are is known once they are read: where
they do not communicate, each is a trace of its own after all.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import of_values
from tracemine.errors import TracemineError
from tracemine.findings.ranking import severity_of
from tracemine.findings.record import Scan
from tracemine.fleet.dataset import FLEET_FINDINGS, RUNS, Dataset
from tracemine.fleet.places import scheme_of
from tracemine.fleet.task import FAILED, KNOWN, SCANNED, Task, TaskOutcome, options_of, scan_into, tables, timed
from tracemine.fleet.traces import Labels, TraceSource, Unreachable, content_sha256, fetched
from tracemine.pipeline import Analysis, analyse, mined
from tracemine.ranks.collectives import collectives_of
from tracemine.ranks.find import find_job
from tracemine.ranks.reading import rank_in
from tracemine.ranks.recognise import announced, read_ranks
from tracemine.ranks.record import Interval, Job
from tracemine.tickets.of_job import identity_of


def together(
    sources: Iterable[TraceSource], read: Callable[[TraceSource], Labels]
) -> list[tuple[TraceSource, tuple[TraceSource, ...]]]:
    """Return sources, and those as one with its members that lie in one folder and say different ranks of one day.

    One rank twice: several runs lie there, and none is told from another.
    """
    folders: dict[tuple[object, ...], list[TraceSource]] = defaultdict(list)
    for source in sources:
        is_alone = bool(source.names) or _rank(source) is None
        folders[(source.uri,) if is_alone else (PurePath(source.uri).parent, read(source))].append(source)
    found: list[tuple[TraceSource, tuple[TraceSource, ...]]] = []
    for members in folders.values():
        ranks = {_rank(member) for member in members}
        if len(members) < 2 or len(ranks) < len(members):
            found += [(member, ()) for member in members]
            continue
        changed = [member.modified_ns for member in members if member.modified_ns is not None]
        size = sum(member.size_bytes for member in members)
        found.append((replace(members[0], size_bytes=size, modified_ns=max(changed, default=None)), tuple(members)))
    return found


def _rank(source: TraceSource) -> int | None:
    """Return the rank that a file's name says, else, on this machine, its beginning."""
    named = rank_in(PurePath(source.uri).name)
    return announced(Path(source.uri)) if named is None and scheme_of(source.uri) is None else named


def do_task(task: Task) -> TaskOutcome:
    """Do a task, of a trace or of a job's ranks, and note what it took. Raises OSError where no row can be written."""
    return timed(_scan_all if task.ranks else scan_into, task)


def _scan_all(task: Task) -> TaskOutcome:
    try:
        outcome = _scan_job(task)
    except Unreachable as error:
        return TaskOutcome(uri=task.source.name, key="", status=FAILED, message=str(error), again=True)
    except TracemineError:  # the files say each by itself what is wrong with it
        outcome = None
    if outcome is not None:
        return outcome
    each = tuple(timed(scan_into, replace(task, source=source, ranks=())) for source in task.ranks)
    again = next((one for one in each if one.again), None)
    return again or replace(each[0], each=each)


def _scan_job(task: Task) -> TaskOutcome | None:
    """Write a job's rows: one run, what one rank finds by itself, and what all find together; None where it is none."""
    dataset = Dataset(task.dataset)
    with ExitStack() as stack:
        paths = [stack.enter_context(fetched(source)) for source in task.ranks]
        contents = "".join(content_sha256(path, ()) for path in paths)
        content = hashlib.sha256(contents.encode()).hexdigest()
        key = task.key(content)
        if content in task.known or dataset.has(task.labels.day, key):
            return TaskOutcome(uri=task.source.name, key=key, status=KNOWN)
        read = read_ranks(paths, processes=1)
        if not read.is_job:
            return None
        job = find_job(read, task.labels.job or task.source.name)
        named = {finding.ranks for finding in job.findings}  # what holds one rank up is the job's finding
        last = min(job.ranks, key=lambda rank: ((rank.rank,) in named, rank.wait_ns, rank.rank))
        analysis = analyse(next(path for path in paths if path.name == last.file))
        found = _of_rank_alone(mined(replace(analysis, path=task.source.name), options_of(task.settings)), analysis)
        made = tables(task, content, analysis, found)
        own = _rows(task, key, job, made[FLEET_FINDINGS.name].num_rows)
        made[FLEET_FINDINGS.name] = pa.concat_tables([made[FLEET_FINDINGS.name], own])
        step = {"rank": None, "world_size": job.world_size or len(job.ranks), "ranks": len(job.ranks)}
        step |= {"unprofiled_step_ns": job.step_ns.mid, **_together(job, found)}
        made[RUNS.name] = _with(made[RUNS.name], step)
        dataset.write(task.labels.day, key, made)
        findings = len(found.findings) + len(job.findings)
    return TaskOutcome(uri=task.source.name, key=key, status=SCANNED, findings=findings)


def _together(job: Job, found: Scan) -> dict[str, int]:
    """Return what all fixes save of the steps: one may need another, so it is what the best of them saves."""
    every = [finding.step_saving_ns for finding in job.findings if finding.step_saving_ns is not None]
    alone, steps = found.summary.step_saving_ns, found.trace.steps or job.steps
    return {
        f"step_saving{end}": max(getattr(alone, name), *(getattr(one, name) * steps for one in every), 0)
        for end, name in (("_low_ns", "low"), ("_ns", "mid"), ("_high_ns", "high"))
    }


def _of_rank_alone(found: Scan, analysis: Analysis) -> Scan:
    """Return what one rank finds, less what collectives do on its device: of these all ranks tell."""
    sends = set(collectives_of(analysis.timeline).activity.tolist())
    own = tuple(
        finding for finding in found.findings if not finding.on_gpu or sends.isdisjoint(chain(*finding.activities))
    )
    return replace(found, findings=own)


def _rows(task: Task, key: str, job: Job, before: int) -> pa.Table:
    """Return the job's findings as rows: a saving that cannot be said is none, and not reported."""
    rows: list[dict[str, Any]] = []
    for number, finding in enumerate(job.findings, before + 1):
        saving = finding.step_saving_ns or Interval(0, 0, 0)
        ends = {"_low_ns": saving.low, "_ns": saving.mid, "_high_ns": saving.high}
        share = saving.mid / max(job.step_ns.mid, 1)
        own = {f"per_step_saving{end}": ns for end, ns in ends.items()}
        own |= {f"per_step_saving_alone{end}": ns for end, ns in ends.items()}
        own |= {f"step_saving{end}": ns * job.steps for end, ns in ends.items()}
        rows.append(
            dict.fromkeys((f"gpu_saving{end}" for end in ends), 0)
            | {
                "key": key, "generation": task.generation, "trace": task.source.name, "rank": number,
                "fingerprint": identity_of(finding), "rule": finding.rule, "cause": finding.cause,
                "title": finding.title, "severity": severity_of(share),
                "evidence": finding.evidence, "reported": saving.mid > 0, "occurrences": job.steps, "variants": 0,
                "ops": (), "measured_ns": 0, "step_saving_share": share, "fix": finding.fix, **own,
            }
        )  # fmt: skip
    columns = [of_values([row.get(column.name) for row in rows], column.type) for column in FLEET_FINDINGS.columns]
    return pa.Table.from_arrays(columns, schema=FLEET_FINDINGS.schema)


def _with(table: pa.Table, values: Mapping[str, int | None]) -> pa.Table:
    """Return a table of one row with other values."""
    for name, value in values.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), of_values([value], table.schema.field(at).type))
    return table
