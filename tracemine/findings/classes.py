"""Classes of matches that share everything an estimate depends on: arrays, no Python object a match."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tracemine.columns import codes, sorted_unique
from tracemine.findings.context import ScanContext
from tracemine.flow import Evidence
from tracemine.matching.rule import Matches, Rule
from tracemine.rows.table import IntArray, category, number

_SPREAD_OUT, _OUT_OF_LINE = 100, 10


def classes_of(context: ScanContext, found: Matches) -> Iterable[tuple[IntArray, Evidence]]:
    """Yield the classes of a rule's matches, each a matrix of row numbers, with the weakest evidence of its matches.

    Each row is in one match at most; occurrences that are spread out are dropped.
    """
    weakest = _weakest(found, context.rows[found.rule.rows].count)
    members, offsets = without_overlaps(*_whole_groups(context, found.rule, found.rows, found.offsets))
    offsets = _operators_apart(context, found.rule, members, offsets)
    for matrix in _classes(context, found.rule, members, offsets, weakest):
        kept = _without_spread_out(context, found.rule, matrix)
        context.drop("spread_out", len(matrix) - len(kept))
        if len(kept):
            yield kept, Evidence(int(weakest[kept].min()))


def _operators_apart(context: ScanContext, rule: Rule, members: IntArray, offsets: IntArray) -> IntArray:
    """Return where occurrences begin: of a pass whose fix keeps as many operators each is one, with all its kernels."""
    if rule.saving != "one_pass" or rule.call != "each" or len(offsets) < 2:
        return offsets
    op_row = context.facts[rule.rows].op_row[members]
    begins = np.flatnonzero((op_row[1:] != op_row[:-1]) | (op_row[1:] < 0)) + 1
    return sorted_unique(np.concatenate((offsets, begins)))


def _weakest(found: Matches, count: int) -> npt.NDArray[np.int8]:
    """Return the evidence of each row's match; the strongest where the match has none, or no match has the row."""
    weakest = np.full(count, Evidence.PROVEN, np.int8)
    if found.evidence is not None:
        weakest[found.rows] = np.repeat(
            np.where(found.evidence < 0, Evidence.PROVEN, found.evidence), np.diff(found.offsets)
        )
    return weakest


def _whole_groups(context: ScanContext, rule: Rule, members: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Replace a match in a fusion group by the whole group, once; leave matches elsewhere as they are."""
    groups = context.groups
    if groups is None or rule.saving != "fuse" or len(offsets) < 2:
        return members, offsets
    group = groups.activity_group[members[offsets[:-1]]]
    first = np.zeros(len(group), dtype=bool)
    first[np.unique(group, return_index=True)[1]] = True
    # A user's rule may have claimed part of a group as neighbours: what is left of it is no kernel of its own.
    taken = np.zeros(len(groups), dtype=bool)
    taken[groups.activity_group[context.claimed[rule.rows] & (groups.activity_group >= 0)]] = True
    kept = np.flatnonzero(np.where(group >= 0, first & ~np.append(taken, False)[group], True))
    if not len(kept):
        return members[:0], offsets[:1]
    group = group[kept]
    whole = group >= 0
    begin = np.where(whole, groups.activity_begin[group], len(groups.activity) + offsets[kept])
    lengths = np.where(whole, np.diff(groups.activity_begin, append=0)[group], np.diff(offsets)[kept])
    ends = np.cumsum(lengths)
    at = np.arange(ends[-1]) + np.repeat(begin - (ends - lengths), lengths)
    return np.concatenate((groups.activity, members))[at], np.concatenate(([0], ends))


def _classes(
    context: ScanContext, rule: Rule, members: IntArray, offsets: IntArray, weakest: npt.NDArray[np.int8]
) -> Iterable[IntArray]:
    """Yield equal matches, a matrix of row numbers for each class, in order of first appearance."""
    if len(offsets) < 2:
        return
    facts, rows = context.facts[rule.rows], context.rows[rule.rows]
    of_op = (facts.op, facts.shapes, facts.dtypes, facts.strides, facts.dtype, facts.module, facts.optimizer)
    columns: list[npt.NDArray[np.integer]] = [column.codes for column in of_op]
    columns += [facts.source.codes] if {"source", "line"} & set(rule.group_by) else []
    columns += [category(rows, "cause").codes] if rule.rows == "gaps" else []
    columns += [weakest] if rule.match else []
    columns += [number(rows, "bytes_moved")] if rule.saving == "pin_memory" else []
    columns += [] if rule.evidence is None else [category(rows, rule.evidence).codes]
    if rule.saving == "fuse" and context.groups is not None:
        kind = (context.groups.kernel + 1) * len(Evidence) + context.groups.evidence
        figures = (
            *(kind, context.groups.bytes_before, context.groups.bytes_after),
            *(context.groups.intermediate_bytes, context.groups.product_bytes),
            *(context.groups.more_reads, context.groups.more_writes),
        )
        columns += [np.append(each, -1)[context.groups.activity_group] for each in figures]
    op_row = facts.op_row[members]
    follows = np.concatenate(([False], (op_row[1:] == op_row[:-1]) & (op_row[1:] >= 0)))
    follows[offsets[:-1]] = False  # the first of a match continues nothing
    code = codes(*(column[members].astype(np.int64) for column in columns), follows.astype(np.int64))
    group = groups_of_sequences(code, offsets)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for block in sorted(np.split(order, starts[1:]), key=lambda block: int(block[0])):
        length = int(offsets[block[0] + 1] - offsets[block[0]])
        yield members[offsets[block][:, None] + np.arange(length)]


def _without_spread_out(context: ScanContext, rule: Rule, matrix: IntArray) -> IntArray:
    """Drop occurrences that lie far apart: over a hundred times their own time, alone or ten times what another one
    takes. A module was loaded in between, or a model warmed up: one kernel does not win that back.
    """
    if rule.saving != "fuse":
        return matrix
    rows = context.rows[rule.rows]
    start, dur = (number(rows, name)[matrix] for name in ("start_ns", "dur_ns"))
    span = (start + dur).max(axis=1) - start.min(axis=1)
    out_of_line = span > _OUT_OF_LINE * span.min() if len(span) > 1 else np.ones(1, np.bool_)
    kept: IntArray = matrix[~((span > _SPREAD_OUT * dur.sum(axis=1)) & out_of_line)]
    return kept


def groups_of_sequences(values: IntArray, offsets: IntArray) -> IntArray:
    """Return a group number for each sequence `values[offsets[i]:offsets[i+1]]`: equal exactly where the sequences are.

    >>> groups_of_sequences(np.array([1, 2, 1, 2, 3]), np.array([0, 2, 4, 5])).tolist()
    [1, 1, 0]
    """
    lengths = np.diff(offsets)
    groups = np.zeros(len(lengths), dtype=np.int64)
    count = 0
    for length in sorted_unique(lengths):
        of_length = np.flatnonzero(lengths == length)
        matrix = values[offsets[of_length][:, None] + np.arange(length)]
        inverse = codes(*matrix.T)
        groups[of_length] = inverse + count
        count += int(inverse.max(initial=-1)) + 1
    return groups


def without_overlaps(rows: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Keep matches of one rule that do not overlap, as rows and offsets: of two that share a row, the earlier.

    >>> [x.tolist() for x in without_overlaps(np.array([0, 1, 1, 2, 2, 3]), np.array([0, 2, 4, 6]))]
    [[0, 1, 2, 3], [0, 2, 4]]
    """
    if np.bincount(rows).max(initial=0) <= 1:
        return rows, offsets
    lengths = np.diff(offsets)
    stands, used = np.zeros(len(lengths), dtype=bool), set[int]()
    members = rows.tolist()
    for match, (start, stop) in enumerate(pairwise(offsets.tolist())):
        stands[match] = used.isdisjoint(members[start:stop])
        if stands[match]:
            used.update(members[start:stop])
    return rows[np.repeat(stands, lengths)], np.concatenate(([0], np.cumsum(lengths[stands])))
