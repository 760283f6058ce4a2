"""Columns of calls of a library's operators: products, convolutions, attention. A call is all that one operator ran.

What a call asks for follows from its recorded inputs (ops/infer/library.py). Why it may be slow follows from those, the
name of its longest kernel and the rest of the trace: the first row of _CAUSES whose conditions all hold. Each distinct
combination is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final, cast

import numpy as np
from msgspec import Struct

from tracemine.calls import DTYPES, Call, calls_of
from tracemine.columns import codes, examples
from tracemine.devices import Device, recorded_device
from tracemine.ops import lookup
from tracemine.ops.dtypes import HALF
from tracemine.ops.infer.library import OPERATIONS, LibraryCall, of_arguments
from tracemine.ops.kernel_names import is_narrow, unit_of
from tracemine.rows.arrow import categories, coded, rows_of, spread, take
from tracemine.rows.table import BoolArray, Categories, Column, Flags, FloatArray, IntArray, Numbers, Rows
from tracemine.timeline import Timeline

LEAST_PERCENT: Final = 3  # of GPU time: what identical calls must take to be looked into. The one place that says so
_LONGEST_NS: Final = 1 << 62
_MOST_KERNELS: Final = 4095  # of one call: beyond, as many
# The device table's peak that the fastest units offer a type, first that is stated.
_PEAKS: Final[Mapping[str, tuple[str, ...]]] = {
    "float16": ("fp16",),
    "bfloat16": ("bf16",),
    "float32": ("tf32", "fp32"),
    "float64": ("fp64",),
    "float8_e4m3fn": ("fp8",),
    "float8_e5m2": ("fp8",),
    "int8": ("int8",),
}
_SMALLER: Final = frozenset({"float32", "float16", "bfloat16"})
_FEW: Final = 1024  # elements: what is smaller is a count, a scale or a sum
# What is part of a network and of nothing else: float64 is not asked for there.
_OF_NETWORKS: Final = frozenset({"norm", "softmax", "embedding", "attention", "conv"})
_MIXING: Final = frozenset({"copy", "pointwise"})


class KnownCall(Struct, frozen=True, kw_only=True):
    """Known facts of identical calls."""

    call: LibraryCall
    unit: str | None  # what the longest kernel multiplies with
    narrow: bool  # whether that kernel is one for operands that are not aligned
    kernels: int  # of that name
    computes: bool  # vector units of float32 need longer for its arithmetic than memory for its bytes
    has_tf32: bool  # the GPU
    runs_tf32: bool  # some product of the trace: then it is allowed, and a kernel without is the library's choice
    converts_float64: bool  # something in the trace becomes float64, or is turned back


def _is_product(seen: KnownCall) -> bool:
    return seen.call.operation == "product"


def _is_convolution(seen: KnownCall) -> bool:
    return seen.call.operation.startswith("convolution")


def _tf32_is_off(seen: KnownCall) -> bool:
    """Return whether TF32 is off: of products it is unless asked for; of convolutions the record says."""
    return not seen.runs_tf32 if _is_product(seen) else seen.call.allow_tf32 is False


def _could_use_tf32(seen: KnownCall) -> bool:
    on_vector_units = seen.call.dtype == "float32" and seen.unit == "vector"
    return on_vector_units and seen.has_tf32 and _tf32_is_off(seen)


_Condition = Callable[[KnownCall], bool]


_CAUSES: Final[Mapping[str, tuple[_Condition, ...]]] = {
    "float64": (lambda one: one.call.dtype == "float64", lambda one: one.converts_float64),
    "float64_throughout": (lambda one: one.call.dtype == "float64",),  # meant so: no rule asks for it
    "misaligned": (
        _is_product,
        lambda one: one.call.dtype in HALF and one.call.misaligned is True,
        lambda one: one.narrow or one.unit == "vector",
    ),
    "group_by_group": (_is_convolution, lambda one: one.call.groups > 1 and one.kernels >= one.call.groups),
    "depthwise": (lambda one: one.call.depthwise,),  # limited by memory, whatever computes it: no rule asks for it
    "patches": (lambda one: one.call.patches,),
    "no_tf32": (_could_use_tf32, lambda one: one.computes),
    "no_tf32_at_memory": (_could_use_tf32,),  # which takes as long in TF32: no rule asks for it
    "no_matrix_units": (lambda one: one.call.dtype in HALF and one.unit == "vector",),
}


CAUSES: Final = (*_CAUSES, "unknown")


# Kinds of calls that can have each cause.
KINDS_OF_CAUSE: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(CAUSES, frozenset(OPERATIONS.values())),
    **dict.fromkeys(("group_by_group", "depthwise", "patches"), frozenset({"convolution"})),
    "misaligned": frozenset({"product"}),
    # Of attention nothing records whether TF32 is off.
    **dict.fromkeys(("no_tf32", "no_tf32_at_memory"), frozenset({"product", "convolution"})),
}


def cause_of(seen: KnownCall) -> str:
    """Return why such a call may be slow; `unknown` where nothing says it."""
    found = (name for name, conditions in _CAUSES.items() if all(holds(seen) for holds in conditions))
    return next(found, "unknown")


def library_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return the columns of calls; those of rows outside such calls are null, 0 or false.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.rows.activities import activity_rows
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> sorted(library_columns(empty, activity_rows(empty)))[:3]
    ['call', 'call_bytes', 'call_cause']
    """
    dur = cast("Numbers", activities.columns["dur_ns"]).values.astype(np.int64)
    calls = _Calls(timeline, rows_of(timeline.activities["op_row"]), dur)
    device = _device_of(timeline)
    kinds, of = calls.kinds(timeline, device)
    causes = [None if one is None else cause_of(one) for one in kinds]
    cause = coded(causes, of)
    counted = [None if one is None else one.call for one in kinds]
    flops, nbytes = (spread([None if one is None else getattr(one, name) for one in counted], of) for name in _COUNTS)
    percent = _percent(calls, cause, of, dur)
    known = flops.valid if flops.valid is not None else np.zeros(len(dur), np.bool_)
    return {
        "call": Numbers(calls.number),
        "call_dur_ns": Numbers(calls.total, calls.inside),
        "call_flops": flops,
        "call_bytes": nbytes,
        "call_roofline_percent": _roofline(counted, of, calls.total, device),
        "call_percent": Numbers(percent, calls.inside),
        "call_cause": cause,
        "heavy_call": Flags(known & (percent >= LEAST_PERCENT)),
    }


_COUNTS = ("flops", "nbytes")


class _Calls:
    """Calls of the rows, and what they took; one entry an activity."""

    def __init__(self, timeline: Timeline, op_row: IntArray, dur: IntArray) -> None:
        name = take(categories(timeline.ops["name"]), op_row)
        library = np.array([*(_is_library(value) for value in name.values), False], np.bool_)
        self.inside: BoolArray = library[name.codes]
        self.number: IntArray = np.where(self.inside, op_row + 1, 0)
        self.total = (
            np.bincount(self.number, weights=dur).clip(max=_LONGEST_NS).astype(np.int64)[self.number]
            if len(dur)
            else dur
        )
        self.op_row = np.where(self.inside, op_row, -1)
        self._dur = dur

    def kinds(self, timeline: Timeline, device: Device | None) -> tuple[list[KnownCall | None], IntArray]:
        """Return each distinct kind of call, None where its inputs tell nothing, and the index of each row's kind."""
        names = categories(timeline.activities["name"])
        order = np.flatnonzero(self.inside)
        order = order[np.lexsort((self._dur[order], self.number[order]))]
        last = np.append(self.number[order][1:] != self.number[order][:-1], True) if len(order) else order
        longest = np.zeros(int(self.number.max(initial=0)) + 1, np.int64)
        longest[self.number[order][last]] = order[last]
        main = Categories(names.codes[longest[self.number]], names.values) if len(names.codes) else names
        same = np.bincount(self.number, weights=names.codes == main.codes, minlength=1)[self.number]
        count = np.minimum(same, _MOST_KERNELS).astype(np.int64)
        calls, call = calls_of(timeline).distinct(self.op_row)
        asked = [*(of_arguments(call.arguments) for call in calls), None]
        kind = codes(call, main.codes, count)
        rows = examples(kind)
        columns = (call[rows].tolist(), main.codes[rows].tolist(), count[rows].tolist())
        found = [
            (asked[one], main.values[name] if name >= 0 else "", kernels)
            for one, name, kernels in zip(*columns, strict=True)
        ]
        known = [(call, kernel) for call, kernel, _ in found if call is not None]
        wide = any(call.dtype == "float64" for call, _ in known)
        of_trace = {
            "has_tf32": device is not None and "tf32" in device.flops_per_s,
            "runs_tf32": any(_in_tf32(call, kernel) for call, kernel in known),
            "converts_float64": wide and float64_comes_in(timeline),
        }
        return [_known_call(*one, device, of_trace) for one in found], kind


def _known_call(
    call: LibraryCall | None, kernel: str, kernels: int, device: Device | None, of_trace: dict[str, bool]
) -> KnownCall | None:
    if call is None:
        return None
    return KnownCall(
        call=call, unit=unit_of(kernel), narrow=is_narrow(kernel), kernels=kernels, computes=_computes(call, device),
        **of_trace,
    )  # fmt: skip


def _computes(call: LibraryCall, device: Device | None) -> bool:
    """Return whether vector units take longer for a call's arithmetic than memory for its bytes."""
    if device is None or "fp32" not in device.flops_per_s:
        return False
    return call.flops * device.bandwidth_bytes_per_s > call.nbytes * device.flops_per_s["fp32"]


def recorded_call(timeline: Timeline, op_row: int) -> LibraryCall | None:
    """Return what an operator asked of its library; None where it is none of these, or inputs were not recorded."""
    call = calls_of(timeline).at(op_row)
    return None if call is None else of_arguments(call.arguments)


def _is_library(name: str) -> bool:
    operator = lookup(name)
    return operator is not None and operator.op_class in OPERATIONS


def _in_tf32(call: LibraryCall, kernel: str) -> bool:
    return call.operation == "product" and call.dtype == "float32" and unit_of(kernel) == "matrix"


def _device_of(timeline: Timeline) -> Device | None:
    """Return the GPU of the trace, where all of its devices are of one kind."""
    found = [recorded_device(device.name, device.sm_count, device.memory_bytes) for device in timeline.meta.devices]
    return found[0] if found and all(each is found[0] for each in found) else None


def _percent(calls: _Calls, cause: Categories, of: IntArray, dur: IntArray) -> FloatArray:
    """Return the share of GPU time of like calls: of one cause, else of the same inputs. One fix helps all."""
    named = cause.codes >= 0
    if "unknown" in cause.values:
        named &= cause.codes != cause.values.index("unknown")
    alike = np.where(named, len(dur) + cause.codes + 1, of + 1)
    spent = np.bincount(alike, weights=dur) if len(dur) else np.zeros(1)
    share = spent[alike] / max(int(dur.sum()), 1) * 100
    return np.where(calls.inside, share, 0.0)


def _roofline(counted: list[LibraryCall | None], of: IntArray, total: IntArray, device: Device | None) -> Numbers:
    """Return the share of what it took that the data sheet allows at least: operations, or bytes, at their peak."""
    least = np.array([*(_least_ns(one, device) for one in counted), np.nan])[of]
    known = ~np.isnan(least) & (total > 0)
    return Numbers(np.where(known, least / np.maximum(total, 1) * 100, 0.0), known)


def _least_ns(call: LibraryCall | None, device: Device | None) -> float:
    if call is None or device is None:
        return float("nan")
    peaks = (device.flops_per_s.get(name) for name in _PEAKS.get(call.dtype, ()))
    peak = next((each for each in peaks if each), None)
    if peak is None:
        return float("nan")
    return max(call.flops / peak, call.nbytes / device.bandwidth_bytes_per_s) * 1e9


def float64_comes_in(timeline: Timeline) -> bool:
    """Return whether something turns into float64 in this recording, or back, or a network's own layers compute in it.

    Where nothing does, inputs, weights and results are float64: the program asked for it.
    """
    calls = calls_of(timeline)
    wide = (number for number in range(len(calls)) if "double" in (calls.text(number, DTYPES) or ""))
    return any(_comes_in(calls[number]) for number in wide)


def _comes_in(call: Call) -> bool:
    """Return whether a call converts large tensors to float64 or from it, or is a network's layer in it.

    >>> types = ("double", "float", "Scalar")
    >>> [_comes_in(Call("aten::copy_", (shape, shape, ()), types)) for shape in ((64, 64), ())]
    [True, False]
    >>> _comes_in(Call("aten::add", ((64, 64), (64, 64), ()), ("double", "double", "Scalar")))
    False
    """
    kind = _class_of(call.name)
    if kind not in _MIXING | _OF_NETWORKS:
        return False
    taken = [call.dtype(place) for place in range(len(call.shapes or ())) if prod(call.shape(place) or (0,)) >= _FEW]
    return "float64" in taken and (kind in _OF_NETWORKS or not _SMALLER.isdisjoint(taken))


def _class_of(name: str) -> str | None:
    operator = lookup(name)
    return None if operator is None else operator.op_class
