"""Loops of a benchmark: one call made again and again with the same inputs, whose results nothing reads.

Neighbours that write as much as the next ones read look like a chain for one kernel. Where all of them are the same
call, and nothing reads what they make, each is a measurement of its own: what there is to say is how fast it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.columns import codes, examples, sorted_unique
from tracemine.devices import Device
from tracemine.findings.facts import Facts
from tracemine.findings.labels import label_of
from tracemine.flow import Evidence
from tracemine.fusion import Groups
from tracemine.rows.arrow import rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, Rows, number
from tracemine.timeline import Timeline
from tracemine.units import bytes_text, percent_text, time_text

_FEWEST = 4  # calls: fewer equal ones are met in any program
_S = 10**9


def benchmark_loops(timeline: Timeline, graph: NodeGraph | None, groups: Groups | None) -> BoolArray:
    """Return which fusion groups are nothing but calls of a benchmark's loops."""
    if graph is None or groups is None or not len(groups):
        return np.zeros(0 if groups is None else len(groups), np.bool_)
    call, new = _calls(timeline, graph)
    loop = new & graph.known[examples(call)] & (np.bincount(call) >= _FEWEST)
    loop = _alike(graph, call, _unread(graph, call, loop))
    found: BoolArray = np.logical_and.reduceat(loop[call[groups.node]], groups.begin[:-1])
    return found


def _calls(timeline: Timeline, graph: NodeGraph) -> tuple[IntArray, BoolArray]:
    """Return a number for each node, equal where operator and recorded inputs are; and of each number whether such a
    call writes nothing but new tensors.
    """
    op_row = rows_of(timeline.activities["op_row"])[graph.first_activity]
    calls = calls_of(timeline)
    call: IntArray = codes(calls.number[op_row])
    new = [one is not None and _makes(one) for one in map(calls.at, op_row[examples(call)].tolist())]
    return call, np.array(new, np.bool_)


def _makes(call: Call) -> bool:
    """Return whether a call writes nothing but new tensors; not where its inputs were not recorded.

    >>> types = ("float", "float", "Scalar")
    >>> [_makes(Call(name, dtypes=types)) for name in ("aten::add", "aten::add_", "aten::view", "mine::add")]
    [True, False, False, False]
    """
    overload = call.overload
    return overload is not None and not overload.mutates and all(each is None for each in overload.aliases)


def _unread(graph: NodeGraph, call: IntArray, loop: BoolArray) -> BoolArray:
    """Return which of these calls make what nothing reads but, by a guess, the same call or a later loop."""
    order = np.arange(len(call))
    first, last = np.full(len(loop), len(call)), np.full(len(loop), -1)
    np.minimum.at(first, call, order)
    np.maximum.at(last, call, order)
    made, reading = call[graph.producer], call[graph.consumer]
    again = (made == reading) & (graph.evidence < Evidence.PROVEN)
    later = (graph.evidence == Evidence.ADJACENT) & (first[reading] > last[made])
    while True:
        read = ~again & ~(later & loop[reading])
        left = loop.copy()
        left[made[read]] = False
        if (left == loop).all():
            return left
        loop = left


def _alike(graph: NodeGraph, call: IntArray, loop: BoolArray) -> BoolArray:
    """Return which of these loops have the same tensors for inputs each time, as far as it is known which they are."""
    alike = loop.copy()
    for at in np.flatnonzero(loop).tolist():
        reads = [_reads(graph, node) for node in np.flatnonzero(call == at).tolist()]
        if all(evidence == Evidence.PROVEN for read in reads for *_, evidence in read):
            alike[at] = len(set(reads)) == 1
    return alike


def _reads(graph: NodeGraph, node: int) -> tuple[tuple[int, ...], ...]:
    """Return what a node reads: buffer, bytes from and to, evidence."""
    own = slice(int(graph.read_begin[node]), int(graph.read_begin[node + 1]))
    columns = (graph.read_buffer, graph.read_first, graph.read_last, graph.read_evidence)
    return tuple(zip(*(column[own].tolist() for column in columns), strict=True))


def loop_texts(
    timeline: Timeline, rows: Rows, facts: Facts, groups: Groups | None, loops: BoolArray, device: Device | None
) -> Iterator[str]:
    """Yield a sentence for each call of these groups: how often it was made, and how fast memory was."""
    if groups is None or not loops.any():
        return
    member = groups.activity[np.repeat(loops, np.diff(groups.activity_begin))]
    columns = (facts.op.codes, facts.shapes.codes, facts.dtypes.codes, facts.strides.codes)
    alike = codes(*(column[member].astype(np.int64) for column in columns))
    moved, dur = number(rows, "bytes", null=-1), facts.dur_ns
    for at in sorted_unique(alike).tolist():
        own = member[alike == at]
        label = label_of(timeline, facts, own[:1])
        times = len(sorted_unique(facts.op_row[own]))
        what = " ".join(filter(None, (label.dtype, label.shapes)))
        yield (
            f"{label.ops[0].removeprefix('aten::')} ×{times:,}{f' ({what})' if what else ''} is the same call each "
            f"time, and nothing reads what it makes: a benchmark's loop, and no chain for one kernel."
            f"{_rate_text(moved[own], int(dur[own].sum()), times, device)}"
        )


def _rate_text(moved: IntArray, dur_ns: int, times: int, device: Device | None) -> str:
    """Return how fast calls move their bytes, and what the device can reach; "" where bytes are not known."""
    if not len(moved) or moved.min() <= 0 or dur_ns <= 0:
        return ""
    total = float(moved.sum())
    rate = total * _S / dur_ns
    one = f" A call moves {bytes_text(total / times)} in {time_text(dur_ns / times)}: {bytes_text(rate)}/s"
    if device is None:
        return f"{one}."
    peak, reached = device.bandwidth_bytes_per_s, device.achieved_bytes_per_s
    if rate > peak:
        return f"{one}, more than the {bytes_text(peak)}/s of the GPU's memory: a cache has it."
    how = "" if device.achieved_measured else " (assumed)"
    return (
        f"{one}, {percent_text(rate, peak)} of the {bytes_text(peak)}/s that the data sheet states; a large copy "
        f"reaches {bytes_text(reached)}/s{how}."
    )
