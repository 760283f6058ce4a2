"""Are inferred iterations the steps that were marked? Marks are taken out of traces that have them, and looked for.

    python -m benchmarks iterations fixtures/kineto fixtures/nsys fixtures/captures $TRACEMINE_COMPAT_TRACES/kineto …

For each trace with two marked steps or more: what is inferred without the marks, and without annotations at all. It is
`same` where every marked step but one at most has an iteration with nine tenths of its GPU time and as little else,
and `shifted` where as many iterations take as long but begin elsewhere in the loop; else `wrong`, or `none` where
nothing is said. For the others: what is inferred, and by what. As a check of the check, each iteration is cut in halves
and two are made one: both must be `wrong`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.errors import TracemineError
from tracemine.formats import open_trace
from tracemine.rows.arrow import rows_of
from tracemine.rows.iterations import WAYS, Iterations
from tracemine.rows.iterations.record import work_of
from tracemine.timeline import Timeline

_SHARE = 0.9
_RHYTHM = 0.05


def main(places: Sequence[str]) -> None:
    """Print a line a trace, and how many came out how."""
    totals: dict[str, Counter[str]] = {}
    for path in sorted(path for place in places for path in _traces(Path(place))):
        try:
            timeline = open_trace(path)
        except TracemineError as error:
            print(f"{path.name:<44} not read: {error.message[:60]}")
            continue
        marked = timeline.steps.num_rows
        if not timeline.activities.num_rows:
            print(f"{path.name:<44} no activities")
            continue
        for kind, bare in (("all evidence", _unmarked(timeline)), ("kernels and replays", _silent(timeline))):
            found = _first(bare, WAYS)
            if marked < 2:
                group = f"{'one step marked' if marked else 'no step marked'}, {kind}"
                verdict = "none" if found is None else f"{found.source}"
            else:
                group, verdict = f"marked, {kind}", judged(timeline, found)
                if found is not None:
                    for fault, planted in (("halves", _halved(found)), ("pairs", _paired(found))):
                        totals.setdefault(f"planted {fault}", Counter())[judged(timeline, planted)] += 1
            totals.setdefault(group, Counter())[verdict] += 1
            what = (
                "" if found is None else f"{len(found)} by {found.source}: {found.evidence[:70]} ({found.confidence})"
            )
            print(f"{path.name[:43]:<44} {marked:>2} marked, {kind:<20} {verdict:<18} {what}")
    print()
    for group, counts in totals.items():
        print(
            f"{group:<38} {counts.total():>3}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        )


def judged(timeline: Timeline, found: Iterations | None) -> str:
    """How inferred iterations compare with the marked steps."""
    if found is None:
        return "none"
    step = rows_of(timeline.activities["step_row"])
    dur = rows_of(timeline.activities["dur_ns"])
    steps, count = timeline.steps.num_rows, len(found)
    both = (step >= 0) & (found.of_activity >= 0)
    shared = np.zeros((steps, count))
    np.add.at(shared, (step[both], found.of_activity[both]), dur[both])
    of_step = np.bincount(step[step >= 0], dur[step >= 0], steps)
    of_found = np.bincount(found.of_activity[found.of_activity >= 0], dur[found.of_activity >= 0], count)
    whole = np.maximum(of_step[:, None], of_found[None, :])
    same = (shared >= _SHARE * np.maximum(whole, 1)).any(axis=1).sum()
    if same >= steps - 1 and abs(count - steps) <= 1:
        return "same"
    usual, expected = np.median(of_found), np.median(of_step)
    return "shifted" if abs(count - steps) <= 1 and abs(usual - expected) <= _RHYTHM * expected else "wrong"


def _traces(place: Path) -> Iterator[Path]:
    if place.is_file() or Timeline.lies_in(place) or (place / "trace.json.gz").exists():
        yield place
        return
    for path in place.iterdir():
        if path.is_dir() or path.name.endswith((".json", ".json.gz", ".sqlite")):
            yield path


def _first(timeline: Timeline, ways: Sequence[object]) -> Iterations | None:
    work = work_of(timeline)
    return next((found for way in ways if (found := way(timeline, work)) is not None), None)  # type: ignore[operator]


def _unmarked(timeline: Timeline) -> Timeline:
    """The timeline without its steps, and without their marks among the annotations."""
    return _renamed(timeline, set(timeline.steps["name"].to_pylist()))


def _silent(timeline: Timeline) -> Timeline:
    """The timeline without steps and without any annotation's name."""
    kind, name = (timeline.ops[each].to_pylist() for each in ("kind", "name"))
    return _renamed(timeline, {text for text, each in zip(name, kind, strict=True) if each == "annotation"})


def _renamed(timeline: Timeline, names: set[str]) -> Timeline:
    column = timeline.ops["name"].combine_chunks()
    column = column if isinstance(column, pa.DictionaryArray) else column.chunk(0)
    texts = ["taken out" if text in names else text for text in column.dictionary.to_pylist()]
    distinct = list(dict.fromkeys(texts))
    codes = np.array([distinct.index(text) for text in texts] or [0], np.int32)[np.asarray(column.indices)]
    renamed = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(distinct, pa.string()))
    index = timeline.ops.schema.get_field_index("name")
    ops = timeline.ops.set_column(index, timeline.ops.schema.field(index), renamed)
    return replace(timeline, ops=ops, steps=None)


def _halved(found: Iterations) -> Iterations:
    """Each iteration cut in two, by the number of its activities."""
    halves = found.of_activity.copy()
    for row in range(len(found)):
        rows = np.flatnonzero(found.of_activity == row)
        halves[rows[: len(rows) // 2]] = 2 * row
        halves[rows[len(rows) // 2 :]] = 2 * row + 1
    twice = np.repeat(found.begin_ns, 2)
    return replace(found, of_activity=halves, begin_ns=twice, end_ns=twice)


def _paired(found: Iterations) -> Iterations:
    """Two iterations made one."""
    paired = np.where(found.of_activity >= 0, found.of_activity // 2, -1)
    return replace(found, of_activity=paired, begin_ns=found.begin_ns[::2], end_ns=found.end_ns[::2])


if __name__ == "__main__":
    main(sys.argv[1:] or ["fixtures/kineto", "fixtures/nsys", "fixtures/captures"])
