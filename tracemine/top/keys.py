"""What GPU time can be grouped by: a function for each name of BY."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from tracemine.columns import codes, examples, sorted_unique
from tracemine.ops.kernel_names import short_name
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, mapped, rows_of
from tracemine.rows.engines import PHASES as ENGINE_PHASES
from tracemine.rows.table import IntArray, Rows, category
from tracemine.timeline import Timeline
from tracemine.top.origin import FORWARD, NOT_KNOWN, Grouping, Origin, Path, by_category, by_path, line_paths
from tracemine.top.record import By

_COUNTER = deferred(r"_\d+$")
_RESULT = deferred(r"^(std::)?enable_if<[^<>]{0,200}>::type ")  # what a kernel returns, before its name
_LONGEST_RESULT = 400  # characters
_INSIDE = deferred(r"^(?:void )?(?:\w{1,60}::){0,8}(\w{1,60})::kernel\b")
_SAID = {"gemm": "GEMM", "conv": "convolution", "attention": "attention", "collective": "collective"}
_BESIDE = "(in no batch)"  # of an engine, what its annotation of a batch does not hold
OUTSIDE, _COMMUNICATION = "(in no module)", "communication"
_MOST_PARTS = 200  # of a module's path


def _kernels(activities: Rows, origin: Origin) -> Grouping:
    """Group by kernel: its function and what it computes, and of a library's kernel the class of its operator."""
    names = mapped(category(activities, "name"), _short)
    kind = mapped(category(activities, "op_class"), _SAID.get)
    pair = codes(names.codes.astype(np.int64), kind.codes.astype(np.int64))
    sample = examples(pair)
    paths = [
        _kernel(names.values[name], kind.values[said] if said >= 0 else "")
        for name, said in zip(names.codes[sample].tolist(), kind.codes[sample].tolist(), strict=True)
    ]
    return by_path(paths, pair)


def _short(name: str) -> str:
    """Return a kernel's short name; of a graph that was traced as a whole its title.

    >>> _short("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(cublasGemvParams)")
    'gemvx::kernel'
    """
    if name.startswith("CUDA graph"):
        return name
    bare = _RESULT.sub("", name[:_LONGEST_RESULT]) + name[_LONGEST_RESULT:]
    short = short_name(bare)
    if short == "kernel" and (inside := _INSIDE.match(bare)):
        return f"{inside[1]}::kernel"
    return short


def _kernel(name: str, kind: str) -> Path:
    return (f"{name} ({kind})" if kind and not name.endswith(")") and kind.lower() not in name.lower() else name,)


def _operators(activities: Rows, origin: Origin) -> Grouping:
    return by_category(category(activities, "op"))


def _phases(activities: Rows, origin: Origin) -> Grouping:
    """Group by phase, and collectives apart in each; of an engine by what launched it, within a batch's phase."""
    phase, collective = origin.phase, category(activities, "op_class").among("collective")
    inner = origin.engine_phase
    pair = codes(phase.codes.astype(np.int64), collective.astype(np.int64), inner)
    sample = examples(pair)
    paths: list[Path] = []
    for of_phase, communicates, of_engine in zip(
        *(each[sample].tolist() for each in (phase.codes, collective, inner)), strict=True
    ):
        name = "" if of_phase < 0 else phase.values[of_phase]
        name = _BESIDE if name == FORWARD and origin.engine is not None else name
        path = [name or None] if name or not communicates else []
        path += [ENGINE_PHASES[of_engine]] if of_engine >= 0 and name else []
        paths.append((*path, _COMMUNICATION) if communicates else tuple(path))
    return by_path(paths, pair)


def _streams(activities: Rows, origin: Origin) -> Grouping:
    return _places(origin.timeline, "device", "stream")


def _devices(activities: Rows, origin: Origin) -> Grouping:
    return _places(origin.timeline, "device")


def _places(timeline: Timeline, *columns: str) -> Grouping:
    """Group by device, or by stream of a device; not known where one of them is not."""
    values = [rows_of(timeline.activities[name]) for name in columns]
    code = codes(*values)
    sample = examples(code)
    paths: list[Path] = [
        NOT_KNOWN if min(each) < 0 else (" ".join(f"{n} {v}" for n, v in zip(columns, each, strict=True)),)
        for each in zip(*(value[sample].tolist() for value in values), strict=True)
    ]
    return by_path(paths, code)


def _modules(activities: Rows, origin: Origin) -> Grouping:
    """Group by module class within module class; what is in none by its phase, or its operator."""
    module, timeline = origin.module, origin.timeline
    if not (module.codes >= 0).any():
        return by_path([NOT_KNOWN], np.zeros(activities.count, np.int64))
    ranges = names_of_ranges(timeline) if timeline.meta.format == "nsys" else ()
    inside, places = module_paths(module.values, ranges)
    outside, of_outside = _outside(activities, origin)
    of = np.where(module.codes >= 0, module.codes, len(inside) + of_outside).astype(np.int64)
    return by_path([*inside, *outside], of, [*places, *("" for _ in outside)])


def _outside(activities: Rows, origin: Origin) -> tuple[list[Path], IntArray]:
    """Return paths of what is in no module, and which of them each activity has."""
    phase, op = origin.phase, category(activities, "op")
    collective = category(activities, "op_class").among("collective")
    pair = codes(phase.codes.astype(np.int64), op.codes.astype(np.int64), collective.astype(np.int64))
    sample = examples(pair)
    paths: list[Path] = []
    for of_phase, of_op, communicates in zip(
        *(each[sample].tolist() for each in (phase.codes, op.codes, collective)), strict=True
    ):
        said = "" if of_phase < 0 else phase.values[of_phase]
        if communicates:
            paths.append((OUTSIDE, _COMMUNICATION))
        elif of_op < 0:
            paths.append(NOT_KNOWN)
        else:
            paths.append((OUTSIDE, op.values[of_op] if said in ("", FORWARD) else said))
    return paths, pair


def names_of_ranges(timeline: Timeline) -> Collection[str]:
    """Return the names of ranges with dots in them: a path of ranges joins names by dots."""
    names = categories(timeline.ops["name"])
    kinds = categories(timeline.ops["kind"])
    used = sorted_unique(names.codes[kinds.among("annotation")])
    return {names.values[code] for code in used.tolist() if code >= 0 and "." in names.values[code]}


def module_paths(modules: Iterable[str], ranges: Collection[str]) -> tuple[list[Path], list[str]]:
    """Return the classes that lead to each module, and its place: the same with numbers, which tell instances apart."""
    whole = [_parts(text, ranges) for text in modules]
    inside: list[Path] = [tuple(_COUNTER.sub("", part) for part in parts) for parts in whole]
    return inside, [".".join(part.replace(".", "·") for part in parts) for parts in whole]


def _parts(path: str, ranges: Collection[str]) -> tuple[str, ...]:
    """Return the names in a path. ranges: those of them that have dots.

    >>> _parts("gate.gate.up", {"gate.up"}), _parts("Net_0.Linear_1", ())
    (('gate', 'gate.up'), ('Net_0', 'Linear_1'))
    """
    words = path.split(".")[:_MOST_PARTS]
    if not ranges:
        return tuple(words)
    paths, at = [], 0
    while at < len(words):
        ends = (end for end in range(len(words), at + 1, -1) if ".".join(words[at:end]) in ranges)
        end = next(ends, at + 1)
        paths.append(".".join(words[at:end]))
        at = end
    return tuple(paths)


def _lines(activities: Rows, origin: Origin) -> Grouping:
    """Group by the user's own line; within it by the library's line that led on from there."""
    paths, of_stack = line_paths(origin.timeline.stacks)
    values: list[Path] = [*paths, NOT_KNOWN, (f"({_COMMUNICATION})",)]
    no_line = len(paths)
    of = np.append(of_stack, no_line)[origin.stack_row]
    lost = np.array([value == NOT_KNOWN for value in values], np.bool_)[of]
    if not lost.all():
        of = np.where(lost & category(activities, "op_class").among("collective"), no_line + 1, of)
    return by_path(values, of)


GROUPINGS: Mapping[By, Callable[[Rows, Origin], Grouping]] = {
    "kernel": _kernels,
    "operator": _operators,
    "module": _modules,
    "line": _lines,
    "stream": _streams,
    "device": _devices,
    "phase": _phases,
}
