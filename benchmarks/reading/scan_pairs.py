"""CPU time of `tracemine scan` in two checkouts: `python -m benchmarks scan_pairs BEFORE AFTER TRACE... [--runs N]`.

BEFORE and AFTER are folders with tracemine in them; both are run by this Python, in pairs, in an order that
changes from pair to pair. Prints for each trace the median CPU time of both, imports included, and the median of the
pairs' ratios with the least and the most. --least prints the least user time of each instead, which others at work on
the machine lengthen least.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median


def scan_s(checkout: Path, trace: Path) -> tuple[float, float]:
    """Seconds of user and of all CPU time of one scan and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, "-m", "tracemine", "scan", str(trace.resolve()), "-q", "--format", "json"]
    subprocess.run(command, env=environment, cwd=checkout, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = (getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    return user, user + system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--least", action="store_true")
    chosen = parser.parse_args()
    print("| trace | before, s | after, s | ratio | least | most |\n|---|---|---|---|---|---|")
    middle = min if chosen.least else median
    for trace in chosen.traces:
        pairs = []
        for number in range(chosen.runs):
            order = (chosen.before, chosen.after) if number % 2 else (chosen.after, chosen.before)
            seconds = {checkout: scan_s(checkout, trace)[not chosen.least] for checkout in order}
            pairs.append((seconds[chosen.before], seconds[chosen.after]))
        ratios = sorted(after / before for before, after in pairs)
        before, after = (middle(each) for each in zip(*pairs, strict=True))
        ratio = after / before if chosen.least else median(ratios)
        cells = f"{before:.2f} | {after:.2f} | {ratio:.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f}"
        print(f"| {trace.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
