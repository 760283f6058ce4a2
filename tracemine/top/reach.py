"""What each activity computes and moves, and how long the device would take for that at the rates that it reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.devices import Device
from tracemine.findings.ceiling import operation_of
from tracemine.ops.kernel_names import unit_of
from tracemine.perfmodel import Rates
from tracemine.perfmodel.library_rates import peak_of
from tracemine.rows.codes import distinct
from tracemine.rows.table import BoolArray, Categories, FloatArray, IntArray, Rows, category, number

COUNTED = ("gemm", "conv", "attention", "rnn")  # classes that compute more than they move
_OVER_HOST_LINK, _OVER_PEER_LINK = ("HtoD", "DtoH", "HtoH"), ("PtoP",)
_UNITS = ("matrix", "vector")
_S = 1e9
_IN_CACHE = 3.0  # times as fast as device memory: what is beyond was not moved
_FASTEST_MEMORY = 8e12  # bytes a second, of a GPU that is not known


class Reach(Struct, frozen=True):
    """FLOPs and bytes of each activity; NaN: not known. Of a library's call each kernel has its share by time."""

    counted: BoolArray  # computes, so that FLOPs are asked for
    flops: FloatArray
    flops_ns: FloatArray  # that they take at the rate that libraries reach
    peak_ns: FloatArray  # and at the data sheet's peak
    bytes: FloatArray
    bytes_ns: FloatArray  # that they take at the rate that a large copy, or the link, reaches
    arithmetics: Sequence[str]  # in which FLOPs of known peak are computed, most of them first


def reach_of(rows: Rows, kernels: Categories, device: Device | None, rates: Rates | None) -> Reach:
    """Return FLOPs and bytes of the row set `activities`. device: None where its rates are not known."""
    dur = number(rows, "dur_ns")
    main = _main(rows)
    part = _parts(number(rows, "call"), main, dur)
    stated = _known(number(rows, "stated_flops", null=-1))
    flops = np.where(np.isnan(stated), _known(number(rows, "call_flops", null=-1)) * part, stated)
    moved = _believed(_bytes(rows, part), dur, _bandwidth(rows, device))
    kinds, of = _kinds(rows, kernels)
    reached = [None if rates is None else rates.of(*kind) for kind in kinds]
    peaks = [None if device is None else peak_of(device, kind[1]) for kind in kinds]
    peak_ns = flops * _S / _spread([None if one is None else float(one) for one in peaks], of)
    by_arithmetic = {
        name: float(
            np.nansum(np.where(np.isin(of, [at for at, kind in enumerate(kinds) if kind[1] == name]), flops, 0))
        )
        for name in dict.fromkeys(kind[1] for kind, peak in zip(kinds, peaks, strict=True) if peak)
    }
    return Reach(
        counted=main | ~np.isnan(stated),
        flops=flops,
        flops_ns=flops * _S / _spread([None if one is None else one.flops_per_s for one in reached], of),
        peak_ns=peak_ns,
        bytes=moved,
        bytes_ns=moved * _S / _bandwidth(rows, device),
        arithmetics=sorted((name for name, count in by_arithmetic.items() if count), key=lambda n: -by_arithmetic[n]),
    )


def _main(rows: Rows) -> BoolArray:
    """Return which activities compute: kernels of such a class, and where a library's call has none, all of it."""
    call = number(rows, "call")
    counted = category(rows, "op_class").among(*COUNTED)
    has_main = np.zeros(int(call.max(initial=0)) + 1, np.bool_)
    has_main[call[counted]] = True
    main: BoolArray = counted | ((call > 0) & ~has_main[call])
    return main


def _parts(call: IntArray, main: BoolArray, dur: IntArray) -> FloatArray:
    """Return the share of its call that each activity does, by time; NaN of what is in none, or only prepares it."""
    own = main & (call > 0) & (dur > 0)
    together = np.bincount(call[own], weights=dur[own], minlength=int(call.max(initial=0)) + 1)
    shares: FloatArray = np.divide(dur, together[call], out=np.full(len(dur), np.nan), where=own)
    return shares


def _believed(moved: FloatArray, dur: IntArray, bandwidth: FloatArray) -> FloatArray:
    """Return bytes; NaN where no cache is as fast: a kernel that takes a tensor need not read all of it."""
    most = _IN_CACHE * np.where(np.isnan(bandwidth), _FASTEST_MEMORY, bandwidth) / _S
    return np.where(moved <= most * dur, moved, np.nan)


def _known(values: IntArray) -> FloatArray:
    return np.where(values >= 0, values, np.nan)


def _spread(values: Sequence[float | None], of: IntArray) -> FloatArray:
    """Return `values[of]`; NaN where that is None, and of −1."""
    found: FloatArray = np.array([*(np.nan if value is None else value for value in values), np.nan], np.float64)[of]
    return found


def _bytes(rows: Rows, part: FloatArray) -> FloatArray:
    """Return bytes: as recorded of a copy over a link, else of device memory, of a library's call by its shapes."""
    own, call = _known(number(rows, "bytes", null=-1)), _known(number(rows, "call_bytes", null=-1))
    over_link = category(rows, "copy_kind").among(*_OVER_HOST_LINK, *_OVER_PEER_LINK)
    return np.where(over_link, _known(number(rows, "bytes_moved", null=-1)), np.where(np.isnan(own), call * part, own))


def _bandwidth(rows: Rows, device: Device | None) -> FloatArray:
    """Return how many bytes a second the device reaches for each activity; NaN: not known."""
    copy = category(rows, "copy_kind")
    if device is None:
        return np.full(len(copy.codes), np.nan)
    to_peers = device.peer_link_bytes_per_s
    return np.select(
        [copy.among(*_OVER_HOST_LINK), copy.among(*_OVER_PEER_LINK)],
        [device.host_link_bytes_per_s * device.host_link_share, np.nan if to_peers is None else float(to_peers)],
        float(device.achieved_bytes_per_s),
    )


def _kinds(rows: Rows, kernels: Categories) -> tuple[list[tuple[str, str]], IntArray]:
    """Return the operations and arithmetics that rates are known by, and which of them each activity is of.

    Of a call with several kernels the longest one's unit is the call's: what converts a layout multiplies with none.
    """
    units = np.array([*(_UNITS.index(u) if (u := unit_of(name)) in _UNITS else -1 for name in kernels.values), -1])
    call, unit = number(rows, "call"), units[kernels.codes]
    best = np.full(int(call.max(initial=0)) + 1, -1, np.int64)
    known = unit >= 0
    np.maximum.at(best, call[known], len(_UNITS) - 1 - unit[known])  # matrix units before vector units
    of_call = np.where(best >= 0, len(_UNITS) - 1 - best, -1)
    unit_of_row = np.where(call > 0, of_call[call], unit)
    combos, of = distinct(
        _classes_of_calls(rows, call),
        category(rows, "operation"),
        category(rows, "dtype"),
        Categories(unit_of_row.astype(np.int32), _UNITS),
    )
    return [operation_of(*each) for each in combos], of


def _classes_of_calls(rows: Rows, call: IntArray) -> Categories:
    """Return the class of each activity; of a call's auxiliary kernels, the call's."""
    found = category(rows, "op_class")
    main = found.among(*COUNTED) & (call > 0)
    of_call = np.full(int(call.max(initial=0)) + 1, -1, np.int32)
    of_call[call[main]] = found.codes[main]
    return Categories(np.where((call > 0) & (of_call[call] >= 0), of_call[call], found.codes), found.values)
