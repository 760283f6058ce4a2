"""What `ncu --csv` prints: a table of one page, among lines of ncu and of the profiled program.

    raw       one row a kernel, one column a metric; a row of units follows the header
    details   one row a kernel and metric, or a kernel and a rule's result; the latter have more fields

Columns are found by name. A second header begins a new table: its kernels follow those of the first.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from tracemine.counters.record import CounterReport, ProfiledKernel
from tracemine.errors import InputError, Location
from tracemine.formats.ncu.kernels import DISPLAY_NAME, KernelReading, Sought, kernel_of, metrics

Style = Literal[".", ","]  # the decimal sign; the other one groups thousands

# What only one of the two can have written. `1,234` and `1.234` fit both: they say nothing.
_POINT = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+\.\d*|\d{1,3}(?:,\d{3}){2,}|\d+\.\d{1,2}|\d{4,}\.\d+|\d+\.\d{4,}|0\.\d+)")
_COMMA = re.compile(r"-?(?:\d{1,3}(?:\.\d{3})+,\d*|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2}|\d{4,},\d+|\d+,\d{4,}|0,\d+)")
_UNSURE = re.compile(r"-?\d{1,3}[.,]\d{3}")
_BLANKS = {ord(blank): None for blank in "\u00a0\u202f '’"}  # which some locales group by


def style_of(text: str) -> Style | None:
    """Return the decimal sign that this number must have been printed with; None where it tells nothing.

    >>> [style_of(text) for text in ("1,234.5", "12,50", "27.595.520", "1,234", "n/a")]
    ['.', ',', ',', None, None]
    """
    text = text.translate(_BLANKS)
    return "." if _POINT.fullmatch(text) else "," if _COMMA.fullmatch(text) else None


def is_unsure(text: str) -> bool:
    """Return whether a number reads as two numbers 1000 times apart, by the style.

    >>> is_unsure("1,234"), is_unsure("12.50")
    (True, False)
    """
    return _UNSURE.fullmatch(text.translate(_BLANKS)) is not None


def parser(style: Style) -> Callable[[str], float | None]:
    """Return what reads numbers of this style; it gives None for what is no finite number (`n/a`, `(!) nan`, a word).

    >>> parser(".")("1,234.5"), parser(",")("1.234,5"), parser(".")("n/a"), parser(".")("inf")
    (1234.5, 1234.5, None, None)
    """
    group = "," if style == "." else "."

    def number(text: str) -> float | None:
        plain = text.translate(_BLANKS).replace(group, "").replace(style, ".")
        try:
            value = float(plain)
        except ValueError:
            return None
        return value if math.isfinite(value) and "_" not in plain else None

    return number


def styles_of(texts: Iterable[str]) -> dict[Style, str]:
    """Return the styles that these numbers were printed in, each with the first number that shows it.

    >>> styles_of(["7", "1,234", "12.50", "12,50"])
    {'.': '12.50', ',': '12,50'}
    """
    found: dict[Style, str] = {}
    for text in texts:
        style = style_of(text)
        if style is not None:
            found.setdefault(style, text)
    return found


_HEADER = ("ID", "Process ID")
_NAME, _METRIC, _UNIT, _VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
_RULE = ("Rule Name", "Rule Type", "Rule Description")
_TRIPLE = re.compile(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\s*\)")
_COMPLAINT = re.compile(r"==(?:ERROR|WARNING)==\s*(.*)")
_NO_KERNELS = re.compile(r"No kernels were profiled|No metrics to collect|ERR_NVGPUCTRPERM|LaunchFailed", re.IGNORECASE)
_LONGEST_NAME = 100_000  # characters: a name beyond is cut
_KNOWN_COMPLAINTS = (
    ("ERR_NVGPUCTRPERM", "ncu was not allowed to read the counters (ERR_NVGPUCTRPERM)"),
    ("No kernels were profiled", "ncu says that no kernels were profiled"),
    ("LaunchFailed", "ncu says that the kernel's launch failed"),
)

_BROKEN = ["0"]  # a row that cannot be taken apart: it has an ID and nothing else

RAGGED = "ragged_row"  # fewer or more fields than the table has: cut off, or broken by other output
NO_KERNEL_NAME = "no_kernel_name"
UNKNOWN_UNIT = "value_of_unknown_unit"
OTHER_KERNEL = "second_kernel_of_one_id"
RULES_LEFT_OUT = "rule_beyond_bound"


class _PrintedTable:
    """One header and the kernels below it."""

    def __init__(self, columns: dict[str, int], width: int, line: int) -> None:
        self.columns, self.width, self.line = columns, width, line
        self.units: Sequence[str] = ()
        self.sought: list[tuple[int, tuple[Sought, ...]]] = []  # of a raw table: column, fields
        self.readings: dict[tuple[str, ...], KernelReading] = {}

    @property
    def is_raw(self) -> bool:
        return _METRIC not in self.columns


def read_table(lines: Iterable[str], path: str) -> CounterReport:
    """Return the kernels of everything that `ncu --csv` printed, and what was left out of it, counted.

    Raises InputError if no table is there, or numbers of two locales stand in one.

    >>> lines = ['"ID","Process ID","Kernel Name","Grid Size","gpu__time_duration.sum"', '"","","","","us"',
    ...          '"0","7","k","(4, 1, 1)","1.50"']
    >>> [(kernel.name, kernel.grid, kernel.dur_ns) for kernel in read_table(lines, "r.csv").kernels]
    [('k', (4, 1, 1), 1500)]
    """
    dropped: Counter[str] = Counter()
    tables, complaints = _tables(lines, dropped)
    if not tables:
        raise _no_table(path, complaints)
    kernels, warnings = _kernels(tables, path, dropped)
    if not kernels:
        raise InputError(
            "has no kernels in its table" if not complaints else f"has no kernels: {_said(complaints)}",
            where=Location(path, line=tables[0].line),
            hint="profile without filters first: ncu -o report PROGRAM",
        )
    pages = "+".join(sorted({"raw" if table.is_raw else "details" for table in tables}, reverse=True))
    dropped_rows = {reason: count for reason, count in sorted(dropped.items()) if count}
    return CounterReport(source="", page=pages, kernels=tuple(kernels), dropped=dropped_rows, warnings=tuple(warnings))


def _tables(lines: Iterable[str], dropped: Counter[str]) -> tuple[list[_PrintedTable], list[str]]:
    """Return the tables among these lines, and what ncu complains of; count in `dropped` what was left out."""
    complaints: list[str] = []
    tables: list[_PrintedTable] = []
    for number, line in enumerate(lines, 1):
        row = _row(line, tables[-1].width if tables else 0)
        if row is None:
            complaints += [line.strip()] if _COMPLAINT.match(line) or _NO_KERNELS.search(line) else []
        elif tuple(row[:2]) == _HEADER:
            tables.append(_opened(row, number))
        elif tables:
            dropped.update(_added(tables[-1], row))
    return tables, complaints


def _kernels(
    tables: Sequence[_PrintedTable], path: str, dropped: Counter[str]
) -> tuple[list[ProfiledKernel], list[str]]:
    """Return the kernels of the tables, and warnings; count in `dropped` what was left out."""
    kernels: list[ProfiledKernel] = []
    warnings: list[str] = []
    for table in tables:
        number_of, unsure = _numbers(table, path)
        if unsure:
            warnings.append(
                f"numbers such as {unsure} may be read 1000 times too large or too small: nothing in the table tells "
                "the decimal sign; print it with LC_ALL=C"
            )
        kernels += [
            kernel_of(reading, len(kernels) + i, number_of) for i, reading in enumerate(table.readings.values())
        ]
        dropped[UNKNOWN_UNIT] += sum(reading.unknown_units for reading in table.readings.values())
        dropped[RULES_LEFT_OUT] += sum(reading.rules_left_out for reading in table.readings.values())
    return kernels, warnings


# --- rows ------------------------------------------------------------------------------------------------------------


def _row(line: str, width: int) -> list[str] | None:
    """Return the fields of a line that belongs to a table; None: it is ncu's or the program's own.

    `width`: fields of the table that was opened last, 0 before the first.
    """
    text = line.strip("\r\n\ufeff ")
    quoted = text.startswith('"')
    # A spreadsheet may have taken the quotes away.
    if not quoted and not text.startswith("ID,Process ID") and (not width or text[:1] not in "0123456789,"):
        return None
    try:
        row = next(csv.reader([text], strict=True), [])
    except csv.Error:  # a quote that never closes, a field of megabytes
        return _BROKEN if quoted and width else None
    return row if tuple(row[:2]) == _HEADER or (quoted and width) or len(row) == width else None


def _opened(row: Sequence[str], line: int) -> _PrintedTable:
    columns: dict[str, int] = {}
    for at, name in enumerate(row):
        columns.setdefault(name, at)  # of repeated names the first
    table = _PrintedTable(columns, len(row), line)
    if table.is_raw:
        names, _ = metrics()
        table.sought = [(at, names[name]) for name, at in columns.items() if name in names]
    return table


def _added(table: _PrintedTable, row: Sequence[str]) -> Iterator[str]:
    """Keep what a row says; gives the reasons for what is left out."""
    if not row[0].strip():
        if table.is_raw and not table.units and len(row) == table.width:
            table.units = row  # recognised by its empty ID, wherever it stands
        return
    if not _fits(table, row):
        yield RAGGED
        return
    name = row[table.columns[_NAME]] if _NAME in table.columns else ""
    if not name:
        yield NO_KERNEL_NAME
        return
    identity = tuple(row[table.columns[each]] for each in ("ID", "Process ID", "Device") if each in table.columns)
    known = table.readings.get(identity)
    if known is not None and (table.is_raw or known.name != name[:_LONGEST_NAME]):
        yield OTHER_KERNEL
        return
    add = _add_raw if table.is_raw else _add_detail
    add(table, row, table.readings.setdefault(identity, known or _begun(table, row, name)))


def _fits(table: _PrintedTable, row: Sequence[str]) -> bool:
    """Return whether a row has a number as its ID, and as many fields as its table needs."""
    needed = table.width if table.is_raw else table.columns.get(_VALUE, table.width) + 1
    fits = len(row) == needed if table.is_raw else needed <= len(row) <= table.width
    return fits and row[0].strip().isdigit()


def _begun(table: _PrintedTable, row: Sequence[str], name: str) -> KernelReading:
    grid, block = (
        _triple(row[table.columns[each]]) if each in table.columns else None for each in ("Grid Size", "Block Size")
    )
    return KernelReading(name[:_LONGEST_NAME], grid, block)


def _triple(text: str) -> tuple[int, int, int] | None:
    found = _TRIPLE.fullmatch(text.strip())
    x, y, z = (int(each) for each in found.groups()) if found else (0, 0, 0)
    return (x, y, z) if x and y and z else None  # (0, 0, 0): the launch failed


def _add_raw(table: _PrintedTable, row: Sequence[str], reading: KernelReading) -> None:
    for at, sought in table.sought:
        reading.add(sought, row[at], table.units[at] if table.units else "")
    if DISPLAY_NAME in table.columns:
        reading.gpu = row[table.columns[DISPLAY_NAME]] or None


def _add_detail(table: _PrintedTable, row: Sequence[str], reading: KernelReading) -> None:
    printed = row[table.columns[_METRIC]]
    rule = [row[at] for at in (table.columns.get(each, len(row)) for each in _RULE) if at < len(row)]
    if not printed and len(rule) == len(_RULE) and rule[0]:
        name, kind, text = rule
        reading.add_rule(name, kind, text)
        return
    if printed == DISPLAY_NAME:
        reading.gpu = row[table.columns[_VALUE]] or None
        return
    names, labels = metrics()
    sought = names.get(printed) or labels.get(printed)
    if sought:
        reading.add(sought, row[table.columns[_VALUE]], row[table.columns[_UNIT]] if _UNIT in table.columns else "")


# --- numbers and complaints ------------------------------------------------------------------------------------------


def _numbers(table: _PrintedTable, path: str) -> tuple[Callable[[str], float | None], str | None]:
    """Return what reads the table's numbers; and a number of which nothing tells how it is meant."""
    texts = [
        text for reading in table.readings.values() for _, text, _ in reading.cells.values() if isinstance(text, str)
    ]
    found = styles_of(texts)
    if len(found) > 1:
        raise InputError(
            f"mixes numbers of two locales, {found['.']} and {found[',']}, in one table",
            where=Location(path, line=table.line),
            hint="print the report again: LC_ALL=C ncu --import REPORT.ncu-rep --csv --page raw",
        )
    unsure = None if found else next((text for text in texts if is_unsure(text) and not style_of(text)), None)
    return parser(next(iter(found), ".")), unsure


def _no_table(path: str, complaints: Sequence[str]) -> InputError:
    if complaints:
        return InputError(
            f"has no table: {_said(complaints)}",
            where=Location(path),
            hint="see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
            if any("ERR_NVGPUCTRPERM" in each for each in complaints)
            else "run ncu again, without filters first",
        )
    return InputError(
        "has no table of Nsight Compute in it",
        where=Location(path),
        hint="print one with: ncu --import REPORT.ncu-rep --csv --page raw > report.csv",
    )


def _said(complaints: Sequence[str]) -> str:
    """Return ncu's complaint in words of ours: its own may hold paths and names."""
    for sign, words in _KNOWN_COMPLAINTS:
        if any(sign.lower() in each.lower() for each in complaints):
            return words
    return "ncu printed an error instead"
