"""The trace of a CUDA graph's capture joined into the trace of its replays: which operator put each kernel there.

A replay is one call, and says nothing of what its kernels compute. That was said when the graph was captured: each
launch went into the graph instead of to the device, inside the operator that made it. The kernels of a replay run in
that order, so a replay whose kernels are those of a captured graph, one by one, gets its operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import Array, numbers, sorted_unique, string_ids, with_columns
from tracemine.errors import InputError, Location, TracemineError
from tracemine.files import read_head
from tracemine.ops import classify, lookup
from tracemine.patterns import deferred
from tracemine.timeline import Meta, Timeline, warned
from tracemine.timeline.arrow import distinct, integers, row_numbers, take, texts
from tracemine.units import count_text

EVIDENCE = "graph_capture"
_REPLAYED = "graph_replay"
_LAUNCH = deferred(r"Launch(Cooperative)?Kernel|ModuleLaunch")
_CAPTURED = deferred(r"StreamEndCapture|GraphInstantiate")
_TOLD = ("gemm", "conv", "attention", "rnn")  # classes of operators whose kernels are of that class, and no others'
_LEAST_TOLD, _LEAST_AGREED = 3, 0.9
_SHOWN = 48
_CAPTURE = deferred(r"(?i)^(?!capture\.json$|execution_details).*(capture|^bs_\d).*\.json(\.gz)?$")
_RANK = deferred(r"(?i)rank[_-]?(\d{1,5})")
_LARGEST, _MOST = 1 << 26, 4  # bytes of a trace next to it, and how many are tried

# A captured graph: of each kernel, in order, the operator that launched it and, where recorded, its name.
_Graph = tuple[Array, tuple[str | None, ...]]

SIZE_LIMIT = 1 << 20  # bytes; a real one has less than a thousand
_StepTime = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]


_VERSION = deferred(r"\d{1,3}\.\d{1,3}[\w.+-]{0,50}")


_MOST_SPANS = 10_000
_TIMES = ("alone_step_ns", "alone_step_p10_ns", "alone_step_p90_ns", "recorded_step_ns", "host_step_ns")


def with_capture(timeline: Timeline, capture: Timeline, path: str) -> Timeline:
    """Return the timeline with the operators of `capture`, which was read from `path`, as owners of replayed kernels.

    A replay is one of a captured graph where it runs as many kernels, of the same names in the same order. CUDA records
    no names while it captures: there the classes of operators and kernels must agree. Where several captured graphs fit
    whose operators differ in name or shape, it is unknown which it was, and the replay stays without.

    Raises InputError where no replay fits.
    """
    graphs = list(_graphs(capture))
    replays = list(_replays(timeline))
    names, name_strings = string_ids(timeline.activities["name"])
    chosen: list[tuple[Array, Array]] = []
    kernels = ambiguous = 0
    for rows in replays:
        kernels += len(rows)
        fitting = [graph for graph in graphs if _fits(graph, [name_strings[code] for code in names[rows]], capture)]
        if not fitting:
            continue
        if len({_says(capture, op_row) for op_row, _ in fitting}) > 1:
            ambiguous += 1
            continue
        chosen.append((rows, fitting[0][0]))
    if not chosen:
        raise InputError(_misfit(graphs, replays, names, name_strings, ambiguous), where=Location(path))
    matched = sum(len(rows) for rows, _ in chosen)
    of_all = f"{matched:,} of {count_text(kernels, 'replayed kernel')}, in {len(chosen):,} of "
    says = f"The trace of the graph's capture names the operators of {of_all}{count_text(len(replays), 'replay')}"
    says += f"; {ambiguous:,} fit several captured graphs whose operators differ." if ambiguous else "."
    return _joined(timeline, capture, chosen, says)


def with_known_captures(timeline: Timeline, path: Path, read: Callable[[Path], Timeline]) -> Timeline:
    """Return the timeline with the operators of a capture that lies in it, or in a trace next to it that is called so.

    Nothing is looked for where every replayed kernel has its operator. What does not fit is left out, with the reason.
    """
    if not timeline.meta.ingest.unowned.get(_REPLAYED):
        return timeline
    reasons: list[str] = []
    if _named(*string_ids(timeline.api["name"]), re.compile("StreamEndCapture")).any():
        try:
            return with_capture(timeline, timeline, str(path))
        except InputError:
            pass
    for beside in captures_beside(path):
        try:
            found = with_capture(timeline, read(beside), str(beside))
            says = f"That trace is {beside.name}, which lies next to it."
            return replace(found, meta=warned(found.meta, [says]))
        except TracemineError as error:
            if not _of_one_name(path, beside):
                continue
            reasons.append(f"{beside.name}, which lies next to it, does not explain the replays: it {error.message}.")
    return replace(timeline, meta=warned(timeline.meta, reasons[:1]))


def _of_one_name(path: Path, beside: Path) -> bool:
    """Return whether a capture is called as the trace, as far as it is called anything: others are other programs'.

    >>> _of_one_name(Path("qwen_decode.json"), Path("llama_capture.json"))
    False
    >>> _of_one_name(Path("qwen_decode.json"), Path("qwen_capture_0.json"))
    True
    """
    name = re.split(r"(?i)(?:cuda[_-]?)?(?:graph[_-]?)?capture|bs_\d", beside.name, maxsplit=1)[0].rstrip("_-.")
    return beside.parent != path.parent or path.name.startswith(name)


def captures_beside(path: Path) -> list[Path]:
    """Return the traces next to a file that are called a capture, its own rank's first: in its folder, and in
    `capture_traces` there.

    >>> captures_beside(Path("no/such/trace.json"))
    []
    """
    folders = [folder for folder in (path.parent, path.parent / "capture_traces") if folder.is_dir()]
    found = [file for folder in folders for file in sorted(folder.iterdir()) if _CAPTURE.search(file.name)]
    if rank := _RANK.findall(path.name):
        found.sort(key=lambda file: _RANK.findall(file.name) != rank)
    return [file for file in found if file != path and file.is_file() and file.stat().st_size <= _LARGEST][:_MOST]


def _graphs(capture: Timeline) -> Iterator[_Graph]:
    """Yield the captured graphs: launches without an activity, up to each end of a capture."""
    api = capture.api
    name, strings = string_ids(api["name"])
    kernel, kernels = string_ids(api["kernel"])
    start = numbers(api["start_ns"])
    end = start + numbers(api["dur_ns"])
    launches = _named(name, strings, _LAUNCH)
    ran = np.zeros(api.num_rows, np.bool_)
    launched = numbers(capture.activities["launch_row"], -1)
    ran[launched[launched >= 0]] = True
    rows = np.flatnonzero(launches & ~ran)
    latest = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[rows])[:-1])) if len(rows) else rows
    rows = rows[start[rows] >= latest]  # a driver's call inside the runtime's is the same launch
    number = np.searchsorted(start[_named(name, strings, _CAPTURED)], start[rows])
    op_row = numbers(api["op_row"], -1)
    for each in sorted_unique(number).tolist():
        of_graph = rows[number == each]
        yield op_row[of_graph], tuple(kernels[code] if code >= 0 else None for code in kernel[of_graph].tolist())


def _replays(timeline: Timeline) -> Iterator[Array]:
    """Yield the kernels of each replay, rows of `activities` in the order in which they began."""
    activities = timeline.activities
    kind, kinds = string_ids(activities["kind"])
    reason, reasons = string_ids(activities["unowned_reason"])
    rows = np.flatnonzero(_named(kind, kinds, re.compile("^kernel$")) & _named(reason, reasons, re.compile(_REPLAYED)))
    launch = numbers(activities["launch_row"], -1)[rows]
    order = np.argsort(launch, kind="stable")
    if len(rows):
        yield from np.split(rows[order], np.flatnonzero(np.diff(launch[order])) + 1)


def _named(ids: Array, strings: Sequence[str], pattern: re.Pattern[str]) -> Array:
    return np.array([*(bool(pattern.search(text)) for text in strings), False], np.bool_)[ids]


def _fits(graph: _Graph, names: Sequence[str], capture: Timeline) -> bool:
    op_row, captured = graph
    if len(names) != len(captured):
        return False
    if any(name is not None for name in captured):
        return all(mine is None or mine == name for mine, name in zip(captured, names, strict=True))
    op, ops = string_ids(capture.ops["name"])
    codes = take(op, op_row).tolist()
    meant = [lookup(ops[code]) if code >= 0 else None for code in codes]
    pairs = [
        (asked.op_class, ran.op_class)
        for asked, ran in zip(meant, classify(names), strict=True)
        if asked is not None and (asked.op_class in _TOLD or ran.op_class in _TOLD)
    ]
    agreed = sum(asked == ran for asked, ran in pairs)
    return len(pairs) >= _LEAST_TOLD and agreed >= _LEAST_AGREED * len(pairs)


def _says(capture: Timeline, op_row: Array) -> bytes:
    """Return what the operators of a graph are, as one value: their names and shapes."""
    return b"".join(take(string_ids(capture.ops[each])[0], op_row).tobytes() for each in ("name", "input_shapes"))


def _misfit(
    graphs: Sequence[_Graph], replays: Sequence[Array], names: Array, strings: Sequence[str], ambiguous: int
) -> str:
    """Return why no replay is one of a captured graph."""
    if not graphs:
        return "holds no launch that went into a graph: it is no trace of a capture"
    if not replays:
        return "belongs to replays of a CUDA graph, and the trace has none with kernels"
    if ambiguous:
        return "holds several graphs of the same kernels whose operators differ: which was replayed is not known"
    counts = sorted({len(captured) for _, captured in graphs})
    ran = sorted({len(rows) for rows in replays})
    alike = next(((rows, captured) for rows in replays for _, captured in graphs if len(rows) == len(captured)), None)
    if alike is None:
        return f"is of other graphs: of {_some(counts)} kernels, and those replayed have {_some(ran)}"
    pairs = zip(alike[1], (strings[code] for code in names[alike[0]].tolist()), strict=True)
    at, mine, other = next(((i, a, b) for i, (a, b) in enumerate(pairs) if a != b), (0, None, ""))
    text = "other classes of kernels" if mine is None else f"`{mine[:_SHOWN]}` where `{other[:_SHOWN]}` was replayed"
    return f"is of another graph: kernel {at:,} is {text}"


def _some(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts[:4]) + (" …" if len(counts) > 4 else "")


def _joined(timeline: Timeline, capture: Timeline, chosen: Sequence[tuple[Array, Array]], says: str) -> Timeline:
    """Return the timeline with a copy of the operators at each call that replays; rows are renumbered."""
    activities, ops, api = timeline.activities, timeline.ops, timeline.api
    launch = numbers(activities["launch_row"], -1)
    begin, pid, tid, around = (numbers(api[each]) for each in ("start_ns", "pid", "tid", "op_row"))
    taken: list[Array] = []
    calls: list[Array] = []
    owner = np.full(activities.num_rows, -1)
    count = ops.num_rows
    for rows, op_row in chosen:
        known = op_row >= 0
        code, firsts = distinct(op_row[known])
        owner[rows[known]] = count + code
        taken.append(firsts)
        calls.append(np.full(len(firsts), launch[rows[0]]))
        count += len(firsts)
    of, call = np.concatenate(taken), np.concatenate(calls)
    nothing = row_numbers(np.full(len(of), -1))
    stack = numbers(capture.ops["stack_row"], -1)[of]
    changed = {
        "start_ns": integers(begin[call], pa.int64()),
        "dur_ns": integers(np.zeros(len(of), np.int64), pa.int64()),
        "pid": integers(pid[call], pa.int64()),
        "tid": integers(tid[call], pa.int64()),
        "parent_row": integers(around[call], pa.int64()),
        **dict.fromkeys(("external_id", "record_function_id", "execution_node_id", "since_stack_row"), nothing),
        "stack_row": row_numbers(np.where(stack >= 0, stack + timeline.stacks.num_rows, -1)),
    }
    copies = with_columns(capture.ops.take(integers(of, pa.int64())), changed)
    both = pa.concat_tables([ops, copies]).unify_dictionaries().combine_chunks()
    start, dur = numbers(both["start_ns"]), numbers(both["dur_ns"])
    order = np.lexsort((-dur, start))  # stable: copies behind what begins when they do and lasts
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    both = _renumbered(both.take(integers(order, pa.int64())), "parent_row", new_row)
    stacks = _shifted(capture.stacks, "parent_row", timeline.stacks.num_rows)
    return replace(
        timeline,
        meta=_noted(timeline, int((owner >= 0).sum()), says),
        activities=_owned(activities, owner, new_row),
        ops=both,
        api=_renumbered(api, "op_row", new_row),
        stacks=pa.concat_tables([timeline.stacks, stacks]).unify_dictionaries().combine_chunks(),
        memory=_renumbered(timeline.memory, "op_row", new_row),
        tensors=_renumbered(timeline.tensors, "op_row", new_row),
    )


def _owned(activities: pa.Table, owner: Array, new_row: Array) -> pa.Table:
    op_row = np.where(owner >= 0, owner, numbers(activities["op_row"], -1))
    evidence, kinds = string_ids(activities["owner_evidence"])
    reason, reasons = string_ids(activities["unowned_reason"])
    changed = {
        "op_row": row_numbers(take(new_row, op_row)),
        "owner_evidence": texts(np.where(owner >= 0, len(kinds), evidence), (*kinds, EVIDENCE)),
        "unowned_reason": texts(np.where(owner >= 0, -1, reason), reasons),
    }
    return with_columns(activities, changed)


def _renumbered(table: pa.Table, column: str, new_row: Array) -> pa.Table:
    return with_columns(table, {column: row_numbers(take(new_row, numbers(table[column], -1)))})


def _shifted(table: pa.Table, column: str, by: int) -> pa.Table:
    rows = numbers(table[column], -1)
    return with_columns(table, {column: row_numbers(np.where(rows >= 0, rows + by, -1))})


def _noted(timeline: Timeline, owned: int, says: str) -> Meta:
    meta = warned(timeline.meta, [says])
    unowned = dict(meta.ingest.unowned)
    unowned[_REPLAYED] = unowned.get(_REPLAYED, 0) - owned
    left = {name: count for name, count in unowned.items() if count > 0}
    return msgspec.structs.replace(meta, ingest=msgspec.structs.replace(meta.ingest, unowned=left))


class _About(msgspec.Struct):
    torch: object = None
    alone_step_ns: _StepTime | None = None
    alone_step_p10_ns: _StepTime | None = None
    alone_step_p90_ns: _StepTime | None = None
    recorded_step_ns: _StepTime | None = None
    host_step_ns: _StepTime | None = None
    garbage_ns: Annotated[list[tuple[_StepTime, _StepTime, int]], msgspec.Meta(max_length=_MOST_SPANS)] | None = None


def with_step_times(timeline: Timeline, path: Path) -> Timeline:
    """Return the timeline with a step's time alone and recorded, and what else the file says of the recording.

    It says nothing that the traces need, so a file that cannot be read is one that was not measured.
    """
    try:
        about = msgspec.json.decode(read_head(path, SIZE_LIMIT), type=_About)
    except (InputError, msgspec.DecodeError, UnicodeDecodeError):
        return timeline
    facts = {name: getattr(about, name) for name in _TIMES}
    garbage = None if about.garbage_ns is None else tuple(about.garbage_ns)
    meta = msgspec.structs.replace(timeline.meta, **facts, garbage_ns=garbage)
    if isinstance(about.torch, str) and _VERSION.fullmatch(about.torch):
        meta = msgspec.structs.replace(meta, versions={**meta.versions, "torch": about.torch})
    return replace(timeline, meta=meta)
