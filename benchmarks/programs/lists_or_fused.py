"""Time labelled programs whose optimizer works over lists beside the same with a fused step, in turns: needs a GPU.

    python benchmarks/programs/lists_or_fused.py OUT [NAME...]     writes OUT/lists_or_fused.json, prints a line each

Their labels call lists no cause. What the step really gains by `fused=True` says whether a finding of it is invented.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch

from programs.labelled import AHEAD, SHORT, made
from programs.run import machine

NAMES = ("well_trained", "mixed_pictures", "views_contrasted")


def fused(optimizer: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes an optimizer with a fused step, whatever it is asked for."""
    return lambda parameters, **how: optimizer(parameters, **{**how, "foreach": None, "fused": True})


def turns(name: str) -> dict[str, int]:
    """Return how long a step of each form takes, in blocks that take turns: the median, ns."""
    steps, took = {"lists": made(name, "cuda").step}, dict[str, list[int]]()
    with mock.patch.multiple(torch.optim, SGD=fused(torch.optim.SGD), AdamW=fused(torch.optim.AdamW)):
        steps["fused"] = made(name, "cuda").step
    blocks, block = SHORT
    for at in range(AHEAD + blocks):
        for form in steps if at % 2 else reversed(steps):
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(block):
                steps[form]()
            torch.cuda.synchronize()
            if at >= AHEAD:
                took.setdefault(form, []).append((time.perf_counter_ns() - begin) // block)
    return {form: round(statistics.median(each)) for form, each in took.items()}


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:] or NAMES
    found = {name: turns(name) for name in names}
    for name, ns in found.items():
        print(f"{name}: lists {ns['lists'] / 1e3:.0f} us, fused {ns['fused'] / 1e3:.0f} us a step")
    out.mkdir(parents=True, exist_ok=True)
    (out / "lists_or_fused.json").write_text(json.dumps({**found, "machine": machine("cuda")}, indent=1))


if __name__ == "__main__":
    main()
