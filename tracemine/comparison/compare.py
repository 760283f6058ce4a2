"""What became of each finding from one scan to another: matched, put on one scale, confirmed, judged.

Kernels of two recordings by class, where they are made by different compilers: what each fuses, what it costs.

A finding may be missing because another one claims its activities, or because what the rule needs was not recorded.
Its operators then take as long as before. So a change is believed where they take less by half of it at least, and
what they take less, up to all of it, is used up: no two changes rest on one nanosecond. Of what is on one side alone
that is what its fix saves, for in its place something runs still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from tracemine.comparison.comparable import differing, incomparable, inputs, shapes
from tracemine.comparison.matched import BY_NAME, SIGNATURE, Matched, components, held_elsewhere, matched
from tracemine.comparison.record import (
    STATUSES,
    ChangedPart,
    ClassChange,
    ClassChanges,
    ComparedSide,
    Difference,
    FindingChange,
    Item,
)
from tracemine.comparison.scale import CostScale, basis_of, noise_of, recorded_alike, scale_of, spent_ns
from tracemine.comparison.sides import place, side_of
from tracemine.comparison.step_changes import Both, gpu_work_of, notes_of, per_of, predicted_of, step_of, totals_of
from tracemine.findings.record import NOTHING, Range, Scan, WorkOfClass
from tracemine.units import time_text
from tracemine.version import __version__

_NOTHING_COMPARES = {
    "cut_off": "a recording is cut off, and what came after the cut is not known",
    "gpu_activity": "a recording holds no GPU activity",
    "program": "the recordings are of unlike programs",
}
_LONGEST = 60  # characters of a place or a shape in a reason
_ENOUGH = 2  # one half of the change


def diff(before: Scan, after: Scan, *, noise: float | None = None) -> Difference:
    """Return what became of each finding of `before`, and what is new in `after`: two scans of a program.

    noise: the share of a step, or of a cost, below which a change says nothing; by default the spread of the steps
    within each trace, and 10 % of a step, 3 % of GPU work where there are fewer than three.

    Every finding counts, also those that no report shows. Each is in exactly one change.

    >>> from tracemine.pipeline import scan
    >>> chain = scan("fixtures/captures/chain")
    >>> diff(chain, chain).counts
    {'same': 2}
    """
    return compared(side_of(before), side_of(after), noise=noise)


def compared(before: ComparedSide, after: ComparedSide, *, noise: float | None = None) -> Difference:
    """Compare what was kept of two scans, as `diff` does: a baseline has no more."""
    basis = basis_of(before.about, after.about)
    scales = scale_of(before.about, basis), scale_of(after.about, basis)
    level = noise_of(before.about, after.about, noise)
    one, other = before.about.recorded, after.about.recorded
    alike = one is not None and other is not None and one.stacks == other.stacks
    match = partial(matched, scales=scales, noise=level)
    found = [
        match([before.items[i] for i in ours], [after.items[j] for j in theirs], matched_by)
        for ours, theirs, matched_by in components(before.items, after.items, alike=alike)
    ]
    pairs = [(each.before, each.after) for each in found if each.on_gpu and not each.one_sided]
    both = Both(
        before=before,
        after=after,
        scales=scales,
        noise=level,
        differs=(
            *incomparable(before, after, matched=any(one.on_gpu and one.matched_by in BY_NAME for one in found)),
            *differing(before, after),
            *inputs(pairs),
        ),
    )
    if not recorded_alike(before.about, after.about):
        found = held_elsewhere(
            found,
            _believed(found, both),
            lambda one, part: match([*one.before, *part.before], [*one.after, *part.after], one.matched_by),
        )
    changes = sorted(_changes(found, both), key=_order)
    counts = Counter(change.status for change in changes)
    step, work = step_of(both, basis), gpu_work_of(both)
    return Difference(
        tracemine=__version__,
        before=before.about,
        after=after.about,
        per=per_of(both),
        basis=basis,
        differs=both.differs,
        noise=level,
        step=step,
        gpu_work=work,
        predicted=None if both.explained else predicted_of(changes, step, work),
        counts={status: counts[status] for status in STATUSES if counts[status]},
        totals_before=totals_of(before, scales[0]),
        totals_after=totals_of(after, scales[1]),
        changes=tuple(changes),
        by_class=by_class(before, after),
        notes=tuple(notes_of(both, basis)),
    )


# --- judged ----------------------------------------------------------------------------------------------------------


def _changes(found: Sequence[Matched], both: Both) -> Iterator[FindingChange]:
    believed = _believed(found, both)
    for number, one in enumerate(found):
        status, reason = _status(one, both, number in believed, found)
        first = max(one.items, key=lambda item: item.measured_ns)
        yield FindingChange(
            status=status,
            rule=first.rule,
            title=first.title,
            on_gpu=one.on_gpu,
            matched_by=one.matched_by,
            reason=reason,
            before=tuple(_part(item, both.scales[0]) for item in one.before),
            after=tuple(_part(item, both.scales[1]) for item in one.after),
            before_ns=one.costs[0].mid,
            after_ns=one.costs[1].mid,
            noise_ns=one.noise_ns,
        )


def _believed(found: Sequence[Matched], both: Both) -> set[int]:
    """Return the changes that what operators took bears out."""
    believed: set[int] = set()
    for on_gpu in (True, False):
        before = spent_ns(both.before, both.scales[0], on_gpu=on_gpu)
        after = spent_ns(both.after, both.scales[1], on_gpu=on_gpu)
        for sign, more, less in ((1, before, after), (-1, after, before)):
            changes = {
                number: one for number, one in enumerate(found) if one.on_gpu == on_gpu and sign * one.less_ns > 0
            }
            believed.update(_confirmed(changes, more, less, idle=not on_gpu))
    return believed


def _status(one: Matched, both: Both, believed: bool, found: Sequence[Matched]) -> tuple[str, str | None]:
    if (why := both.incomparable) is not None:
        return "unknown", _NOTHING_COMPARES[why.what]
    if one.one_sided:
        return _one_sided(one, both, believed, found)
    if per_of(both) == "unknown":
        return "unknown", "steps are known on one side alone, and a step does not compare with a trace"
    if other := _moved(one):
        return "moved", other
    if abs(one.less_ns) <= one.noise_ns:
        return "same", _overlapping(one)
    if (what := both.what_differs("inputs")) is not None:
        return "moved", f"other inputs: {what.before} → {what.after}"
    if both.before.spent is not None and both.after.spent is not None and not believed:
        return "same", "its operators take as long: another part of them was found to belong to it"
    return ("improved" if one.less_ns > 0 else "worse"), None


def _overlapping(one: Matched) -> str | None:
    """Return that intervals overlap, where the middles of both estimates differ by more than noise; else None."""
    apart = abs(one.costs[0].mid - one.costs[1].mid) > one.noise_ns
    return "within what the estimated steps leave open" if apart else None


def _one_sided(one: Matched, both: Both, believed: bool, found: Sequence[Matched]) -> tuple[str, str | None]:
    """Return whether it is gone or new; unknown where that may only seem so."""
    cost = max(one.costs, key=lambda each: each.mid)
    gone = bool(one.before)
    shown = any(item.reported for item in one.items)
    if not shown and cost.mid <= one.noise_ns:
        return "same", f"{time_text(cost.mid)} on one side alone is within noise, and no report shows it"
    if not cost.mid:
        return "unknown", "it lies outside the steps"
    if (why := both.explained) is not None:
        return "unknown", f"may be explained by {why.what}: {why.before} → {why.after}"
    if (lost := both.what_differs("operators")) is not None and one.on_gpu:
        return "unknown", f"operators are not the same to find: {lost.before} → {lost.after}"
    if both.before.spent is None or both.after.spent is None:
        return "unknown", "stored by a version that did not keep what operators take"
    if not believed:
        return "unknown", _still_there(one, gone, _instead(one, found))
    return ("fixed" if gone else "new"), None


def _still_there(one: Matched, gone: bool, instead: str | None) -> str:
    if one.on_gpu:
        what = "but for what other changes account for, its operators "
        what += "take as long as before" if gone else "took as long before"
    else:
        what = (
            f"the device {'idles' if gone else 'idled'} as long {'as ' * gone}before, for this or for other operators"
        )
    return what + (
        f"; “{instead}” has more now" * gone + f"; “{instead}” had more then" * (not gone) if instead else ""
    )


def _instead(one: Matched, found: Sequence[Matched]) -> str | None:
    """Return the title of the finding on the other side that has most more there, of those on the same operators."""
    sign = -1 if one.before else 1
    others = [
        other
        for other in found
        if other is not one
        and other.on_gpu == one.on_gpu
        and sign * other.less_ns > 0
        and set(other.ops) & set(one.ops)
    ]
    if not others:
        return None
    most = max(others, key=lambda other: abs(other.less_ns))
    return max(most.items, key=lambda item: item.measured_ns).title


def _moved(one: Matched) -> str | None:
    """Return what is known of both sides and has nothing in common; None: nothing."""
    ours, theirs = shapes(one.before), shapes(one.after)
    if one.on_gpu and ours and theirs and not ours & theirs:
        return _other("shapes", ours, theirs)
    if one.matched_by != SIGNATURE:
        return None
    return _differing("data type", one, lambda item: item.dtype) or _differing("place", one, place)


def _differing(what: str, one: Matched, of: Callable[[Item], str | None]) -> str | None:
    ours, theirs = ({of(item) for item in items} for items in (one.before, one.after))
    if None in ours | theirs or ours & theirs:
        return None
    return _other(what, *({text for text in each if text is not None} for each in (ours, theirs)))


def _other(what: str, ours: Iterable[str], theirs: Iterable[str]) -> str:
    """Return what differs, by the first of each."""
    here, there = (_short(min(each)) for each in (ours, theirs))
    return f"other {what}: {here} → {there}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _part(item: Item, scale: CostScale) -> ChangedPart:
    return ChangedPart(
        fingerprint=item.fingerprint,
        title=item.title,
        module=item.module,
        source=item.source,
        reported=item.reported,
        cost_ns=scale.of(item).mid,
        step_saving_ns=item.step_saving_ns,
        gpu_saving_ns=item.gpu_saving_ns,
    )


def _order(change: FindingChange) -> tuple[int, int, str]:
    first = (*change.before, *change.after)[0]
    return (list(STATUSES).index(change.status), -max(abs(change.after_ns - change.before_ns), 0), first.fingerprint)


# --- the step --------------------------------------------------------------------------------------------------------


def with_accepted(difference: Difference, accepted: dict[str, str]) -> Difference:
    """Return the difference with the changes marked that a baseline accepts: all of whose findings it names."""
    changes = []
    for change in difference.changes:
        marks = [part.fingerprint for part in (*change.before, *change.after)]
        reasons = [accepted[mark] for mark in dict.fromkeys(marks) if mark in accepted]
        every = {part.fingerprint for part in change.after} <= accepted.keys()
        changes.append(replace(change, accepted="; ".join(dict.fromkeys(reasons))) if reasons and every else change)
    return replace(difference, changes=tuple(changes))


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


def _used_ns(change: Matched, need: int, *, idle: bool) -> int:
    """Return what of operators' time a change rests on, where it needs so much of it."""
    saved = change.saved_ns if change.one_sided and not idle else 0
    return min(max(saved, int(need // _ENOUGH)), need) if saved else need


def _confirmed(
    changes: Mapping[int, Matched], more: Mapping[str, Range], less: Mapping[str, Range], *, idle: bool
) -> Iterator[int]:
    """Yield the changes that there is room for, the largest first: operators take less than on the side with `more`.

    idle: of idle time, where what is on one side alone must be gone, not be waited for elsewhere.
    """
    wanted = Counter(op for one in changes.values() for op in one.ops)
    # What is known of estimates: the low end on one side, the high end on the other.
    left = {name: max(ns.low - less.get(name, NOTHING).high, 0) for name, ns in more.items()}
    left_in_all = sum(ns.low for ns in more.values()) - sum(ns.high for ns in less.values())
    for number, one in sorted(changes.items(), key=lambda each: (-abs(each[1].less_ns), each[1].mark)):
        every = dict.fromkeys(one.ops)
        ops = [op for op in every if left.get(op)]
        need = min(abs(one.less_ns), sum(more[op].high for op in every if op in more))
        room = sum(map(left.__getitem__, ops))
        if not 0 < need <= _ENOUGH * min(room, left_in_all if idle and one.one_sided else room):
            continue
        used = min(_used_ns(one, need, idle=idle), room)
        left_in_all -= used
        for op in sorted(ops, key=lambda each: (wanted[each], each)):  # what no other needs first
            part = min(left[op], used)
            left[op] -= part
            used -= part
        yield number
