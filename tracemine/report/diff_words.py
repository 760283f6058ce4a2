"""A difference in words, the same for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tracemine.documents.bar import TITLES
from tracemine.documents.trust import RECORD_GPU
from tracemine.units import count_text, percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.comparison import Difference, FindingChange
    from tracemine.comparison.record import Noise, Predicted, StepChange
    from tracemine.findings.record import Range, WorkOfClass

NO_COST = "–"
_BASES = {
    "captured": "timed alone by tracemine.capture",
    "recorded": "as recorded",
    "estimated": "estimated without the profiler",
}
_MEASURED = {"captured": "timed alone", "recorded": "with the profiler", "estimated": "by the estimated steps"}
_NOISE = {"given": "as --noise says", "measured": "the spread of the steps", "assumed": "assumed"}
# What a recording has or has not, in a reader's words.
_DIFFERS = {
    "producer": "what made the kernels",
    "gpu": "GPU",
    "inputs": "shapes that most findings ran on",
    "traced": "execution trace, which slows the host",
    "tensors": "tensors of an execution trace",
    "operators": "operators",
    "world_size": "processes",
    "devices": "active GPUs",
}
# What keeps two recordings from being compared, and the way out.
_INCOMPARABLE = {
    "cut_off": ("the file is cut off", "copy or record it again, to its end"),
    "gpu_activity": ("there is no GPU activity", RECORD_GPU),
    "program": ("the programs have nothing in common", "name two recordings of one program"),
}
_HOST_ONLY = {"onnxruntime": "nsys profile --trace=cuda,nvtx or rocprofv3 records what a GPU does"}
_SHORT = 16  # digits of a fingerprint; all of them


def title(difference: Difference) -> str:
    """Return which two are compared."""
    return f"{difference.before.trace} → {difference.after.trace}"


def sides_text(difference: Difference) -> str:
    """Return both sides' GPU and how many steps were recorded, once where they agree."""
    texts = [
        f"{about.gpu or 'GPU not known'}, {count_text(about.steps, 'step') if about.steps else 'no steps known'}"
        for about in (difference.before, difference.after)
    ]
    return " → ".join(dict.fromkeys(texts))


def cost_text(ns: int) -> str:
    """Return what it costs, or that it costs nothing."""
    return time_text(ns) if ns else NO_COST


def change_text(before_ns: int, after_ns: int) -> str:
    """Return what it was, what it is, and by how much that is more.

    >>> change_text(47_535_666, 0), change_text(0, 1_000), change_text(1_914_300, 2_883_700)
    ('47.5 ms → –', '– → 1.00 µs', '1.91 → 2.88 ms')
    """
    before, after = cost_text(before_ns), cost_text(after_ns)
    number, _, unit = before.partition(" ")
    return f"{number} → {after}" if unit and after.endswith(f" {unit}") else f"{before} → {after}"


def signed(ns: int) -> str:
    """Return a change with its sign.

    >>> signed(1_500), signed(-2_000_000), signed(0)
    ('+1.50 µs', '−2.00 ms', '±0 ns')
    """
    return f"{'+' if ns > 0 else '−' if ns < 0 else '±'}{time_text(abs(ns))}"


def share_text(change_ns: int, whole_ns: int) -> str:
    """Return a change as a signed share; "" of nothing."""
    if not whole_ns:
        return ""
    return f"({'+' if change_ns >= 0 else '−'}{percent_text(abs(change_ns), whole_ns)})"


def step_text(change: StepChange) -> str:
    """Return before, after, and the change of a step or of its GPU work; the interval where it is an estimate."""
    return "{}, {}: {}".format(*step_cells(change))


def step_cells(change: StepChange) -> tuple[str, str, str]:
    """Return the same in cells: before and after, the change, what that is."""
    before, after = change.before_ns.mid, change.after_ns.mid
    more = f"{signed(after - before)} {share_text(after - before, before)}".rstrip()
    if change.change_ns.low != change.change_ns.high:
        more += f", {signed(change.change_ns.low)} to {signed(change.change_ns.high)}"
    return change_text(before, after), more, change.status


def basis_text(difference: Difference) -> str:
    """Return what the step's times rest on."""
    if difference.basis == "captured" and difference.before.format == "tensorrt":
        return "as trtexec timed runs"
    return _BASES.get(difference.basis, difference.basis)


def incomparable_texts(difference: Difference) -> Iterator[str]:
    """Yield why nothing compares, and the way out, a line each; none where it does."""
    for one in difference.incomparable:
        what, way_out = _INCOMPARABLE[one.what]
        if one.what == "gpu_activity":
            way_out = _HOST_ONLY.get(difference.before.format, way_out)
        yield f"nothing compares: {what} ({one.before} → {one.after}); {way_out}"


def how_measured(basis: str) -> str:
    """Return how it was found out by how much a step got shorter, behind the time.

    >>> how_measured("recorded"), how_measured("estimated")
    ('measured, with the profiler', 'estimated')
    """
    how = _MEASURED.get(basis)
    return "estimated" if basis == "estimated" else f"measured, {how}" if how else "measured"


def noise_text(noise: Noise) -> str:
    """Return the change that is noise, and how that is known.

    >>> from tracemine.comparison.record import Noise
    >>> noise_text(Noise(span=0.041, gpu=0.01, source="measured"))
    '4.1% of the step and of idle time, 1.0% of GPU work (the spread of the steps)'
    """
    source = _NOISE.get(noise.source, noise.source)
    span, gpu = percent_text(noise.span, 1), percent_text(noise.gpu, 1)
    if span == gpu:
        return f"{span} ({source})"
    return f"{span} of the step and of idle time, {gpu} of GPU work ({source})"


def facts(difference: Difference) -> Iterator[tuple[str, str]]:
    """Yield what holds of both recordings, each behind its label: predicted, what else differs, the noise."""
    yield from (("predicted", text) for text in predicted_texts(difference))
    for one in difference.differs:
        if one not in difference.incomparable:  # which is said first
            why = "; what comes and goes is unknown" if one.explains else ""
            yield "differs", f"{_DIFFERS.get(one.what, one.what)}: {one.before} → {one.after}{why}"
    yield "noise", noise_text(difference.noise)


def changes_of(difference: Difference, most: int | None) -> tuple[Sequence[FindingChange], int, list[FindingChange]]:
    """Return the changes that are shown, how many more there are, and what is the same."""
    changed = [change for change in difference.changes if change.status != "same"]
    same = [change for change in difference.changes if change.status == "same"]
    return changed[:most], len(changed) - len(changed[:most]), same


def predicted_texts(difference: Difference) -> Iterator[str]:
    """Yield predicted and measured: the step, then the GPU's work; none where nothing is fixed."""
    found = difference.predicted
    if found is None:
        return
    what, measured = _done(found), found.measured_step_ns
    said = f"{_said(found.step_saving_ns)} less a step without the profiler, by {what}"
    found_out = "estimated" if difference.basis == "estimated" else "measured"
    yield f"{said}; {found_out}: {_said(measured)} less, {_MEASURED.get(difference.basis, difference.basis)}" + (
        _verdict(found.step_saving_ns, measured)
    )
    if found.gpu_saving_ns.high:
        alone = found.measured_gpu_ns
        verdict = _verdict(found.gpu_saving_ns, type(measured)(alone, alone, alone))
        yield f"{_said(found.gpu_saving_ns)} less GPU work, by {what}; measured: {time_text(alone)} less{verdict}"


def _done(found: Predicted) -> str:
    parts = [f"{name} ({count:,})" for name, count in (("fixed", found.fixed), ("improved", found.improved)) if count]
    return f"what is {' and '.join(parts)}"


def _said(saving: Range) -> str:
    if saving.low == saving.high:
        return time_text(saving.mid)
    return f"{time_text(saving.mid)} ({range_text(saving.low, saving.high)})"


def _verdict(predicted: Range, measured: Range) -> str:
    """Return whether what was measured lies in what was predicted."""
    if measured.high < predicted.low:
        return ": less than predicted"
    if measured.low > predicted.high:
        return ": more than predicted"
    return ": within what was predicted" if measured.low == measured.high else ": both intervals meet"


def classes_text(difference: Difference) -> str:
    """Return whose kernels are compared by class; "": one maker's on both sides."""
    found = difference.by_class
    return "" if found is None else f"Kernels and GPU time {per_text(difference)}, {' → '.join(found.made_by)}"


def class_rows(difference: Difference) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield of each class its title, kernels, time, by how much that is more, and what is fused on either side."""
    for one in () if difference.by_class is None else difference.by_class.classes:
        both = one.before, one.after
        kernels = [NO_COST if each is None else f"{each.kernels:,.4g}" for each in both]
        before, after = (0 if each is None else each.gpu_ns for each in both)
        fused = [_fused(each) for each in both]
        yield (
            TITLES.get(one.name, one.name),
            " → ".join(kernels),
            change_text(before, after),
            signed(after - before),
            " → ".join(each or "none fused" for each in fused) if any(fused) else "",
        )


def _fused(work: WorkOfClass | None) -> str:
    if work is None or not work.fused:
        return ""
    return f"{work.fused:,.4g} fused ({', '.join(work.operations)})"


def marks(change: FindingChange) -> str:
    """Return the fingerprints on both sides, once where they agree."""
    before, after = (
        ", ".join(part.fingerprint[:_SHORT] for part in side[:2]) + (" …" if len(side) > 2 else "")
        for side in (change.before, change.after)
    )
    return before if before == after or not after else after if not before else f"{before} → {after}"


def where(change: FindingChange) -> str:
    """Return the line that leads to it, else its module; "" where neither is known."""
    parts = [*change.after, *change.before]
    first = next((part.source for part in parts if part.source), None)
    return first or next((part.module for part in parts if part.module), None) or ""


def counts_text(difference: Difference) -> str:
    """Return how many findings became what."""
    if not difference.counts:
        return "no findings on either side"
    return ", ".join(f"{count:,} {status}" for status, count in difference.counts.items())


def same_text(changes: Sequence[FindingChange]) -> str:
    """Return what did not change, in one line."""
    before, after = sum(one.before_ns for one in changes), sum(one.after_ns for one in changes)
    return f"{count_text(len(changes), 'finding')}, {change_text(before, after)}"


def per_text(difference: Difference) -> str:
    """Return what times are of."""
    return "over the trace" if difference.per == "trace" else "per step"
