"""Which frame of a finding is the user's own: a library is not edited on Monday morning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracemine.findings.forwards import Forwards
from tracemine.findings.record import Source
from tracemine.rows.user_frames import is_own

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.timeline import Timeline

_MOST_FRAMES = 400  # of a stack


def own_frame(finding: Finding) -> Source | None:
    """Return the innermost frame of a finding that is the user's own; None: none of those that were kept."""
    return next((source for source in finding.source if is_own(source.file)), None)


def own_first(finding: Finding, frames: Mapping[str, Source]) -> list[Source]:
    """Return the frames of a finding, the user's own before a library's. frames: those of `DeeperFrames`."""
    deeper = frames.get(finding.fingerprint)
    kept = sorted(finding.source, key=lambda source: not is_own(source.file))
    return kept if deeper is None else [deeper, *kept]


class DeeperFrames(Mapping[str, Source]):
    """The user's own frames of findings that kept none, by fingerprint: further out than a library's, or, of a backward
    pass, those of the forward operator.

    They are looked for when one is asked for: most formats ask for none.
    """

    def __init__(self, scan: Scan, timeline: Timeline) -> None:
        self._scan, self._timeline = scan, timeline

    @cached_property
    def _found(self) -> dict[str, Source]:
        forwards = Forwards(self._timeline)
        sources = {
            finding.fingerprint: next(_own_callers(finding, self._timeline, forwards), None)
            for finding in self._scan.reported
            if own_frame(finding) is None
        }
        return {mark: source for mark, source in sources.items() if source is not None}

    def __getitem__(self, fingerprint: str) -> Source:
        return self._found[fingerprint]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _own_callers(finding: Finding, timeline: Timeline, forwards: Forwards) -> Iterator[Source]:
    """Yield the user's own frames above the calls of a finding's activities, or above their forward operators."""
    ops = timeline.activities["op_row"]
    called = [ops[row].as_py() for rows in finding.activities[:1] for row in rows]
    known = np.array([op for op in called if op is not None], np.int64)
    if not finding.source and len(known):
        known = forwards.of(known)
    for op in known[known >= 0].tolist():
        yield from _own_above(timeline.ops["stack_row"][op].as_py(), timeline)


def _own_above(at: int | None, timeline: Timeline) -> Iterator[Source]:
    """Yield the user's own frames of a stack, from this row of `stacks` outwards."""
    names = ("file", "line", "function", "parent_row")
    files, lines, functions, callers = (timeline.stacks[name] for name in names)
    begins = files.null_count > 0
    for _ in range(_MOST_FRAMES):
        if at is None:
            break
        file, line, function = (column[at].as_py() for column in (files, lines, functions))
        if file and line is not None and function and is_own(file):
            yield Source(file=file, line=line, function=function, begins=begins)
        caller = callers[at].as_py()
        at = caller if caller is not None and caller < at else None
