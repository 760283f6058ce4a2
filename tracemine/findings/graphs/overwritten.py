"""Results that are read after a later call has taken their memory.

What torch.compile replays as a CUDA graph returns memory of that graph. The next call takes it again, unless results
of the one before still wait for their backward pass: as torch's own rule is (torch/_inductor/cudagraph_trees.py). Where
the program marks where its steps begin, only the next step does.
"""

from __future__ import annotations

import numpy as np

from tracemine.findings.graphs.spans import Program
from tracemine.rows.ancestors import taken
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import IntArray


def overwritten(program: Program, calls: IntArray, graph: NodeGraph, *, by_step: bool = False) -> bool:
    """Return whether something reads what a call of a span wrote after a later call took its memory.

    calls: of each forward operator the call of the span, −1: none; by_step: the program says where its steps begin.
    """
    first = np.unique(calls[calls >= 0], return_index=True)[1]
    rows = program.rows[np.flatnonzero(calls >= 0)[first]]
    begin = program.op_begin[rows]
    node = graph.first_activity
    time, back = program.launched_ns[node], program.backward[node]
    own = np.where(node >= 0, taken(calls, taken(program.place, program.forward[node])), -1)
    moments = np.sort(time[back & (own >= 0)])
    generation = program.step_at(begin) if by_step else _generations(begin, moments)
    at = np.where(back, generation[np.searchsorted(begin, time, side="right") - 1], taken(generation, own))
    made, read = graph.producer, graph.consumer
    inside = own[made] >= 0
    made, read = made[inside], read[inside]
    read_at = np.where((own[read] >= 0) & ~back[read], taken(generation, own[read]), -1)
    later = np.searchsorted(begin, time[read], side="right") - 1
    now = np.where(read_at >= 0, read_at, generation[later])
    return bool(((now > at[made]) & (time[read] >= 0)).any())


def _generations(begin: IntArray, backward: IntArray) -> IntArray:
    """Return of each call, in order, how often memory was taken anew up to it.

    backward: when something of the span's backward pass ran, in order. With one to come after it a call keeps memory.

    >>> _generations(np.array([1, 2, 9]), np.array([5])).tolist(), _generations(np.array([1, 2]), np.array([])).tolist()
    ([0, 0, 1], [0, 1])
    """
    generation = np.zeros(len(begin), np.int64)
    trained = len(backward) > 0
    for at in range(1, len(begin)):
        between = np.searchsorted(backward, (begin[at - 1], begin[at]))
        generation[at] = generation[at - 1] + (not trained or between[1] > between[0])
    return generation
