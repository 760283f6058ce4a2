"""What launching less saves: the idle time of stretches that become one launch, less what each call then costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tracemine.findings.graphs.record import Span, WayOutcome
from tracemine.findings.payback import COMPILE
from tracemine.findings.record import Finding, activity_rows
from tracemine.findings.steps import Fix, Steps
from tracemine.perfmodel import COMPILED_CALL_NS, NOTHING, TRAINED_CALL_NS, Range
from tracemine.rows.table import IntArray

# From kernel to kernel in a stream, which the timeline run again has and a graph has not: 15 programs replayed as one
# graph on an H200 took 0.96 to 1.07 times what their kernels do.
_CHANGE_NS: Final = 1_000
# Of the same idle time what torch.compile's default mode closes: it launches fewer kernels, one by one.
_DEFAULT_SHARE: Final = (0.0, 0.4, 1.0)
_MOSTLY: Final = 0.9


class Unrecorded(Struct, frozen=True):
    """The steps as they go unprofiled: what savings are of. Nanoseconds of all steps."""

    steps: Steps  # the timeline as it can be run again
    idle: Range  # for how long the device idles
    busy_ns: int
    fused: Sequence[tuple[IntArray, Range]] = ()  # activities, and GPU time that compiling them saves


def fused_of(findings: Iterable[Finding], also_compiled: Mapping[str, float]) -> list[tuple[IntArray, Range]]:
    """Return activities, and GPU time of all that was recorded, that torch.compile saves of these findings.

    also_compiled: by rule, which share of what other fixes save torch.compile does by a way of its own.
    """
    found = []
    for one in findings:
        share = 1.0 if COMPILE in one.fix else also_compiled.get(one.rule, 0.0)
        if share and one.on_gpu and not one.refuted:
            of = one.gpu_saving_ns
            saved = Range(*(round(share * end) for end in (of.low, of.mid, of.high)))
            found.append((activity_rows([one]), saved))
    return found


def graph_savings(alone: Unrecorded, every: Sequence[Sequence[IntArray]]) -> list[Range]:
    """Return what the steps are shorter by where each of these stretches is one launch; of each of several sets."""
    found, idle = [], alone.idle
    fixes = [Fix([part[None, :] for part in parts], [NOTHING] * len(parts), call="graph") for parts in every]
    for parts, (gain,) in zip(every, alone.steps.gains_of([[fix] for fix in fixes]), strict=True):
        closer = _CHANGE_NS * sum(len(part) - 1 for part in parts)
        low, mid = min(gain.low, idle.low), min(gain.mid + closer, idle.mid)
        found.append(Range(min(low, mid), mid, max(mid, min(gain.high + closer, idle.high))))
    return found


def with_savings(span: Span, activities: IntArray, saving: Range, alone: Unrecorded, *, trained: bool) -> Span:
    """Return a span with what each way that works saves. activities: what it launches; saving: of its stretches."""
    inside = set(activities.tolist())
    fused = NOTHING
    for rows, gain in alone.fused:
        if sum(row in inside for row in rows.tolist()) >= _MOSTLY * len(rows):
            fused += gain
    costs = TRAINED_CALL_NS if trained else {"in_training": COMPILED_CALL_NS, "compiled": COMPILED_CALL_NS}
    graphs = _left(saving, costs["in_training"] * span.calls)
    low, mid, high = (round(share * end) for share, end in zip(_DEFAULT_SHARE, _ends(saving), strict=True))
    default = _left(Range(low, mid, high), costs["compiled"] * span.calls)
    # While the host still sets the pace, kernels that take less time save none.
    felt = alone.busy_ns / max(alone.busy_ns + alone.idle.mid - default.mid, 1)
    default += Range(0, round(felt * fused.mid), fused.high)
    fused = Range(0, fused.mid, fused.high)  # what else the library's compiler leaves as it was is not known
    by_way = {"cuda_graph": saving, "default": default}
    ways = tuple(_with(way, by_way.get(way.way, graphs + fused)) for way in span.ways)
    return replace(span, saving_ns=saving, ways=ways)


def _with(way: WayOutcome, saving: Range) -> WayOutcome:
    return replace(way, saving_ns=saving) if way.outcome == "works" and way.effect != "already" else way


def _left(saving: Range, cost: Range) -> Range:
    """Return what is left of a saving once calls have cost what they do.

    >>> _left(Range(5, 8, 9), Range(1, 2, 6))
    Range(low=0, mid=6, high=9)
    """
    mid = max(saving.mid - cost.mid, 0)
    return Range(min(max(saving.low - cost.high, 0), mid), mid, saving.high)


def _ends(of: Range) -> tuple[int, int, int]:
    return of.low, of.mid, of.high
