"""Iterations of a program: steps as they were marked, or, where none was, inferred with the evidence named.

iterations(timeline)   → Iterations: which activity is part of which, what tells, and how sure that is
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.iterations.annotations import from_annotations, marks
from tracemine.rows.iterations.record import ANNOTATION, MARKED, Iterations, LaunchedWork, cut, work_of
from tracemine.rows.iterations.repeats import from_repeats
from tracemine.rows.iterations.replays import from_replays
from tracemine.timeline import Timeline

__all__ = ["WAYS", "Iterations", "iterations"]

# How iterations are inferred, the strongest evidence first. None: nothing of the kind repeats.
WAYS: tuple[Callable[[Timeline, LaunchedWork], Iterations | None], ...] = (from_annotations, from_replays, from_repeats)

_LONGEST_NAME = 512  # characters that are looked at: names come from strangers
# Of SGLang's modes: whether sequences are prompts. A mode that is missing here mixes both, or checks drafts.
_PROMPTS: Final = {"EXTEND": True, "PREFILL": True, "DECODE": False}
# What a forward pass looks up first: a table, and of each sequence so many tokens.
_LOOKED_UP: Final = deferred(r"^\[\[(\d{1,9}),\d{1,9}\],\[(\d{1,9}),(\d{1,9})\]")


def iterations(timeline: Timeline) -> Iterations | None:
    """Return the iterations of a timeline; None where no step was marked and nothing tells that something repeats.

    >>> from tracemine.timeline import Meta
    >>> iterations(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))) is None
    True
    """
    if timeline.steps.num_rows:
        return _marked(timeline)
    work = work_of(timeline)
    found = (way(timeline, work) for way in WAYS) if len(work.dur_ns) else ()
    return next((each for each in found if each is not None), None)


def _marked(timeline: Timeline) -> Iterations:
    steps = timeline.steps
    name = categories(steps["name"])
    begin = rows_of(steps["start_ns"])
    return Iterations(
        source=MARKED,
        evidence=f"{name.values[int(name.codes[0])]} and {steps.num_rows - 1:,} more" if steps.num_rows > 1 else "",
        confidence=1.0,
        begin_ns=begin,
        end_ns=begin + numbers(steps["dur_ns"]).values.astype(np.int64),
        of_activity=rows_of(timeline.activities["step_row"]),
    )


class Batch(Struct, frozen=True):
    """Sequences and tokens of one iteration; None: not known."""

    prefill: int  # sequences of which part of the prompt is read
    decode: int  # sequences that go on
    prefill_tokens: int | None = None
    decode_tokens: int | None = None  # more than there are sequences where drafts are checked

    @property
    def phase(self) -> str:
        """`prefill`, `decode`, or `mixed`; "" of an empty batch."""
        return (
            "mixed" if self.prefill and self.decode else "prefill" if self.prefill else "decode" if self.decode else ""
        )

    @property
    def tokens(self) -> int | None:
        """Return how many tokens go through the model."""
        told = [self.prefill_tokens if self.prefill else 0, self.decode_tokens if self.decode else 0]
        return None if None in told else sum(each or 0 for each in told)


def batch_of(name: str) -> Batch | None:
    """Return the batch that an annotation's name tells; None: it tells none.

    >>> batch_of("execute_context_1(888)_generation_3(3)")
    Batch(prefill=1, decode=3, prefill_tokens=888, decode_tokens=3)
    >>> batch_of("step[EXTEND bs=15 toks=15360]").phase, batch_of("step[DECODE bs=32]").tokens, batch_of("Scheduler")
    ('prefill', 32, None)
    """
    for mark in marks():
        told = mark.batch.search(name[:_LONGEST_NAME]) if mark.batch is not None else None
        if told is None or not mark.pattern.search(name[:_LONGEST_NAME]):
            continue
        groups = told.groupdict()
        if (mode := groups.pop("mode", None)) is None:
            return Batch(**{each: int(count) for each, count in groups.items() if count})
        count, tokens = int(groups["sequences"]), groups["tokens"]
        if mode not in _PROMPTS:
            return None
        known = None if tokens is None else int(tokens)
        return Batch(count, 0, known) if _PROMPTS[mode] else Batch(0, count, None, known or count)
    return None


def batches(timeline: Timeline, found: Iterations) -> list[Batch | None]:
    """Return the batch of each iteration, by the first annotation within it that tells one; of a single one by any."""
    name = categories(timeline.ops["name"])
    told = [batch_of(text) for text in name.values]
    knows = np.array([*(each is not None for each in told), False], np.bool_)[name.codes]
    rows = np.flatnonzero(knows & categories(timeline.ops["kind"]).among("annotation"))
    start = rows_of(timeline.ops["start_ns"])[rows]
    of: list[Batch | None] = [None] * len(found)
    at = np.searchsorted(start, found.begin_ns) if len(found) > 1 else np.zeros(len(found), np.int64)
    for iteration, (first, end) in enumerate(zip(at.tolist(), found.end_ns.tolist(), strict=True)):
        if first < len(rows) and start[first] < end:
            of[iteration] = told[int(name.codes[rows[first]])]
    return of


def forward_passes(timeline: Timeline) -> tuple[Iterations, list[Batch | None]] | None:
    """Return the forward passes of a loop that generates, with the batch of each; None where fewer than two are known.

    They begin where tokens are looked up: many of each sequence where the prompt is read, then one.
    """
    name, shapes = categories(timeline.ops["name"]), categories(timeline.ops["input_shapes"])
    told = [_LOOKED_UP.search(text) for text in shapes.values]
    table = np.array([*(0 if each is None else int(each[1]) for each in told), 0], np.int64)[shapes.codes]
    looks = name.among("aten::embedding")
    rows = np.flatnonzero(looks & (table == table[looks].max(initial=1)))  # positions are looked up in a smaller one
    if len(rows) < 2:
        return None
    begin, work = rows_of(timeline.ops["start_ns"])[rows], work_of(timeline)
    if len(sorted_unique(begin)) < len(begin):
        return None
    sizes = [(int(each[2]), int(each[3])) for code in shapes.codes[rows].tolist() if (each := told[code]) is not None]
    batch: list[Batch | None] = [
        Batch(0, count, None, count) if length == 1 else Batch(count, 0, count * length) for count, length in sizes
    ]
    last = max(int(work.end_ns.max(initial=0)), int(begin[-1]))
    found = Iterations(
        source=ANNOTATION,
        evidence="",
        confidence=1.0,
        begin_ns=begin,
        end_ns=np.append(begin[1:], last),
        of_activity=np.where(work.known, cut(work, begin) - 1, -1),
    )
    return found, batch
