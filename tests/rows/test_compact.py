"""Columns of one value take next to no memory, and are what they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.rows.table import Categories, Column, Flags, Numbers, Rows, held_once


@given(st.lists(st.sampled_from([0.0, 1.5, float("nan"), -1.0]), max_size=6), st.sampled_from(["f8", "i4", "?"]))
def test_values_stay_and_only_equal_ones_are_held_once(values: list[float], kind: str) -> None:
    given_values = np.nan_to_num(values).astype(kind) if kind != "f8" else np.array(values, kind)
    found = held_once(given_values)
    assert found.dtype == given_values.dtype
    assert np.array_equal(found, given_values, equal_nan=kind == "f8")
    if len(values) > 1:
        assert (found.strides == (0,)) == bool((given_values == given_values[0]).all())


def test_columns_of_all_kinds_are_held_once_and_not_written_to() -> None:
    columns: dict[str, Column] = {
        "dur_ns": Numbers(np.full(9, 5), np.zeros(9, np.bool_)),
        "op": Categories(np.full(9, -1, np.int32), ()),
        "grouped": Flags(np.ones(9, np.bool_)),
        "start_ns": Numbers(np.arange(9)),
    }
    rows = Rows("activities", 9, columns).compact()
    one, op, grouped, start = (rows.columns[name] for name in columns)
    assert isinstance(one, Numbers) and one.valid is not None
    assert isinstance(op, Categories) and isinstance(grouped, Flags) and isinstance(start, Numbers)
    for each in (one.values, one.valid, op.codes, grouped.values):
        assert each.strides == (0,)
        with pytest.raises(ValueError, match="read-only"):
            each[0] = 0
    assert start.values.strides == (8,)
