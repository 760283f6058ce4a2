"""Kernels of two recordings by class, where they are made by different compilers: what each fuses, what it costs."""

from __future__ import annotations

from tracemine.comparison.record import ClassChange, ClassChanges, ComparedSide
from tracemine.findings.record import WorkOfClass


def by_class(before: ComparedSide, after: ComparedSide) -> ClassChanges | None:
    """Return the classes of both; None where one maker made both sides' kernels, or steps are known of one alone."""
    one, other = before.spent, after.spent
    if one is None or other is None or bool(before.about.steps) != bool(after.about.steps):
        return None
    made_by = one.made_by, other.made_by
    if not all(made_by) or made_by[0] == made_by[1]:
        return None
    ours, theirs = ({each.name: each for each in side.work} for side in (one, other))
    names = sorted({**ours, **theirs}, key=lambda name: -abs(_ns(theirs.get(name)) - _ns(ours.get(name))))
    classes = (ClassChange(name=name, before=ours.get(name), after=theirs.get(name)) for name in names)
    return ClassChanges(made_by=made_by, classes=tuple(classes))


def _ns(work: WorkOfClass | None) -> int:
    return 0 if work is None else work.gpu_ns
