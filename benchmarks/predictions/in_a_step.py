"""How far a model's step puts kernels off together: what IN_A_STEP is set by.

    python -m benchmarks in_a_step DIR

DIR/models holds what record_models.py makes. For each pair of factors: in how many models the summed interval holds the
memory-bound part that torch.compile took (attention as in eager), and how wide it is as a share of the saving. Then
each model left out in turn: the narrowest factors that hold enough of the others, and whether they hold this one.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.predictions.prediction_models import Trace, predicted
from tracemine.findings import device_of
from tracemine.perfmodel import Curves, group

FASTER, SLOWER = (1.2, 1.3, 1.42, 1.5), (1.42, 1.5, 1.6, 1.7, 1.8, 1.9)
ENOUGH = 0.85
Row = tuple[bool, float]  # held; width as a share of the saving


def rows_of(folder: Path) -> dict[tuple[float, float], Row]:
    """One model, at each pair of factors; empty where it was not compiled, or with another attention."""
    paths = folder / "eager", folder / "compiled.json.gz"
    if not all(path.exists() for path in paths):
        return {}
    eager, compiled = map(Trace.read, paths)
    if eager.a_step(eager.of_class("attention")) != compiled.a_step(compiled.of_class("attention")):
        return {}
    device = device_of(eager.timeline)
    curves = None if device is None else Curves.of(device)
    if curves is None:
        raise SystemExit(f"{folder}: no calibration of its GPU")
    took_ns, unfused_ns = compiled.step_ns(compiled.memory), eager.step_ns(eager.memory)
    found = {}
    for faster, slower in product(FASTER, SLOWER):
        group.IN_A_STEP = (1 / faster, slower)
        told = predicted(eager, curves)
        held = told.low_ns <= took_ns <= told.high_ns
        found[faster, slower] = held, (told.high_ns - told.low_ns) / max(unfused_ns - told.memory_ns, 1)
    return found


def fitted(models: list[dict[tuple[float, float], Row]]) -> tuple[float, float]:
    """The narrowest factors that hold enough of these; the widest where none do."""
    pairs = sorted(product(FASTER, SLOWER), key=lambda pair: pair[0] * pair[1])
    return next((pair for pair in pairs if np.mean([rows[pair][0] for rows in models]) >= ENOUGH), pairs[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folders = sorted((parser.parse_args().folder / "models").iterdir())
    models = [rows for rows in map(rows_of, folders) if rows]
    print("| faster by | slower by | models | held | median width |\n|---:|---:|---:|---:|---:|")
    for pair in product(FASTER, SLOWER):
        held, width = zip(*(rows[pair] for rows in models), strict=True)
        print(f"| {pair[0]} | {pair[1]} | {len(models)} | {sum(held)} | {np.median(width):.2f} |")
    out = [rows[fitted([*models[:at], *models[at + 1 :]])][0] for at, rows in enumerate(models)]
    print(f"\nset by all: {fitted(models)}; each model left out in turn: {sum(out)} of {len(out)} held")


if __name__ == "__main__":
    main()
