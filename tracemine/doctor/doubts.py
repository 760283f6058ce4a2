"""What makes figures of a recording differ from how the program runs: by what reading and scanning said of it.

Most of it they say as sentences. `SAID` knows each by words of it, and says it in fewer, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tracemine.columns import MISSING, numbers
from tracemine.doctor.record import Doubt
from tracemine.documents.trust import cut_off, host_times
from tracemine.findings import Scan
from tracemine.findings.recorder import slowdown_of
from tracemine.tables import table_beside
from tracemine.timeline import MEANS, Timeline
from tracemine.units import count_text, ratio_text, time_text

_FEW = 3
_CLOCKS_SERIOUS = 0.1  # of activities that began before they were launched: gaps and launches are unknown then
_SLOWED = 1.1  # a recorded step that takes so many times as long as alone


_LATER_STEP = "record later steps: schedule(wait=5, warmup=2, active=3)"
_TABLE = table_beside(__file__, "doubts.toml")
# By words of a scan's sentence what the doctor says in its place.
SAID: Final = {words: Doubt(*says) for words, says in _TABLE["said"].items()}


def doubts_of(timeline: Timeline, scan: Scan) -> list[Doubt]:
    """Return what distorts a recording, each kind once, serious ones first."""
    every = [
        *_impossible(scan),
        *_clocks(timeline),
        *_said(scan),
        *_dropped(timeline),
        *_few_steps(timeline, scan),
        *_warm_up(timeline, scan),
        *_slowed(timeline),
    ]
    kinds: dict[str, Doubt] = {}
    for doubt in every:
        if doubt.name == "impossible":
            kinds[doubt.says] = doubt
        else:
            kinds.setdefault(doubt.name, doubt)
    return sorted(kinds.values(), key=lambda doubt: not doubt.serious)


def _impossible(scan: Scan) -> Iterator[Doubt]:
    """Yield what cannot have been, which reading found: lost, malformed and impossible records."""
    if cut_off(scan):
        yield Doubt(
            name="cut_off",
            serious=True,
            says="the file is cut off: what came after the cut is not known",
            do="copy or record it again, to its end",
        )
    if host_times(scan):
        says = "host times only: shares, chains and fallbacks can be believed, no saving is estimated"
        yield Doubt(
            name="no_gpu",
            serious=False,
            says=says,
            do="nsys profile --trace=cuda,nvtx records a GPU, rocprofv3 one of AMD's",
        )
    elif not scan.trace.activities and not _doubts(scan):
        yield Doubt(name="no_gpu", serious=True, says="no GPU activity was recorded: nothing can be judged")
    for says in _doubts(scan):
        yield Doubt(name="impossible", serious=True, says=says)


def _doubts(scan: Scan) -> tuple[str, ...]:
    return () if scan.recorded is None else scan.recorded.doubts


def _clocks(timeline: Timeline) -> Iterator[Doubt]:
    """Yield that activities began before they were launched, which clocks that differ show."""
    if not any("clocks disagree" in warning for warning in timeline.meta.ingest.warnings):
        return
    row = numbers(timeline.activities["launch_row"])
    launched = numbers(timeline.api["start_ns"])[row[row != MISSING]]
    late = int((launched > numbers(timeline.activities["start_ns"])[row != MISSING]).sum())
    serious = late > _CLOCKS_SERIOUS * len(row)
    says = f"clocks of host and GPU disagree: {count_text(late, 'activity')} began before being launched"
    yield Doubt(name="clocks", serious=serious, says=says, do="record it again" if serious else None)


def _said(scan: Scan) -> Iterator[Doubt]:
    for warning in scan.warnings:
        yield from (doubt for words, doubt in SAID.items() if words in warning)


def _dropped(timeline: Timeline) -> Iterator[Doubt]:
    """Yield how many records were left out because they could not be read."""
    reasons = {reason: count for reason, count in timeline.meta.ingest.dropped.items() if "once more" not in reason}
    if count := sum(reasons.values()):
        most = max(reasons, key=lambda reason: reasons[reason])
        yield Doubt(
            name="dropped", serious=False, says=f"{count_text(count, 'record')} left out, most often: {most[:60]}"
        )


def _few_steps(timeline: Timeline, scan: Scan) -> Iterator[Doubt]:
    step = scan.summary.per_step
    few = timeline.activities.num_rows and not timeline.untimed and timeline.meta.format not in MEANS
    if not few or (step is not None and step.count >= _FEW):
        return
    if step is None or not step.count:
        says = "no step is known: warm-up and one-off work count as the rest"
    elif step.count == 1:
        says = "a single step: what of it is usual is not known"
    else:
        says = "two steps: their spread is assumed, 10% of a step"
    yield Doubt(name="few_steps", serious=False, says=says, do="record three steps or more")


def _warm_up(timeline: Timeline, scan: Scan) -> Iterator[Doubt]:
    step = scan.summary.per_step
    if step is not None and step.apart:
        says = f"{count_text(len(step.apart), 'step')} of {step.count + len(step.apart)} unlike the rest (warm-up?): "
        do = _LATER_STEP if timeline.meta.format == "kineto" else "warm up before recording"
        yield Doubt(name="warm_up", serious=False, says=f"{says}left out of every figure", do=do)


def _slowed(timeline: Timeline) -> Iterator[Doubt]:
    """Yield by how much recording slows the host: measured, else as it does other models. A light window tells gaps."""
    if timeline.light.num_rows:
        return
    alone_ns, recorded_ns = timeline.meta.alone_step_ns, timeline.meta.recorded_step_ns
    if alone_ns and recorded_ns:
        if recorded_ns >= _SLOWED * alone_ns:
            says = f"recording made the step {ratio_text(recorded_ns / alone_ns)} times as long: {time_text(alone_ns)} "
            yield Doubt(name="slowed", serious=False, says=f"{says}alone, {time_text(recorded_ns)} recorded")
        return
    slowdown = slowdown_of(timeline)
    if slowdown is None or not timeline.activities.num_rows:
        return
    says = (
        f"{slowdown.what} slows the host {slowdown.usual:g} times ({slowdown.least:g}–{slowdown.most:g}, other models)"
    )
    yield Doubt(name="slowed", serious=False, says=says, do="gaps: read the estimated unprofiled step")
