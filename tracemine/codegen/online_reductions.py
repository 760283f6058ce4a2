"""Reductions of several running values: Welford's mean and squares, a maximum with a sum of exponentials.

`{x}` is the element; `{a}` the name that the results begin with; `{kept}` the element, or 0 beyond the row; `{first}`
the column that a loop begins at, `{step}` how far it goes in a step, `{count}` how many elements it meets.
"""

from __future__ import annotations

import msgspec


class OnlineReduction(msgspec.Struct, frozen=True):
    """How running values start, take in an element x, and become one a row; and the same for a row held whole.

    lanes: how many running values there are of a row.
    """

    lanes: str
    start: dict[str, str]
    step: list[str]
    end: list[str]
    whole: list[str]


ONLINE = {
    # Welford: a mean and a sum of squared distances from it, lane by lane, then Chan's formula over the lanes. What
    # rounding left of the mean is added: else a row of equal numbers has a variance, which 1/sqrt makes large. Whole
    # rows sum it along with the squares, and take its square from these: two sums wait for each other, not three.
    # How many a lane has seen, and so what share the next one is, all lanes of a step have in common.
    "welford": OnlineReduction(
        lanes="RBLOCK",
        start={"a": "0.0", "spread": "0.0"},
        step=[
            "delta = {x} - {a}",
            "{a} = tl.where(mask, {a} + delta * (1.0 / ((start - {first}) // {step} + 1)), {a})",
            "{spread} = tl.where(mask, {spread} + delta * ({x} - {a}), {spread})",
        ],
        end=[
            "lane = tl.arange(0, RBLOCK)[None, :]",
            "{a}_count = tl.cdiv(tl.maximum(columns - {first} - lane, 0), {step}).to(tl.float32)",
            "{a}_first = tl.sum({a} * {a}_count, 1)[:, None] / {count}",
            "{a}_rest = tl.sum(tl.where({a}_count > 0, ({a} - {a}_first) * {a}_count, 0.0), 1)[:, None] / {count}",
            "{a}_mean = {a}_first + {a}_rest",
            "delta = tl.where({a}_count > 0, {a} - {a}_mean, 0.0)",
            "{a}_squares = tl.sum({spread} + {a}_count * delta * delta, 1)[:, None]",
        ],
        whole=[
            "{a}_first = tl.sum({kept}, 1)[:, None] / columns",
            "{a}_centred = tl.where(column_mask, {x} - {a}_first, 0.0)",
            "{a}_rest = tl.sum({a}_centred, 1)[:, None] / columns",
            "{a}_mean = {a}_first + {a}_rest",
            "{a}_sum_squares = tl.sum({a}_centred * {a}_centred, 1)[:, None]",
            "{a}_rest_squares = {a}_rest * {a}_rest * columns",
            "{a}_squares = tl.maximum({a}_sum_squares - {a}_rest_squares, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        ],
    ),
    # The maximum so far and the sum of exponentials less it, in one loop, for as many elements as a thread holds
    # together: a sum is scaled anew once for all of them. What saw nothing counts nothing. `{least}`: the element,
    # rounded before its largest is taken off.
    "online": OnlineReduction(
        lanes="RBLOCK // GROUP",
        start={"a": "-float('inf')", "total": "0.0"},
        step=[
            "values = tl.where(mask, {x}, -float('inf'))",
            "values = tl.reshape(values, (XBLOCK, RBLOCK // GROUP, GROUP), can_reorder=True)",
            "running_max = _larger({a}, tl.reduce(values, 2, _larger))",
            "finite_max = tl.where(running_max == -float('inf'), 0.0, running_max)",
            "{total} = {total} * _exp({a} - finite_max) + tl.sum(_exp({least} - finite_max[:, :, None]), 2)",
            "{a} = running_max",
        ],
        end=[
            "{a}_max = _row_max({a})",
            "scaled_sum = tl.where({total} == 0.0, 0.0, {total} * _exp({a} - {a}_max))",
            "{a}_sum = tl.sum(scaled_sum, 1)[:, None]",
        ],
        whole=[
            "{a}_max = _row_max(tl.where(column_mask, {x}, -float('inf')))",
            "{a}_sum = tl.sum(tl.where(column_mask, _exp({least} - {a}_max), 0.0), 1)[:, None]",
        ],
    ),
}
