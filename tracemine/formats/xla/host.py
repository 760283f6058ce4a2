"""What host events are: launches and waits, runs of modules, steps, and the ranges that a program annotates."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.formats.kineto.launches import named
from tracemine.formats.kineto.nesting import Nesting
from tracemine.formats.xla.recording import Columns, Recording
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
