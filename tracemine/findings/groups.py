"""Matches put together by what they are: sequences compared as arrays, no Python object a match."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracemine.rows.table import BoolArray, IntArray


def combined(*codes: IntArray) -> IntArray:
    """One code for each distinct combination of codes (each ≥ −1), numbered from 0.

    >>> combined(np.array([0, 0, 1]), np.array([5, -1, 5])).tolist()
    [1, 0, 2]
    """
    key = np.zeros(len(codes[0]), dtype=np.int64)
    for column in codes:
        width = int(column.max(initial=-1)) + 2
        key = np.unique(key * width + column + 1, return_inverse=True)[1].astype(np.int64)
    return key


def groups_of_sequences(values: IntArray, offsets: IntArray) -> IntArray:
    """A group number for each sequence `values[offsets[i]:offsets[i+1]]`: equal exactly where the sequences are.

    >>> groups_of_sequences(np.array([1, 2, 1, 2, 3]), np.array([0, 2, 4, 5])).tolist()
    [1, 1, 0]
    """
    lengths = np.diff(offsets)
    groups = np.zeros(len(lengths), dtype=np.int64)
    count = 0
    for length in np.unique(lengths):
        of_length = np.flatnonzero(lengths == length)
        matrix = values[offsets[of_length][:, None] + np.arange(length)]
        inverse = np.unique(matrix, axis=0, return_inverse=True)[1].reshape(-1)
        groups[of_length] = inverse + count
        count += int(inverse.max(initial=-1)) + 1
    return groups


def unclaimed(
    rows: IntArray, offsets: IntArray, variables: IntArray, claimed: BoolArray, least: int = 2
) -> tuple[IntArray, IntArray, int]:
    """What is left of matches when some of their rows are taken: rows, offsets, and how many matches left nothing.

    A match of one repeated variable may be cut: every run of `least` or more free neighbours is a match of its own. Any
    other match stands whole or not at all. Among matches of one rule that overlap, the earlier stands.

    >>> taken = np.array([False, False, True, False, False, False])
    >>> [x if isinstance(x, int) else x.tolist() for x in
    ...  unclaimed(np.arange(6), np.array([0, 6]), np.zeros(6, int), taken)]
    [[0, 1, 3, 4, 5], [0, 2, 5], 0]
    """
    lengths = np.diff(offsets)
    match = np.repeat(np.arange(len(lengths)), lengths)
    one_variable = np.zeros(len(lengths), dtype=bool)
    filled = lengths > 0
    if filled.any():
        starts = offsets[:-1][filled]
        one_variable[filled] = np.minimum.reduceat(variables, starts) == np.maximum.reduceat(variables, starts)
    taken = claimed[rows]
    possible = one_variable | (np.bincount(match[taken], minlength=len(lengths)) == 0)
    free = ~taken & _apart(rows, offsets, possible)[match]
    first = np.zeros(len(rows), dtype=bool)
    first[offsets[:-1][lengths > 0]] = True
    begins = free & (first | ~np.concatenate(([False], free[:-1])))
    piece = np.cumsum(begins) - 1
    kept = np.flatnonzero(free)
    piece_match = match[begins]
    piece_length = np.bincount(piece[kept], minlength=len(piece_match))
    good = (piece_length == lengths[piece_match]) | (one_variable[piece_match] & (piece_length >= least))
    kept = kept[good[piece[kept]]]
    lost = len(lengths) - len(np.unique(piece_match[good]))
    return rows[kept], np.concatenate(([0], np.cumsum(piece_length[good]))), lost


def _apart(rows: IntArray, offsets: IntArray, possible: BoolArray) -> BoolArray:
    """Which matches stand if, of the possible ones that share a row, the earlier does."""
    if np.bincount(rows).max(initial=0) <= 1:
        return possible
    stands, used = possible.copy(), set[int]()
    members = rows.tolist()
    for match, (start, stop) in enumerate(pairwise(offsets.tolist())):
        if possible[match]:
            stands[match] = used.isdisjoint(members[start:stop])
            if stands[match]:
                used.update(members[start:stop])
    return stands
