"""What became of each finding from one recording of a program to the next, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO

from tracemine import comparison
from tracemine.api.calls import scan
from tracemine.api.report import Report
from tracemine.api.settings import PathLike, path_of
from tracemine.comparison import STATUSES, Difference, FindingChange
from tracemine.errors import UsageError
from tracemine.findings import Scan
from tracemine.findings.stored import one_stored
from tracemine.report import Drawing, render_difference

__all__ = ["Comparison", "diff"]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What became of each finding: `difference`, the record that `diff --format json` prints, and ways to look at it.

    Iterating, `len` and indexing go over its changes, in the order in which `tracemine diff` prints them.
    """

    difference: Difference

    @property
    def changes(self) -> tuple[FindingChange, ...]:
        """All changes; each finding of either side is in exactly one."""
        return self.difference.changes

    @property
    def counts(self) -> dict[str, int]:
        """How many changes there are of each status."""
        return dict(self.difference.counts)

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[FindingChange]:
        return iter(self.changes)

    def __getitem__(self, at: int) -> FindingChange:
        return self.changes[at]

    def of(self, status: str) -> tuple[FindingChange, ...]:
        """Return the changes of one status: fixed, improved, same, worse, new, moved, unknown. Raises UsageError.

        >>> diff("fixtures/captures/chain", "fixtures/captures/chain").of("fixed")
        ()
        """
        if status not in STATUSES:
            raise UsageError(f"there is no status {status!r}", hint=f"there are: {', '.join(STATUSES)}")
        return tuple(change for change in self.changes if change.status == status)

    def render(self, form: str = "text", *, top: int | None = None, width: int = 100) -> str:
        """Return the report of this name: `text`, `json` or `markdown`. top: so many changes; None: all."""
        out = StringIO()
        render_difference(form, self.difference, out, Drawing(top=top, width=width))
        return out.getvalue()

    def to_json(self) -> str:
        """Return one line of JSON, as `diff --format json` prints it."""
        return self.render("json")

    def to_markdown(self) -> str:
        """Return tables for a pull request or a ticket."""
        return self.render("markdown")

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in self.counts.items()) or "no findings"
        return f"Comparison({counts})"


def diff(before: Report | PathLike, after: Report | PathLike, *, noise: float | None = None) -> Comparison:
    """Say what became of each finding from one recording of a program to the next.

    before, after: what `scan` or `load` gave, findings (a file, a folder of one), or a trace, which is scanned first.
    noise: the share of a step, or of a cost, below which a change says nothing; None: the spread of the steps within
    each trace.

    Every finding counts, also those that no report shows; a finding is `fixed` only where what it cost is gone. Raises
    TracemineError, InputError where a path cannot be read.

    >>> diff("fixtures/captures/chain", "fixtures/captures/chain").counts
    {'same': 2}
    """
    return Comparison(comparison.diff(_side(before), _side(after), noise=noise))


def _side(given: Report | PathLike) -> Scan:
    if isinstance(given, Report):
        return given.scan
    stored = one_stored(path_of(given))
    return scan(given).scan if stored is None else stored
