"""What a scan of one trace found, for programs and notebooks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from msgspec.structs import replace

from tracemine import files, report
from tracemine.api.settings import PathLike, path_of, threshold_of
from tracemine.documents import verdict_words, words
from tracemine.errors import InputError, Location, UsageError
from tracemine.files import make_folder, write_file, writing
from tracemine.findings.ranking import ordered
from tracemine.findings.record import Finding, Scan, Summary, TraceSummary
from tracemine.findings.tables import FINDINGS, OCCURRENCES, findings_table, occurrences_table
from tracemine.frames import frame
from tracemine.report import Drawing, fragment, render
from tracemine.report.picture import Picture
from tracemine.timeline import Timeline
from tracemine.top import Top, Tops, host_table, top_table, wait_table
from tracemine.units import count_text, time_text

if TYPE_CHECKING:
    import pandas as pd

_SHORTEST_MARK = 4  # digits of a fingerprint


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a scan of one trace found: `scan`, the record that `scan --format json` prints, and ways to look at it.

    Iterating, `len`, indexing and the tables go over the findings that are worth showing, most worth first. What saves
    too little for that is in `scan.findings`, marked `reported=False`, and `worth("0ns")` shows it too.
    `report["80c2"]` is the finding whose fingerprint begins so, shown or not.
    """

    scan: Scan
    picture: Picture | None = field(default=None, compare=False)  # None: of a file, or one of several traces

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that are worth showing, most worth first."""
        return self.scan.reported

    @property
    def trace(self) -> TraceSummary:
        """What was read."""
        return self.scan.trace

    @property
    def summary(self) -> Summary:
        """What the trace measured, and the sums over all findings."""
        return self.scan.summary

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before believing the rest, a sentence each."""
        return self.scan.warnings

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @overload
    def __getitem__(self, key: int | str) -> Finding: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Finding | tuple[Finding, ...]:
        """Return a finding by the first digits of its fingerprint (four at least), or by its place; several by a slice.

        Raises UsageError where no finding or several begin so, IndexError where there is none at the place.
        """
        if not isinstance(key, str):
            return self.findings[key]
        if len(key) < _SHORTEST_MARK:
            raise UsageError(f"a fingerprint has 16 digits; give {_SHORTEST_MARK} at least, not {key!a}")
        found = {
            finding.fingerprint: finding
            for finding in self.scan.findings
            if any(name.startswith(key) for name in finding.names)
        }
        if len(found) != 1:
            known = ", ".join(report.escape.line(finding.fingerprint, 20) for finding in self.findings[:10]) or "none"
            raise UsageError(
                f"{count_text(len(found), 'finding')} begin with {key[:40]!a}", hint=f"worth showing are: {known}"
            )
        return next(iter(found.values()))

    def worth(self, least: str) -> Report:
        """Return the same with those findings worth showing that save at least this.

        least: a time over the trace ("50us"), of the steps or of GPU time; or a share ("1%"), of the unprofiled
        steps or of all GPU time. Raises UsageError for anything else.

        >>> from tracemine import scan
        >>> [len(scan("fixtures/captures/decoder_prefill").worth(least)) for least in ("0ns", "15%", "100%")]
        [4, 2, 0]
        """
        threshold = threshold_of(least, "least")
        step_ns, gpu_ns = threshold.of(self._unprofiled_ns()), threshold.of(self.summary.gpu_time_ns)
        marked = (
            replace(finding, reported=finding.step_saving_ns.mid >= step_ns or finding.gpu_saving_ns.mid >= gpu_ns)
            for finding in self.scan.findings
        )
        scan = replace(self.scan, findings=tuple(ordered(marked, self.summary.gpu_time_ns)))
        return Report(scan, self.picture)

    def to_arrow(self) -> pa.Table:
        """Return one row a finding; docs/reference/timeline.md has the columns."""
        return findings_table(self.scan, self.findings)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the same for whoever speaks Arrow: `polars.DataFrame(report)`, `duckdb.sql("from report")`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row a finding. Integers that are not known are `pd.NA`, and the others stay integers."""
        return frame(self.to_arrow())

    def top(self, by: str = "kernel") -> Top:
        """Return where the step's time goes, as `tracemine top --by` prints it, whatever findings there are.

        by: `kernel`, `operator`, `module`, `line`, `stream`, `device` or `phase`. Raises UsageError for anything else,
        and where the report is not of `tracemine.scan`: what was loaded, or is one of `scan_many`, has no such tables.
        """
        tops = self._drawn.tops
        if by not in tops:
            raise UsageError(f"nothing is added up by {by!a}", hint=f"there are: {', '.join(tops)}")
        return tops[by]

    @property
    def _drawn(self) -> Picture:
        if self.picture is None:
            says = "this report does not hold where the time goes"
            raise UsageError(says, hint="tracemine.scan of the trace itself makes one that does")
        return self.picture

    @property
    def _asked(self) -> Tops:
        asked = self._drawn.asked
        assert asked is not None  # noqa: S101 - the picture of a trace has them
        return asked

    @property
    def kernels(self) -> pd.DataFrame:
        """GPU time by kernel, one row each, most first. Raises UsageError as `top`; so do the six that follow."""
        return frame(top_table(self.top("kernel")))

    @property
    def operators(self) -> pd.DataFrame:
        """GPU time by operator."""
        return frame(top_table(self.top("operator")))

    @property
    def modules(self) -> pd.DataFrame:
        """GPU time by module class, a row before those of the modules in it; backward passes with their forward."""
        return frame(top_table(self.top("module")))

    @property
    def lines(self) -> pd.DataFrame:
        """GPU time by the user's own line of Python, a row before those of the libraries' lines that it leads to."""
        return frame(top_table(self.top("line")))

    @property
    def streams(self) -> pd.DataFrame:
        """GPU time by stream."""
        return frame(top_table(self.top("stream")))

    @property
    def devices(self) -> pd.DataFrame:
        """GPU time by device."""
        return frame(top_table(self.top("device")))

    @property
    def phases(self) -> pd.DataFrame:
        """GPU time by phase: forward, backward, optimizer; prefill, decode."""
        return frame(top_table(self.top("phase")))

    @property
    def host_lines(self) -> pd.DataFrame:
        """Host time by line, every nanosecond of a step once, as `tracemine top --host`. Raises UsageError as `top`."""
        return frame(host_table(self._asked.host("line")))

    @property
    def host_tree(self) -> pd.DataFrame:
        """Host time by module, line in it and kind of work, a row before its parts. Raises UsageError as `top`."""
        return frame(host_table(self._asked.host("tree")))

    @property
    def waits(self) -> pd.DataFrame:
        """Where the host waits for the device, as `tracemine top --waits`. Raises UsageError as `top`."""
        return frame(wait_table(self._asked.waits()))

    def occurrences(self) -> pa.Table:
        """Return one row an activity: joins `to_arrow()` by `fingerprint`, `activities` by `activity_row`."""
        return occurrences_table(self.scan, self.findings)

    def render(self, form: str = "text", *, top: int | None = None, width: int = 100) -> str:
        """Return the report of this name: `text`, `json`, `markdown`, `html`, or another package's.

        top: so many findings; None: all, as `json` and `html` have in any case.

        Raises UsageError where there is no such report, TracemineError where another package's fails.
        """
        out = StringIO()
        render(form, self.scan, out, Drawing(top=top, width=width, picture=self.picture))
        return out.getvalue()

    def to_json(self, path: PathLike | None = None) -> str:
        """Return one line of JSON, as `scan --format json` prints, for `tracemine.load`; written to `path` too.

        It has all findings. Raises UsageError where it cannot be written.
        """
        return self._written(self.render("json"), path)

    def to_markdown(self, path: PathLike | None = None) -> str:
        """Return a ticket's text for each finding; written to `path` too. Raises UsageError where that fails."""
        return self._written(self.render("markdown"), path)

    def to_html(self, path: PathLike | None = None) -> str:
        """Return one self-contained page: findings to sort and search, timeline, roofline.

        Reports of `tracemine.scan` have the timeline, the dataflow of findings and the roofline; what was loaded, or is
        one of `scan_many`, has them not. Written to `path` too. Raises UsageError where it cannot be written.
        """
        return self._written(self.render("html"), path)

    def to_perfetto(self, path: PathLike | None = None) -> str:
        """Return findings as slices of a Chrome trace, to open with the trace in Perfetto; written to `path` too.

        `.gz` at the end of the path packs it. Raises UsageError where the report is not of `tracemine.scan`, so that
        when activities ran is not known, and where it cannot be written.
        """
        if self.picture is None:
            says = "this report does not hold when activities ran"
            raise UsageError(says, hint="tracemine.scan of the trace itself makes one that does")
        content = b"".join(report.overlay.overlay(self.scan, self.picture.activities))
        if path is not None:
            target = path_of(path)
            write_file(target, gzip.compress(content) if target.suffix == ".gz" else content)
        return content.decode()

    def to_parquet(self, folder: PathLike) -> None:
        """Write `findings.parquet` and `occurrences.parquet`, of all findings; into the trace's timeline, they join it.

        Raises UsageError where they cannot be written, or where another trace's timeline lies there.
        """
        target = path_of(folder, "folder")
        self._check_same_trace(target)
        with writing(target):
            make_folder(target)
        for of, rows in ((FINDINGS, findings_table(self.scan)), (OCCURRENCES, occurrences_table(self.scan))):
            write_file(target / f"{of.name}.parquet", files.parquet_bytes(rows), named=False)

    def _unprofiled_ns(self) -> int:
        """Return the time of all unprofiled steps; the recorded span where that is not known."""
        each = verdict_words.unprofiled_ns(self.summary)
        return self.summary.span_ns if each is None else each * max(self.trace.steps if self.summary.per_step else 1, 1)

    def _check_same_trace(self, folder: Path) -> None:
        if not Timeline.lies_in(folder):
            return
        where = Location(str(folder))
        try:
            rows = files.parquet_rows(folder / "activities.parquet")
        except (pa.ArrowException, OSError, InputError):
            raise UsageError("holds a damaged timeline", where=where, hint="name another folder") from None
        if rows != self.trace.activities:
            says = f"holds a timeline of {rows:,} activities, and these findings are of {self.trace.activities:,}"
            raise UsageError(says, where=where, hint="name the folder of the same trace, or an empty one")

    @staticmethod
    def _written(text: str, path: PathLike | None) -> str:
        if path is not None:
            write_file(path_of(path), text)
        return text

    def __repr__(self) -> str:
        name = report.escape.line(Path(self.trace.path).name or self.trace.path, 80)
        findings = count_text(len(self), "finding")
        step = words.all_of(self.scan, "step_saving_ns").mid
        whole = verdict_words.unprofiled_ns(self.summary)
        each = "" if self.summary.per_step is None else "each "
        of = "" if whole is None else f" of {each}{time_text(whole)}{' step' if each else ''}"
        return f"Report({name}: {findings}, {time_text(step)}{of} could be saved)"

    def _repr_html_(self) -> str:
        return fragment(self.scan, self.picture)
