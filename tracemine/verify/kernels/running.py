"""Reductions of several running values: Welford's mean and squares, a maximum with a sum of exponentials.

`{x}` is the element; `{a}` the name that the results begin with; `{kept}` the element, or 0 beyond the row; `{count}`
how many elements were seen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Running:
    """How running values start, take in an element x, and become one a row; and the same for a row held whole."""

    start: dict[str, str]
    step: list[str]
    end: list[str]
    whole: list[str]


RUNNING = {
    # Welford: a mean and a sum of squared distances from it, lane by lane, then Chan's formula over the lanes. What
    # rounding left of the mean is added: else a row of equal numbers has a variance, which 1/sqrt makes large. Whole
    # rows sum it beside the squares, and take its square from these: two sums wait for each other, not three.
    "welford": Running(
        start={"seen": "0.0", "a": "0.0", "spread": "0.0"},
        step=[
            "{seen} = tl.where(mask, {seen} + 1.0, {seen})",
            "delta = {x} - {a}",
            "{a} = tl.where(mask, {a} + delta / tl.maximum({seen}, 1.0), {a})",
            "{spread} = tl.where(mask, {spread} + delta * ({x} - {a}), {spread})",
        ],
        end=[
            "{a}_first = tl.sum({a} * {seen}, 1)[:, None] / {count}",
            "{a}_rest = tl.sum(tl.where({seen} > 0, ({a} - {a}_first) * {seen}, 0.0), 1)[:, None] / {count}",
            "{a}_mean = {a}_first + {a}_rest",
            "delta = tl.where({seen} > 0, {a} - {a}_mean, 0.0)",
            "{a}_squares = tl.sum({spread} + {seen} * delta * delta, 1)[:, None]",
        ],
        whole=[
            "{a}_first = tl.sum({kept}, 1)[:, None] / columns",
            "{a}_centred = tl.where(column_mask, {x} - {a}_first, 0.0)",
            "{a}_rest = tl.sum({a}_centred, 1)[:, None] / columns",
            "{a}_mean = {a}_first + {a}_rest",
            "{a}_about = tl.sum({a}_centred * {a}_centred, 1)[:, None]",
            "{a}_rest_squares = {a}_rest * {a}_rest * columns",
            "{a}_squares = tl.maximum({a}_about - {a}_rest_squares, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        ],
    ),
    # The maximum so far and the sum of exponentials less it, in one walk; a lane that saw nothing counts nothing.
    "online": Running(
        start={"a": "-float('inf')", "total": "0.0"},
        step=[
            "top = tl.where(mask, tl.maximum({a}, {x}, propagate_nan=tl.PropagateNan.ALL), {a})",
            "kept = tl.where(top == -float('inf'), 1.0, _exp({a} - top))",
            "more = tl.where(top == -float('inf'), 1.0, _exp({x} - top))",
            "{total} = tl.where(mask, {total} * kept + more, {total})",
            "{a} = top",
        ],
        end=[
            "{a}_max = tl.max({a}, 1)[:, None]",
            "kept = tl.where({total} == 0.0, 0.0, {total} * _exp({a} - {a}_max))",
            "{a}_sum = tl.sum(kept, 1)[:, None]",
        ],
        whole=[
            "{a}_max = tl.max(tl.where(column_mask, {x}, -float('inf')), 1)[:, None]",
            "{a}_sum = tl.sum(tl.where(column_mask, _exp({x} - {a}_max), 0.0), 1)[:, None]",
        ],
    ),
}
