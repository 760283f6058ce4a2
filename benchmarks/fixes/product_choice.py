"""Judge the choice of kernels around products by recorded times: `python -m benchmarks.fixes.product_choice [FILE]`.

FILE is what product_kernels.py wrote. Rates of a class are fitted to every second shape of it, and printed for
product_rates.toml; then every shape, fitted or not, is asked for, and what was measured of the choice is held against
the best of what else there is. Of a FILE of `--unseen` nothing is fitted. Exits with 1 where a kernel is chosen that
measured more than 3 % slower.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from math import log
from pathlib import Path

from msgspec import structs

from benchmarks.fixes.product_kernels import Case, cases, graph_of, unseen
from tracemine.codegen.choice import ClassRates, rates, refusal, times_us
from tracemine.codegen.loop_ir import LoopKernel, LoopProgram
from tracemine.codegen.options import WHATEVER
from tracemine.codegen.partition import plan
from tracemine.codegen.products import predicted, product_tiles

RECORDED = Path(__file__).parents[1] / "results/h200/product_kernels/results.jsonl"
CLASSES = {"head": "columns held", "gate": "two products"}
TRIED = {
    "ours": (650, 675, 700, 725, 750, 775, 800, 825, 850),
    "half": (0, 50, 100, 150, 200),
    "library": (650, 675, 700, 725, 750),
    "library_half": (0, 25, 50, 100),
}
RESTS = {"head": (1.0, 1.1, 1.2, 1.3, 1.4), "gate": (3.8, 4.2, 4.6, 5.0)}
SLOWER = 1.03


def measured(path: Path) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each case's forms, as they were measured first."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["what"] == "time":
            found[row["case"]].setdefault(row["form"], row["ms"])
    return found


def ours_and_others(times: Mapping[str, float], config: tuple[int, ...] | None) -> tuple[float, float]:
    """Return what our kernel took as it is generated now, and the best of what else there is."""
    name = f"ours {' '.join(map(str, config or ()))}".strip()
    ours = times.get(name, min(ms for form, ms in times.items() if form.startswith("ours")))
    return ours, min(ms for form, ms in times.items() if not form.startswith("ours") and form != "product")


def of_products(program: LoopProgram) -> LoopKernel | None:
    """Return the kernel that has the products."""
    return next((kernel for kernel in program.kernels if kernel.contracted), None)


def fitted(kind: str, seen: list[tuple[LoopKernel, float, float]]) -> ClassRates:
    """Return rates that are nearest to what was measured of some shapes: ours, and the best of what else there is."""
    used = rates()[CLASSES[kind]]

    def off(rates: ClassRates) -> float:
        pairs = [(times_us(kernel, rates), (ours, others)) for kernel, ours, others in seen]
        return sum(log(a / b / 1e3) ** 2 for told, was in pairs for a, b in zip(told, was, strict=True))

    every = (
        structs.replace(used, ours=ours, half=half, library=library, library_half=other, rest=rest)
        for ours, half, library, other, rest in product(*TRIED.values(), RESTS[kind])
    )
    return min(every, key=off)


def fit(found: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Print the rates of each class, fitted to every second shape; return the names of these."""
    used: set[str] = set()
    for kind in CLASSES:
        mine = [case for case in cases() if case.kind == kind and case.name in found][::2]
        if not mine:
            continue
        kernels = [(case, of_products(plan(graph_of(case), WHATEVER))) for case in mine]
        seen = [(kernel, *ours_and_others(found[case.name], None)) for case, kernel in kernels if kernel is not None]
        print(fitted(kind, seen))
        used |= {case.name for case in mine}
    return used


def resources(path: Path) -> None:
    """Print registers and shared memory of each compiled kernel beside what was predicted, and its programs."""
    by_name = {case.name: case for case in [*cases(), *unseen()]}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        if row["what"] != "resources" or "registers" not in row:
            continue
        program = plan(graph_of(by_name[row["case"]]), WHATEVER)
        kernel, config = of_products(program), tuple(map(int, row["form"].split()[1:]))
        if kernel is not None:
            registers, shared = predicted(program.buffers, kernel, config)
            taken = f"{row['registers']:3} registers ({registers}), {row['spills']:4} spilled"
            print(
                f"{row['case']:32} {row['form'][5:]:22} {taken}, {row['shared']:7} bytes ({shared}), {row['resident']}"
            )


def main(path: Path) -> int:
    """Return 0 where nothing is chosen that measured slower."""
    resources(path)
    found = measured(path)
    used = fit(found)
    wrong = 0
    for case in [*cases(), *unseen()]:
        if case.name in found:
            wrong += judged(case, found[case.name], case.name in used)
    print(f"{wrong} of {len(found)} shapes have a kernel chosen that measured more than {SLOWER - 1:.0%} slower")
    return 1 if wrong else 0


def judged(case: Case, times: Mapping[str, float], used: bool) -> bool:
    """Print what is chosen of a case; return whether that is a mistake."""
    program = plan(graph_of(case), WHATEVER)
    why, kernel = refusal(program), of_products(program)
    tiles = () if kernel is None else product_tiles(program.buffers, kernel, WHATEVER)
    config = tiles[0] if tiles else None
    ours, others = ours_and_others(times, config)
    ratio = ours / others
    said = "made" if why is None else f"refused: {why}"
    missed = " (missed)" if why is not None and ratio < 1 / SLOWER else ""
    print(f"{case.name:32} {'fitted' if used else 'new':6} {ratio:.3f} {said}{missed}", "" if kernel else "(one row)")
    return why is None and ratio > SLOWER


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED))
