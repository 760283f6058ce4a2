"""Idle time that exists only because an execution trace was recorded: it writes down every tensor of a long list."""

from __future__ import annotations

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.rows.arrow import rows_of
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
    op = rows_of(timeline.activities["op_row"])[number(gaps, "next_row")]
    begin, dur = number(gaps, "start_ns"), number(gaps, "dur_ns")
    known = calls_of(timeline).spread(op, _takes_many, False, np.bool_)
    started = rows_of(ops["start_ns"])[op]
    return known & (started <= begin + dur // 2)


def _takes_many(call: Call) -> bool:
    """Return whether one of the lists that a call takes is long.

    >>> [_takes_many(Call("mine::f", (((2,),) * count, ()), ("TensorList", "Scalar"))) for count in (16, 15)]
    [True, False]
    """
    given = call.shapes or ()
    longest = max((sum(isinstance(member, tuple) for member in each) for each in given), default=0)
    return _LIST in (call.dtypes or ()) and longest >= _FEWEST_TENSORS
