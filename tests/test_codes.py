"""Arrow's columns as arrays, and codes of keys: as what goes entry by entry finds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine import columns
from tracemine.rows.codes import first_rows

KEY = st.tuples(st.integers(-3, 3), st.sampled_from([0, 7, 1 << 40, -(1 << 61)]))
# Keys that stand in runs, as those of steps and threads do, and keys that do not.
RUNS = st.lists(st.tuples(KEY, st.integers(1, 12)), max_size=9).map(
    lambda runs: [key for key, n in runs for _ in range(n)]
)


def numbered(keys: list[tuple[int, int]]) -> list[int]:
    order = sorted(set(keys))
    return [order.index(key) for key in keys]


def check(keys: list[tuple[int, int]]) -> None:
    one, other = (np.array([key[at] for key in keys], np.int64) for at in (0, 1))
    assert columns.codes(one, other).tolist() == numbered(keys)


@given(st.one_of(RUNS, st.lists(KEY, max_size=30)))
def test_codes_number_keys_in_their_order(keys: list[tuple[int, int]]) -> None:
    check(keys)


def test_a_planted_fault_in_runs_makes_the_comparison_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "flatnonzero", lambda changes: np.nonzero(changes)[0][1:])
    with pytest.raises(AssertionError):
        check([(0, 0)] * 20 + [(1, 0)] * 20)


@given(
    st.lists(st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=6), max_size=4),
    st.sampled_from(["int32", "int64"]),
)
def test_numbers_are_those_of_all_chunks(chunks: list[list[int | None]], width: str) -> None:
    kind = pa.type_for_alias(width)
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)
    found = columns.numbers(column)
    assert found.dtype == np.int64 and found.flags.writeable
    assert found.tolist() == [columns.MISSING if value is None else value for value in column.to_pylist()]


@given(st.lists(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=6), max_size=4), st.integers(0, 2))
def test_ids_of_texts_are_those_of_all_chunks(chunks: list[list[str | None]], skipped: int) -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    column = pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)[skipped:]
    for found, texts in (columns.string_ids(column), columns.string_codes(column)):
        assert found.flags.writeable
        assert [None if code < 0 else texts[code] for code in found.tolist()] == column.to_pylist()


@given(st.lists(st.integers(-1, 5), max_size=20))
def test_the_first_row_of_a_code_is_the_one_that_searching_finds(codes: list[int]) -> None:
    searched = [codes.index(code) if code in codes else -1 for code in (*range(6), -1)]
    assert first_rows(np.array(codes, np.int32), 6).tolist() == searched
