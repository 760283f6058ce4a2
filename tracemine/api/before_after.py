"""What became of each finding from one recording of a program to the next, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING

import pyarrow as pa

from tracemine import comparison
from tracemine.api.calls import scan
from tracemine.api.report import Report
from tracemine.api.settings import PathLike, path_of
from tracemine.comparison import STATUSES, Difference, FindingChange
from tracemine.errors import UsageError
from tracemine.files import write_file
from tracemine.findings.stored import one_stored
from tracemine.frames import frame
from tracemine.report import Drawing, render_difference

if TYPE_CHECKING:
    import pandas as pd

_CHANGES = pa.schema(
    [(name, pa.string()) for name in ("status", "rule", "title")]
    + [(name, pa.int64()) for name in ("before_ns", "after_ns", "noise_ns")]
    + [("reason", pa.string()), ("accepted", pa.string()), ("fingerprints", pa.list_(pa.string()))]
)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What became of each finding: `difference`, the record that `diff --format json` prints, and ways to look at it.

    Iterating, `len` and indexing go over its changes, in the order in which `tracemine diff` prints them.
    """

    difference: Difference
    sides: tuple[Report, ...] = field(default=(), compare=False)  # what was compared

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
        """Return the report of this name: `text`, `json`, `markdown`, `html`. top: so many changes; None: all."""
        out, sides = StringIO(), [(side.scan, side.picture) for side in self.sides]
        render_difference(form, self.difference, out, Drawing(top=top, width=width, sides=sides))
        return out.getvalue()

    def to_json(self) -> str:
        """Return one line of JSON, as `diff --format json` prints it."""
        return self.render("json")

    def to_markdown(self) -> str:
        """Return tables for a pull request or a ticket."""
        return self.render("markdown")

    def to_html(self, path: PathLike | None = None) -> str:
        """Return a page: both steps as bars, findings, and kernels side by side where both are of `tracemine.scan`.

        Written to `path` too. Raises UsageError where it cannot be written.
        """
        text = self.render("html")
        if path is not None:
            write_file(path_of(path), text)
        return text

    def to_pandas(self) -> pd.DataFrame:
        """Return one row a change, in the same order; times are of `difference.per`, a step or the trace."""
        names = ("status", "rule", "title", "before_ns", "after_ns", "noise_ns", "reason", "accepted")
        rows = [
            {name: getattr(one, name) for name in names}
            | {"fingerprints": list(dict.fromkeys(part.fingerprint for part in (*one.before, *one.after)))}
            for one in self.changes
        ]
        return frame(pa.Table.from_pylist(rows, schema=_CHANGES))

    def _repr_html_(self) -> str:
        shown = self.to_pandas()[["status", "title", "before_ns", "after_ns", "noise_ns"]]
        return f'<div class="tex2jax_ignore mathjax_ignore"><p>{self!r}</p>{shown.to_html(max_rows=20)}</div>'

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
    sides = _side(before), _side(after)
    return Comparison(comparison.diff(*(side.scan for side in sides), noise=noise), sides)


def _side(given: Report | PathLike) -> Report:
    if isinstance(given, Report):
        return given
    stored = one_stored(path_of(given))
    return scan(given) if stored is None else Report(stored)
