"""Compare steps and GPU work of two scans, and say what the comparison rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracemine.comparison.record import (
    INCOMPARABLE,
    ComparedSide,
    CostTotals,
    Differs,
    FindingChange,
    Noise,
    Predicted,
    StepChange,
)
from tracemine.comparison.scale import ESTIMATED, CostScale, total
from tracemine.findings.record import NOTHING, Range
from tracemine.timeline import MEANS
from tracemine.units import count_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """Both sides on one scale."""

    before: ComparedSide
    after: ComparedSide
    scales: tuple[CostScale, CostScale]
    noise: Noise
    differs: tuple[Differs, ...]

    @property
    def incomparable(self) -> Differs | None:
        """Why nothing compares; None: it does."""
        return next((one for one in self.differs if one.what in INCOMPARABLE), None)

    @property
    def explained(self) -> Differs | None:
        """What may explain that findings come and go."""
        return next((one for one in self.differs if one.explains), None)

    def what_differs(self, what: str) -> Differs | None:
        """Return the entry of this name, where the sides differ in it."""
        return next((one for one in self.differs if one.what == what), None)


def per_of(both: Both) -> str:
    known = {bool(side.about.steps) for side in (both.before, both.after)}
    return "unknown" if len(known) == 2 else "step" if True in known else "trace"


def step_of(both: Both, basis: str) -> StepChange:
    before, after = (scale.step_ns for scale in both.scales)
    noise = round(both.noise.span * max(before.mid, after.mid))
    return step_change(before, after, noise, known=known_of(both))


def gpu_work_of(both: Both) -> StepChange:
    before, after = (Range(*(scale.gpu_busy_ns,) * 3) for scale in both.scales)
    noise = round(both.noise.gpu * max(before.mid, after.mid))
    return step_change(before, after, noise, known=known_of(both))


def known_of(both: Both) -> bool:
    return both.incomparable is None and per_of(both) != "unknown"


def step_change(before: Range, after: Range, noise: int, *, known: bool) -> StepChange:
    change = Range(after.low - before.high, after.mid - before.mid, after.high - before.low)
    status = "worse" if change.low > noise else "improved" if -change.high > noise else "same"
    return StepChange(
        status=status if known else "unknown", before_ns=before, after_ns=after, change_ns=change, noise_ns=noise
    )


def _gone(change: FindingChange) -> float:
    """Return which share of its findings' cost is gone: of what is fixed, all that was said to be saved counts."""
    return 1.0 if change.status == "fixed" else max(1.0 - change.after_ns / max(change.before_ns, 1), 0.0)


def _part_of(saving: Range, share: float) -> Range:
    return Range(*(round(each * share) for each in (saving.low, saving.mid, saving.high)))


def predicted_of(changes: Sequence[FindingChange], step: StepChange, work: StepChange) -> Predicted | None:
    done = [change for change in changes if change.status in ("fixed", "improved")]
    if not any(change.before for change in done):
        return None
    claims = [(part, _gone(change)) for change in done for part in change.before]
    return Predicted(
        fixed=sum(len(change.before) for change in done if change.status == "fixed"),
        improved=sum(len(change.before) for change in done if change.status == "improved"),
        step_saving_ns=sum((_part_of(part.step_saving_ns, gone) for part, gone in claims), NOTHING),
        gpu_saving_ns=sum((_part_of(part.gpu_saving_ns, gone) for part, gone in claims), NOTHING),
        measured_step_ns=Range(-step.change_ns.high, -step.change_ns.mid, -step.change_ns.low),
        measured_gpu_ns=-work.change_ns.mid,
    )


def totals_of(side: ComparedSide, scale: CostScale) -> CostTotals:
    return CostTotals(
        findings=len(side.items), gpu_ns=total(side, scale, on_gpu=True), idle_ns=total(side, scale, on_gpu=False)
    )


def notes_of(both: Both, basis: str) -> Iterator[str]:
    """Yield one sentence each: what a reader must know before believing the figures."""
    per = per_of(both)
    if per == "trace":
        yield "No steps are known: every time is over the trace, and compares only if both did the same work."
    elif per == "unknown":
        yield "Steps are known on one side alone: costs do not compare."
    if basis == ESTIMATED:
        yield (
            "The traces were recorded differently, and recording stretches the host: idle time and the step are scaled "
            "to the estimated unprofiled step. Where tracemine.capture timed the step alone, it is no guess."
        )
    if any(one.what == "gpu" for one in both.differs):
        yield "The GPUs differ: improved and worse say what a finding costs there, not that the program changed."
    for side, name in ((both.before, "before"), (both.after, "after")):
        if side.spent is None:
            yield f"What operators take is not stored with “{name}”: what is gone or come stays unknown."
    if both.noise.source == "assumed":
        sides = both.before.about, both.after.about
        few, is_mean = min(side.steps for side in sides), {side.format for side in sides} <= MEANS
        what = f"{count_text(few, 'step')} do" if few != 1 else "one step does"
        more = "Export both once more, and" if is_mean else "Record three or more, or"
        yield f"Noise is assumed: {what} not tell how much steps vary. {more} say --noise."
