"""metrics.toml, indexed: under which printed name and unit each field of a profiled kernel is found."""

from __future__ import annotations

from functools import cache
from typing import Any

from msgspec import Struct

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
