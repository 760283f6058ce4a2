"""What products, convolutions and attention reached in recordings: the evidence behind perfmodel/library_rates.toml.

    python -m benchmarks library_rates TRACE... [-o FILE.md] [--toml tracemine/perfmodel/library_rates.toml]

Each distinct call (operator, shapes, strides, arguments, main kernel) of each GPU counts once, with its median time
over all its instances and traces, all kernels that it launched together. Calls are told apart by operation, by the
arithmetic that their main kernel is named for, and by whether their layout is what the library's fastest kernels ask
for: a rate is fitted to those calls alone that matrix units of the GPU's own generation did, and to float32 and float64
products on vector units. Printed are launch and rate, how measured times lie about the fit, and the fastest call; then
the same of what was left out (misaligned, vector units in half precision), which no rate is taken from.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.devices import find_device
from tracemine.formats import open_trace
from tracemine.ops import op_class
from tracemine.ops.infer.library import OPERATIONS, LibraryCall, library_call
from tracemine.ops.kernel_names import is_narrow, unit_of
from tracemine.perfmodel.calibration import LibraryPoint
from tracemine.perfmodel.library_rates import ARITHMETIC, fitted
from tracemine.rows.arrow import rows_of

_INPUTS = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance of a call."""

    device: str
    call: LibraryCall
    operator: str
    kernel: str  # the longest
    ns: int
    trace: str


def seen_in(path: Path) -> Iterator[Seen]:
    """Every call of a trace whose inputs were recorded."""
    timeline = open_trace(path)
    device = find_device(timeline.meta.devices[0].name if timeline.meta.devices else None)
    if device is None:
        return
    names = timeline.ops["name"].to_pylist()
    classes = dict(zip(set(names), op_class(set(names)), strict=True)) if names else {}
    inputs = [timeline.ops[column].to_pylist() for column in _INPUTS]
    kernels, durations = timeline.activities["name"].to_pylist(), rows_of(timeline.activities["dur_ns"])
    of_call: dict[int, list[int]] = defaultdict(list)
    for row, op in enumerate(rows_of(timeline.activities["op_row"]).tolist()):
        if op >= 0 and classes[names[op]] in OPERATIONS:
            of_call[op].append(row)
    known: dict[tuple[str | None, ...], LibraryCall | None] = {}
    for op, rows in of_call.items():
        key = (names[op], *(column[op] for column in inputs))
        if key not in known:
            texts = [None if text is None else json.loads(text) for text in key[1:]]
            known[key] = None if texts[0] is None or texts[1] is None else library_call(names[op], *texts)
        call = known[key]
        if call is not None:
            main = max(rows, key=lambda row: durations[row])
            yield Seen(device.title, call, names[op], kernels[main], int(durations[rows].sum()), str(path))


def kind_of(seen: Seen) -> tuple[str, str, str]:
    """Operation, arithmetic, and "" where a rate is taken from it, else why not."""
    call, unit = seen.call, unit_of(seen.kernel)
    arithmetic = ARITHMETIC.get(call.dtype, call.dtype)
    if arithmetic == "fp32" and unit == "matrix" and not call.operation.startswith("attention"):
        arithmetic = "tf32"
    left_out = ""
    if call.depthwise:
        left_out = "depthwise"
    elif call.groups > 1:
        left_out = "grouped"
    elif arithmetic == "half" and unit == "vector":
        left_out = "vector units"
    elif arithmetic == "half" and (call.misaligned or is_narrow(seen.kernel)):
        left_out = "misaligned"
    elif call.operation.startswith("convolution") and unit != "matrix":
        left_out = "vector units" if unit == "vector" else "unit not told"
    return call.operation, arithmetic, left_out


def points_of(paths: Sequence[Path]) -> dict[tuple[str, str, str, str], list[LibraryPoint]]:
    """Points by device, operation, arithmetic and why they are left out; each distinct call once."""
    times: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for path in paths:
        for seen in seen_in(path):
            times[seen.device, *kind_of(seen), seen.operator, seen.call, seen.kernel].append(seen.ns)
    found: dict[tuple[str, str, str, str], list[LibraryPoint]] = defaultdict(list)
    for key, ns in times.items():
        device, operation, arithmetic, left_out, operator, call, _ = key
        assert isinstance(call, LibraryCall)
        point = LibraryPoint(operation, arithmetic, str(operator), call.flops, call.nbytes, int(np.median(ns)))
        found[str(device), str(operation), str(arithmetic), str(left_out)].append(point)
    return found


def main() -> None:
    """Print the table; write it, and the package's own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--toml", type=Path)
    options = parser.parse_args()
    found = points_of(options.traces)
    head = (
        "| GPU | operation | arithmetic | left out | calls | launch, µs | TFLOP/s | 5 % | 50 % | 95 % "
        "| from 2 GFLOP on: 5 % | 50 % | 95 % | fastest call |"
    )
    lines, rows = [head, "|" + "---|" * 14], []
    for (title, operation, arithmetic, left_out), points in sorted(found.items()):
        device = find_device(title)
        rate = None if device is None else fitted(points, device.achieved_bytes_per_s, "")
        if device is None or rate is None:
            continue
        predicted = np.array([rate.ns(p.flops, p.nbytes, device.achieved_bytes_per_s).mid for p in points])
        ratio = np.array([p.ns for p in points]) / predicted
        large = ratio[np.array([p.flops for p in points]) > 2e9]
        fastest = max(points, key=lambda p: p.flops / p.ns)
        of_all = " | ".join(f"{one:.2f}" for one in np.quantile(ratio, [0.05, 0.5, 0.95]))
        of_large = " | ".join(f"{x:.2f}" for x in np.quantile(large, [0.05, 0.5, 0.95])) if len(large) else " | | "
        lines.append(
            f"| {title} | {operation} | {arithmetic} | {left_out} | {len(points)} | {rate.launch_ns / 1000:g} "
            f"| {rate.flops_per_s / 1e12:.1f} | {of_all} | {of_large} "
            f"| {fastest.flops / fastest.ns / 1000:.0f} TFLOP/s at {fastest.flops / 1e9:.2f} GFLOP |"
        )
        if not left_out:
            rows.append(
                f'[[rate]]\ndevice = "{title}"\noperation = "{operation}"\narithmetic = "{arithmetic}"\n'
                f"launch_ns = {rate.launch_ns:g}\ntflops = {rate.flops_per_s / 1e12:.1f}\nlow = {rate.low:.2f}\n"
                f"high = {rate.high:.2f}\npoints = {rate.points}\n"
            )
    print("\n".join(lines))
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", "utf-8")
    if options.toml is not None:
        note = (
            "# What libraries reached in recordings of models (record_models of benchmarks/), torch 2.11, CUDA 13.0.\n"
            "# Printed by library_rates of benchmarks/; the table of them is benchmarks/results/library_rates.md.\n"
            "# launch_ns, tflops   time = launch + max(FLOPs ÷ rate, bytes ÷ the bandwidth that a copy reaches)\n"
            "# low, high           measured ÷ predicted, 5th and 95th percentile of so many distinct calls\n\n"
        )
        options.toml.write_text(note + "\n".join(rows), "utf-8")


if __name__ == "__main__":
    main()
