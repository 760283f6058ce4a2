"""Iterations by what frameworks and engines write into a trace once each: annotations, NVTX ranges; see marks.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracemine.columns import sorted_unique
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.iterations.record import ANNOTATION, NVTX, Iterations, LaunchedWork, counted, cut, inferred
from tracemine.rows.table import BoolArray, IntArray
from tracemine.tables import table_beside
from tracemine.timeline import Timeline

_LONGEST_NAME = 512  # characters of a name that are looked at
_SHOWN = 60
_MOST_APART = 8  # names of one kind that are looked at
_LONGEST_ROUND = 8  # marks in an iteration, where their kinds alternate


class IterationMark(NamedTuple):
    """One row of marks.toml."""

    pattern: re.Pattern[str]
    at_end: bool
    whole: bool
    apart: bool
    kinds: re.Pattern[str] | None
    batch: re.Pattern[str] | None
    by: str
    examples: tuple[str, ...]


@cache
def marks() -> tuple[IterationMark, ...]:
    """Return every row of the table, in its order: the first of which a trace has marks decides."""
    table = table_beside(__file__, "marks.toml")["mark"]
    return tuple(
        IterationMark(
            re.compile(row["regex"]),
            {"begin": False, "end": True}[row["cuts"]],
            row.get("whole", False),
            row.get("apart", False),
            re.compile(row["kinds"]) if "kinds" in row else None,
            re.compile(row["batch"]) if "batch" in row else None,
            row["by"],
            tuple(row["examples"]),
        )
        for row in table
    )


def from_annotations(timeline: Timeline, work: LaunchedWork) -> Iterations | None:
    """Return iterations by the first kind of mark that cuts the work into like pieces; None where none does."""
    name = categories(timeline.ops["name"])
    is_annotation = _of_kind(timeline, "annotation")
    codes = sorted_unique(name.codes[is_annotation])
    texts = {int(code): name.values[code][:_LONGEST_NAME] for code in codes if code >= 0}
    for mark in marks() if texts else ():
        fitting = [code for code, text in texts.items() if mark.pattern.search(text)]
        for chosen in _apart(mark, fitting, name.codes, is_annotation):
            rows = np.flatnonzero(is_annotation & np.isin(name.codes, chosen))
            rows = _on_one_thread(timeline, rows)
            found = _cut_at(timeline, work, mark, rows, [texts[code] for code in name.codes[rows].tolist()])
            if found is not None:
                return found
    return None


def _of_kind(timeline: Timeline, kind: str) -> BoolArray:
    kinds = categories(timeline.ops["kind"])
    return kinds.among(kind)


def _apart(
    mark: IterationMark, codes: list[int], of_row: npt.NDArray[np.int32], among: BoolArray
) -> Iterator[list[int]]:
    """Yield sets of names to look at together: all, or, where the row says so, each alone, the rarest first."""
    if not mark.apart:
        yield from [codes] if codes else []
        return
    often = {code: int(((of_row == code) & among).sum()) for code in codes[:_MOST_APART]}
    yield from ([code] for code in sorted(often, key=lambda code: (often[code], code)))


def _on_one_thread(timeline: Timeline, rows: IntArray) -> IntArray:
    """Return the marks of the thread that has most of them, without those inside another."""
    threads = np.stack([rows_of(timeline.ops[each])[rows] for each in ("pid", "tid")])
    _, thread, count = np.unique(threads, axis=1, return_inverse=True, return_counts=True)
    rows = rows[thread.reshape(-1) == count.argmax()]
    start = rows_of(timeline.ops["start_ns"])[rows]
    end = start + numbers(timeline.ops["dur_ns"]).values.astype(np.int64)[rows]
    latest = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    return rows[start >= latest]


def _cut_at(
    timeline: Timeline, work: LaunchedWork, mark: IterationMark, rows: IntArray, names: list[str]
) -> Iterations | None:
    start = rows_of(timeline.ops["start_ns"])[rows]
    end = start + numbers(timeline.ops["dur_ns"]).values.astype(np.int64)[rows]
    cuts = sorted_unique(end if mark.at_end else start)
    turns = 1 if mark.whole else taking_turns(work, cuts)
    cuts = cuts[::-1][::turns][::-1]
    times = f"{len(rows):,} ×" if turns == 1 else f"{len(rows):,} ×, {turns} an iteration,"
    source = NVTX if timeline.meta.format == "nsys" else ANNOTATION
    shown = names[0] if len(names[0]) <= _SHOWN else f"{names[0][:_SHOWN]}…"
    return inferred(
        work,
        cuts,
        source=source,
        evidence=f"{times} `{shown}` ({mark.by})",
        has_head=mark.at_end,
        has_tail=not mark.at_end,
        named=mark.whole,
        labels=_labels(mark, names) if len(cuts) == len(names) else (),
    )


def _labels(mark: IterationMark, names: list[str]) -> list[str | None]:
    """Return what each mark's name says of its iteration.

    >>> _labels(marks()[0], ["execute_context_1(888)_generation_0(0)", "execute_model"])
    ['prefill 1, decode 0', None]
    """
    if mark.kinds is None:
        return []
    found = [mark.kinds.search(name) for name in names]
    return [
        None if each is None else ", ".join(f"{name} {text}" for name, text in each.groupdict().items() if text)
        for each in found
    ]


def taking_turns(work: LaunchedWork, cuts: IntArray) -> int:
    """Return how many marks make up one iteration: 1, or more where pieces of as many kinds follow each other in turn.

    Two networks that are trained in turn step their optimizers twice an iteration.
    """
    pieces = len(cuts) - 1
    if pieces < 4:
        return 1
    inner = cut(work, cuts) - 1
    counts = counted(work, np.where(inner < pieces, inner, -1), pieces)
    kind = np.unique(counts, axis=0, return_inverse=True)[1].reshape(-1)
    if not kind.any():
        return 1
    for turns in range(2, min(_LONGEST_ROUND, pieces // 2) + 1):
        if (kind[turns:] == kind[:-turns]).all() and len(sorted_unique(kind[:turns])) == turns:
            return turns
    return 1
