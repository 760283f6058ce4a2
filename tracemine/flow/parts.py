"""Which operators can share tensors: those of one process whose threads launch on the same device."""

from __future__ import annotations

import numpy as np

from tracemine.columns import codes, examples, numbers, string_ids
from tracemine.flow.record import IntArray
from tracemine.timeline import Timeline

_NONE = -1
_ROUNDS = 64  # of threads that are connected by others: what is further apart counts as parts of its own


def parts(timeline: Timeline) -> IntArray:
    """Return for each row of `ops` the number of its part; −1 for annotations, and on threads whose operators launch
    nothing.

    Threads are of one part that launch on one device, as a forward and a backward pass do, or that a third connects.
    """
    ops, activities = timeline.ops, timeline.activities
    kind, kinds = string_ids(ops.column("kind"))
    is_op = kind == (kinds.index("op") if "op" in kinds else -2)
    pid, tid = (numbers(ops.column(name)) for name in ("pid", "tid"))
    thread = codes(pid, tid)
    owner = numbers(activities.column("op_row"), _NONE)
    launched = owner >= 0
    of_thread = thread[owner[launched]]
    device = codes(pid[owner[launched]], numbers(activities.column("device"))[launched])
    pairs = examples(codes(of_thread, device))
    of_thread, device = of_thread[pairs], device[pairs]
    part = np.arange(int(thread.max(initial=-1)) + 1)
    for _ in range(_ROUNDS if len(device) else 0):
        least = np.full(int(device.max()) + 1, len(part))
        np.minimum.at(least, device, part[of_thread])
        before = part.copy()
        np.minimum.at(part, of_thread, least[device])
        if bool((part == before).all()):
            break
    launches = np.zeros(len(part), np.bool_)
    launches[of_thread] = True
    return np.where(is_op & launches[thread], part[thread], _NONE) if len(thread) else thread
