"""Operators and sizes that differ from call to call of a span."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tracemine.calls import DTYPES, NAME, SHAPES, Call, calls_of
from tracemine.findings.graphs.spans import Program
from tracemine.rows.table import IntArray

_FEW = 8  # sizes of which torch.compile compiles each before it gives up


def differing(
    program: Program, calls: IntArray
) -> tuple[Literal["operators", "sizes", "few_sizes"], str, int, int] | None:
    """Return how the calls of a span differ, what does, the first operator's row, and how many are distinct.

    None: they do not, or there is one.

    calls: of each forward operator the call of the span, −1: none.
    """
    member = np.flatnonzero(calls >= 0)
    if not len(member):
        return None
    known = calls_of(program.timeline)
    rows = program.rows[member]
    names, sizes = known.alike(rows, NAME), known.alike(rows, NAME, SHAPES, DTYPES)
    bounds = np.flatnonzero(np.diff(calls[member])) + 1
    of_names, of_sizes, of_step = (np.split(each, bounds) for each in (names, sizes, program.step[member]))
    first = {each.tobytes(): at for at, each in reversed(list(enumerate(of_names)))}
    offsets = np.concatenate(([0], bounds))
    if len(first) > 1:
        one, other = sorted(first.values())[:2]
        at = _first_difference(of_names[one], of_names[other])
        if _each_step(of_names, of_step):
            return None  # each step has the same calls, in the same order: a helper that does several things
        return "operators", "", int(rows[min(offsets[other] + at, len(rows) - 1)]), len(first)
    distinct = {each.tobytes(): at for at, each in reversed(list(enumerate(of_sizes)))}
    if len(distinct) < 2:
        return None
    one, other = sorted(distinct.values())[:2]
    at = _first_difference(of_sizes[one], of_sizes[other])
    before, after = (known.at(int(rows[offsets[each] + at])) for each in (one, other))
    few = _each_step(of_sizes, of_step) and len(distinct) <= _FEW
    what = "" if before is None or after is None else _sizes_text(before, after)
    return "few_sizes" if few else "sizes", what, int(rows[offsets[other] + at]), len(distinct)


def _each_step(parts: list[IntArray], of_step: list[IntArray]) -> bool:
    """Return whether each step has the same parts in the same order; with one step that is not known."""
    steps: dict[int, list[bytes]] = {}
    for part, step in zip(parts, of_step, strict=True):
        steps.setdefault(int(step[0]), []).append(part.tobytes())
    every = list(steps.values())
    return len(every) > 1 and all(each == every[0] for each in every)


def _first_difference(one: IntArray, other: IntArray) -> int:
    shared = min(len(one), len(other))
    found = np.flatnonzero(one[:shared] != other[:shared])
    return int(found[0]) if len(found) else max(shared - 1, 0)


def _sizes_text(one: Call, other: Call) -> str:
    """Return an operator and its first input whose sizes differ.

    >>> _sizes_text(Call("aten::cat", ((2, 3),)), Call("aten::cat", ((2, 4),)))
    'cat of [2, 3], then [2, 4]'
    """
    name = one.name.removeprefix("aten::")
    for before, after in zip(one.shapes or (), other.shapes or (), strict=False):
        if before != after:
            return f"{name} of {_text(before)}, then {_text(after)}"
    return name


def _text(shape: object) -> str:
    return (
        str(list(shape) if isinstance(shape, tuple) else shape).replace("(", "[").replace(",)", "]").replace(")", "]")
    )
