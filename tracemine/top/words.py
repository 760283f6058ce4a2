"""What to know before a table is believed, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, Rows, number
from tracemine.tables import table_beside
from tracemine.timeline import Timeline
from tracemine.top.origin import Grouping, line_paths
from tracemine.top.record import By, HostBy, HostKind, HostRow
from tracemine.units import percent_text

_WORTH_A_WORD = 0.02  # of GPU time
_TABLE = table_beside(__file__, "words.toml")
_REASONS: Mapping[str, str] = _TABLE["reasons"]
_UNRECORDED: Mapping[str, str] = _TABLE["unrecorded"]
_OF_FORMAT: Mapping[str, Mapping[str, str]] = _TABLE["of_format"]

_MOST_HOLDERS = 2
_NO_GPU: Mapping[str, str] = _TABLE["no_gpu"]

_NO_HOST: Mapping[str, str] = _TABLE["no_host"]

KIND_WORDS: Mapping[str, str] = _TABLE["kind_words"]
_HOST_UNRECORDED: Mapping[HostBy, str] = {
    **{name: _UNRECORDED[name] for name in ("line", "module", "operator")},
    "phase": "no engine is known that has phases (vLLM, SGLang, Hugging Face generate)",
    "tree": _UNRECORDED["line"],
}


def notes_of(timeline: Timeline, activities: Rows, by: By, chosen: BoolArray, grouping: Grouping) -> Iterator[str]:
    """Yield what a table does not say: that nothing ran, that its times are in doubt, why something is not known."""
    yield from _of_recording(timeline)
    dur = np.where(chosen, number(activities, "dur_ns"), 0)
    unnamed = np.array([name is None for name in grouping.names], np.bool_)
    unknown = np.where(unnamed[grouping.of], dur, 0) if len(dur) else dur
    if not unknown.any():
        return
    unrecorded = _OF_FORMAT.get(timeline.meta.format, _UNRECORDED)
    if unknown.sum() == dur.sum() and by in unrecorded:
        yield f"{unrecorded[by]}; --by kernel needs none"
        return
    reason = categories(timeline.activities["unowned_reason"])
    spent = np.bincount(reason.codes + 1, weights=unknown, minlength=len(reason.values) + 1)
    for at in np.argsort(-spent, kind="stable").tolist():
        if at and spent[at] >= _WORTH_A_WORD * dur.sum() and (why := _REASONS.get(reason.values[at - 1])):
            yield f"not known: {percent_text(spent[at], dur.sum())} {why}"


def host_notes(timeline: Timeline, by: HostBy, rows: Sequence[HostRow], kinds: Sequence[HostKind]) -> Iterator[str]:
    """Yield what a table of host time does not say."""
    if not rows:
        hint = _NO_HOST.get(timeline.meta.format, "record with CPU activities")
        yield f"nothing of the host was recorded: {hint}"
        return
    if [row.name for row in rows if row.parent is None] == [None]:
        yield from _unnamed_texts(timeline, by)
    if any(kind.kind == "not_recorded" for kind in kinds):
        yield "no operators were recorded: what the host does in no call may be anything"
    if unseen := [KIND_WORDS[kind.kind] for kind in kinds if kind.host_ns is None]:
        yield f"not recorded, and so among the rest: {', '.join(unseen)}"
    if any(kind.kind == "lock" and kind.host_ns for kind in kinds) and (holders := _holders(timeline)):
        yield f"Python's lock was held by another thread, most in {', '.join(holders)}"


def _unnamed_texts(timeline: Timeline, by: HostBy) -> Iterator[str]:
    """Yield why all of the host is one row without a name."""
    of_format = _OF_FORMAT.get(timeline.meta.format, {})
    if why := of_format.get("line" if by == "tree" else by) or _HOST_UNRECORDED.get(by):
        yield f"{why}: record with_stack=True" if by == "phase" and not timeline.stacks.num_rows else why


def _holders(timeline: Timeline) -> list[str]:
    """Return the lines of other threads that ran Python while one waited for its lock, for longest first."""
    waits, (paths, codes) = timeline.lock_waits, line_paths(timeline.stacks)
    spent: dict[str, int] = {}
    for row, dur in zip(rows_of(waits["holder_stack_row"]).tolist(), rows_of(waits["dur_ns"]).tolist(), strict=True):
        name = paths[codes[row]][0] if row >= 0 and codes[row] >= 0 else None
        if name is not None:  # of a thread of torch's no line is known
            spent[name] = spent.get(name, 0) + dur
    return sorted(spent, key=lambda name: -spent[name])[:_MOST_HOLDERS]


def _of_recording(timeline: Timeline) -> Iterator[str]:
    ingest = timeline.meta.ingest
    if not timeline.activities.num_rows:
        host = "the CPU alone was" if timeline.ops.num_rows else "nor anything else"
        hint = _NO_GPU.get(timeline.meta.format, "record with ProfilerActivity.CUDA")
        yield f"no GPU activity was recorded, {host}: there is no GPU time to add up ({hint})"
    elif ingest.unusable:
        yield f"its times cannot be believed: {'; '.join(ingest.doubts[:2])}"
    elif ingest.doubts:
        yield f"some of its times cannot have been: {'; '.join(ingest.doubts[:2])}"
