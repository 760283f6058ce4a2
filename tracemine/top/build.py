"""Rows of where the time goes, from what earlier stages say of each activity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tracemine.causes import known
from tracemine.columns import sorted_unique, uncovered
from tracemine.devices import Device
from tracemine.findings.accounting import Accounts
from tracemine.findings.graphs import Unrecorded, answer, fused_of, graphs_of
from tracemine.findings.graphs.obstacles import find_obstacles
from tracemine.findings.inside import gaps_inside
from tracemine.findings.light import in_light
from tracemine.findings.record import Range, Scan, UnprofiledTime, activity_rows
from tracemine.findings.steps import Steps, steps_of
from tracemine.host import whole_span
from tracemine.host.waits import waits_of
from tracemine.perfmodel import Rates
from tracemine.perfmodel.unprofiled import RECORDED
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import host_calls
from tracemine.rows.iterations import Iterations
from tracemine.rows.table import BoolArray, FloatArray, IntArray, Rows, number
from tracemine.timeline import Timeline
from tracemine.top.host import HostOrigin, wait_rows
from tracemine.top.keys import GROUPINGS
from tracemine.top.origin import Grouping, Origin
from tracemine.top.reach import Reach, reach_of
from tracemine.top.record import By, Claim, GraphTop, HostBy, HostTop, LeftOut, Top, TopRow, WaitTop
from tracemine.top.used import utilisation
from tracemine.top.words import host_notes, notes_of
from tracemine.units import count_text

_MOSTLY = 0.9  # of the time of what computes, or moves: what is known of less says nothing of the whole
_WITH_BUSY = ("stream", "device")


class Tops:
    """Tables of one trace, of what was found in it and the device that it ran on; what all need is made once."""

    def __init__(
        self,
        *,
        timeline: Timeline,
        activities: Rows,
        accounts: Accounts,
        scan: Scan,
        device: Device | None = None,
        rates: Rates | None = None,
        gaps: Rows | None = None,
        whole: bool = False,
    ) -> None:
        """device: None where its rates are not known. gaps: None where what waits cost is not asked. whole: all that
        was recorded, not the steps.
        """
        self.timeline, self.activities, self.accounts, self.scan = timeline, activities, accounts, scan
        self.device, self.gaps, self.whole = device, gaps, whole
        self._in_steps = accounts.per_step is not None and not whole
        self._chosen: BoolArray = accounts.in_step if self._in_steps else np.ones(len(accounts.dur_ns), np.bool_)
        self._runs = number(self.activities, "runs")
        self._origin = Origin(self.timeline, self.activities)
        kernels = categories(self.timeline.activities["name"])
        self._reach = reach_of(self.activities, kernels, device, rates)

    def by(self, by: By) -> Top:
        """Return where the time goes by one of BY."""
        chosen = self._chosen
        accounts, summary = self.accounts, self.scan.summary
        step = accounts.per_step if self._in_steps else None
        grouping = GROUPINGS[by](self.activities, self._origin)
        busy_ns = _busy(self.timeline, chosen, np.zeros(len(chosen), np.int64), 1)
        of_device = int(busy_ns.sum()) // max(accounts.devices, 1)
        recorded_ns = accounts.span_ns if step is None else max(step.span_ns, of_device // step.count)
        alone = summary.unprofiled_ns if step is None else (summary.per_step or step).unprofiled_ns
        unprofiled_ns = alone.mid if alone is not None and alone.source != "recorded" and not self.whole else None
        return Top(
            by=by,
            trace=self.scan.trace.path,
            gpu=self.scan.trace.gpu,
            per="trace" if step is None else "step",
            steps=1 if step is None else step.count,
            steps_source=None if step is None else step.source,
            gpu_time_ns=int(accounts.dur_ns[chosen].sum()),
            busy_ns=int(busy_ns.sum()),
            calls=int(self._runs[chosen].sum()),
            devices=accounts.devices,
            recorded_ns=recorded_ns,
            unprofiled_ns=unprofiled_ns,
            utilisation=utilisation(
                self.timeline,
                self._origin,
                self._reach,
                chosen,
                accounts.dur_ns,
                device=self.device,
                available_ns=accounts.devices * (1 if step is None else step.count),
                times_ns=(recorded_ns, unprofiled_ns),
            ),
            rows=tuple(self._rows(by, grouping)),
            left_out=tuple(self._left_out()),
            notes=tuple(notes_of(self.timeline, self.activities, by, chosen, grouping)),
            untimed=self.timeline.untimed,
        )

    def host(self, by: HostBy) -> HostTop:
        """Return where the host's time goes by one of HOST_BY."""
        steps = self.accounts.counted if self._in_steps else None
        step = self.accounts.per_step if steps is not None else None
        recorded = self.timeline.meta.format != "tensorrt"  # whose exports hold the GPU's time alone
        rows, kinds = (tuple(self._host.rows(by)), tuple(self._host.kinds())) if recorded else ((), ())
        alone = None if step is None else step.unprofiled_ns or self._unprofiled
        return HostTop(
            by=by,
            trace=self.scan.trace.path,
            gpu=self.scan.trace.gpu,
            per="trace" if steps is None else "step",
            steps=1 if steps is None else len(steps),
            steps_source=None if steps is None else steps.source,
            window=self._window[0],
            host_ns=_known(kind.host_ns for kind in kinds),
            critical_ns=_known(kind.critical_ns for kind in kinds),
            unprofiled_ns=None if alone is None or alone.source == "recorded" else alone.mid,
            kinds=kinds,
            rows=rows,
            notes=tuple(host_notes(self.timeline, by, rows, kinds)),
        )

    def waits(self) -> WaitTop:
        """Return where the host waits for the device."""
        steps = self.accounts.counted if self._in_steps else None
        rows = () if self.gaps is None else wait_rows(self.timeline, steps, self._replayed(self.gaps))
        alone = None if steps is None else self._unprofiled
        return WaitTop(
            trace=self.scan.trace.path,
            gpu=self.scan.trace.gpu,
            per="trace" if steps is None else "step",
            steps=1 if steps is None else len(steps),
            steps_source=None if steps is None else steps.source,
            window="light" if self.timeline.light.num_rows else "whole",
            wait_ns=sum(row.wait_ns for row in rows),
            unprofiled_ns=None if alone is None or alone.source == "recorded" else alone.mid,
            rows=tuple(rows),
        )

    def graphs(self) -> GraphTop:
        """Return whether a CUDA graph, or torch.compile, would work."""
        accounts = self.accounts
        step, alone = accounts.per_step, self._unprofiled or self.scan.summary.unprofiled_ns
        busy_ns = (accounts.gpu_busy_ns if step is None else step.gpu_busy_ns) // max(accounts.devices, 1)
        count, whole = max(accounts.steps, 1), accounts.span_ns if alone is None else alone.mid
        ends = (whole, whole, whole) if alone is None else (alone.low, alone.mid, alone.high)
        idle = Range(*(max(end - busy_ns, 0) * count for end in ends))
        compiled = {cause.rule: cause.compiled_share for cause in known().causes if cause.compiled_share}
        fused = fused_of(self.scan.findings, compiled)
        replayed = None if self.gaps is None else Unrecorded(self._replayed(self.gaps), idle, busy_ns * count, fused)
        waits = waits_of(self.timeline, *host_calls(self.timeline))
        obstacles = find_obstacles(self.timeline, self.activities, waits)
        found = graphs_of(self.timeline, self.activities, accounts, obstacles, replayed)
        basis = "as recorded" if alone is None or alone.source == RECORDED else "unprofiled"
        told = answer(found, whole * count, basis)
        return GraphTop(
            trace=self.scan.trace.path,
            gpu=self.scan.trace.gpu,
            per="trace" if step is None else "step",
            steps=count,
            steps_source=None if step is None else step.source,
            unprofiled_ns=None if alone is None else alone.mid,
            answer=told.says,
            fix=told.code,
            step=found.step,
            spans=found.spans,
            parts=found.parts,
        )

    def _replayed(self, gaps: Rows) -> Steps:
        accounts = self.accounts
        in_steps_ns = gaps_inside(gaps, accounts.step_of, accounts.extents)
        return steps_of(self.timeline, gaps, accounts.step_of, in_steps_ns)

    @cached_property
    def _host(self) -> HostOrigin:
        _, timeline, spans = self._window
        return HostOrigin(self._origin, timeline, *spans)

    @cached_property
    def _window(self) -> tuple[Literal["whole", "light"], Timeline, tuple[IntArray, IntArray]]:
        """The window that tells host times, the timeline with its times, and when the host worked on each step."""
        timeline, steps = self.timeline, self.accounts.counted if self._in_steps else None
        if steps is None:
            return "whole", timeline, whole_span(timeline)
        marks, light = rows_of(timeline.steps["start_ns"]), sorted_unique(rows_of(timeline.light["step_row"]))
        told = light[light >= 0]
        told = told[np.isin(marks[told], steps.begin_ns)]
        if steps.host_begin_ns is not None or not len(told) or len(told) != len(steps):
            return "whole", timeline, self._spans(steps)
        timeline = in_light(timeline)
        begin = rows_of(timeline.steps["start_ns"])[told]
        return "light", timeline, (begin, begin + rows_of(timeline.steps["dur_ns"])[told])

    def _spans(self, steps: Iterations) -> tuple[IntArray, IntArray]:
        """Return when the host worked on each step; of one whose device was seen later, from where the host began."""
        if steps.host_begin_ns is None:
            return steps.begin_ns, steps.end_ns
        _, done_ns = whole_span(self.timeline)
        return steps.host_begin_ns, np.maximum(np.minimum(steps.end_ns, done_ns), steps.host_begin_ns)

    @property
    def _unprofiled(self) -> UnprofiledTime | None:
        step = self.scan.summary.per_step
        return None if step is None else step.unprofiled_ns

    def _rows(self, by: By, grouping: Grouping) -> Iterator[TopRow]:
        chosen = self._chosen
        count = len(grouping.names)
        own_ns = _sums(grouping.of, self.accounts.dur_ns, chosen, count)
        sums = _Sums(grouping, self._reach, self.accounts.dur_ns, self._runs, chosen)
        busy = _busy(self.timeline, chosen, grouping.of, count) if by in _WITH_BUSY else None
        claims = _Claims(self.scan, grouping, self.accounts.dur_ns, chosen)
        whole = max(int(own_ns.sum()), 1)
        place: dict[int, int] = {}
        for depth, at in grouping.in_order(sums.dur_ns, sums.calls > 0):
            place[at] = len(place)
            parent = grouping.parents[at]
            yield TopRow(
                name=grouping.names[at],
                parent=None if parent < 0 else place[parent],
                depth=depth,
                instances=grouping.instances[at] if grouping.instances else 1,
                calls=int(sums.calls[at]),
                gpu_time_ns=int(sums.dur_ns[at]),
                own_ns=int(own_ns[at]),
                share=round(int(sums.dur_ns[at]) / whole, 6),
                busy_ns=None if busy is None else int(busy[at]),
                findings=claims.of(at),
                **sums.rates(at),
            )

    def _left_out(self) -> Iterator[LeftOut]:
        """Yield what was recorded and is in no row."""
        left = ~self._chosen
        step = self.accounts.per_step
        if not left.any() or step is None:
            return
        kinds = Counter(one.why for one in step.apart)
        apart = ", ".join(f"{count} {why}" for why, count in sorted(kinds.items()))
        reason = categories(self.timeline.activities["unowned_reason"])
        count = int((left & reason.among("before_window")).sum())
        early = f", {count:,} of them launched before the recording began" if count else ""
        also = f", or in {count_text(len(step.apart), 'step')} that {_TELLS} ({apart})" if apart else ""
        says = f"in no step{also}{early}"
        yield LeftOut(says=says, calls=int(left.sum()), gpu_time_ns=int(self.accounts.dur_ns[left].sum()))


def _known(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)


_TELLS = "took longer than is usual"


def _sums(of: IntArray, values: IntArray, chosen: BoolArray, count: int) -> IntArray:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, of[chosen], values[chosen])
    return sums


def _busy(timeline: Timeline, chosen: BoolArray, of: IntArray, count: int) -> IntArray:
    """Return for how long each group kept a device busy, each moment of a device once."""
    start, dur, device = (rows_of(timeline.activities[name]) for name in ("start_ns", "dur_ns", "device"))
    rows = np.flatnonzero(chosen)
    busy_ns = np.zeros(count, np.int64)
    places = of[rows] * (int(device.max(initial=0)) + 2) + device[rows] + 1
    for place in sorted_unique(places):
        own = rows[places == place]  # in order of start
        busy_ns[of[own[0]]] += int(uncovered(start[own], start[own] + dur[own]).sum())
    return busy_ns


class _Sums:
    """Sums over groups, of what is in their parts too: time, calls, FLOPs and bytes, and time of what those are of."""

    def __init__(self, grouping: Grouping, reach: Reach, dur_ns: IntArray, runs: IntArray, chosen: BoolArray) -> None:
        rows = np.flatnonzero(chosen)
        of, count = grouping.of[rows], len(grouping.names)
        dur = dur_ns[rows].astype(np.float64)

        def inclusive(values: FloatArray) -> FloatArray:
            added: FloatArray = np.bincount(of, weights=np.nan_to_num(values), minlength=count).astype(np.float64)
            return grouping.inclusive(added)

        def during(holds: BoolArray) -> FloatArray:
            return inclusive(np.where(holds, dur, 0.0))

        flops, flops_ns, moved, moved_ns = (
            each[rows] for each in (reach.flops, reach.flops_ns, reach.bytes, reach.bytes_ns)
        )
        self.dur_ns = grouping.inclusive(_sums(grouping.of, dur_ns, chosen, count))
        self.calls = grouping.inclusive(_sums(grouping.of, runs, chosen, count))
        sums = map(inclusive, (flops, flops_ns, moved, moved_ns))
        known = (~np.isnan(each) for each in (flops, flops_ns, moved, moved_ns))
        self._all = (*sums, during(reach.counted[rows]), *map(during, known))

    def rates(self, at: int) -> dict[str, Any]:
        """Return the fields of a row that say what it computes and moves.

        FLOPs are over all of its time, as what is no product has none worth counting; bytes over that of known ones.
        """
        dur = float(self.dur_ns[at])
        flops, flops_ns, moved, moved_ns, counted, of_flops, of_flops_ns, of_bytes, of_bytes_ns = (
            float(each[at]) for each in self._all
        )
        computes = flops > 0 and of_flops >= _MOSTLY * counted and dur > 0
        reached = computes and of_flops_ns >= _MOSTLY * of_flops
        moves = moved > 0 and 2 * of_bytes >= dur > 0
        at_link = moves and of_bytes_ns >= _MOSTLY * of_bytes
        return {
            "flops": round(flops) if computes else None,
            "flops_per_s": flops * 1e9 / dur if computes else None,
            "flops_reach": min(flops_ns / dur, 1.0) if reached else None,
            "bytes": round(moved) if moves else None,
            "bytes_per_s": moved * 1e9 / of_bytes if moves else None,
            "bytes_reach": moved_ns / of_bytes_ns if at_link else None,
        }


class _Claims:
    """How much of each group findings claim."""

    def __init__(self, scan: Scan, grouping: Grouping, dur_ns: IntArray, chosen: BoolArray) -> None:
        self._findings = [(rank, one) for rank, one in enumerate(scan.reported, 1) if one.on_gpu]
        width = len(self._findings) + 1
        claim = np.zeros(len(dur_ns), np.int64)
        for place, (_, finding) in enumerate(self._findings, 1):
            claim[activity_rows([finding])] = place
        rows = np.flatnonzero(chosen & (claim > 0))
        added = np.zeros(len(grouping.names) * width, np.int64)
        np.add.at(added, grouping.of[rows] * width + claim[rows], dur_ns[rows])
        self._ns = grouping.inclusive(added.reshape(-1, width))

    def of(self, at: int) -> tuple[Claim, ...]:
        """Return the claims on a group, most time first."""
        own = self._ns[at]
        most = sorted(np.flatnonzero(own[1:]).tolist(), key=lambda number: -int(own[number + 1]))
        return tuple(
            Claim(
                rank=self._findings[number][0],
                fingerprint=self._findings[number][1].fingerprint,
                rule=self._findings[number][1].rule,
                gpu_time_ns=int(own[number + 1]),
            )
            for number in most
        )
