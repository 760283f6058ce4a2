"""How much of what findings promise a generated kernel would give, and why the rest has none.

    python -m benchmarks rebuild [--prove] TRACE[=EXECUTION_TRACE]...

A folder that `tracemine.capture` or stand_in.py wrote is both in one.

Counts findings that one kernel would mend (their first occurrence), and all fusion groups; separately for traces with
an execution trace and for those with shapes alone. Of findings it also weighs the predicted saving of GPU time (middle
of the range): over all traces together, and as the mean over traces, where each counts alike. With --prove each
generated kernel of a finding is tried in Triton's interpreter too, as `tracemine verify` does: minutes a trace.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.triton.source import generate
from tracemine.pipeline import analyse, mined
from tracemine.validate.downsize import tried
from tracemine.validate.sandbox import Sandbox
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder
from tracemine.verify.repro.host_copy import host_copy

PROVED = 3


def reached(
    rebuilder: Rebuilder, activities: list[int] | tuple[int, ...], sandbox: Sandbox | None = None
) -> tuple[int, str]:
    """How far one occurrence comes (0: not rebuilt, 1: rebuilt, 2: a kernel, 3: proved), and what stopped it."""
    try:
        chain = rebuilder.rebuild(activities, "chain").graph
    except NotRebuilt as reason:
        return 0, f"not rebuilt: {reason.message}"
    try:
        chains = tried(chain) if sandbox is not None else None
        generate(chain)
    except Unsupported as reason:
        text = reason.message.split("(", 1)[-1] if reason.message.startswith("call") else reason.message
        return 1, f"rebuilt, no kernel: {text}"
    if sandbox is None or chains is None:
        return 2, ""
    validation = chains.too_large or sandbox.validate(chains.small, mutants=False, recorded=chains.recorded)
    if isinstance(validation, str):
        return 2, f"a kernel, not proved: {validation}"
    if validation.faults:
        fault = validation.faults[0]
        calls = ", ".join(dict.fromkeys(call.operator.removeprefix("aten::") for call in chain.calls))
        return 2, f"a kernel, WRONG: {fault.trial}: {fault.says} ({calls})"
    return 3, ""


class Tally:
    """What was counted of one kind of trace."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()  # by how far they came
        self.saving_ns: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self.reason_ns: Counter[str] = Counter()
        self.by_trace: dict[Path, Counter[int]] = defaultdict(Counter)

    def add(self, path: Path, level: int, reason: str, saving_ns: int) -> None:
        """One finding or group."""
        self.counts[level] += 1
        self.saving_ns[level] += saving_ns
        self.by_trace[path][level] += saving_ns
        if reason:
            self.reasons[reason] += 1
            self.reason_ns[reason] += saving_ns

    def print(self, title: str) -> None:
        """Counts, shares of the predicted saving, and reasons, those that cost most first."""
        all_, saving = self.counts.total(), self.saving_ns.total()
        for level, name in ((1, "rebuilt"), (2, "a kernel for"), (3, "proved"))[: max(2, max(self.counts))]:
            line = f"{title}: {name} {_from(self.counts, level)} of {all_} ({_from(self.counts, level) / all_:.1%})"
            if saving:
                shares = [_from(c, level) / c.total() for c in self.by_trace.values() if c.total()]
                worst = min(shares)
                mean = sum(shares) / len(shares)
                line += f", {_from(self.saving_ns, level) / saving:.1%} of the predicted saving"
                line += f"; mean over {len(shares)} traces {mean:.1%}, least {worst:.1%}"
            print(line)
        for reason, count in sorted(self.reasons.items(), key=lambda r: (-self.reason_ns[r[0]], -r[1])):
            weight = f" {self.reason_ns[reason] / saving:6.2%}" if saving else ""
            print(f"  {count:5}{weight} {reason}")


def _from(counts: Counter[int], level: int) -> int:
    return sum(n for reached, n in counts.items() if reached >= level)


def main() -> None:
    """Reads the traces named on the command line and prints."""
    proves = "--prove" in sys.argv
    tallies: dict[tuple[str, str], Tally] = defaultdict(Tally)
    with Sandbox() as sandbox:
        for path, _, beside in (a.partition("=") for a in sys.argv[1:] if not a.startswith("-")):
            analysis = analyse(Path(path), execution_trace=Path(beside) if beside else None)
            flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
            kind = "execution trace" if flow.timeline.meta.execution_trace else "shapes alone"
            rebuilder = Rebuilder(flow, groups)
            for finding in fusable(scan.findings):
                if host_copy(finding, flow) is not None:
                    continue  # another way to copy mends it, no kernel
                found = reached(rebuilder, finding.activities[0], sandbox if proves else None)
                tallies[kind, "findings"].add(Path(path), *found, finding.gpu_saving_ns.mid)
                if proves and found[0] < PROVED:
                    print(f"{path}: {finding.gpu_saving_ns.mid} ns: {found[1]}", flush=True)
            begin = groups.activity_begin.tolist()
            for k in range(0 if proves else len(groups)):
                found = reached(rebuilder, groups.activity[begin[k] : begin[k + 1]].tolist())
                tallies[kind, "groups"].add(Path(path), *found, 0)
    for (kind, unit), tally in sorted(tallies.items()):
        tally.print(f"{kind}, {unit}")


if __name__ == "__main__":
    main()
