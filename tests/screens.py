"""What a trace gives, worked out once in a run, whichever of its processes asks for it first: to read is most of it.

The scan, the first screen and what else tests ask of a reading; and what the standard library reads in the file.
"""

from __future__ import annotations

import fcntl
import gzip
import importlib.util
import json
import os
import pickle
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracemine.findings.record import Scan
    from tracemine.pipeline import Analysis
    from tracemine.timeline import Timeline
    from tracemine.top import HostTop

ROOT = Path(__file__).parents[1]
OWNERS = ("op_row", "owner_evidence", "unowned_reason", "launch_row")
_RANK = re.compile(r"rank\d+(?=[^/]*$)")
_GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_LAUNCHING = {"cuda_runtime", "cuda_driver", "runtime"}


@dataclass(frozen=True)
class Reading:
    """What tests ask of one reading of a trace."""

    measured: Any  # as tools/first_screens.py has it
    gpu_time_ns: int  # as `top` has it
    reason: str  # what may make that differ from the file
    evidence: tuple[int, ...]  # of what nodes read, each once
    host: dict[str, Any]  # `top --host` by each of what it can group by
    owned: Counter[Any]  # GPU nanoseconds by the operator, with its recorded inputs, that owns them
    activities: Any  # of the timeline: durations, and what owns each
    meta: Any  # as the timeline has it
    misplaced: str  # what of the timeline points elsewhere


@dataclass(frozen=True)
class Events:
    """GPU events of a Kineto file, by the standard library alone."""

    count: int
    exact_ns: int  # the sum of their durations
    rounded_ns: int  # the same, each rounded
    named_us: dict[str, float]  # the same by their names
    owners: frozenset[str]  # names of operators that own some


@cache
def tool() -> ModuleType:
    """tools/first_screens.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("first_screens", ROOT / "tools" / "first_screens.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_screens"] = module
    spec.loader.exec_module(module)
    return module


def read_once(folder: Path) -> Callable[[Path], Reading]:
    """Reads and scans traces; a folder keeps what each gave."""
    return _once(folder, "reading", _reading)


def events_once(folder: Path) -> Callable[[Path], Events]:
    """Reads the events of files; a folder keeps what each gave."""
    return _once(folder, "events", _events)


def told_once(folder: Path) -> Callable[[Path], Any]:
    """Reads archives of programs that wait, as benchmarks/answers/waits.py does; a folder keeps what each gave."""
    from benchmarks.answers.waits import told

    return _once(folder, "told", told)


def in_turn(paths: Iterable[Path]) -> list[Path]:
    """Traces in the order in which a test reads all of them: of the ranks of a job one, since all run one program.

    Every second process begins at the end: two that read the same ones meet in the middle, and each has read half.
    """
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    one_a_job = {_RANK.sub("", str(path)): path for path in paths}
    return [*one_a_job.values()][:: -1 if int(process) % 2 else 1]


def _once(folder: Path, kind: str, make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    @cache
    def made(path: Path) -> Any:
        tool()  # of which what is kept may be
        kept = folder / f"{sha256(str(path).encode()).hexdigest()}.{kind}"
        with kept.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # whoever comes second waits for what the first makes
            file.seek(0)
            if content := file.read():
                return pickle.loads(content)  # noqa: S301 - of this run
            found = make(path)
            file.write(pickle.dumps(found))
        return found

    return made


def _reading(path: Path) -> Reading:
    from benchmarks.answers.top_totals import reason, top_ns
    from tracemine.pipeline import analyse, mined

    analysis = analyse(path)
    scan = mined(analysis)
    return Reading(
        measured=tool().shown(path, analysis, scan),
        gpu_time_ns=top_ns(analysis, scan),
        reason=reason(analysis),
        host=host_tables(analysis, scan),
        evidence=tuple(sorted(set(analysis.dataflow.reads.evidence.tolist()))),
        owned=owned_time(analysis.timeline),
        activities=analysis.timeline.activities.select([*OWNERS, "dur_ns"]),
        meta=analysis.timeline.meta,
        misplaced=misplaced(analysis.timeline),
    )


def host_tables(analysis: Analysis, scan: Scan, *, whole: bool = False) -> dict[str, HostTop]:
    """The tables of a recording's host time, by what each groups by."""
    from tracemine.api.pictures import tops_of
    from tracemine.pipeline import ScanOptions
    from tracemine.top import HOST_BY

    tops = tops_of(analysis, scan, ScanOptions(), whole=whole)
    return {by: tops.host(by) for by in HOST_BY}


def owned_time(timeline: Timeline) -> Counter[Any]:
    """GPU nanoseconds by the operator, with its recorded inputs, that owns them."""
    columns = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
    by_op = timeline.activities.select(["op_row", "dur_ns"]).group_by("op_row").aggregate([("dur_ns", "sum")])
    by_op = by_op.filter(by_op["op_row"].is_valid())
    ops, owned = timeline.ops.select(["name", *columns]).take(by_op["op_row"]).to_pylist(), Counter[Any]()
    for op, duration in zip(ops, by_op["dur_ns_sum"].to_pylist(), strict=True):
        inputs = None if op["input_shapes"] is None else tuple(op[column] for column in columns)
        owned[op["name"], inputs] += duration
    return owned


def misplaced(timeline: Timeline) -> str:
    """Say which reference of a timeline points elsewhere than it may; nothing where none does."""
    from tests.formats.test_compat import assert_every_reference_points_at_a_row_that_encloses_or_precedes

    try:
        assert_every_reference_points_at_a_row_that_encloses_or_precedes(timeline)
    except (AssertionError, IndexError) as error:
        return repr(error)
    return ""


def _events(path: Path) -> Events:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw.decode("utf-8", "replace"), strict=False, parse_float=str)
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    events = [e for e in events if isinstance(e, dict) and e.get("ph") == "X"]
    gpu = [e for e in events if str(e.get("cat", "")).lower() in _GPU]
    durations = [e.get("dur", 0) for e in gpu]
    rounded = sum(max(round(1000 * float(dur)), 0) for dur in durations)
    named_us = defaultdict[str, float](float)
    for event, dur in zip(gpu, durations, strict=True):
        named_us[str(event["name"])] += float(dur)
    exact_ns = int(sum(map(Decimal, durations)) * 1000)
    return Events(len(gpu), exact_ns, rounded, dict(named_us), frozenset(_owners(events, gpu)))


def _owners(events: list[dict[str, Any]], gpu: list[dict[str, Any]]) -> set[str]:
    """Names of the innermost operators that enclose a launch in time on its thread."""
    operators: dict[tuple[object, object], list[tuple[float, float, str]]] = defaultdict(list)
    launches: dict[tuple[object, object], list[float]] = defaultdict(list)
    correlations = {(e.get("args") or {}).get("correlation") for e in gpu}
    for e in events:
        category, thread, start = str(e.get("cat", "")).lower(), (e.get("pid"), e.get("tid")), float(e["ts"])
        if category in ("cpu_op", "operator"):
            operators[thread].append((start, -float(e.get("dur", 0)), str(e["name"])))
        elif category in _LAUNCHING and (e.get("args") or {}).get("correlation") in correlations:
            launches[thread].append(start)
    owners = set()
    for thread, starts in launches.items():
        waiting, stack = sorted(operators[thread], reverse=True), list[tuple[float, str]]()
        for start in sorted(starts):
            while waiting and waiting[-1][0] <= start:
                begin, minus_dur, name = waiting.pop()
                while stack and stack[-1][0] <= begin:
                    stack.pop()
                stack.append((begin - minus_dur, name))
            while stack and stack[-1][0] < start:
                stack.pop()
            if stack:
                owners.add(stack[-1][1])
    return owners
