"""NVTX ranges as operators and annotations, and what lies around them: modules and steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from math import prod

import msgspec
import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.formats.kineto import names
from tracemine.formats.kineto.nesting import time_order
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.device_rows import ENDS_BEFORE_START, NO_TIME, Reasons, pid, tid
from tracemine.formats.nsys.tables import Strings, Tables
from tracemine.formats.repetitions import without_repetitions
from tracemine.ops import lookup
from tracemine.timeline.arrow import MISSING, distinct

_SEQUENCE = re.compile(r"-?\d{1,18}")
_ID = re.compile(r"\d{1,18}")
_SIZES = re.compile(r"\[[\[\]\d, ]++")
_MAKERS = re.compile(r"\[(?:\(\d{1,18}+,-?\d{1,9}+\)(?:, )?+)*+\]")
# What most texts of operators end with: one match in place of three.
LAST_PARTS = re.compile(
    rf"(.*), op_id = ({_ID.pattern}), sizes = (\[[\[\]\d, ]*\]), input_op_ids = ({_MAKERS.pattern})", re.DOTALL
)
_AS_JSON = str.maketrans("()", "[]")
_MAKER = re.compile(r"\((\d+),(-?\d+)\)")
_STEP = re.compile(
    r"(?:train(?:ing)?|inference)?[ _-]?(?:step|iter|iteration|batch)[ #:=_-]{0,3}(\d{1,18})", re.IGNORECASE
)
# Operators are named in lower case (`aten::mul`, `c10d::allreduce_`, `detach_`), nodes of the backward pass by class.
_OPERATOR = re.compile(r"[a-z_]\w*+(?:::\w++)++(?:\.\w++)?+|[a-z_]\w*+_")
_BACKWARD = re.compile(r"autograd::engine::evaluate_function: .*|(?:\w++::)*+\w+(?:Backward\d*+|AccumulateGrad)")
_MOST_ELEMENTS = (1 << 62) - 1  # of a tensor: more is damage
LONGEST_NAME = 4096  # characters; demangled types in ranges of C++ code stay below

Sizes = tuple[tuple[int, ...], ...]
Maker = tuple[int, int]  # op_id and which of its outputs; (0, −1): none is known

Columns = dict[str, Array]

_NEVER_CLOSED = "NVTX range that was never closed"
_DEEPEST_PATH = 64  # scopes around an operator that its module path names
_LONGEST_PART = 200


class NvtxRange(msgspec.Struct, frozen=True):  # made in a fifth of the time that a dataclass takes
    """One distinct text, taken apart. None: the text does not say."""

    name: str
    is_op: bool
    sequence: int | None = None
    op_id: int | None = None
    sizes: Sizes | None = None
    makers: tuple[Maker, ...] | None = None


def parsed_range(text: str) -> NvtxRange:
    """Return the parts of a text that torch's emit_nvtx wrote, or `nsys profile --pytorch=autograd-shapes-nvtx`.

    Names hold commas and brackets of their own, so the parts are taken off from the right.

    >>> r = parsed_range("aten::relu, seq = 7, op_id = 2, sizes = [[8192, 2048]], input_op_ids = [(1,0)]")
    >>> r.name, r.sequence, r.op_id, r.sizes, r.makers
    ('aten::relu', 7, 2, ((8192, 2048),), ((1, 0),))
    >>> parsed_range("forward (a, b)")
    NvtxRange(name='forward (a, b)', is_op=False, sequence=None, op_id=None, sizes=None, makers=None)
    """
    most = LAST_PARTS.fullmatch(text)
    rest, op_id, sizes, makers = most.groups() if most else last_parts(text)
    rest, sequence = _part(rest, ", seq = ", _SEQUENCE)
    said = op_id is not None or sequence is not None
    return NvtxRange(
        name=rest[:LONGEST_NAME],
        is_op=said and _is_op(rest, has_sizes=sizes is not None),
        sequence=None if sequence is None or int(sequence) < 0 else int(sequence),
        op_id=None if op_id is None else int(op_id),
        sizes=None if sizes is None else _sizes(sizes),
        makers=None if makers is None else _makers(makers),
    )


def last_parts(text: str) -> tuple[str, str | None, str | None, str | None]:
    """Return what stands in front, and the last parts as far as they are there."""
    rest, makers = _part(text, ", input_op_ids = ", _MAKERS)
    rest, sizes = _part(rest, ", sizes = ", _SIZES)
    rest, op_id = _part(rest, ", op_id = ", _ID)
    return rest, op_id, sizes, makers


def _part(text: str, mark: str, allowed: re.Pattern[str]) -> tuple[str, str | None]:
    """Return the text before the last mark, and what stands behind it; all of it where that is not as it should be."""
    before, found, after = text.rpartition(mark)
    return (before, after) if found and allowed.fullmatch(after) else (text, None)


@lru_cache(maxsize=1 << 14)
def _is_op(name: str, *, has_sizes: bool) -> bool:
    """Return an operator, and not a user's record_function, whose text has the same parts."""
    if names.MARKS.match(name):
        return False
    return bool(is_backward(name) or _OPERATOR.fullmatch(name) or (has_sizes and name.isidentifier()) or lookup(name))


def is_backward(name: str) -> bool:
    """Return whether a range is a node of the backward pass.

    >>> is_backward("autograd::engine::evaluate_function: MulBackward0"), is_backward("mul")
    (True, False)
    """
    return _BACKWARD.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _sizes(text: str) -> Sizes | None:
    try:
        found = msgspec.json.decode(text, type=Sizes)
    except msgspec.DecodeError:
        return None
    return found if all(max(prod(size), *size, 0) <= _MOST_ELEMENTS for size in found) else None


def _makers(text: str) -> tuple[Maker, ...]:
    """Return the pairs of a text that `_MAKERS` allows."""
    try:
        return msgspec.json.decode(text.translate(_AS_JSON), type=tuple[Maker, ...])
    except msgspec.DecodeError:  # a number that begins with 0
        return tuple((int(a), int(b)) for a, b in _MAKER.findall(text))


def step_number(name: str) -> int | None:
    """Return N of a range that marks a step.

    >>> step_number("step 3"), step_number("ProfilerStep#12"), step_number("iteration_7"), step_number("Step 9 to 19")
    (3, 12, 7, None)
    """
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else names.step_number(name)


def _number(value: int | None) -> int:
    return MISSING if value is None else value


# What a text says of each range that has it.
_OF_TEXT: dict[str, tuple[type[np.generic], Callable[[NvtxRange], int]]] = {
    "is_op": (np.bool_, lambda each: each.is_op),
    "step": (np.int64, lambda each: _number(step_number(each.name))),
    "sequence": (np.int64, lambda each: _number(each.sequence)),
    "op_id": (np.int64, lambda each: _number(each.op_id)),
    "is_mark": (np.bool_, lambda each: names.MARKS.match(each.name) is not None),
}


class Ranges(Struct):
    """NVTX ranges in time order. `text` is a number into `parsed`, one entry a distinct text."""

    columns: Columns  # start_ns dur_ns end_ns global_tid pid tid text name is_op is_scope step sequence op_id
    parsed: list[NvtxRange]

    def __len__(self) -> int:
        return len(self.columns["start_ns"])


def ranges(tables: Tables, strings: Strings, report: Reasons) -> Ranges:
    """Return push/pop and start/end ranges. Marks and names carry no row; a range without an end is dropped."""
    rows = tables.numbers(schema.NVTX)
    inline = tables.texts(schema.NVTX)["text"]
    kinds, kind_of = np.unique(rows["eventType"], return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        count = int((kind_of == number).sum())
        report.events[schema.NVTX] += count
        if kind not in schema.PUSH_POP + schema.START_END:
            report.skipped[f"{schema.NVTX}: {schema.NVTX_WITHOUT_ROWS.get(kind, 'other event')}"] += count
    ranged: Array = np.isin(rows["eventType"], schema.PUSH_POP + schema.START_END)
    timed: Array = ranged & (rows["start"] != MISSING)
    report.dropped[f"{schema.NVTX}: {NO_TIME}"] += int((ranged & ~timed).sum())
    closed: Array = timed & (rows["end"] != MISSING)
    report.dropped[_NEVER_CLOSED] += int((timed & ~closed).sum())
    kept = np.flatnonzero(closed)
    start, end = rows["start"][kept], rows["end"][kept]
    report.repaired[f"{schema.NVTX}: {ENDS_BEFORE_START}"] += int((end < start).sum())
    end = np.maximum(start, end)
    order = time_order(start, start - end)
    kept, start, end = kept[order], start[order], end[order]

    text, parsed = _parsed(kept, rows["textId"], inline, strings)
    one_thread = rows["endGlobalTid"][kept]
    global_tid = rows["globalTid"][kept]
    crosses = (one_thread != MISSING) & (one_thread != 0) & (one_thread != global_tid)
    global_tid = np.where(crosses, MISSING, global_tid)
    domain = rows["domainId"][kept]
    columns: Columns = {"name": np.array([strings.code(each.name) for each in parsed], np.int32)[text]}
    for name, (kind, of) in _OF_TEXT.items():
        columns[name] = np.array([of(each) for each in parsed], kind)[text]
    # Ranges of libraries (NCCL, CCCL, cuBLAS …) stand in domains of their own; they are not the model's modules.
    own = (domain == MISSING) | (domain == 0)
    may_hold = own & np.logical_not(columns["is_op"])
    columns["step"] = np.where(may_hold, columns["step"], MISSING)
    columns["is_scope"] = may_hold & np.logical_not(columns.pop("is_mark")) & (columns["step"] == MISSING)
    columns |= {
        "start_ns": start,
        "end_ns": end,
        "dur_ns": end - start,
        "text": text,
        "global_tid": global_tid,
        "pid": pid(rows["globalTid"][kept]),
        "tid": tid(global_tid),
        "process": rows["globalTid"][kept] & ~0xFFFFFF,
    }
    return Ranges(without_repetitions(columns, report.dropped, {"row": kept}), parsed)


def _parsed(kept: Array, text_id: Array, inline: list[str | None], strings: Strings) -> tuple[Array, list[NvtxRange]]:
    """Return for each kept row a number into the list of its distinct texts, taken apart."""
    seen: dict[str, int] = {}
    parsed: list[NvtxRange] = []
    by_id = strings.of_ids(text_id[kept])
    numbers = np.empty(len(kept), np.int64)
    for at, (row, code) in enumerate(zip(kept.tolist(), by_id.tolist(), strict=True)):
        own = inline[row]
        text = strings.texts[code] if own is None else own
        number = seen.setdefault(text, len(parsed))
        if number == len(parsed):
            parsed.append(parsed_range(text))
        numbers[at] = number
    return numbers, parsed


def module_paths(ranges: Ranges, parent: Array, strings: Strings) -> tuple[Array, Array, list[str]]:
    """Return for each range the path of scopes around it, and that of what is inside it: numbers of paths, −1 for none.

    They differ for scopes. A path's parts are joined by dots, outermost first.
    """
    is_scope, name = ranges.columns["is_scope"], ranges.columns["name"]
    around = np.append(parent, -1)
    # The nearest scope around each row: rows that are none are passed over.
    passed = np.append(~is_scope, False)
    while (passed[around] & (around >= 0)).any():
        around = np.where(passed[around] & (around >= 0), around[around], around)
    own = np.full(len(is_scope) + 1, -1, np.int64)  # the path that a scope gives to what is inside it
    paths: dict[tuple[str, ...], int] = {}
    parts: list[tuple[str, ...]] = []
    for row in np.flatnonzero(is_scope).tolist():
        outer = own[around[row]]
        path = (*(parts[outer] if outer >= 0 else ()), strings.texts[name[row]][:_LONGEST_PART])[:_DEEPEST_PATH]
        own[row] = paths.setdefault(path, len(parts))
        if own[row] == len(parts):
            parts.append(path)
    outside = own[around[:-1]]
    return outside, np.where(is_scope, own[:-1], outside), [".".join(path) for path in parts]


def steps_of(ranges: Ranges) -> Array:
    """Return rows of the ranges that are steps: marked by a number, and inside no other step of their process."""
    columns = ranges.columns
    rows = np.flatnonzero(columns["step"] != MISSING)
    outermost = []
    process = distinct(columns["process"][rows])[0]
    ends: dict[int, int] = {}
    for row, owner in zip(rows.tolist(), process.tolist(), strict=True):
        if int(columns["start_ns"][row]) >= ends.get(owner, int(columns["start_ns"][row])):
            outermost.append(row)
            ends[owner] = int(columns["end_ns"][row])
    return np.array(outermost, np.int64)
