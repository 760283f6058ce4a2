"""Matches put together by what they are: sequences compared as arrays, no Python object a match."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracemine.rows.table import IntArray


def combined(*codes: IntArray) -> IntArray:
    """One code for each distinct combination of codes (each ≥ −1), numbered from 0.

    >>> combined(np.array([0, 0, 1]), np.array([5, -1, 5])).tolist()
    [1, 0, 2]
    """
    key = np.zeros(len(codes[0]), dtype=np.int64)
    for column in codes:
        if column.max(initial=-1) > len(column):  # so that no product leaves 64 bits, whatever a trace holds
            column = np.unique(column, return_inverse=True)[1]
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


def apart(rows: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Rows and offsets of the matches that stand where those of one rule overlap: of two that share a row, the earlier.

    >>> [x.tolist() for x in apart(np.array([0, 1, 1, 2, 2, 3]), np.array([0, 2, 4, 6]))]
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
