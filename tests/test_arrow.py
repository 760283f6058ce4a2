"""Columns of NumPy, made into others: against a plain loop over their values."""

from __future__ import annotations

import numpy as np
import pytest

from tracemine.timeline import arrow


@pytest.mark.parametrize("few", [0, 1 << 16], ids=["hashed", "sorted"])
def test_equal_values_have_one_code_in_order_of_appearance(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_FEW", few)
    random = np.random.default_rng(5)
    for count in (0, 1, 2, 7, 400):
        for width in (1, 3, 1 << 40):
            values = random.integers(-width, width, count)
            known: dict[int, int] = {}
            wanted = [known.setdefault(value, len(known)) for value in values.tolist()]
            codes, firsts = arrow.distinct(values)
            assert (codes.tolist(), firsts.tolist()) == (wanted, list(known))
