"""How many reductions of a group need one another: against a walk over every chain."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracemine.fusion.traffic import depths


@settings(max_examples=80)
@given(st.data())
def test_the_depth_is_that_of_the_longest_chain(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    groups = data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
    reduces = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    some = data.draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=30))
    edges = sorted((a, b) for a, b in some if a < b and groups[a] == groups[b] >= 0)

    @cache
    def level(node: int) -> int:
        return reduces[node] + max((level(a) for a, b in edges if b == node), default=0)

    wanted = [max((level(n) for n in range(count) if groups[n] == group), default=0) for group in range(3)]
    producer, consumer = (np.array([edge[at] for edge in edges], np.int64) for at in (0, 1))
    got = depths(np.array(reduces), np.array(groups), 3, producer, consumer)
    assert got.tolist() == wanted


def test_two_sums_of_one_input_are_one_deep_and_a_sum_of_what_a_sum_scaled_is_two() -> None:
    reduces, group = np.array([True, False, True]), np.zeros(3, np.int64)
    nothing = np.zeros(0, np.int64)
    assert depths(reduces, group, 1, nothing, nothing).tolist() == [1]
    assert depths(reduces, group, 1, np.array([0, 1]), np.array([1, 2])).tolist() == [2]
