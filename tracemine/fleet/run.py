"""All traces of a call into a data set: by processes of this machine, or by a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tracemine.errors import InputError, Location, TracemineError
from tracemine.fleet.dataset import Dataset
from tracemine.fleet.job import together
from tracemine.fleet.machine import Limits, Machine
from tracemine.fleet.task import FAILED, KNOWN, REFUSED, SCANNED, Task, TaskOutcome, options_of
from tracemine.fleet.task import generation as generation_of
from tracemine.fleet.traces import TraceSource, labeller, listed
from tracemine.pool import Pool
from tracemine.scan_settings import ScanSettings

_WAITING = 2  # tasks a process that are handed out before one is free
_MOST_UNREAD = 5

Engine = Callable[[Sequence[Task], Limits], Iterator[TaskOutcome]]


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all traces of a call."""

    scanned: int = 0
    refused: int = 0  # no traces, or damaged
    failed: int = 0  # not fetched, too large, too slow, or an internal error
    known: int = 0  # their rows were there
    findings: int = 0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    wrong: tuple[str, ...] = ()  # arguments that name no trace
    unread: tuple[str, ...] = ()  # the first few that were refused or failed, and why


def tasks(
    paths: Sequence[str],
    dataset: str,
    settings: ScanSettings,
    labels: str | None = None,
    again: bool = False,
    note: Callable[[str], None] | None = None,
) -> tuple[list[Task], int, list[TracemineError]]:
    """Return what is to do, how many traces are known already, and what is wrong with arguments.

    labels: the pattern that jobs, models and days are read off paths with.

    A trace is known by place, size and time of its last change; whose content is known is found out when it is read.
    again: those that failed before are tried again. Raises TracemineError where the data set or the settings are wrong.
    """
    options_of(settings)  # what is wrong with rules or the GPU's name is said before anything is read
    read = labeller(labels)
    found = list(listed(paths, note))
    wrong = [one for one in found if isinstance(one, TracemineError)]
    sources = [one for one in found if isinstance(one, TraceSource)]
    if not sources and wrong:
        return [], 0, wrong
    store, generation = Dataset(dataset), generation_of(settings, labels)
    number = store.begin(generation)
    known, contents = _known(store.known(), number, again)

    def is_known(one: TraceSource) -> bool:
        return (one.name, one.size_bytes, one.modified_ns) in known

    left = [
        (one, ranks)
        for one, ranks in together(sources, read)
        if not is_known(one) and not (ranks and all(map(is_known, ranks)))
    ]
    made = [
        Task(
            source=one, ranks=ranks, labels=read(one), dataset=dataset, generation=number, digest=generation.digest,
            settings=settings, known=tuple(sorted(contents.get(one.name, ()))),
        )
        for one, ranks in left
    ]  # fmt: skip
    return made, len(sources) - sum(len(ranks) or 1 for _, ranks in left), wrong


def _known(
    rows: pa.Table, generation: int, again: bool
) -> tuple[set[tuple[str, int, int | None]], dict[str, set[str]]]:
    """Return the place, size and last change of traces that are known, and by place the digests of their contents."""
    places, contents = set[tuple[str, int, int | None]](), dict[str, set[str]]()
    rows = rows.filter(pc.equal(rows["generation"], generation))
    columns = (rows[name].to_pylist() for name in ("uri", "size_bytes", "modified_ns", "content_sha256", "status"))
    for uri, size, modified, content, status in zip(*columns, strict=True):
        if status == SCANNED or not again:
            places.add((uri, size, modified))
        if content is not None:
            contents.setdefault(uri, set()).add(content)
    return places, contents


def on_this_machine(count: int | None = None) -> Engine:
    """Return an engine: so many processes (None: one a core), each of which goes on with the next trace."""

    def run(tasks: Sequence[Task], limits: Limits) -> Iterator[TaskOutcome]:
        size = min(count or len(os.sched_getaffinity(0)), len(tasks))
        if not size:
            return
        with Pool([Machine(limits) for _ in range(size)]) as pool:
            yield from _as_they_end(pool, tasks)

    return run


def _as_they_end(pool: Pool[Machine], tasks: Iterable[Task]) -> Iterator[TaskOutcome]:
    waiting: set[Future[TaskOutcome]] = set()
    for task in tasks:
        waiting.add(pool.start(lambda machine, task=task: machine.do(task)))  # type: ignore[misc]
        if len(waiting) >= _WAITING * pool.count:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in ended)
    while waiting:
        ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (one.result() for one in ended)


def total(outcomes: Iterable[TaskOutcome], known: int, wrong: Sequence[TracemineError]) -> Total:
    """Sum up what became of all. Raises InputError where the data set cannot be written."""
    counts: Counter[str] = Counter()
    unread: list[str] = []
    findings, cpu, peak = 0, 0.0, 0
    try:
        for one in chain.from_iterable(outcome.each or (outcome,) for outcome in outcomes):
            counts[one.status] += 1
            findings += one.findings
            cpu += one.cpu_seconds
            peak = max(peak, one.peak_bytes)
            if one.status in (REFUSED, FAILED) and one.message and len(unread) < _MOST_UNREAD:
                unread.append(one.message.splitlines()[0])
    except OSError as error:
        raise InputError(f"cannot be written: {error}", where=Location("the data set")) from None
    return Total(
        scanned=counts[SCANNED],
        refused=counts[REFUSED],
        failed=counts[FAILED],
        known=counts[KNOWN] + known,
        findings=findings,
        cpu_seconds=cpu,
        peak_bytes=peak,
        wrong=tuple(map(str, wrong)),
        unread=tuple(unread),
    )
