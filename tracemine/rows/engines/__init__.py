"""Engines that generate text with a model: which one ran, and which phase of an iteration the host's work is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, examples
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import IntArray
from tracemine.tables import table_beside
from tracemine.timeline import Timeline

PHASES: Final = ("schedule", "prepare", "launch", "replay", "sample", "output")  # in the order of an iteration
_LONGEST = 512  # characters of a name that are looked at


class ServingEngine(Struct, frozen=True):
    """One engine of engines.toml."""

    name: str
    title: str
    files: re.Pattern[str]
    serves: bool
    source: str
    operators: re.Pattern[str] | None = None
    compiles: str | None = None
    sizes: str | None = None


class PhaseRow(Struct, frozen=True):
    """What of an engine's work is one phase; of all engines' where it names none."""

    name: str
    frame: re.Pattern[str]
    examples: list[str]
    engine: str | None = None
    mark: re.Pattern[str] | None = None
    call: re.Pattern[str] | None = None


_PATTERNS: Final = frozenset({"files", "operators", "frame", "mark", "call"})
_Row = TypeVar("_Row", ServingEngine, PhaseRow)


def _rows(kind: str, of: type[_Row]) -> tuple[_Row, ...]:
    rows: list[dict[str, Any]] = table_beside(__file__, "engines.toml")[kind]
    for row in rows:
        row.update({key: re.compile(row[key]) for key in _PATTERNS & row.keys()})
    return tuple(of(**row) for row in rows)


@cache
def engines() -> tuple[ServingEngine, ...]:
    """Return every engine, the first of which a trace shows is the one that ran."""
    return _rows("engine", ServingEngine)


@cache
def phase_rows() -> tuple[PhaseRow, ...]:
    """Return what is which phase, in the table's order: the first that fits a frame decides."""
    return _rows("phase", PhaseRow)


def engine_in(operators: Iterable[str], files: Iterable[str]) -> ServingEngine | None:
    """Return the engine that these operators and Python files show; None: none.

    >>> engine_in(["vllm::moe_forward"], []).title, engine_in([], ["sglang/srt/models/qwen3.py"]).name
    ('vLLM', 'sglang')
    >>> engine_in(["aten::mm"], ["/home/me/vllm-study/train.py", "transformers/models/llama/modeling_llama.py"]) is None
    True
    """
    names, paths = [[text[:_LONGEST] for text in each] for each in (operators, files)]
    by_files = (one for one in engines() if any(map(one.files.search, paths)))  # one borrows another's operators
    by_operators = (one for one in engines() if one.operators is not None and any(map(one.operators.search, names)))
    return next(by_files, None) or next(by_operators, None)


def engine_of(timeline: Timeline) -> ServingEngine | None:
    """Return the engine that a trace shows; None: none."""
    return engine_in(categories(timeline.ops["name"]).values, categories(timeline.stacks["file"]).values)


def engine_named(name: str | None) -> ServingEngine | None:
    """Return the engine of this name."""
    return next((one for one in engines() if one.name == name), None)


_COMPILES: Final = "torch.compile("


def in_its_words(fix: str, engine: ServingEngine | None) -> str:
    """Return a fix as it is for what an engine runs: its own switch in place of compiling from outside.

    >>> "--enable-torch-compile" in in_its_words("model = torch.compile(model)", engine_named("sglang"))
    True
    >>> in_its_words("model = torch.compile(model)", engine_named("transformers"))
    'model = torch.compile(model)'
    """
    return fix if engine is None or engine.compiles is None or _COMPILES not in fix else engine.compiles.strip()


class Phases(Struct, frozen=True):
    """Positions in PHASES, −1: none: of each call path, each operator or annotation, each call."""

    of_stack: IntArray
    of_op: IntArray
    of_call: IntArray

    def of(self, stack_row: IntArray, op_row: IntArray, api_row: IntArray) -> IntArray:
        """Return the phase of pieces of the host's work: by the call, else by the frames, else by annotations."""
        found = taken(self.of_call, api_row)
        for more in (taken(self.of_stack, stack_row), taken(self.of_op, op_row)):
            found = np.where(found < 0, more, found)
        return found


def phases_of(timeline: Timeline, engine: ServingEngine) -> Phases:
    """Return which phase of the engine's iterations everything of the host is part of."""
    rows = [row for row in phase_rows() if row.engine in (None, engine.name)]
    stacks, ops = timeline.stacks, timeline.ops
    file, function = categories(stacks["file"]), categories(stacks["function"])
    pair = codes(file.codes.astype(np.int64), function.codes.astype(np.int64))
    sample = examples(pair)
    texts = [
        f"{file.values[of_file] if of_file >= 0 else ''} {function.values[of] if of >= 0 else ''}"
        for of_file, of in zip(file.codes[sample].tolist(), function.codes[sample].tolist(), strict=True)
    ]
    frames = _numbers(texts, [(row.name, row.frame) for row in rows])
    own = frames[pair] if len(pair) else pair
    marks, calls = (
        [(row.name, pattern) for row in rows if (pattern := getattr(row, name)) is not None]
        for name in ("mark", "call")
    )
    names, called = categories(ops["name"]), categories(timeline.api["name"])
    of_name = np.append(_numbers(names.values, marks), -1)[names.codes]
    of_name[~categories(ops["kind"]).among("annotation")] = -1
    return Phases(
        of_stack=taken(own, nearest(rows_of(stacks["parent_row"]), own >= 0)),
        of_op=taken(of_name, nearest(rows_of(ops["parent_row"]), of_name >= 0)),
        of_call=np.append(_numbers(called.values, calls), -1)[called.codes],
    )


def _numbers(texts: Iterable[str], rows: Iterable[tuple[str, re.Pattern[str]]]) -> IntArray:
    """Return the phase of each text: of the first row that fits, −1: none."""
    asked = list(rows)
    found = (next((phase for phase, row in asked if row.search(text[:_LONGEST])), None) for text in texts)
    return np.array([-1 if phase is None else PHASES.index(phase) for phase in found], np.int64)
