"""Where a model's prediction and torch.compile differ: `python -m benchmarks models_kernels DIR/models/CASE [ROWS]`.

Prints, most time first and per step: the memory-bound kernels of the compiled step, those of eager that are in no
fusion group, and the groups with what their kernels took, what one kernel is predicted to take, and what it would do.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.predictions.prediction_models import Trace, predicted
from tracemine.findings import device_of
from tracemine.perfmodel import Curves
from tracemine.rows.table import BoolArray

NAME = 100  # characters of a kernel's name that are shown


def texts(trace: Trace, column: str) -> list[str]:
    own = trace.rows["activities"].columns[column]
    return [own.values[code] if code >= 0 else "" for code in own.codes.tolist()]


def table(trace: Trace, which: BoolArray) -> list[str]:
    """Kernels by name: time, how many, and the operator."""
    spent: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, op, dur, chosen in zip(
        texts(trace, "name"), texts(trace, "op"), trace.dur_ns.tolist(), which.tolist(), strict=True
    ):
        if chosen:
            spent[name[:NAME], op].append(dur)
    return [
        f"{sum(own) / trace.steps / 1000:9.1f} µs {len(own) / trace.steps:5.1f} x  {name}  [{op}]"
        for (name, op), own in sorted(spent.items(), key=lambda item: -sum(item[1]))
    ]


def group_table(trace: Trace, curves: Curves) -> list[str]:
    """Fusion groups that are the same operators and the same kernel: measured, predicted, what the kernel does."""
    fused = predicted(trace, curves).fused_ns
    found, ops = trace.groups, texts(trace, "operation")
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    members = [np.flatnonzero(found.activity_group == at) for at in range(len(found))]
    for at, own in enumerate(members):
        alike[" ".join(ops[row] for row in own.tolist()), int(found.kernel[at])].append(at)
    lines = []
    for (names, kernel), own in sorted(alike.items(), key=lambda item: -sum(fused[item[1]])):
        does = found.kernels[kernel]
        was = sum(int(trace.dur_ns[members[at]].sum()) for at in own)
        lines.append(
            f"{sum(fused[own]) / trace.steps / 1000:9.1f} µs of {was / trace.steps / 1000:.1f} "
            f"{len(own) / trace.steps:5.1f} x  {names[:NAME]}  {sum(does.reads) / 1e6:.1f} MB in, "
            f"{sum(does.writes) / 1e6:.1f} out, {does.rows} rows of {does.length}, {'/'.join(does.steps)[:NAME]}"
            f"{', columns' if does.columns else ''}{', strided' if does.strided else ''}"
        )
    return lines


def part(title: str, lines: Iterable[str], most: int) -> None:
    own = list(lines)
    print(f"{title}: {len(own)} kinds", *own[:most], "", sep="\n")


def main() -> None:
    folder, most = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 15
    eager = Trace.read(folder / "eager")
    device = device_of(eager.timeline)
    curves = device and Curves.of(device)
    if not curves:
        raise SystemExit(f"{folder}: no calibration of its GPU")
    if (folder / "compiled.json.gz").exists():
        compiled = Trace.read(folder / "compiled.json.gz")
        part("torch.compile, memory-bound", table(compiled, compiled.memory), most)
        part("torch.compile, the rest", table(compiled, ~compiled.memory), most)
    part("eager, memory-bound and in no group", table(eager, eager.memory & (eager.groups.activity_group < 0)), most)
    part("eager, the rest", table(eager, ~eager.memory), most)
    part("fusion groups, predicted of measured", group_table(eager, curves), most)


if __name__ == "__main__":
    main()
