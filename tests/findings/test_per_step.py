"""Steps by kind: a kind is named after its kernels, and after what the first recorded operator takes."""

from __future__ import annotations

from tests.timelines import Trace
from tracemine.findings.per_step import kinds_of
from tracemine.rows.iterations import iterations


def test_a_kind_is_named_after_the_first_shapes_that_are_recorded_in_it() -> None:
    trace = Trace()
    for number, shapes in enumerate(([8, 4], [8, 4], [2, 4], None)):
        begin = 100_000 * number
        step = trace.step(begin, 90_000)
        for at, taken in enumerate((None, shapes and [shapes], [[7, 7]] if shapes else None)):
            start = begin + 10_000 * (at + 1)
            launch = start - 5_000, 2_000
            trace.kernel("k", start, 5_000, launch=launch, op="aten::add", shapes=taken, step_row=step)
    timeline = trace.timeline()
    found = iterations(timeline)
    assert found is not None
    kinds = {name: rows.tolist() for name, rows in kinds_of(timeline, found)}
    assert kinds == {"3 kernels, first of [[8,4]]": [0, 1], "3 kernels, first of [[2,4]]": [2], "3 kernels": [3]}
