"""Predicted beside measured, on patterns and on whole models.

    python -m benchmarks prediction record -o DIR [CASE...] [--set SET]   on a CUDA machine: DIR/points.json, models/
    python -m benchmarks prediction score DIR [CASE...] [--summary FILE]  anywhere: tracemine's own scan of them
    python -m benchmarks prediction chains [PATTERN...] [--check]         anywhere, with torch: single chains, by family

A case's memory-bound part is every kernel, copy and set that is no matrix product, convolution or attention and belongs
to none. Predicted is what it takes once each fusion group is one kernel: the group's predicted time, and what is in no
group as measured; measured is the memory-bound part of the same step under torch.compile. Times are of one step, of the
GPU's activities; a step's own times were measured with no profiler (times.json).

`chains` writes traces of the recorded patterns, with an execution trace and without, and scans them; --check fails
where intervals hold too little or too much, over all or in a family, or are too wide. See prediction_chains.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.predictions.prediction_models import Outcome, outcome
from tracemine.causes import load_rules
from tracemine.findings import device_of
from tracemine.perfmodel import Curves
from tracemine.timeline import Timeline

HERE = Path(__file__).parents[1]
POINTS = sorted((HERE / "results").glob("h*00/points_*.json"))
WITHIN = 10.0  # points of eager GPU time that a prediction may be off
HOST_BOUND = 0.8  # of a step, the part that the GPU is busy: below, the host sets the pace
GPU_BOUND = 0.95
GAP_WITHIN = 15.0  # percent, of what is saved with no gaps left
LEAN_WITHIN = 6.0


# -- the tables --------------------------------------------------------------------------------------------------------


def us(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1000:.0f}"


def shown(value: float | None, form: str = "{:+.1f}") -> str:
    return "" if value is None else form.format(value)


def heading(columns: str) -> list[str]:
    names = columns.split(", ")
    return [f"| {' | '.join(names)} |", "|---|" + "---:|" * (len(names) - 1)]


def fusion_table(cases: Sequence[Outcome]) -> list[str]:
    columns = "model, eager GPU µs, memory-bound µs, predicted, torch.compile, off points, "
    lines = heading(columns + "kernels eager, predicted, torch.compile, + moves, lean points")
    for one in cases:
        cells = [us(one.eager_gpu_ns), us(one.eager_memory_ns), us(one.predicted_memory_ns), us(one.compiled_memory_ns)]
        cells += [shown(one.error), shown(one.eager_memory_kernels, "{:.0f}"), shown(one.predicted_kernels, "{:.0f}")]
        cells += [shown(one.compiled_kernels, "{:.0f}"), shown(one.compiled_moves, "{:.0f}"), shown(one.lean_error)]
        lines.append(f"| {one.name}{'' if one.same_attention else ' *'} | {' | '.join(cells)} |")
    errors = [one.error for one in cases if one.error is not None]
    lean = [one.lean_error for one in cases if one.lean_error is not None]
    same = [one.error for one in cases if one.error is not None and one.same_attention]
    lines.append("")
    lines.append(
        f"within {WITHIN:g} points: {count(errors, WITHIN)}; where attention is the same: {count(same, WITHIN)}"
    )
    lines.append(f"without an execution trace within {LEAN_WITHIN:g} points of with: {count(lean, LEAN_WITHIN)}")
    lines.append("* attention runs as other kernels when compiled: the model's own code takes another way")
    return lines + halves(cases)


def halves(cases: Sequence[Outcome]) -> list[str]:
    """Where attention is the same: the models in even places of the sorted names, which constants were set by, and
    the others.
    """
    lines = ["", *heading("same attention, models, mean error, bias, in interval, kernels within 25 %, within 10 %")]
    for name, own in (("set by", cases[::2]), ("held out", cases[1::2]), ("all", cases)):
        same = [one for one in own if one.same_attention]
        errors = [one.error for one in same if one.error is not None]
        kernels = [one.kernel_error for one in same if one.kernel_error is not None]
        if errors and kernels:
            cells = [str(len(same)), f"{sum(map(abs, errors)) / len(errors):.1f}", f"{sum(errors) / len(errors):+.1f}"]
            cells += [f"{sum(one.held for one in same)} of {len(same)}", count(kernels, 25.0), count(kernels, 10.0)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def gap_table(cases: Sequence[Outcome]) -> list[str]:
    lines = heading("model, step µs, GPU busy, idle, as a graph, saved, claimed, off %, claimed lean")
    for one in sorted(cases, key=lambda one: one.busy):
        saved = one.eager_step_ns - one.graph_step_ns if one.graph_step_ns is not None and one.same_graph else None
        cells = [
            us(one.eager_step_ns),
            f"{100 * one.busy:.0f} %",
            us(one.idle_ns),
            us(one.graph_step_ns) + ("" if one.same_graph or one.graph_step_ns is None else " (other kernels)"),
        ]
        cells += [us(saved), us(one.gap_saving_ns), shown(one.gap_error, "{:+.0f}"), us(one.lean_gap_saving_ns)]
        lines.append(f"| {one.name} | {' | '.join(cells)} |")
    host = [one.gap_error for one in cases if one.busy < HOST_BOUND and one.gap_error is not None]
    idle = [100 * (one.gap_saving_ns / one.idle_ns - 1) for one in cases if one.busy < HOST_BOUND]
    gpu = [100 * one.gap_saving_ns / one.eager_step_ns for one in cases if one.busy >= GPU_BOUND]
    most = f"{max(gpu, default=0):.1f} % of a step"
    lines.append("")
    lines.append(
        f"GPU busy under {HOST_BOUND:.0%}, within {GAP_WITHIN:g} % of what a graph saves: {count(host, GAP_WITHIN)}"
    )
    lines.append(f"and of all that is idle, where no graph could be had too: {count(idle, GAP_WITHIN)}")
    lines.append(f"GPU busy over {GPU_BOUND:.0%}: {len(gpu)} models, for gaps at most {most} is claimed")
    return lines


def count(errors: Sequence[float], limit: float) -> str:
    return f"{sum(abs(error) <= limit for error in errors)} of {len(errors)}"


# -- commands ----------------------------------------------------------------------------------------------------------


def record(out: Path, names: Sequence[str], cases: str, seconds: float) -> None:
    """Points for at most `seconds`, and models: compiled side by side, then recorded one after another."""
    out.mkdir(parents=True, exist_ok=True)
    if seconds > 0:
        run("record_points.py", "-o", str(out / "points.json"), "--seconds", str(seconds))
        run("describe_points.py", str(out / "points.json"))
    models = [str(out / "models"), *names, "--set", cases]
    preparing = [started("record_models.py", "--prepare", *models) for _ in range(max((os.cpu_count() or 2) // 2, 1))]
    for process in preparing:
        process.wait()
    run("record_models.py", *models)


def started(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(next(HERE.glob(f"*/{script}"))), *arguments])


def run(script: str, *arguments: str) -> None:
    subprocess.run([sys.executable, str(next(HERE.glob(f"*/{script}"))), *arguments], check=True)


def score(folder: Path, names: Sequence[str], summary: Path | None) -> None:
    rules = load_rules()

    def curves_of(timeline: Timeline) -> Curves:
        device = device_of(timeline)
        curves = device and Curves.of(device)
        if not curves:
            raise SystemExit(f"{timeline.meta.source}: no calibration of its GPU")
        return curves

    folders = sorted(path.parent for path in (folder / "models").glob("*/times.json"))
    found = [outcome(one, curves_of, rules) for one in folders if not names or one.name in names]
    cases = [one for one in found if isinstance(one, Outcome)]
    about = document(folder, cases)
    print(", ".join(f"{key} {value}" for key, value in about.items() if key != "cases"), end="\n\n")
    print("\n".join([*fusion_table(cases), "", *gap_table(cases), "", *(one for one in found if isinstance(one, str))]))
    if summary is not None:
        summary.write_text(json.dumps(about, indent=1) + "\n")
    points = sorted(folder.glob("points*.json"))
    if points:
        run("prediction_points.py", *map(str, points))


def document(folder: Path, cases: Sequence[Outcome]) -> dict[str, Any]:
    """What is kept of a recording: where it was made, and every case."""
    about = Counter(
        tuple(
            (key, times.get(key)) for key in ("gpu", "driver", "cuda", "torch", "triton", "transformers", "torchvision")
        )
        for one in cases
        for times in [json.loads((folder / "models" / one.name / "times.json").read_text("utf-8"))]
    )
    return {**dict(next(iter(about), ())), "cases": [asdict(one) for one in cases]}


def chains(files: Sequence[Path], names: Sequence[str], every: int, out: Path | None, check: bool) -> None:
    from benchmarks.predictions.prediction_chains import chains_of, faults, keep, kept, tables  # needs torch

    found = [
        one for path in files for one in (kept(path) if path.suffix == ".jsonl" else chains_of(path, names, every))
    ]
    if out is not None:
        keep(found, out)
    print("\n".join(tables(found)))
    wrong = faults(found) if check else []
    if wrong:
        raise SystemExit("\n".join(["", *wrong]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("-o", "--output", type=Path, required=True)
    recording.add_argument("names", nargs="*", help="models (all of them)")
    recording.add_argument("--set", default="cases", help="of models.py: cases, fresh or unseen (cases)")
    recording.add_argument("--seconds", type=float, default=600.0, help="begin no point after so many; 0: no points")
    scoring = commands.add_parser("score")
    scoring.add_argument("folder", type=Path)
    scoring.add_argument("names", nargs="*", help="cases (all of them)")
    scoring.add_argument("--summary", type=Path, help="keep what was found as JSON")
    telling = commands.add_parser("chains", help="single chains, each family by itself, from its trace")
    telling.add_argument("names", nargs="*", help="patterns (all of them)")
    telling.add_argument("--points", nargs="*", type=Path, default=POINTS, help="of record_points.py, or what -o wrote")
    telling.add_argument("--every", type=int, default=1, help="only each so many points (1)")
    telling.add_argument("-o", "--output", type=Path, help="keep what was found, one a line (.jsonl)")
    telling.add_argument("--check", action="store_true", help="fail where intervals hold too little, or are too wide")
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.output, chosen.names, chosen.set, chosen.seconds)
    elif chosen.command == "chains":
        chains(chosen.points, chosen.names, chosen.every, chosen.output, chosen.check)
    else:
        score(chosen.folder, chosen.names, chosen.summary)


if __name__ == "__main__":
    main()
