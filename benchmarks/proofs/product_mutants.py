"""Validate kernels around matrix products and wrong ones of each: `python -m benchmarks product_mutants [NAME …]`.

Prints of each graph how many trials there were, its faults, and how many wrong kernels were caught; then, by kind of
mistake, how many were caught and how many could be. Exits with 1 where a right kernel is refused or a wrong one passes.
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.codegen.products import PRODUCTS
from tracemine.validate import validate
from tracemine.validate.mutants import MUTATIONS_OF_PRODUCTS

LIMIT_S = 1800.0


def main(names: list[str]) -> int:
    """Return 0 where all is as it should be."""
    able, caught = Counter[str](), Counter[str]()
    wrong = 0
    for at, graph in enumerate(PRODUCTS):
        if names and graph.name not in names and str(at) not in names:
            continue
        found = validate(graph, time_limit_s=LIMIT_S).validation
        killed, could = found.killed
        print(
            f"{at} {graph.name}: {found.trials} trials, {len(found.faults)} faults, {killed} of {could} caught",
            flush=True,
        )
        for fault in found.faults:
            print(f"  {fault.trial}: {fault.says}")
        for mutant in found.mutants:
            able[mutant.name] += mutant.equivalent is None
            caught[mutant.name] += mutant.killed_by is not None
            if mutant.equivalent is None and mutant.killed_by is None:
                print(f"  passed: {mutant.name}: {mutant.line}")
        wrong += len(found.faults) + could - killed
    own = [mutation.name for mutation in MUTATIONS_OF_PRODUCTS] + ["weights of two products exchanged"]
    for name in sorted(able, key=lambda name: (name not in own, name)):
        print(f"{'of products' if name in own else '           '} {name}: {caught[name]} of {able[name]}")
    print(f"{sum(able[name] > 0 for name in own)} kinds of products' own, {sum(n > 0 for n in able.values())} in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
