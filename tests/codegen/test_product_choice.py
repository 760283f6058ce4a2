"""Which kernels around products are made, held against what was measured of them on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from benchmarks.fixes.product_choice import judged, measured
from benchmarks.fixes.product_kernels import cases, unseen
from tracemine.codegen import choice

KERNELS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "product_kernels"
CASES = {case.name: case for case in [*cases(), *unseen()]}


@pytest.mark.parametrize("name", ["results", "unseen", "unseen_second", "unseen_third"])
def test_no_kernel_is_made_that_measured_slower_by_more_than_three_percent(name: str) -> None:
    found = measured(KERNELS / f"{name}.jsonl")
    assert [each for each, times in found.items() if judged(CASES[each], times, used=False)] == []


def test_tiles_that_are_not_filled_and_vocabularies_that_need_no_padding_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_full(row: choice.ClassRates) -> choice.ClassRates:
        return structs.replace(row, uneven=1.0, rest_aligned=0.0, gain=1.03 if row.gain > 1 else row.gain)

    planted = {kind: as_full(row) for kind, row in choice.rates().items()}
    monkeypatch.setattr(choice, "rates", lambda: planted)
    found = measured(KERNELS / "unseen_second.jsonl")
    slower = [each for each, times in found.items() if judged(CASES[each], times, used=False)]
    assert {"head_12x320x30000x768", "head_16x96x51200x1280"} & {*slower}
