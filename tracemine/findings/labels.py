"""What a match is, in words: operators, shapes, dtype, module and source line, the same in tomorrow's trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracemine.findings.facts import Facts
from tracemine.findings.record import Source
from tracemine.findings.sources import short, sources
from tracemine.findings.tensors import first_shape, read_dtype
from tracemine.matching.rule import Rule
from tracemine.rows.table import Categories, IntArray
from tracemine.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a class is, in words: the same in tomorrow's trace."""

    ops: tuple[str, ...]
    shapes: str | None  # for people
    all_shapes: tuple[str | None, ...]  # for telling apart
    dtype: str | None
    module: str | None
    source: tuple[Source, ...]

    def signature(self, rule: Rule) -> dict[str, object]:
        """The facets that the rule groups by."""
        source = short(self.source[0]) if self.source else None
        facets: dict[str, object] = {
            "ops": self.ops,
            "shapes": self.all_shapes,
            "dtype": self.dtype,
            "module": self.module,
            "source": source,
            "line": None if source is None else f"{source}:{self.source[0].line}",  # an edit above moves it
        }
        return {"rule": rule.id} | {name: facets[name] for name in rule.group_by}


def label_of(timeline: Timeline, facts: Facts, members: IntArray) -> Label:
    heads = [members[part][0] for part in by_operator(facts, members)]
    stack = next((int(facts.stack_row[row]) for row in members if facts.stack_row[row] >= 0), None)
    return Label(
        ops=tuple(text_at(facts.op, row) or "" for row in heads),
        shapes=_shapes_text([text_at(facts.shapes, row) for row in heads]),
        all_shapes=tuple(text_at(facts.shapes, row) for row in heads),
        dtype=next((name for row in heads if (name := _read_dtype(facts, row)) is not None), None),
        module=common_module([text_at(facts.module, row) for row in heads]),
        source=sources(timeline, stack),
    )


def by_operator(facts: Facts, members: IntArray) -> list[slice]:
    """Slices of a match, one an operator call: neighbours with the same operator row belong to one call."""
    op_row = facts.op_row[members]
    cuts = [0, *(np.flatnonzero((op_row[1:] != op_row[:-1]) | (op_row[1:] < 0)) + 1).tolist(), len(members)]
    return [slice(a, b) for a, b in pairwise(cuts)]


def text_at(column: Categories, row: int | np.int64) -> str | None:
    code = int(column.codes[row])
    return column.values[code] if code >= 0 else None


def common_module(patterns: Sequence[str | None]) -> str | None:
    """The innermost module that encloses all members for which one is known."""
    paths = [pattern.split(".") for pattern in patterns if pattern is not None]
    common = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return ".".join(common) or None


def _read_dtype(facts: Facts, row: np.int64) -> str | None:
    op, dtypes = text_at(facts.op, row), text_at(facts.dtypes, row)
    return None if op is None or dtypes is None else read_dtype(op, dtypes)


def _shapes_text(recorded: Sequence[str | None]) -> str | None:
    """Each distinct shape of a first tensor input, in order; None where none was recorded."""
    firsts = dict.fromkeys(shape for text in recorded if text is not None and (shape := first_shape(text)) is not None)
    return ", ".join(firsts) or None
