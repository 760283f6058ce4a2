"""Python call stacks: frames in time, or the `Call stack` text of torch before 1.11, to one trie of call paths."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from tracemine.columns import Array, sorted_unique
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.scan import Columns
from tracemine.formats.repetitions import without_repetitions
from tracemine.timeline.arrow import MISSING, distinct, table_of, texts

_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
_MODULE = "nn.Module: "
MOST_OF = 0.8  # of an interval: a frame that lasts so long is what passed in it
_LONGEST_MODULE = 4096  # characters: modules in modules without end are no model, and would cost their square


class CallPaths(msgspec.Struct, frozen=True):
    """Distinct call paths, callers before callees: the caller's path (-1: outermost) and the frame's string id."""

    parent: Array
    frame: Array


def call_paths(parent: Array, frame: Array) -> tuple[CallPaths, Array]:
    """Return the distinct paths of a forest of frames, and for each frame the row of its path.

    `parent` is a row of the same columns (-1: outermost), `frame` a string id.

    >>> paths, path = call_paths(np.array([-1, 0, -1, 2]), np.array([7, 8, 7, 8]))
    >>> paths.parent.tolist(), paths.frame.tolist(), path.tolist()
    ([-1, 0], [7, 8], [0, 1, 0, 1])
    """
    depth = _depths(parent)
    by_depth = np.argsort(depth.astype(np.uint16) if depth.max(initial=0) < 1 << 16 else depth, kind="stable")
    levels = np.searchsorted(depth[by_depth], np.arange(depth.max(initial=-1) + 2))
    path = np.full(len(parent), -1, np.int32)
    parents: list[Array] = []
    frames: list[Array] = []
    count = 0
    for first, last in pairwise(levels.tolist()):
        rows = by_depth[first:last]
        above = path[parent[rows]].astype(np.int64) if count else np.full(len(rows), -1)
        codes, pairs = distinct((above << 32) | frame[rows])
        path[rows] = codes + count
        count += len(pairs)
        parents.append((pairs >> 32).astype(np.int32))
        frames.append((pairs & 0xFFFFFFFF).astype(np.int32))
    empty = [np.zeros(0, np.int32)]
    return CallPaths(np.concatenate(parents or empty), np.concatenate(frames or empty)), path


def _depths(parent: Array) -> Array:
    """Return how many are above each, by doubling the distance looked up: log(depth) rounds."""
    ancestor = np.append(parent, -1)
    depth = (ancestor >= 0).astype(np.int32)
    while (ancestor >= 0).any():
        depth += depth[ancestor]
        ancestor = ancestor[ancestor]
    return depth[:-1]


class FrameStacks(msgspec.Struct, frozen=True):
    """Frames in time, to be asked for the call path around a moment."""

    nesting: Nesting
    parent: Array
    name: Array
    start_ns: Array
    end_ns: Array
    thread: Array

    @staticmethod
    def of(frames: Columns, dropped: Counter[str]) -> FrameStacks:
        """Takes the columns out of `frames` as it goes, to free them. Counts in `dropped` what stands there twice."""
        order = time_order(frames["start_ns"], -frames["dur_ns"])
        columns = {name: frames.pop(name)[order] for name in ("start_ns", "dur_ns", "thread", "name")}
        columns = without_repetitions(columns, dropped)
        start = columns["start_ns"]
        end = start + columns["dur_ns"]
        nesting = Nesting(start, end, columns["thread"])
        return FrameStacks(nesting, nesting.parents(), columns["name"], start, end, columns["thread"])

    def lasting(self, begin: Array, end: Array, thread: Array) -> Array:
        """Return for each [begin, end] the innermost frame that lasts for four fifths of it, -1 if none.

        Such a frame has the middle of it: it is the innermost one there, or around that.
        """
        least = np.ceil((end - begin) * MOST_OF).astype(np.int64)
        found = self.nesting.innermost(end - least, begin + least, thread)
        while True:
            lasts = np.minimum(self.end_ns[found], end) - np.maximum(self.start_ns[found], begin)
            short = np.flatnonzero((found >= 0) & (lasts < least)) if len(self.name) else found[:0]
            if not len(short):
                return found
            found[short] = self.parent[found[short]]

    def paths_around(
        self, moments: list[tuple[Array, Array]], frames: tuple[Array, ...] = ()
    ) -> tuple[CallPaths, list[Array]]:
        """For each (time, thread) the row of the call path of the innermost frame then running there, -1 if none; and
        then that of each of these frames.

        Only paths asked for, and their callers, become rows.
        """
        found = [*(self.nesting.innermost(time, time, thread) for time, thread in moments), *frames]
        needed = np.zeros(len(self.name) + 1, np.bool_)
        for rows in found:
            needed[rows] = True
        needed[-1] = False
        latest = np.flatnonzero(needed[:-1])
        while len(latest):
            above = sorted_unique(self.parent[latest])
            latest = above[(above >= 0) & ~needed[above]]
            needed[latest] = True
        kept = np.flatnonzero(needed[:-1])
        renumbered = np.full(len(needed), -1, np.int32)
        renumbered[kept] = np.arange(len(kept), dtype=np.int32)
        paths, path = call_paths(renumbered[self.parent[kept]], self.name[kept])
        path = np.append(path, np.int32(-1))
        return paths, [path[renumbered[rows]] for rows in found]


def recorded_stacks(call_stack: Array, strings: list[str]) -> tuple[CallPaths, Array]:
    """Return the paths of `Call stack` texts (innermost frame first, `;` between), and each row's path, -1 where none.

    `call_stack` are string ids of raw JSON text; frames are added to `strings`.
    """
    known: dict[str, int] = {}
    parent: list[int] = []
    frame: list[int] = []
    innermost = np.full(len(strings) + 1, -1, np.int32)
    for text_id in sorted_unique(call_stack[call_stack >= 0]).tolist():
        above = -1
        for name in reversed(decoded(strings[text_id]).split(";")):
            if not name.strip():
                continue
            if name not in known:
                known[name] = len(strings)
                strings.append(name)
            parent.append(above)
            frame.append(known[name])
            above = len(parent) - 1
        innermost[text_id] = above
    paths, path = call_paths(np.array(parent, np.int32), np.array(frame, np.int32))
    return paths, np.append(path, np.int32(-1))[innermost[call_stack]]


def decoded(text: str) -> str:
    """Return the string that a JSON text encodes; text that is no JSON string is returned as it is.

    >>> decoded('"a\\\\tb"'), decoded("triton")
    ('a\\tb', 'triton')
    """
    if not text.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return text.strip('"')


def stacks_table(paths: CallPaths, strings: list[str]) -> tuple[pa.Table, Array, list[str]]:
    """Return the table `stacks`, and each row's module path as ids (-1: none) into the list of module paths."""
    modules: dict[str, int] = {}
    module = np.full(len(paths.parent), -1, np.int32)
    names: list[str] = []
    parts = {
        i: strings[i].removeprefix(_MODULE)
        for i in sorted_unique(paths.frame).tolist()
        if strings[i].startswith(_MODULE)
    }
    for row, (above, frame) in enumerate(zip(paths.parent.tolist(), paths.frame.tolist(), strict=True)):
        around = module[above] if above >= 0 else -1
        if frame in parts and (around < 0 or len(names[around]) < _LONGEST_MODULE):
            name = parts[frame] if around < 0 else f"{names[around]}.{parts[frame]}"
            if name not in modules:
                modules[name] = len(names)
                names.append(name)
            around = modules[name]
        module[row] = around
    lines = np.full(len(strings) + 1, MISSING, np.int64)
    for i in sorted_unique(paths.frame).tolist():
        if match := _FRAME.fullmatch(strings[i]):
            lines[i] = int(match["line"][:18])
    columns = {
        "parent_row": paths.parent,
        "frame": texts(paths.frame, strings),
        "file": texts(paths.frame, strings, lambda frame: _part(frame, "file")),
        "line": lines[paths.frame],
        "function": texts(paths.frame, strings, lambda frame: _part(frame, "function")),
        "module": texts(module, names),
    }
    return table_of("stacks", columns, len(module)), module, names


def in_python(frames: Array, strings: list[str]) -> Array:
    """Return which frames are a function's or a module's, and no built-in's."""
    flags = np.zeros(len(strings), np.bool_)
    for i in sorted_unique(frames).tolist():
        flags[i] = strings[i].startswith(_MODULE) or _FRAME.fullmatch(strings[i]) is not None
    return flags[frames]


def _part(frame: str, part: str) -> str | None:
    match = _FRAME.fullmatch(frame)
    return match[part] if match else None
