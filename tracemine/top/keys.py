"""What GPU time can be grouped by: a function for each name of BY."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

import numpy as np

from tracemine.columns import codes, examples
from tracemine.ops.kernel_names import short_name
from tracemine.rows.arrow import categories, mapped, rows_of
from tracemine.rows.table import IntArray, Rows, category
from tracemine.timeline import Timeline
from tracemine.top.grouping import NOT_KNOWN, Grouping, Path, by_category, by_path
from tracemine.top.lines import line_paths
from tracemine.top.origin import Origin
from tracemine.top.record import By

_COUNTER = re.compile(r"_\d+$")
_SAID = {"gemm": "GEMM", "conv": "convolution", "attention": "attention", "collective": "collective"}
_OUTSIDE = "(in no module)"
_MOST_PARTS = 200  # of a module's path


def _kernels(activities: Rows, origin: Origin) -> Grouping:
    """Group by kernel: its function and what it computes, and of a library's kernel the class of its operator."""
    names = mapped(category(activities, "name"), short_name)
    kind = mapped(category(activities, "op_class"), _SAID.get)
    pair = codes(names.codes.astype(np.int64), kind.codes.astype(np.int64))
    one = examples(pair)
    paths = [
        _kernel(names.values[name], kind.values[said] if said >= 0 else "")
        for name, said in zip(names.codes[one].tolist(), kind.codes[one].tolist(), strict=True)
    ]
    return by_path(paths, pair)


def _kernel(name: str, kind: str) -> Path:
    return (f"{name} ({kind})" if kind and not name.endswith(")") and kind.lower() not in name.lower() else name,)


def _operators(activities: Rows, origin: Origin) -> Grouping:
    return by_category(category(activities, "op"))


def _phases(activities: Rows, origin: Origin) -> Grouping:
    return by_category(origin.phase)


def _streams(activities: Rows, origin: Origin) -> Grouping:
    return _places(origin.timeline, "device", "stream")


def _devices(activities: Rows, origin: Origin) -> Grouping:
    return _places(origin.timeline, "device")


def _places(timeline: Timeline, *columns: str) -> Grouping:
    """Group by device, or by stream of a device; not known where one of them is not."""
    values = [rows_of(timeline.activities[name]) for name in columns]
    code = codes(*values)
    one = examples(code)
    paths: list[Path] = [
        NOT_KNOWN if min(each) < 0 else (" ".join(f"{n} {v}" for n, v in zip(columns, each, strict=True)),)
        for each in zip(*(value[one].tolist() for value in values), strict=True)
    ]
    return by_path(paths, code)


def _modules(activities: Rows, origin: Origin) -> Grouping:
    """Group by module class within module class; what is in none by its phase, or its operator."""
    module, timeline = origin.module, origin.timeline
    if not (module.codes >= 0).any():
        return by_path([NOT_KNOWN], np.zeros(activities.count, np.int64))
    ranges = _names_of_ranges(timeline) if timeline.meta.format == "nsys" else ()
    whole = [_parts(text, ranges) for text in module.values]
    inside: list[Path] = [tuple(_COUNTER.sub("", part) for part in parts) for parts in whole]
    places = [".".join(part.replace(".", "·") for part in parts) for parts in whole]
    outside, of_outside = _outside(activities, origin)
    of = np.where(module.codes >= 0, module.codes, len(inside) + of_outside).astype(np.int64)
    return by_path([*inside, *outside], of, [*places, *("" for _ in outside)])


def _outside(activities: Rows, origin: Origin) -> tuple[list[Path], IntArray]:
    """Return paths of what is in no module, and which of them each activity has."""
    phase, op = origin.phase, category(activities, "op")
    pair = codes(phase.codes.astype(np.int64), op.codes.astype(np.int64))
    one = examples(pair)
    paths: list[Path] = []
    for of_phase, of_op in zip(phase.codes[one].tolist(), op.codes[one].tolist(), strict=True):
        if of_op < 0:
            paths.append(NOT_KNOWN)
            continue
        said = "" if of_phase < 0 else phase.values[of_phase]
        paths.append((_OUTSIDE, op.values[of_op] if said in ("", "forward") else said))
    return paths, pair


def _names_of_ranges(timeline: Timeline) -> Collection[str]:
    """Return the names of ranges with dots in them: a path of ranges joins names by dots."""
    names = categories(timeline.ops["name"])
    kinds = categories(timeline.ops["kind"])
    used = np.unique(names.codes[kinds.among("annotation")])
    return {names.values[code] for code in used.tolist() if code >= 0 and "." in names.values[code]}


def _parts(path: str, ranges: Collection[str]) -> tuple[str, ...]:
    """Return the names in a path. ranges: those of them that have dots.

    >>> _parts("gate.gate.up", {"gate.up"}), _parts("Net_0.Linear_1", ())
    (('gate', 'gate.up'), ('Net_0', 'Linear_1'))
    """
    words = path.split(".")[:_MOST_PARTS]
    if not ranges:
        return tuple(words)
    found, at = [], 0
    while at < len(words):
        ends = (end for end in range(len(words), at + 1, -1) if ".".join(words[at:end]) in ranges)
        end = next(ends, at + 1)
        found.append(".".join(words[at:end]))
        at = end
    return tuple(found)


def _lines(activities: Rows, origin: Origin) -> Grouping:
    """Group by the user's own line; within it by the library's line that led on from there."""
    stacks, stack_row = origin.timeline.stacks, origin.stack_row
    paths = line_paths(stacks)
    return by_path([*paths.values, NOT_KNOWN], np.append(paths.codes, len(paths.values))[stack_row])


GROUPINGS: Mapping[By, Callable[[Rows, Origin], Grouping]] = {
    "kernel": _kernels,
    "operator": _operators,
    "module": _modules,
    "line": _lines,
    "stream": _streams,
    "device": _devices,
    "phase": _phases,
}
