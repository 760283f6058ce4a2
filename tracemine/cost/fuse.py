"""One kernel in place of a chain: a first estimate from bytes, bandwidth and launch floors, always as an interval.

The unfused time is never modelled: it is what the trace measured. Only the time after the change is predicted, as
`floor + bytes / bandwidth` with few, physical parameters; every one that was not measured is said in the assumptions.
An estimate that has nothing to stand on abstains and says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tracemine.cost.ranges import Abstained, Estimate, Range, Traffic, outwards
from tracemine.devices import Device


@dataclass(frozen=True, slots=True)
class Tensor:
    """What one operator reads or writes, as far as a trace tells one tensor from another: views move no bytes, so
    two tensors of equal element count and dtype may be the same memory whatever their shapes."""

    elements: int
    dtype: str
    nbytes: int

    @property
    def kind(self) -> tuple[int, str]:
        """What must be equal for two tensors to be able to be one."""
        return self.elements, self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator of a chain with all the kernels that it launched there."""

    dur_ns: int  # mean over the instances
    compute: bool = False  # its time is arithmetic (a matrix product, a convolution), which fusing does not shorten
    row_wise: bool = False  # it reduces rows: reductions, norms, softmax, scans
    reads: tuple[Tensor, ...] | None = None  # None: not known
    writes: tuple[Tensor, ...] | None = None


# Share of the bandwidth that a large copy reaches, by how many members reduce rows (none, one, several): (mid, high
# time). Pointwise kernels with log, tanh or erf in a 2-byte type and reductions of long or odd rows stay far below a
# copy, and several reductions read their rows again; the low time takes the data sheet's bandwidth.
_SHARE = ((1.0, 0.65), (0.75, 0.45), (0.6, 0.3))
# Launch floor times these: (low, high), for a measured floor and for an assumed one.
_FLOOR = {True: (0.9, 1.2), False: (0.6, 1.5)}
# Traffic that fits half the L2 cache may never reach device memory; 2.5 times its bandwidth is what XLA assumes too.
_L2_SPEEDUP = 2.5
# A chain with durations alone: the share of the time beyond its longest member that the mid estimate saves.
_SHARE_OF_THE_REST = 0.5


def fused(chain: Sequence[Call], device: Device | None) -> Estimate | Abstained:
    """One kernel in place of a chain of operators on `device`.

    Members whose time is arithmetic keep their measured time. Without shapes the estimate rests on durations alone.

    >>> from tracemine.devices import find_device
    >>> x = Tensor(1 << 25, "bfloat16", 1 << 26)
    >>> chain = [Call(dur_ns=34_000, reads=(x,), writes=(x,)), Call(dur_ns=34_000, reads=(x,), writes=(x,))]
    >>> estimate = fused(chain, find_device("NVIDIA H200"))
    >>> estimate.after_ns.mid, estimate.traffic_bytes
    (32608, Traffic(before=268435456, after=134217728))
    >>> fused(chain, None)
    Abstained(reason='device_unknown')
    """
    if device is None:
        return Abstained("device_unknown")
    compute_ns = sum(call.dur_ns for call in chain if call.compute)
    runs = [list(run) for compute, run in groupby(chain, key=lambda call: call.compute) if not compute]
    if not runs:
        return Abstained("compute_bound")
    parts = [_one_kernel(run, device) for run in runs]
    after = Range(compute_ns, compute_ns, compute_ns)
    for part in parts:
        after += part.after_ns
    assumptions = list(dict.fromkeys(text for part in parts for text in part.assumptions))
    if compute_ns:
        # A generated kernel need not reach the library's: only the low end counts on an epilogue of the same kernel.
        after = Range(compute_ns, after.mid, after.high)
        assumptions.append("products and convolutions keep their time; only the low end lets the rest ride on them")
    traffics = [part.traffic_bytes for part in parts if part.traffic_bytes is not None]
    known = len(traffics) == len(parts) and not compute_ns
    return Estimate(
        after_ns=after,
        traffic_bytes=traffics[0] if known else None,
        intermediate_bytes=parts[0].intermediate_bytes if known else None,
        assumptions=tuple(assumptions),
    )


def _one_kernel(run: Sequence[Call], device: Device) -> Estimate:
    """One kernel in place of a run of members none of which is arithmetic."""
    if any(call.reads is None or call.writes is None for call in run):
        return _from_durations(run)
    flow = _flow(run)
    before = sum(t.nbytes for call in run for t in (*(call.reads or ()), *(call.writes or ())))
    return Estimate(
        after_ns=_times(flow, sum(call.row_wise for call in run), device),
        traffic_bytes=Traffic(before=before, after=min(flow.mid, before)),
        intermediate_bytes=flow.intermediate,
        assumptions=(
            "which tensor feeds which kernel is inferred from size, dtype and order; the high end also writes the "
            "largest intermediate, for somebody outside",
            *_device_assumptions(device),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Flow:
    """Bytes that one kernel in place of a run moves, and those of the tensors that need not exist any more."""

    low: int
    mid: int
    high: int
    intermediate: int


def _flow(run: Sequence[Call]) -> _Flow:
    """Which inputs come from outside and which outputs somebody else may read, by size, dtype and order alone.

    An input is taken for internal when an earlier member wrote a tensor of its size and dtype; an operator's two
    inputs of one kind are two tensors. An output that no later member can read is live.
    """
    written: Counter[tuple[int, str]] = Counter()
    kinds: dict[tuple[int, str], int] = {}  # bytes of each kind of outside tensor
    last_read = {tensor.kind: position for position, call in enumerate(run) for tensor in call.reads or ()}
    outside = doubtful = live = intermediate = largest = 0
    for position, call in enumerate(run):
        own: Counter[tuple[int, str]] = Counter()
        for tensor in call.reads or ():
            kind = tensor.kind
            own[kind] += 1
            if own[kind] > written[kind]:
                outside += tensor.nbytes
                kinds[kind] = tensor.nbytes
            elif own[kind] > 1:
                doubtful += tensor.nbytes
        for tensor in call.writes or ():
            kind = tensor.kind
            written[kind] += 1
            if last_read.get(kind, position) > position:
                intermediate += tensor.nbytes
                largest = max(largest, tensor.nbytes)
            else:
                live += tensor.nbytes
    # The cheapest reading: all outside tensors of one kind are one tensor. The dearest: no two inputs are shared, and
    # somebody outside reads an intermediate, as a residual stream is.
    return _Flow(
        low=sum(kinds.values()) + live,
        mid=outside + live,
        high=outside + doubtful + live + largest,
        intermediate=intermediate,
    )


def _times(flow: _Flow, row_wise: int, device: Device) -> Range:
    mid_share, high_share = _SHARE[min(row_wise, 2)]
    floor_low, floor_high = _FLOOR[device.launch_floor_measured]
    floor_ns = device.launch_floor_ns[row_wise > 0]
    peak = device.bandwidth_bytes_per_s
    if device.l2_bytes is not None and flow.low <= device.l2_bytes // 2:
        peak = round(peak * _L2_SPEEDUP)
    copy = device.achieved_bytes_per_s
    return outwards(
        floor_ns * floor_low + flow.low * 1e9 / peak,
        floor_ns + flow.mid * 1e9 / (copy * mid_share),
        floor_ns * floor_high + flow.high * 1e9 / (copy * high_share),
    )


def _from_durations(run: Sequence[Call]) -> Estimate:
    """Shapes unknown: between the longest member and all of them, and half-way for want of anything better."""
    total = sum(call.dur_ns for call in run)
    longest = max(call.dur_ns for call in run)
    return Estimate(
        after_ns=Range(longest, total - round((total - longest) * _SHARE_OF_THE_REST), total),
        assumptions=(
            "shapes are not known for every member: one kernel takes as long as the longest member (low), as all of "
            "them (high), or half-way between",
        ),
    )


def _device_assumptions(device: Device) -> tuple[str, ...]:
    how = "measured" if device.achieved_measured else "assumed"
    floor = "measured" if device.launch_floor_measured else "assumed"
    bandwidth = device.achieved_bytes_per_s / 1e12
    return (
        f"{device.title}: a copy reaches {bandwidth:.3g} TB/s ({how}); low end: the data sheet's bandwidth, or "
        "2.5 times it where everything fits half the L2 cache",
        f"launch floor {device.launch_floor_ns[0] / 1000:g} µs pointwise, {device.launch_floor_ns[1] / 1000:g} µs row "
        f"reduction ({floor})",
    )
