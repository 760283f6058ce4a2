"""Many traces at once, in processes that live as long as there are traces. One that cannot be read stops no other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from msgspec.structs import replace

from tracemine import pipeline
from tracemine.api.report import Report
from tracemine.api.settings import Names, PathLike, Paths, options_of, path_of, settings
from tracemine.api.worker import answered, question
from tracemine.errors import TracemineError, UsageError
from tracemine.findings.record import Scan
from tracemine.findings.tables import FINDINGS, OCCURRENCES
from tracemine.formats.discover import traces
from tracemine.frames import frame
from tracemine.pipeline import ScanOptions
from tracemine.processes import Ended, Process, TooLate, worker
from tracemine.scan_settings import ScanSettings
from tracemine.units import count_text

if TYPE_CHECKING:
    import pandas as pd

_WORKER = "tracemine.api.worker"
_LIMIT_S = 86_400.0  # of one trace


@dataclass(frozen=True, slots=True)
class Failure:
    """A trace without a report: its `path`, and the `error`, a TracemineError or any other, which is a bug."""

    path: str
    error: Exception

    def __str__(self) -> str:
        return str(self.error) if isinstance(self.error, TracemineError) else f"{self.path}: {self.error!r}"


@dataclass(frozen=True, slots=True, repr=False)
class Reports(Sequence[Report]):
    """A sequence of reports in the order of their paths.

    `errors` are the traces of which there is none, each a `Failure`; `notes` say what was left out of folders.
    """

    reports: tuple[Report, ...]
    errors: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.reports)

    def __iter__(self) -> Iterator[Report]:
        return iter(self.reports)

    @overload
    def __getitem__(self, key: int) -> Report: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Report, ...]: ...
    def __getitem__(self, key: int | slice) -> Report | tuple[Report, ...]:
        return self.reports[key]

    def to_arrow(self) -> pa.Table:
        """Return one row a finding of any trace, which `trace` names."""
        tables = [report.to_arrow() for report in self.reports]
        return pa.concat_tables([pa.Table.from_batches([], FINDINGS.schema), *tables])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return what `Report.to_pandas` does, of all traces."""
        return frame(self.to_arrow())

    def occurrences(self) -> pa.Table:
        """Return what `Report.occurrences` does, of all traces."""
        tables = [report.occurrences() for report in self.reports]
        return pa.concat_tables([pa.Table.from_batches([], OCCURRENCES.schema), *tables])

    def __repr__(self) -> str:
        failed = f", {count_text(len(self.errors), 'error')}" if self.errors else ""
        findings = count_text(sum(map(len, self.reports)), "finding")
        return f"Reports({count_text(len(self), 'trace')}: {findings}{failed})"


def scan_many(
    paths: Paths,
    *,
    workers: int | None = None,
    gpu: str | None = None,
    rules: Paths | None = None,
    rule: Names = (),
    skip: Names = (),
    evidence: Paths = (),
    min_saving: str | None = None,
    calibration: PathLike | None = None,
    why_not: bool = False,
) -> Reports:
    """Scan many traces: files, folders of them, patterns ("runs/**/*.json.gz").

    workers: so many processes; None: as many as there are traces and processors, 1: none but this one. A program that
    is run as a file calls it under `if __name__ == "__main__":`, as every program that starts processes does. The
    other arguments are those of `scan`.

    What cannot be read is in `errors`, and stops no other. Raises TracemineError where an argument is wrong.

    >>> reports = scan_many("fixtures/captures", workers=1)
    >>> len(reports), reports.errors
    (5, ())
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise UsageError(f"workers={workers!r}: an integer from 1 on is needed")
    asked = settings(
        gpu=gpu,
        rules=rules,
        rule=rule,
        skip=skip,
        evidence=evidence,
        min_saving=min_saving,
        calibration=calibration,
        why_not=why_not,
    )
    options, said = options_of(asked)  # what is wrong with them is said before any trace is read
    found, failed, notes = _found(paths)
    count = min(workers or _processors(), max(len(found), 1))
    answers = _here(options, found) if count == 1 else _in_processes(asked, found, count)
    reports = []
    for path, answer in zip(found, answers, strict=True):
        if isinstance(answer, Scan):
            reports.append(Report(replace(answer, warnings=(*answer.warnings, *said))))
        else:
            failed.append(Failure(str(path), answer))
    return Reports(tuple(reports), tuple(failed), tuple(notes))


def _found(given: Paths) -> tuple[list[Path], list[Failure], list[str]]:
    """Return every trace that is named, each once; what is wrong with an argument; what was left out of folders."""
    found: dict[Path, None] = {}
    failed: list[Failure] = []
    notes: list[str] = []
    for one in (given,) if isinstance(given, str | os.PathLike) else given:
        name = str(path_of(one, "paths"))
        try:
            found.update(dict.fromkeys(traces(name, notes.append)))
        except (TracemineError, OSError) as error:
            failed.append(Failure(name, error))
    return [*found], failed, notes


def _processors() -> int:
    """Return how many processes may run here at once."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system tells
        return os.cpu_count() or 1


def _here(options: ScanOptions, paths: Iterable[Path]) -> Iterator[Scan | Exception]:
    for path in paths:
        try:
            yield pipeline.scan(path, options)
        except Exception as error:
            yield error


def _in_processes(asked: ScanSettings, paths: Sequence[Path], count: int) -> Iterator[Scan | Exception]:
    """Yield the same by other processes, which read rules and evidence once each."""
    processes = [Process(worker(_WORKER), os.environ) for _ in range(count)]
    free = SimpleQueue[Process]()
    for process in processes:
        free.put(process)

    def answer(path: Path) -> Scan | Exception:
        process = free.get()
        try:
            return answered(process.ask(question(asked, path), _LIMIT_S))
        except (Ended, TooLate) as end:
            how = end.how if isinstance(end, Ended) else "did not answer within a day"
            return TracemineError(f"the process that scanned it {how}", hint="fewer workers need less memory")
        finally:
            free.put(process)

    threads = ThreadPoolExecutor(count)
    try:
        yield from threads.map(answer, paths)
    finally:
        for process in processes:
            process.kill()  # whoever waits for its answer finds that it has ended
        threads.shutdown(cancel_futures=True)
        for process in processes:
            process.close()
