"""Idle time that exists only because an execution trace was recorded: it writes down every tensor of a long list."""

from __future__ import annotations

import numpy as np

from tracemine.rows.arrow import categories, mapped, rows_of
from tracemine.rows.signature import texts
from tracemine.rows.table import BoolArray, Rows, number
from tracemine.timeline import Timeline

_LIST, _FEWEST_TENSORS = "TensorList", 16


def of_recorder(timeline: Timeline, gaps: Rows) -> BoolArray:
    """Return the gaps that passed mostly within an operator on a list of many tensors, where such a trace was written.

    torch gives operators ids of their own only while it writes an execution trace.
    """
    ops = timeline.ops
    none = np.zeros(gaps.count, np.bool_)
    if not ops.num_rows or ops["record_function_id"].null_count == ops.num_rows or not gaps.count:
        return none
    lists = mapped(categories(ops["input_dtypes"]), lambda text: text if _LIST in (texts(text) or ()) else None)
    many = mapped(categories(ops["input_shapes"]), lambda text: text if _longest(text) >= _FEWEST_TENSORS else None)
    op = rows_of(timeline.activities["op_row"])[number(gaps, "next_row")]
    begin, dur = number(gaps, "start_ns"), number(gaps, "dur_ns")
    known = (op >= 0) & (lists.codes[op] >= 0) & (many.codes[op] >= 0)
    started = rows_of(ops["start_ns"])[op]
    return known & (started <= begin + dur // 2)


def _longest(shapes: str) -> int:
    """Return how many tensors the longest list among an operator's inputs has, by the lists of sizes in its text.

    >>> _longest("[[[2],[2],[2]],[]]"), _longest("[[2,3],[]]")
    (3, 0)
    """
    depth, count, longest = 0, 0, 0
    for character in shapes:
        if character == "[":
            depth += 1
            count = 0 if depth == 2 else count + (depth == 3)
        elif character == "]":
            depth -= 1
            longest = max(longest, count)
    return longest
