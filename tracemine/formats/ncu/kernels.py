"""What a report says of one kernel as a `ProfiledKernel`: in base units, with what is missing derived from the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, field

from tracemine.counters.record import ProfiledKernel
from tracemine.tables import table_beside

DISPLAY_NAME = "device__attribute_display_name"  # the only text that is read besides the kernel's name


class Sought(Struct, frozen=True):
    """A field that a printed name may mean: the factor of each unit, and how good a source it is (0 the best)."""

    field: str
    factors: dict[str, float]
    rank: int


@cache
def _table() -> dict[str, Any]:
    return table_beside(__file__, "metrics.toml")


@cache
def arithmetic() -> list[tuple[str, bool, list[tuple[str, int]]]]:
    """Return data types, whether the matrix units do it, and of its counters field stem and weight: FLOPs are
    Σ counter × weight. Fields are STEM.sum and STEM.per_cycle.
    """
    return [(row["dtype"], row["kind"] == "matrix", row["counters"]) for row in _table()["arithmetic"]]


@cache
def metrics() -> tuple[dict[str, tuple[Sought, ...]], dict[str, tuple[Sought, ...]]]:
    """Return what full metric names mean, and the labels that the details page prints instead.

    >>> [sought.field for sought in metrics()[1]["Memory Throughput"]]
    ['dram_bytes_per_s', 'memory_percent']
    """
    table = _table()
    units: dict[str, dict[str, float]] = table["units"]
    names: dict[str, tuple[Sought, ...]] = {}
    labels: dict[str, tuple[Sought, ...]] = {}

    def add(index: dict[str, tuple[Sought, ...]], printed: str, sought: Sought) -> None:
        index[printed] = (*index.get(printed, ()), sought)

    for row in table["metric"]:
        factors = units[row["dimension"]]
        for rank, name in enumerate(row["names"]):
            add(names, name, Sought(row["field"], factors, rank))
        for rank, label in enumerate(row["labels"]):
            add(labels, label, Sought(row["field"], factors, len(row["names"]) + rank))
    kinds: dict[str, list[str]] = table["names"]
    stems = {(row["kind"], stem) for row in table["arithmetic"] for stem, _ in row["counters"]}
    for kind, stem in sorted(stems):
        for rank, name in enumerate(kinds[kind]):
            full, unit = name.format(stem), name.partition("__")[0]
            add(names, f"{full}.sum", Sought(f"{stem}.sum", units["inst"], rank))
            # Per cycle of its own unit's clock: of sm and smsp, which differ.
            add(names, f"{full}.sum.per_cycle_elapsed", Sought(f"{stem}.per_{unit}_cycle", units["inst"], rank))
    return names, labels


_TENSOR_IDLE_PERCENT = 10.0  # matrix units less busy than this did no matrix product worth counting
_MOST_RULES = 100_000  # characters of all rules of a kernel; ncu's own come to some thousands
_LINK = re.compile(r"@url:(?P<url>[^@:]*):[^@]*@|@(?:sass|source|section):[^@]*:(?P<other>[^@:]*)@")
_LARGEST = 1 << 60  # no kernel moves, computes or lasts so much: a damaged number


class KernelReading(Struct):
    """What was read of one kernel: of each field the best source seen so far."""

    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    gpu: str | None = None
    cells: dict[str, tuple[int, str | float, float]] = field(default_factory=dict)  # rank, text or number, factor
    unknown_units: int = 0
    rules: list[str] = field(default_factory=list)
    rules_left_out: int = 0
    _room: int = _MOST_RULES

    def add(self, sought: tuple[Sought, ...], value: str | float, unit: str) -> None:
        """Keep `value` under the fields that a name means, where its unit measures what the field needs."""
        unit = unit.strip().lower()
        fits = False
        for each in sought:
            factor = each.factors.get(unit)
            if factor is None:
                continue
            fits = True
            known = self.cells.get(each.field)
            if known is None or each.rank < known[0]:
                self.cells[each.field] = (each.rank, value, factor)
        self.unknown_units += not fits and value != ""

    def add_rule(self, name: str, kind: str, text: str) -> None:
        """Keep what a rule says, as long as there is room.

        >>> reading = KernelReading("k")
        >>> reading.add_rule("SOLBottleneck", "OPT", "Look at\\n @section:X:the section@ and @url:the guide:https://x@.")
        >>> reading.rules
        ['OPT SOLBottleneck: Look at the section and the guide.']
        """
        said = " ".join(f"{kind} {name}: {_LINK.sub(_shown, text)}".split())
        if len(said) > self._room:
            self.rules_left_out += 1
            return
        self._room -= len(said) + 1
        self.rules.append(said)


def _shown(link: re.Match[str]) -> str:
    """Return what ncu shows of a link in a rule's text: not where it leads, which may be a path."""
    return link["url"] if link["url"] is not None else link["other"]


def kernel_of(reading: KernelReading, order: int, number: Callable[[str], float | None]) -> ProfiledKernel:
    """Return the record of one kernel. `number` reads a number as text.

    >>> reading = KernelReading("k")
    >>> reading.add(metrics()[0]["gpu__time_duration.sum"], "2.5", "us")
    >>> reading.add(metrics()[0]["dram__bytes.sum.per_second"], "4", "Tbyte/s")
    >>> kernel = kernel_of(reading, 0, float)
    >>> kernel.dur_ns, kernel.dram_bytes, kernel.dram_bytes_from
    (2500, 10000000, 'rate')
    """
    values: dict[str, float] = {}
    for name, (_, given, factor) in reading.cells.items():
        value = number(given) if isinstance(given, str) else given
        if value is not None and 0 <= value * factor <= _LARGEST:
            values[name] = value * factor
    flops, complete = _flops(values)
    total, where = _dram_bytes(values)
    return ProfiledKernel(
        name=reading.name,
        order=order,
        grid=reading.grid or _three(values, "grid"),
        block=reading.block or _three(values, "block"),
        gpu=reading.gpu,
        dur_ns=_whole(values, "dur_ns"),
        dram_read_bytes=_whole(values, "dram_read_bytes"),
        dram_written_bytes=_whole(values, "dram_written_bytes"),
        dram_bytes=total,
        dram_bytes_from=where,
        flops=flops,
        flops_complete=complete,
        occupancy_percent=values.get("occupancy_percent"),
        theoretical_occupancy_percent=values.get("theoretical_occupancy_percent"),
        registers_per_thread=_whole(values, "registers_per_thread"),
        spill_requests=_spills(values),
        l2_hit_percent=values.get("l2_hit_percent"),
        compute_percent=values.get("compute_percent"),
        memory_percent=values.get("memory_percent"),
        dram_percent=values.get("dram_percent"),
        waves=values.get("waves"),
        rules="\n".join(reading.rules) or None,
    )


def _dram_bytes(values: Mapping[str, float]) -> tuple[int | None, str | None]:
    """Return bytes between DRAM and L2, and how they are known; the formulas agree to 2e-16 where a report has all."""
    read, written = values.get("dram_read_bytes"), values.get("dram_written_bytes")
    if read is not None and written is not None:
        return round(read + written), "counters"
    if "dram_bytes" in values:
        return round(values["dram_bytes"]), "counters"
    dur_s = values.get("dur_ns", 0.0) / 1e9
    if dur_s and "dram_bytes_per_s" in values:
        return round(values["dram_bytes_per_s"] * dur_s), "rate"
    terms = [values.get(name) for name in ("dram_percent", "bus_width_bits", "dram_hz")]
    if dur_s and all(terms):
        percent, width, hertz = (term or 0.0 for term in terms)
        return round(percent / 100 * 2 * (width / 8) * hertz * dur_s), "throughput"  # 2: double data rate
    return None, None


def _flops(values: Mapping[str, float]) -> tuple[dict[str, int], bool]:
    """Return FLOPs by data type, and whether those are all."""
    flops: dict[str, int] = {}
    matrix: dict[str, int] = {}
    for dtype, on_matrix, counters in arithmetic():
        into = matrix if on_matrix else flops
        count = _counted(counters, values)
        if count is not None and dtype not in into:
            into[dtype] = count
    known = {dtype for dtype, on_matrix, _ in arithmetic() if on_matrix} <= set(matrix)
    idle = values.get("tensor_percent", 100.0) < _TENSOR_IDLE_PERCENT
    complete = "fp32" in flops and (sum(matrix.values()) > 0 or idle or known)
    for dtype, count in matrix.items():
        flops[dtype] = flops.get(dtype, 0) + count
    order = dict.fromkeys(dtype for dtype, *_ in arithmetic())
    return {dtype: flops[dtype] for dtype in order if flops.get(dtype)}, complete


def _counted(counters: Sequence[tuple[str, int]], values: Mapping[str, float]) -> int | None:
    total = 0.0
    for stem, weight in counters:
        count = values.get(f"{stem}.sum")
        for unit in ("smsp", "sm") if count is None else ():
            terms = [values.get(name) for name in (f"{stem}.per_{unit}_cycle", f"{unit}_hz", "dur_ns")]
            if None not in terms:
                per_cycle, hertz, dur_ns = (term or 0.0 for term in terms)
                count = per_cycle * hertz * dur_ns / 1e9
                break
        if count is None:
            return None
        total += weight * count
    return round(total) if total <= _LARGEST else None


def _spills(values: Mapping[str, float]) -> int | None:
    """Spill requests, where counted; 0 where local memory was not used at all. Other use of it may be no spill."""
    if "spill_requests" in values:
        return round(values["spill_requests"])
    local = values.get("local_loads", 1.0) + values.get("local_stores", 1.0)
    return 0 if local == 0 else None


def _whole(values: Mapping[str, float], name: str) -> int | None:
    return round(values[name]) if name in values else None


def _three(values: Mapping[str, float], stem: str) -> tuple[int, int, int] | None:
    found = [_whole(values, f"{stem}_{axis}") for axis in "xyz"]
    x, y, z = found
    return None if x is None or y is None or z is None else (x, y, z)
