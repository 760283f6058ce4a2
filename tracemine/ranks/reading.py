"""Ranks read file by file: here, by processes of this machine, or by a Ray cluster. Of each file its summaries alone
come back. As a program it answers lines, each the path of a file, with what that file holds.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import numbers
from tracemine.errors import InputError, TracemineError
from tracemine.formats import open_trace
from tracemine.pool import Pool
from tracemine.processes import Ended, Process, TooLate, serve, worker
from tracemine.ranks.collectives import collectives_of
from tracemine.ranks.summary import RankSummary, summarise
from tracemine.ray_cluster import LOST, joined
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import TABLES, Timeline

# Columns that number the rows of another table, by table; of others that a rank needs none is changed.
_NUMBERED = {
    "ops": {"parent_row": "ops"},
    "api": {"op_row": "ops"},
    "activities": {"launch_row": "api", "op_row": "ops", "step_row": "steps"},
    "collectives": {"activity_row": "activities", "op_row": "ops"},
}


def ranks_apart(timeline: Timeline) -> list[Timeline]:
    """Return the timeline of each rank of a file, in order of process and device; the timeline itself of one rank.

    >>> from tracemine.timeline import Meta
    >>> len(ranks_apart(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    1
    """
    device = numbers(timeline.activities.column("device"), null=-1)
    communicates = collectives_of(timeline).activity
    if len(np.unique(device[communicates])) < 2:
        return [timeline]
    process = _processes(timeline, device)
    pairs = sorted(set(zip(process[communicates].tolist(), device[communicates].tolist(), strict=True)))
    if len(pairs) < 2:
        return [timeline]
    order = {pair: rank for rank, pair in enumerate(sorted(pairs, key=lambda pair: pair[::-1]))}
    return [_of(timeline, (process == pid) & (device == at), pid, order[pid, at]) for pid, at in order]


def _processes(timeline: Timeline, device: IntArray) -> IntArray:
    """Return the process of each activity: of its launch, else of most launches on its device; -1: not known."""
    pid = numbers(timeline.api.column("pid"), null=-1)
    launch = numbers(timeline.activities.column("launch_row"), null=-1)
    process = np.append(pid, -1)[launch]
    for ordinal in np.unique(device).tolist():
        known = process[(device == ordinal) & (process >= 0)]
        if len(known):
            usual = int(np.bincount(np.unique(known, return_inverse=True)[1]).argmax())
            process[(device == ordinal) & (process < 0)] = np.unique(known)[usual]
    return process


def _of(timeline: Timeline, activities: BoolArray, pid: int, rank: int) -> Timeline:
    """Return what one rank did: its activities, and the host of its process."""
    kept: dict[str, BoolArray] = {"activities": activities}
    for name in ("ops", "api", "steps"):
        kept[name] = numbers(getattr(timeline, name).column("pid"), null=-1) == pid
    at = numbers(timeline.collectives.column("activity_row"), null=-1)
    kept["collectives"] = (at >= 0) & np.append(activities, False)[at]
    tables: dict[str, pa.Table] = {name: TABLES[name].schema.empty_table() for name in ("tensors", "light", "memory")}
    for name, rows in kept.items():
        table = getattr(timeline, name).filter(pa.array(rows))
        for column, target in _NUMBERED.get(name, {}).items():
            place = table.schema.get_field_index(column)
            values = _renumbered(numbers(table.column(column), null=-1), kept[target])
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(values, field.type, mask=values < 0))
        tables[name] = table
    return replace(timeline, meta=replace(timeline.meta, rank=rank), **tables)


def _renumbered(rows: IntArray, kept: BoolArray) -> IntArray:
    """Return row numbers as they are once other rows are gone; -1 of what is gone.

    >>> _renumbered(np.array([2, 0, -1]), np.array([False, True, True])).tolist()
    [1, -1, -1]
    """
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    found: IntArray = number[rows]
    return found


# Names of files that hold a rank: rank-3, rank_3, worker3, TP-3.
_NAMED = re.compile(r"(?i)(?<![a-z])(?:rank|worker|tp|dp|pp|ep)[-_]?(\d{1,6})(?!\d)")
_LEAST_BYTES, _LEAST_FILES = 16 << 20, 3  # a process takes a second to begin
_LIMIT_S, _ATTEMPTS = 900.0, 2
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # one process a core is enough

Outcome = list[RankSummary] | TracemineError


def rank_in(name: str) -> int | None:
    """Return the rank that a file's name says.

    >>> [rank_in(name) for name in ("rank-5.json", "run-TP-3.trace.json.gz", "worker2_step_1.json", "frank1.json")]
    [5, 3, 2, None]
    """
    named = _NAMED.search(name)
    return None if named is None else int(named[1])


def summaries_of(path: Path, only: range | None = None) -> Outcome:
    """Return what a file holds of its rank, or of each of several; or why it holds none. only: as of `summarise`."""
    try:
        timeline = open_trace(path)
        if timeline.meta.ingest.truncated:
            raise InputError("the file is cut off: what its rank did behind the cut is not known")
        if not timeline.activities.num_rows:
            raise InputError("no GPU activity was recorded")
        several = ranks_apart(timeline)
        rank = timeline.meta.rank if timeline.meta.rank is not None else rank_in(path.name)
        if len(several) > 1:
            named = ((part, part.meta.rank or 0) for part in several)
            return [replace(summarise(part, f"{path} (rank {at})", at, only), clock=str(path)) for part, at in named]
        if rank is None:
            raise InputError("neither the trace nor the file's name says which rank it is")
        return [summarise(timeline, str(path), rank, only)]
    except TracemineError as error:
        return error


def read_each(paths: Sequence[Path], processes: int | None = None, only: range | None = None) -> Iterator[Outcome]:
    """Yield what each file holds, or what is wrong with it, in order.

    processes: how many read at once; by default one a core where there are several large files, else this one.
    """
    if processes is None:
        size = sum(path.stat().st_size for path in paths if path.is_file())
        is_large = len(paths) >= _LEAST_FILES and size >= _LEAST_BYTES
        processes = min(len(os.sched_getaffinity(0)), len(paths)) if is_large else 1
    if processes < 2:
        yield from (summaries_of(path, only) for path in paths)
        return
    with Pool([_Reader() for _ in range(processes)]) as pool:
        asked = [_asked(path, only) for path in paths]
        waiting = [pool.start(lambda reader, line=line: reader.read(line)) for line in asked]  # type: ignore[misc]
        for one in waiting:
            yield one.result()


def read_on_ray(address: str, paths: Sequence[Path], only: range | None = None) -> Iterator[Outcome]:
    """Yield what each file holds, read by a Ray cluster, a task a file. A lost node's files are read elsewhere.

    Nodes need tracemine, and the files under the same paths. Raises UsageError without Ray or its cluster.
    """
    with joined(address) as ray:
        remote = ray.remote(num_cpus=1, max_retries=LOST, scheduling_strategy="SPREAD")(answer)
        for waiting in [remote.remote(_asked(path, only)) for path in paths]:
            try:
                yield unpacked(ray.get(waiting))
            except ray.exceptions.RayError as error:
                yield InputError(f"could not be read on the cluster: {str(error)[:200]}")


class _Reader(Process):
    """One process that reads files, one at a time."""

    def __init__(self) -> None:
        super().__init__(worker(__name__), {**os.environ, **_ENVIRONMENT})

    def read(self, line: bytes) -> Outcome:
        """Return what a file holds, as a line asks; once more where the process was lost."""
        says = ""
        for _ in range(_ATTEMPTS):
            try:
                return unpacked(self.ask(line, _LIMIT_S))
            except TooLate:
                return InputError(f"took longer than {_LIMIT_S:g} s to read")
            except Ended as end:
                says = f"the process that read it {end.how}"
        return InputError(says)


def _asked(path: Path, only: range | None) -> bytes:
    ends = None if only is None else (only.start, only.stop)
    return base64.b64encode(msgspec.msgpack.encode((os.fsencode(path.resolve()), ends)))


def answer(line: bytes) -> bytes:
    """Return what a file holds, or what is wrong with it, as a line. line: its path, and the steps that count."""
    path, ends = msgspec.msgpack.decode(base64.b64decode(line), type=tuple[bytes, tuple[int, int] | None])
    return packed(summaries_of(Path(os.fsdecode(path)), None if ends is None else range(*ends)))


def packed(found: Outcome) -> bytes:
    """Return what a file holds as a line; integers as few bytes as hold them."""
    said = found.message if isinstance(found, TracemineError) else found
    return base64.b64encode(msgspec.msgpack.encode(said, enc_hook=_as_bytes))


def unpacked(line: bytes) -> Outcome:
    """Return what `packed` made."""
    said = msgspec.msgpack.decode(base64.b64decode(line), type=list[RankSummary] | str, dec_hook=_as_array)
    return InputError(said) if isinstance(said, str) else said


def _as_bytes(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError
    narrow = value.dtype == np.int64 and value.size
    kind = np.result_type(*map(np.min_scalar_type, (value.min(), value.max()))) if narrow else value.dtype
    return value.dtype.str, kind.str, value.shape, value.astype(kind).tobytes()


def _as_array(_: type, value: Any) -> Any:
    kind, sent, shape, content = value
    return np.frombuffer(content, np.dtype(sent)).astype(np.dtype(kind)).reshape(shape)


def main() -> None:
    """Answer until there are no more lines."""
    serve(answer)


if __name__ == "__main__":
    main()
