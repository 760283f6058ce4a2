"""Small tables as `ncu --csv` prints them, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RAW = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size")
DETAILS = (*RAW, "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULES = (*DETAILS, "Rule Name", "Rule Type", "Rule Description")

TIME = "gpu__time_duration.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"

# kernel name, grid, block, value of each metric as printed
Launch = tuple[str, tuple[int, int, int], tuple[int, int, int], Sequence[str]]


def row(*cells: object) -> str:
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells) + "\n"


def raw(metrics: Mapping[str, str], launches: Sequence[Launch], process: str = "python3") -> str:
    """The raw page: `metrics` are the columns' names and units."""
    lines = [row(*RAW, *metrics), row(*[""] * len(RAW), *metrics.values())]
    for i, (name, grid, block, values) in enumerate(launches):
        lines.append(row(i, 7, process, "127.0.0.1", name, 1, 7, block, grid, *values))
    return "".join(lines)


def details(rows: Sequence[tuple[int, str, str, str, str, str]], header: Sequence[str] = DETAILS) -> str:
    """The details page from (ID, kernel, section, metric, unit, value)."""
    lines = [row(*header)]
    for i, name, section, metric, unit, value in rows:
        known = (
            i,
            7,
            "python3",
            "127.0.0.1",
            name,
            1,
            7,
            "(128, 1, 1)",
            "(4, 1, 1)",
            0,
            "9.0",
            section,
            metric,
            unit,
            value,
        )
        lines.append(row(*known, *[""] * (len(header) > len(DETAILS))))
    return "".join(lines)
