"""What host events are: launches and waits, runs of modules, steps, and the ranges that a program annotates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.columns import Array, ranges
from tracemine.errors import InputError
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.nesting import Nesting
from tracemine.formats.xla import recording as rec
from tracemine.formats.xla.recording import Columns, EventKind, Recording
from tracemine.timeline.arrow import MISSING, take

MODULE = "XLA module "  # and its name: the annotation of one run of a module
KERNEL_LAUNCH = {"AMD": "hipModuleLaunchKernel"}  # of a vendor; of all others:
USUAL_LAUNCH, GRAPH_LAUNCH = "cuLaunchKernel", "cuGraphLaunch"

_WAITS = re.compile(r"^np\.asarray\(jax\.Array\)$|^jax\.block_until_ready$|^Array\.block_until_ready$")
_CALLS = re.compile(r"^(cu|cuda|hip)[A-Z]")
_GRAPH = re.compile(r"^cuGraphLaunch\b")
_RUNS = re.compile(r"Executable::Execute\b|^PJRT_LoadedExecutable_Execute")
_PLUMBING_THREADS = re.compile(r"^(pjrt_|py_xla_|tf_|Host Threads/)")
_PLUMBING = re.compile(
    r"::|^\[iter=|^(ParseArguments|Wait for \w+|D2H |H2D |RecordUsage|ComputeSemaphoreAcquire|Rendezvous|BUFFER_FLUSH)"
)

GPU = re.compile(r"/device:GPU:(\d{1,9})")
TPU = re.compile(r"/device:TPU|#Chip")
STREAM = re.compile(r"Stream #(\d{1,18})")  # other lines of a GPU repeat what streams hold
HOST, METADATA, TASK = "/host:CPU", "/host:metadata", "Task Environment"
FRAMES_BYTES = 32_000_000  # of a thread, or of all JSON: where there is more, Python's frames are stepped over

_CLONED = " [clone .kd]"  # ends the name of a kernel on AMD, as ".kd" does

_SHORT = 12  # rows: parts that are shorter are written out, which costs less than to keep them as parts


class HostRows(Struct, frozen=True):
    """Rows of `Recording.host` by what they are, each in order of time, and the runs of modules."""

    calls: Array
    launches: Array  # flags, of calls
    waits: Array  # flags, of calls
    annotations: Array
    steps: Array
    runs: Columns  # start_ns, end_ns, thread, name


def host_rows(recording: Recording, strings: list[str]) -> HostRows:
    """Say what each host event is; names of runs are added to `strings`."""
    host = recording.host
    launching = np.zeros(len(host["name"]), np.bool_)
    launching[recording.gpu["launch"][recording.gpu["launch"] >= 0]] = True
    launching |= host["correlation"] > 0
    waiting = named(host["name"], recording.strings, _WAITS)
    waits = np.flatnonzero(waiting)
    waiting[waits[_nesting(host, waits).parents() >= 0]] = False  # a wait within a wait
    calls = launching | waiting | named(host["name"], recording.strings, _CALLS)
    steps = np.flatnonzero(host["step"] != MISSING)
    steps = steps[host["start_ns"][steps] >= _ended_before(host, steps)]
    runs = np.flatnonzero(named(host["name"], recording.strings, _RUNS))
    inside = _nesting(host, runs).innermost(host["start_ns"], host["end_ns"], host["thread"])
    plumbing = calls | (inside >= 0) | named(host["name"], recording.strings, _PLUMBING)
    threads = np.array([bool(_PLUMBING_THREADS.match(name)) for name in recording.threads], np.bool_)
    plumbing |= take(threads, host["thread"], nothing=False)
    rows = np.flatnonzero(calls)
    return HostRows(
        calls=rows,
        launches=launching[rows],
        waits=waiting[rows],
        annotations=np.flatnonzero(~plumbing),
        steps=steps,
        runs=_runs(recording, strings),
    )


def _nesting(host: Columns, rows: Array) -> Nesting:
    return Nesting(*(host[name][rows] for name in ("start_ns", "end_ns", "thread")))


def enclosing(recording: Recording, pattern: re.Pattern[str]) -> Array:
    """Return for each host event the innermost around it on its thread that is named so; −1: none (int32)."""
    host = recording.host
    rows = np.flatnonzero(named(host["name"], recording.strings, pattern)).astype(np.int32)
    return take(rows, _nesting(host, rows).innermost(host["start_ns"], host["start_ns"], host["thread"]))


def _ended_before(host: Columns, rows: Array) -> Array:
    """Return the latest end of the rows before each of these: one that begins earlier lies in another."""
    ends = host["end_ns"][rows]
    return np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ends)[:-1]) if len(rows) else ends


def _runs(recording: Recording, strings: list[str]) -> Columns:
    """Return one row for each run of a module on a device: as recorded, and of launches outside those, by their order.

    Recordings of before 2025 do not say when a module runs: there consecutive launches of one module are one run.
    """
    host, gpu = recording.host, recording.gpu
    told = np.flatnonzero(host["module"] >= 0)
    order = np.lexsort((gpu["launch"], gpu["device"]))
    order = order[(gpu["launch"][order] >= 0) & (gpu["hlo_module"][order] >= 0)]
    launch = gpu["launch"][order]
    inside = _nesting(host, told).innermost(host["start_ns"][launch], host["end_ns"][launch], host["thread"][launch])
    order, launch = order[inside < 0], launch[inside < 0]
    keys = (host["thread"][launch], gpu["device"][order], gpu["hlo_module"][order])
    heads = np.logical_or.reduce([np.append(True, key[1:] != key[:-1])[: len(key)] for key in keys])
    first = np.flatnonzero(heads)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    known: dict[int, int] = {}
    for text in {*host["module"][told].tolist(), *gpu["hlo_module"][order].tolist()}:
        known[text] = len(strings)
        strings.append(f"{MODULE}{strings[text]}")
    names = [*host["module"][told].tolist(), *gpu["hlo_module"][order[first]].tolist()]
    return {
        "start_ns": np.concatenate((host["start_ns"][told], host["start_ns"][launch[first]])),
        "end_ns": np.concatenate(
            (host["end_ns"][told], np.maximum(host["end_ns"][launch[last]], host["start_ns"][launch[first]]))
        ),
        "thread": np.concatenate((host["thread"][told], host["thread"][launch[first]])),
        "name": np.array([known[text] for text in names], np.int32),
    }


def call_name(name: str) -> str:
    """Return the name of a call as the timeline has it: a graph's without its number.

    >>> call_name("cuGraphLaunch (CudaGraph:78)"), call_name("MemcpyD2H")
    ('cuGraphLaunch', 'MemcpyD2H')
    """
    return GRAPH_LAUNCH if _GRAPH.match(name) else name


def is_call(name: str) -> bool:
    """Return whether an event is named as a call of the runtime or driver, and not after what it launches.

    >>> is_call("hipModuleLaunchKernel"), is_call("gemm_fusion_dot")
    (True, False)
    """
    return bool(_CALLS.match(name))


def refuse(planes: Collection[str], *, truncated: bool) -> None:
    """Raise InputError where none of a file's planes is of a GPU."""
    if any(GPU.match(name) for name in planes):
        return
    if any(TPU.match(name) for name in planes):
        raise InputError("is a profile of a TPU, and tracemine knows GPUs", hint="xprof reads it")
    if truncated:
        raise InputError("is cut off before what a GPU did", hint="copy the file again, to its end")
    hint = "record where jax.devices() names a GPU: with jax.profiler.trace(DIR): step()"
    raise InputError("is a JAX profile of a CPU", hint=hint)


def event_name(name: str, kind: EventKind) -> str:
    """Return what an event of a kind is called: frames in which the host waits have their own name.

    >>> event_name("$api.py:2757 block_until_ready", rec.OF_HOST["host"])
    'jax.block_until_ready'
    >>> event_name("gemm_fusion_dot_6.kd", rec.GPU), event_name("fmha(long*) [clone .kd]", rec.GPU)
    ('gemm_fusion_dot_6', 'fmha(long*)')
    """
    if kind is rec.GPU:
        return name.removesuffix(_CLONED).removesuffix(".kd")
    return rec.WAIT if kind is rec.OF_HOST["host"] and rec.WAITING_FRAME.match(name) else name


def equal_segments(code: Array, first: Array) -> tuple[Array, Array]:
    """Return for each segment of codes, which begin at `first`, the number of what it holds, and of each such number
    the first segment that holds it.

    >>> [each.tolist() for each in equal_segments(np.array([7, 8, 8, 7, 8]), np.array([0, 2, 3]))]
    [[0, 1, 0], [0, 1]]
    """
    raw, size, known = code.astype(np.int32).tobytes(), np.dtype(np.int32).itemsize, dict[bytes, int]()
    ends = [*(first * size).tolist(), len(raw)]
    number = np.array([known.setdefault(raw[at:end], len(known)) for at, end in pairwise(ends)], np.int32)
    return number, first_of(number)


def first_of(number: Array) -> Array:
    """Return for each number, of those without holes, the first entry that has it.

    >>> first_of(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    found = np.empty(int(number.max(initial=-1)) + 1, np.int64)
    found[number[::-1]] = np.arange(len(number))[::-1]
    return found


class EqualRuns(Struct, frozen=True):
    """Runs of instructions, of which those of equal executions are equal: the first ones are the examples."""

    execution: Array  # of each run
    offset: Array  # of each run in its execution
    order: Array  # the runs by execution
    begin: Array  # where each execution begins in that
    examples: Array  # runs, in order
    like: Array  # of each run, the example's position in `examples`

    @staticmethod
    def of(execution: Array, code: Array) -> EqualRuns:
        """Take the number of each run's execution, without holes, and a number of what it is."""
        order = np.argsort(execution, kind="stable").astype(np.int32)
        begin = np.searchsorted(execution[order], np.arange(int(execution.max(initial=-1)) + 1))
        offset = np.empty(len(order), np.int32)
        offset[order] = np.arange(len(order)) - begin[execution[order]] if len(order) else order
        number, example = equal_segments(code[order], begin)
        chosen = np.zeros(len(begin), np.bool_)
        chosen[example] = True
        is_example = chosen[execution] if len(order) else np.zeros(0, np.bool_)
        place = np.cumsum(is_example, dtype=np.int32) - 1
        like = place[order[begin[example[number[execution]]] + offset]] if len(order) else order
        return EqualRuns(execution, offset, order, begin, np.flatnonzero(is_example), like)

    def count_of(self, runs: Array) -> Array:
        """Return of each example how often it is among these runs, of which all are examples."""
        return np.bincount(np.searchsorted(self.examples, runs), minlength=len(self.examples))

    def same(self, run: Array, example: Array) -> Array:
        """Return of each run the one in its execution that equals an example."""
        found: Array = self.order[self.begin[self.execution[run]] + self.offset[example]]
        return found

    def begins(self, rows: Array) -> Array:
        """Return where the rows of each run begin, and behind the last; `rows`: how many each example has."""
        return np.append(0, np.cumsum(rows[self.like]))

    def rows(self, rows: Array, first: int = 0, last: int | None = None) -> tuple[Array, Array]:
        """Return of the rows of all runs, or of some, which run has them and which row of an example they equal."""
        like = self.like[first:last]
        count = rows[like]
        begin = np.cumsum(rows) - rows
        run = np.repeat(np.arange(first, first + len(like), dtype=np.int32), count)
        return run, ranges(begin[like], count)

    def spread(self, rows: Array, made: Callable[[Array], dict[str, pa.Array]]) -> dict[str, pa.ChunkedArray]:
        """Return columns of all runs' rows from those of examples: what lasts long shares the memory of its example."""
        heads = np.flatnonzero(np.diff(self.like, prepend=-2) != 1)
        begin = np.append(0, np.cumsum(rows))
        total = int(rows[self.like].sum())
        if total < _SHORT * len(heads) or total == begin[-1]:
            return {name: pa.chunked_array([column]) for name, column in made(self.rows(rows)[1]).items()}
        last = self.like[np.append(heads[1:], len(self.like)) - 1]
        parts = [*zip(begin[self.like[heads]].tolist(), begin[last + 1].tolist(), strict=True)]
        columns = {}
        for name, column in made(np.arange(int(begin[-1]))).items():
            cut = {part: column.slice(part[0], part[1] - part[0]) for part in dict.fromkeys(parts)}
            columns[name] = pa.chunked_array([cut[part] for part in parts], column.type)
        return columns
