"""docs/reference/devices.md, from the device table."""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.devices import devices


def devices_page() -> str:
    """The text of docs/reference/devices.md: the table, what is measured and what is assumed, and the sources."""
    head = (
        "# Devices\n\n"
        "Generated from `tracemine/devices.toml`; change it there. Bandwidths are data-sheet values; *achieved* is\n"
        "the share that a large copy reaches, *floor* the duration of the smallest pointwise kernel and of the\n"
        "smallest row reduction. *m* marks what this project measured; the rest of those two columns is assumed.\n"
        "Peaks are dense, in TFLOP/s. An empty cell is not known beyond doubt.\n\n"
    )
    dtypes = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
    titles = ("GPU", "SMs", "GB/s", "achieved", "L2 MiB", "host GB/s", "floor µs", *dtypes)
    lines = [_line(titles), _line(["---"] * len(titles))]
    for d in devices():
        floor = " / ".join(f"{ns / 1000:.2g}" for ns in d.launch_floor_ns)
        lines.append(
            _line(
                (
                    d.title,
                    str(d.sm_count),
                    f"{d.bandwidth_bytes_per_s / 1e9:g}",
                    f"{d.achieved:.0%}" + " m" * d.achieved_measured,
                    "" if d.l2_bytes is None else f"{d.l2_bytes / (1 << 20):g}",
                    f"{d.host_link_bytes_per_s / 1e9:g}",
                    floor + " m" * d.launch_floor_measured,
                    *(f"{d.flops_per_s[t] / 1e12:g}" if t in d.flops_per_s else "" for t in dtypes),
                )
            )
        )
    names = "\n".join(f"- **{d.title}**: {', '.join(f'`{n}`' for n in d.names)}" for d in devices())
    sources = "\n".join(f"- **{d.title}**: {'; '.join(d.sources)}" for d in devices())
    return f"{head}{chr(10).join(lines)}\n\n## Names\n\n{names}\n\n## Sources\n\n{sources}\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
