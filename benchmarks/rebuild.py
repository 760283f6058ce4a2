"""How many findings' chains are rebuilt from traces, and why the rest are not.

    python benchmarks/rebuild.py TRACE...

Counts findings that one kernel would mend (their first occurrence), and all fusion groups; separately for traces with
an execution trace and for those with shapes alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tracemine.cli.verify import _read
from tracemine.verify.chain import Unsupported
from tracemine.verify.findings import fusable
from tracemine.verify.generate import generate
from tracemine.verify.rebuild import NotRebuilt, Rebuilder


def main() -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for path in map(Path, sys.argv[1:]):
        flow, groups, scan = _read(path, None, (), quiet=True, given=None)
        kind = "execution trace" if flow.timeline.meta.execution_trace else "shapes alone"
        rebuilder = Rebuilder(flow, groups)
        begin = groups.activity_begin.tolist()
        units = [("findings", finding.activities[0]) for finding in fusable(scan.findings)]
        units += [("groups", groups.activity[begin[k] : begin[k + 1]].tolist()) for k in range(len(groups))]
        for unit, activities in units:
            counts[kind, unit, "all"] += 1
            try:
                chain = rebuilder.rebuild(activities, "chain").chain
            except NotRebuilt as reason:
                reasons[f"{kind}, {unit}", f"not rebuilt: {reason.message}"] += 1
                continue
            counts[kind, unit, "rebuilt"] += 1
            try:
                generate(chain)
            except Unsupported as reason:
                text = reason.message.split("(", 1)[-1] if reason.message.startswith("call") else reason.message
                reasons[f"{kind}, {unit}", f"rebuilt, no kernel: {text}"] += 1
                continue
            counts[kind, unit, "generated"] += 1
    for kind, unit in dict.fromkeys(key[:2] for key in counts):
        all_, rebuilt, generated = (counts[kind, unit, name] for name in ("all", "rebuilt", "generated"))
        print(f"{kind}, {unit}: {rebuilt} of {all_} rebuilt ({rebuilt / all_:.1%}), a kernel for {generated}")
        for (place, reason), count in reasons.most_common():
            if place == f"{kind}, {unit}":
                print(f"  {count:5} {reason}")


if __name__ == "__main__":
    main()
