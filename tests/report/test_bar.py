"""The bar of a report's first lines."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tracemine.documents.bar import TITLES, bar_parts, legend
from tracemine.findings.record import Part, Parts, Range
from tracemine.report.screen import bar_rows

STEPS = st.lists(st.integers(0, 10**12), min_size=len(TITLES), max_size=len(TITLES)).map(
    lambda every: Parts(
        ns=sum(every),
        parts=tuple(Part(name=name, ns=ns, gpu_time_ns=ns) for name, ns in zip(TITLES, every, strict=True)),
        covered_communication_ns=0,
        after_ns=Range(0, 0, 0),
    )
)


@given(STEPS, st.integers(40, 140))
def test_the_bar_is_no_wider_than_asked_and_says_each_part_with_its_share(step: Parts, width: int) -> None:
    parts = bar_parts(step)
    rows = [row.plain for row in bar_rows(parts, width)]
    assert all(len(row.rstrip()) <= width for row in rows)
    text = " ".join(rows)
    for part in parts:
        assert part.title in text
        assert part.share in text


@given(STEPS)
def test_its_percents_add_up_to_a_hundred(step: Parts) -> None:
    said = legend(step).replace(">99%", "100%")
    numbers = [int(each) for each in re.findall(r"(?<!<)\b(\d+)%", said)]
    assert sum(numbers) == (100 if step.ns else 0)


def test_nearly_all_is_not_said_to_be_all_beside_another_part() -> None:
    part = Part(name="copies", ns=1, gpu_time_ns=1)
    idle = Part(name="idle", ns=9_999, gpu_time_ns=0)
    nothing = Range(0, 0, 0)
    assert (
        legend(Parts(ns=10_000, parts=(part, idle), covered_communication_ns=0, after_ns=nothing))
        == "copies <1%, idle >99%"
    )
    assert legend(Parts(ns=9_999, parts=(idle,), covered_communication_ns=0, after_ns=nothing)) == "idle 100%"
