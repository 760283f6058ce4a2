"""Waits for Python's lock, where frames of several threads were recorded: one thread runs Python, another stands still.

While a thread begins and ends frames it has the lock. Another one then has not: where it is in Python, in no operator
and no call, it waits for it. A built-in may let the lock go and be busy with something else; behind an operator that it
has done, all that is left is to come back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tracemine.columns import Array
from tracemine.formats.kineto.scan import Columns
from tracemine.formats.kineto.stacks import FrameStacks
from tracemine.timeline.arrow import table_of

_LEAST_NS = 20_000
_SWITCH_NS = 5_000_000  # after which Python has a thread give the lock away: of two moments closer none lies between
_FEWEST = 3  # moments of the other thread
_MOST_THREADS = 32  # that are asked about, those with most operators first: each takes a look at all frames
_NO_LOCK = np.zeros((0, 6), np.int64)


def lock_waits(stacks: FrameStacks, pid_of: Array, in_python: Array, ops: Columns, api: Columns) -> Array:
    """Return begin, end, thread and frame of each wait, then the thread that had the lock and its frame.

    pid_of: of each thread its process. in_python: of each frame whether it is a function's or a module's, no built-in.
    ops: operators, no annotations.
    """
    frames_of = np.bincount(stacks.thread, minlength=len(pid_of))
    if np.count_nonzero(frames_of) < 2:
        return _NO_LOCK
    found = [_NO_LOCK]
    counts = np.bincount(ops["thread"], minlength=len(pid_of))
    asked = np.argsort(-counts, kind="stable")[: min(_MOST_THREADS, np.count_nonzero(counts))]
    for thread in asked.tolist():
        others = np.flatnonzero((frames_of > 0) & (pid_of == pid_of[thread]))
        if len(others) > 1 and frames_of[thread]:
            found.append(_of_thread(stacks, in_python, ops, api, thread, np.isin(stacks.thread, others)))
    return np.concatenate(found)


def _of_thread(
    stacks: FrameStacks, in_python: Array, ops: Columns, api: Columns, thread: int, of_process: Array
) -> Array:
    own, theirs = of_process & (stacks.thread == thread), np.flatnonzero(of_process & (stacks.thread != thread))
    of_ops, of_api = (table["thread"] == thread for table in (ops, api))
    begins = np.concatenate((ops["start_ns"][of_ops], api["start_ns"][of_api]))
    ends = np.concatenate((ops["end_ns"][of_ops], api["end_ns"][of_api]))
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    latest, by_end = np.maximum.accumulate(ends), np.argsort(ends, kind="stable")
    moments = np.sort(np.concatenate((begins, ends, stacks.start_ns[own], stacks.end_ns[own])))
    still = np.flatnonzero(np.diff(moments) >= _LEAST_NS)
    since, until = moments[still], moments[still + 1]
    before = np.searchsorted(begins, since, side="right") - 1
    free = (before < 0) | (latest[before] <= since) if len(begins) else np.ones(len(since), np.bool_)
    since, until = since[free], until[free]
    frame = stacks.nesting.innermost(since, until, np.full(len(since), thread))
    done = np.searchsorted(ends[by_end], since, side="right") - 1  # what ended as it began to stand still
    row = by_end[np.maximum(done, 0)] if len(by_end) else np.zeros(len(since), np.int64)
    behind = (done >= 0) & (ends[row] == since) & (begins[row] >= stacks.start_ns[frame]) if len(ends) else free[:0]
    starts = np.sort(ops["start_ns"][~of_ops])
    alone = np.searchsorted(starts, since) == np.searchsorted(starts, until)
    chosen = (frame >= 0) & (in_python[frame] | (behind & alone))
    return _shared(stacks, theirs, thread, since[chosen], until[chosen], frame[chosen])


def _shared(stacks: FrameStacks, theirs: Array, thread: int, since: Array, until: Array, frame: Array) -> Array:
    """Return the parts of times of standing still in which other threads were in Python."""
    moments = np.concatenate((stacks.start_ns[theirs], stacks.end_ns[theirs]))
    order = np.argsort(moments, kind="stable")
    moments, of = moments[order], np.tile(theirs, 2)[order]
    run = np.concatenate(([0], np.cumsum(np.diff(moments) >= _SWITCH_NS)))
    first, last = np.searchsorted(moments, since), np.searchsorted(moments, until, side="right")

    def waits() -> Iterator[tuple[int, ...]]:
        for low, high, waiting in zip(first.tolist(), last.tolist(), frame.tolist(), strict=True):
            while high - low >= _FEWEST:
                ends = min(int(np.searchsorted(run, run[low], side="right")), high)
                if ends - low >= _FEWEST and moments[ends - 1] - moments[low] >= _LEAST_NS:
                    holder = int(of[(low + ends) // 2])
                    yield int(moments[low]), int(moments[ends - 1]), thread, waiting, int(stacks.thread[holder]), holder
                low = ends

    return np.array([*waits()], np.int64).reshape(-1, 6)


def lock_table(pid_of: Array, tid_of: Array, waits: Array, path: Array, holder_path: Array) -> pa.Table:
    """Return the table `lock_waits`. waits: as `lock_waits` gives them; path, holder_path: rows of `stacks`."""
    order = np.argsort(waits[:, 0], kind="stable")
    waits = waits[order]
    columns = {
        "start_ns": waits[:, 0],
        "dur_ns": waits[:, 1] - waits[:, 0],
        "pid": pid_of[waits[:, 2]],
        "tid": tid_of[waits[:, 2]],
        "stack_row": path[order],
        "holder_tid": tid_of[waits[:, 4]],
        "holder_stack_row": holder_path[order],
    }
    return table_of("lock_waits", columns, len(waits))
