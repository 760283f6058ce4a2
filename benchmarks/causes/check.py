"""Run every program at tiny sizes on a CPU: `python benchmarks/causes/check.py [--models] [NAME...]`.

Three steps of each program, and of the same with its fixes applied: what both give must agree within what the data type
rounds. Labels and programs must agree one to one. Prints what does not, and ends with 1 where anything does not. With
`--models` it runs those of models.py, which take minutes and need the packages that they come from.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["TRACEMINE_CAUSES_SIZE"] = "tiny"  # before anything of the programs is imported
# On a CPU with instructions for float16, oneDNN of torch 2.13 takes minutes for a convolution of each channel by
# itself.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")  # before torch is
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from benchmarks.causes.program import PARTS, SPLIT, Label, Program, Step, labels, programs

STEPS = 3
TOLERANCE = {torch.float64: 1e-6, torch.float32: 5e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# A loss or a result in float32 of a step that computes in fewer bits is as far off as those are.
COARSE = 5e-2


def built(make: Any, training: bool) -> Step:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.set_grad_enabled(training):
        return make()


def groups(result: Any) -> list[list[Tensor]]:
    """What a step gave, as groups that are compared whole: a gradient that is nothing but rounding is no error."""
    if isinstance(result, Tensor):
        return [[result.detach().clone()]]
    if isinstance(result, tuple):
        return [group for one in result for group in groups(one)]
    if isinstance(result, list):
        return [[one.detach().clone() for one in result if isinstance(one, Tensor)]]
    return []


def ran(make: Any, training: bool) -> list[list[list[Tensor]]]:
    step = built(make, training)
    with torch.set_grad_enabled(training):
        return [groups(step()) for _ in range(STEPS)]


def error(one: list[Tensor], two: list[Tensor]) -> float:
    """How far two groups are apart, as a share of the first's length."""
    if [tuple(t.shape) for t in one] != [tuple(t.shape) for t in two]:
        return float("inf")
    if not one:
        return 0.0
    first, second = (torch.cat([t.flatten().double() for t in group]) for group in (one, two))
    return float((first - second).norm() / (first.norm() + 1e-30))


def tolerance(program: Program, steps: list[list[list[Tensor]]], group: list[Tensor]) -> float:
    """What two groups may differ by. A step under autocast computes in fewer bits than it gives."""
    if not group:
        return 0.0
    exact = TOLERANCE.get(group[0].dtype, 0.0)
    kinds = {t.dtype for step in steps for each in step for t in each}
    fewer = kinds & {torch.float16, torch.bfloat16} or "autocast" in inspect.getsource(program.make)
    return max(exact, COARSE) if fewer else exact


def disagreements(program: Program) -> Iterator[str]:
    """What is wrong with a program, a line each."""
    try:
        before = ran(program.before, program.training)
        if any(not torch.isfinite(t).all() for step in before for group in step for t in group):
            yield f"{program.name}: gives what is not finite"
        if program.after is None:
            return
        if not any(group for step in before for group in step):
            yield f"{program.name}: gives nothing that could be compared"
        after = ran(program.after, program.training)
    except Exception as failure:
        yield f"{program.name}: {type(failure).__name__}: {failure}".split("\n")[0]
        return
    for number, (one, two) in enumerate(zip(before, after, strict=True), 1):
        if len(one) != len(two):
            yield f"{program.name}: gives {len(one)} results, and {len(two)} with its fixes"
            return
        for at, (first, second) in enumerate(zip(one, two, strict=True)):
            off, allowed = error(first, second), tolerance(program, before, first)
            if not off <= allowed:
                yield f"{program.name}: step {number}, result {at}: off by {off:.2g}, allowed {allowed:.2g}"


def unlabelled(found: Sequence[Program], told: dict[str, Label]) -> Iterator[str]:
    """Where labels and programs do not agree, a line each."""
    names = {one.name for one in found}
    yield from (f"{name}: a label without a program" for name in sorted(told.keys() - names))
    numbers: Counter[tuple[str, str, bool, int]] = Counter()
    for one in found:
        label = told.get(one.name)
        if label is None:
            yield f"{one.name}: a program without a label"
            continue
        numbers[one.part, label.kind, bool(label.near_miss_of), label.number] += 1
        if label.part != one.part:
            yield f"{one.name}: lies in {one.part}, its label in {label.part}"
        elif one.part in SPLIT and one.part != label.drawn:
            yield f"{one.name}: number {label.number} belongs into {label.drawn}, and lies in {one.part}"
        if label.fixes and not one.fixable:
            yield f"{one.name}: its label names fixes, and it has none"
        if one.fixable and not label.fixes:
            yield f"{one.name}: it has fixes that its label does not name"
        if not set(label.fixes) <= set(label.causes):
            yield f"{one.name}: fixes what is no cause of it"
        if label.near_miss_of is None and label.kind not in ("none", *label.causes):
            yield f"{one.name}: neither has its kind's cause nor is a near miss of it"
        if label.near_miss_of is not None and (label.near_miss_of != label.kind or label.kind in label.causes):
            yield f"{one.name}: is a near miss of what it has, or of another kind"
        if label.kind == "none" and label.causes:
            yield f"{one.name}: is of no kind and has causes"
    yield from (
        f"{kind}, {'near misses' if near else 'with it'}: number {number} twice"
        for (_, kind, near, number), n in numbers.items()
        if n > 1
    )


def scarce(told: dict[str, Label]) -> Iterator[str]:
    """Kinds with fewer than three programs, or near misses, a line each."""
    having, missing = (
        Counter(label.kind for label in told.values() if (label.near_miss_of is not None) is near)
        for near in (False, True)
    )
    for kind in sorted(having.keys() | missing.keys()):
        few = min(having[kind], missing[kind]) < 3 if kind != "none" else having[kind] < 30
        if few:
            yield f"{kind}: {having[kind]} programs and {missing[kind]} near misses"


def main() -> None:
    torch.set_num_threads(1)
    found, told = programs(), labels()
    wrong = list(unlabelled(found, told)) + list(scarce(told))
    names = [name for name in sys.argv[1:] if name != "--models"]
    if "--models" in sys.argv:
        from benchmarks.causes.models import MODELS

        found = MODELS
    for program in found:
        if not names or program.name in names:
            begin = time.perf_counter()
            lines = list(disagreements(program))
            wrong += lines
            print(f"{program.part} {program.name} {time.perf_counter() - begin:.1f} s", *lines, sep="\n   ", flush=True)
    for part in PARTS:
        kinds = Counter("with a cause" if one.causes else "without" for one in told.values() if one.part == part)
        print(part, dict(kinds))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
