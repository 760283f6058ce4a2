"""An execution trace joined into the timeline of the same run: which node is which operator, and its tensors."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import Array, numbers, sorted_unique, string_ids, with_columns
from tracemine.errors import InputError, Location
from tracemine.formats.execution_trace.trace import ExecutionTrace
from tracemine.timeline import IngestReport, Timeline
from tracemine.timeline.arrow import MISSING, distinct, integers, lists, table_of, take, texts

_OUTSIDE = "execution trace: node outside the profiler's window"


def join(timeline: Timeline, trace: ExecutionTrace, path: str) -> Timeline:
    """Return the timeline with `ops.execution_node_id`, `ops.op_schema` and the table `tensors` filled from the trace.

    Nodes and operators share a record function id. Where the profiler wrote none, a thread's operators are matched by
    their names in order, as far as there is one way only; the report says what was not matched.

    Raises InputError if the trace is of another run: of another process, or most nodes have other names than their
    operators.
    """
    if trace.pid is not None and timeline.ops.num_rows and trace.pid not in _pids(timeline):
        raise _other_run(path, f"was written by process {trace.pid}, and no operator of the trace ran in it")
    name, op_strings = string_ids(timeline.ops.column("name"))
    names = _as_in(trace, op_strings)
    op_ids = numbers(timeline.ops.column("record_function_id"))
    by_id = bool((op_ids != MISSING).any())
    node_of = _by_id(op_ids, trace) if by_id else _by_order(timeline, name, names, trace)
    joined = node_of >= 0
    wrong = joined & (take(names, node_of) != name)
    if by_id and 2 * int(wrong.sum()) > int(joined.sum()):
        raise _other_run(path, "is the execution trace of another run: its operators have other names")
    node_of = np.where(wrong, -1, node_of)
    return _joined(timeline, trace, node_of, path, by_id=by_id)


def _pids(timeline: Timeline) -> set[int]:
    return set(distinct(numbers(timeline.ops.column("pid")))[1].tolist())


def _other_run(path: str, fact: str) -> InputError:
    return InputError(fact, where=Location(path), hint="pass the one that was recorded together with the trace")


def _joined(timeline: Timeline, trace: ExecutionTrace, node_of: Array, path: str, *, by_id: bool) -> Timeline:
    columns = {
        "execution_node_id": integers(take(trace.nodes["id"], node_of, MISSING), pa.int64()),
        "op_schema": texts(take(trace.nodes["schema"], node_of), trace.strings),
    }
    execution_trace = path.rpartition("/")[2].rpartition("\\")[2]
    meta = msgspec.structs.replace(
        timeline.meta,
        execution_trace=execution_trace.encode("utf-8", "replace").decode(),
        ingest=_report(timeline, trace, node_of, by_id=by_id),
    )
    return replace(timeline, meta=meta, ops=with_columns(timeline.ops, columns), tensors=_tensors_table(trace, node_of))


def _by_id(op_ids: Array, trace: ExecutionTrace) -> Array:
    """Return for each operator the row of its node, −1 for none. Of two nodes with one id the first counts."""
    ids = trace.nodes["record_function_id"]
    rows = np.flatnonzero(ids > 0)
    rows = rows[np.argsort(ids[rows], kind="stable")]
    if not len(rows):
        return np.full(len(op_ids), -1, np.int64)
    at = np.minimum(np.searchsorted(ids[rows], op_ids), len(rows) - 1)
    return np.where((ids[rows[at]] == op_ids) & (op_ids != MISSING), rows[at], -1)


def _by_order(timeline: Timeline, name: Array, node_name: Array, trace: ExecutionTrace) -> Array:
    """Return as `_by_id`, by the order of names on each thread, without names that one side never has."""
    node_of = np.full(len(name), -1, np.int64)
    order = np.argsort(trace.nodes["id"], kind="stable")
    order = order[np.isin(node_name[order], name)]
    node_thread = trace.nodes["thread"][order]
    threads = distinct((distinct(numbers(timeline.ops.column("pid")))[0].astype(np.int64) << 32)
                       | distinct(numbers(timeline.ops.column("tid")))[0])[0]  # fmt: skip
    shared = np.isin(name, node_name)
    taken: set[int] = set()
    found: list[tuple[Array, Array, int]] = []
    for thread in sorted_unique(threads).tolist():
        rows = np.flatnonzero((threads == thread) & shared)
        fits = []
        for other in sorted_unique(node_thread).tolist():
            nodes = order[node_thread == other]
            fits += [
                (rows[a : a + n], nodes[b : b + n], other) for a, b, n in _alignments(name[rows], node_name[nodes])
            ]
        if len(fits) == 1:
            found += fits
    counted = Counter(other for _, _, other in found)
    for rows, nodes, other in found:
        if counted[other] == 1 and other not in taken:
            node_of[rows] = nodes
    return node_of


def _alignments(some: Array, others: Array) -> list[tuple[int, int, int]]:
    """Return where the shorter lies in the longer: (begin in some, begin in others, length), at most two."""
    short, long, swapped = (some, others, False) if len(some) <= len(others) else (others, some, True)
    if not len(short):
        return []
    needle, hay = short.astype(np.int32).tobytes(), long.astype(np.int32).tobytes()
    begins: list[int] = []
    at = hay.find(needle)
    while at >= 0 and len(begins) < 2:
        if at % 4 == 0:
            begins.append(at // 4)
        at = hay.find(needle, at + 1)
    return [(at, 0, len(short)) if swapped else (0, at, len(short)) for at in begins]


def _as_in(trace: ExecutionTrace, strings: tuple[str, ...]) -> Array:
    """Return the nodes' names as ids of the timeline's own strings; −2 for a name that it does not have."""
    known = {text: code for code, text in enumerate(strings)}
    codes = np.array([*(known.get(text, -2) for text in trace.strings), -2], np.int64)
    return codes[trace.nodes["name"]]


def _tensors_table(trace: ExecutionTrace, node_of: Array) -> pa.Table:
    op_of = np.full(len(trace.nodes["id"]) + 1, -1, np.int64)
    rows = np.flatnonzero(node_of >= 0)
    op_of[node_of[rows]] = rows
    tensors = trace.tensors
    op = op_of[tensors["node"]]
    kept = np.flatnonzero(op >= 0)
    # A node's tensors stand in order already, so only the nodes are put into the operators' order.
    kept = kept[np.argsort(op[kept], kind="stable")]
    shapes = _lists(trace.sizes, tensors["shape_end"], kept)
    strides = _lists(trace.steps, tensors["strides_end"], kept)
    columns = {
        "op_row": op[kept],
        **{name: tensors[name][kept] for name in ("is_output", "position", "tensor_id", "storage_id", "numel")},
        "list_index": np.where(tensors["list_index"] < 0, MISSING, tensors["list_index"])[kept],
        "offset_elements": tensors["offset"][kept],
        "itemsize_bytes": tensors["itemsize"][kept],
        **{name: texts(tensors[name][kept], trace.strings) for name in ("device", "dtype")},
        "shape": lists(*shapes),
        "strides": lists(*strides, present=tensors["has_strides"][kept] != 0),
    }
    return table_of("tensors", columns, len(kept))


def _lists(values: Array, ends: Array, rows: Array) -> tuple[Array, Array]:
    """Return the values of the lists of `rows` one after the other, and where each ends."""
    counts = np.diff(ends, prepend=0)
    lengths = counts[rows]
    until = np.cumsum(lengths)
    index = np.arange(until[-1] if len(until) else 0) - np.repeat(until - lengths, lengths)
    return values[index + np.repeat(ends[rows] - lengths, lengths)], until


def _report(timeline: Timeline, trace: ExecutionTrace, node_of: Array, *, by_id: bool) -> IngestReport:
    old = timeline.meta.ingest
    is_node = trace.nodes["record_function_id"] > 0
    outside = int(is_node.sum()) - int((node_of >= 0).sum())
    launching = numbers(timeline.activities.column("op_row"))
    launching = launching[launching != MISSING]
    unjoined = int((node_of[launching] < 0).sum())
    warnings = (
        (trace.truncated, "The execution trace is cut short: dataflow ends where it does."),
        (
            unjoined,
            f"{unjoined} of {len(launching)} activities belong to operators that the execution trace does not have: "
            "their dataflow is unknown.",
        ),
        (
            not by_id,
            "The trace has no record function ids (torch before 2.4, or no observer was active): operators were "
            f"matched by their order, {int((node_of >= 0).sum())} of {len(node_of)}.",
        ),
    )
    counted = Counter(old.skipped) + (Counter({_OUTSIDE: outside}) if outside > 0 else Counter())
    return msgspec.structs.replace(
        old,
        events=_sorted(Counter(old.events) + Counter({"execution trace: node": len(is_node)})),
        skipped=_sorted(counted),
        dropped=_sorted(Counter(old.dropped) + trace.dropped),
        repaired=_sorted(Counter(old.repaired) + trace.repaired),
        warnings=(*old.warnings, *(sentence for holds, sentence in warnings if holds)),
    )


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
