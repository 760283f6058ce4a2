"""Arrow's columns as NumPy arrays: against their own values, cut into chunks and beginning anywhere in them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tracemine.columns import MISSING, booleans, codes, from_numbers, is_among, is_present, lists, numbers, string_ids


def chunked(values: list[Any], kind: pa.DataType, cuts: random.Random) -> pa.ChunkedArray:
    """The values in some chunks, each a slice of an array that holds more."""
    chunks, at = [], 0
    while at < len(values):
        count, before, behind = (cuts.randrange(5) for _ in range(3))
        more = [cuts.choice(values) for _ in range(before + behind)]
        whole = pa.array(more[:before] + values[at : at + count] + more[before:], kind)
        chunks.append(whole.slice(before, len(values[at : at + count])))
        at += count
    return pa.chunked_array(chunks, kind)


@pytest.mark.parametrize("seed", range(20))
def test_values_of_slices_are_their_own(seed: int) -> None:
    cuts = random.Random(seed)
    count = cuts.randrange(30)
    whole = [cuts.choice((None, -5, 0, 7, 2**30)) for _ in range(count)]
    for kind in (pa.int32(), pa.int64()):
        found = numbers(chunked(whole, kind, cuts)).tolist()
        assert found == [MISSING if value is None else value for value in whole]
    flags = [cuts.choice((None, True, False)) for _ in range(count)]
    assert booleans(chunked(flags, pa.bool_(), cuts)).tolist() == [bool(flag) for flag in flags]
    words = [cuts.choice((None, "a", "b", "c")) for _ in range(count)]
    ids, strings = string_ids(chunked(words, pa.dictionary(pa.int32(), pa.string()), cuts))
    assert [None if each < 0 else strings[each] for each in ids.tolist()] == words


@pytest.mark.parametrize("seed", range(20))
def test_lists_of_slices_are_their_own(seed: int) -> None:
    cuts = random.Random(seed)
    rows = [cuts.choice((None, [], [3], [1, 2, 4])) for _ in range(cuts.randrange(30))]
    values, ends, present = lists(chunked(rows, pa.list_(pa.int64()), cuts))
    both = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    assert [values[first:last].tolist() for first, last in both] == [row or [] for row in rows]
    assert present.tolist() == [row is not None for row in rows]


def test_columns_of_nulls_have_the_same_zeros() -> None:
    whole = np.arange(1000)
    nothing = np.zeros(1000, np.bool_)
    one, other = (
        from_numbers(whole.astype(width), kind, nothing)
        for width, kind in ((np.int64, pa.int64()), (np.int32, pa.int32()))
    )
    for column in (one, other, one.slice(993), from_numbers(whole[:0], pa.int64(), nothing[:0])):
        column.validate(full=True)
        assert column.to_pylist() == [None] * len(column)
        assert not is_present(column).any() and len(is_present(column)) == len(column)
    assert one.buffers()[1].address == other.buffers()[1].address


@pytest.mark.parametrize("seed", range(40))
def test_codes_are_the_places_among_the_combinations_that_occur(seed: int) -> None:
    cuts = np.random.default_rng(seed)
    count = int(cuts.integers(1, 300))
    widths = cuts.choice([1, 2, 9, 5_000, 1 << 20, 1 << 61], int(cuts.integers(1, 7)))
    keys = [cuts.integers(-width // 2, width // 2 + 1, count) * cuts.integers(0, 2, count) for width in widths.tolist()]
    rows = list(zip(*(key.tolist() for key in keys), strict=True))
    place = {row: number for number, row in enumerate(sorted(set(rows)))}
    assert codes(*keys).tolist() == [place[row] for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_among_others_is_what_numpy_says(seed: int) -> None:
    cuts = random.Random(seed)
    apart = cuts.choice((1, 3, 2**40))
    values, chosen = (
        np.array([cuts.randrange(-9, 9) * apart for _ in range(cuts.randrange(20))], np.int64) for _ in range(2)
    )
    assert is_among(values, chosen).tolist() == np.isin(values, chosen).tolist()
