"""Which frame of a finding is the user's own: a library is not edited on Monday morning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tracemine.findings.record import Source
from tracemine.rows.user_frames import is_own

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.timeline import Timeline

_MOST_FRAMES = 400  # of a stack


def own_frame(finding: Finding) -> Source | None:
    """Return the innermost frame of a finding that is the user's own; None: none of those that were kept."""
    return next((source for source in finding.source if is_own(source.file)), None)


class DeeperFrames(Mapping[str, Source]):
    """The user's own frames further out, of findings whose kept frames are all a library's; by fingerprint.

    They are looked for when one is asked for: most formats ask for none.
    """

    def __init__(self, scan: Scan, timeline: Timeline) -> None:
        self._scan, self._timeline = scan, timeline

    @cached_property
    def _found(self) -> dict[str, Source]:
        sources = {
            finding.fingerprint: next(_own_callers(finding, self._timeline), None)
            for finding in self._scan.reported
            if finding.source and own_frame(finding) is None
        }
        return {mark: source for mark, source in sources.items() if source is not None}

    def __getitem__(self, fingerprint: str) -> Source:
        return self._found[fingerprint]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _own_callers(finding: Finding, timeline: Timeline) -> Iterator[Source]:
    """Yield the user's own frames above the calls of a finding's activities."""
    ops, rows_of_stacks = timeline.activities["op_row"], timeline.ops["stack_row"]
    names = ("file", "line", "function", "parent_row")
    files, lines, functions, callers = (timeline.stacks[name] for name in names)
    begins = files.null_count > 0
    for row in (row for rows in finding.activities[:1] for row in rows):
        op = ops[row].as_py()
        at = None if op is None else rows_of_stacks[op].as_py()
        for _ in range(_MOST_FRAMES):
            if at is None:
                break
            file, line, function = (column[at].as_py() for column in (files, lines, functions))
            if file and line is not None and function and is_own(file):
                yield Source(file=file, line=line, function=function, begins=begins)
            caller = callers[at].as_py()
            at = caller if caller is not None and caller < at else None
