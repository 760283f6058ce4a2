"""How well findings are verified: what one kernel in their place takes on a GPU, predicted beside measured.

    python benchmarks/verify.py prepare FOLDER TRACE... [--each N] [--most N] [--prove]
    python FOLDER/run.py FOLDER -o times.json     # on a machine with a GPU: needs torch and triton only
    python benchmarks/verify.py report FOLDER times.json -o benchmarks/results/h200/verify.json

`prepare` scans traces, rebuilds and writes a reproduction of their largest findings that one kernel would mend, each
distinct chain once. `report` joins what they printed with the predictions, and prints a table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tracemine.cli.verify import _read
from tracemine.findings.record import Finding
from tracemine.verify.chain import Chain, Unsupported
from tracemine.verify.findings import fusable, reproduction
from tracemine.verify.proof import Proof
from tracemine.verify.rebuild import NotRebuilt, Rebuilder
from tracemine.verify.sandbox import MOST_ELEMENTS, Sandbox, elements, smaller
from tracemine.verify.verdict import Verdict, verdict


class Prepared(msgspec.Struct, kw_only=True):
    """One finding, ready to be timed."""

    trace: str
    finding: Finding
    chain: Chain
    evidence: str
    assumptions: tuple[str, ...]
    proof: Proof | str | None


def prepare(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    left_out: Counter[str] = Counter()
    seen: set[bytes] = set()
    kept: list[Prepared] = []
    with Sandbox(time_limit_s=arguments.time_limit) as sandbox:
        for trace in arguments.traces:
            flow, groups, scan = _read(trace, None, (), quiet=True, given=None)
            rebuilder = Rebuilder(flow, groups)
            taken = 0
            for finding in fusable(scan.findings):
                if taken == arguments.each:
                    break
                try:
                    rebuilt = rebuilder.rebuild(finding.activities[0], finding.rule)
                    text = reproduction(finding, rebuilt, flow)
                except (NotRebuilt, Unsupported) as reason:
                    left_out[reason.message] += 1
                    continue
                same = msgspec.json.encode(rebuilt.chain)
                if same in seen:
                    left_out["the same chain as another's"] += 1
                    continue
                seen.add(same)
                taken += 1
                proof: Proof | str | None = None
                if arguments.prove:
                    small = smaller(rebuilt.chain)
                    large = elements(small) > 64 * MOST_ELEMENTS
                    proof = "too large to prove on a CPU" if large else sandbox.prove(small, mutants=False)
                kept.append(
                    Prepared(
                        trace=trace.parent.name if trace.name == "eager" else trace.name,
                        finding=finding,
                        chain=rebuilt.chain,
                        evidence=rebuilt.evidence,
                        assumptions=rebuilt.assumptions,
                        proof=proof,
                    )
                )
                (folder / f"repro_{len(kept) - 1:03d}.py").write_text(text, "utf-8")
            print(f"{trace}: {taken}", file=sys.stderr, flush=True)
            if len(kept) >= arguments.most:
                break
    (folder / "prepared.json").write_bytes(msgspec.json.encode(kept))
    shutil.copy(Path(__file__).with_name("verify_run.py"), folder / "run.py")
    print(f"{len(kept)} reproductions in {folder}")
    for reason, count in left_out.most_common():
        print(f"  left out {count:4} {reason}")


def report(arguments: argparse.Namespace) -> None:
    prepared = msgspec.json.decode((arguments.folder / "prepared.json").read_bytes(), type=list[Prepared])
    ran: dict[str, Any] = json.loads(arguments.times.read_text("utf-8"))
    verdicts = []
    for number, each in enumerate(prepared):
        found = ran.get(f"repro_{number:03d}", "not run")
        verdicts.append(
            (
                each.trace,
                verdict(
                    each.finding,
                    calls=len(each.chain.calls),
                    evidence=each.evidence,
                    proof=each.proof,
                    ran=found,
                    assumptions=each.assumptions,
                ),
            )
        )
    if arguments.output is not None:
        rows = [{"trace": trace, **_row(v)} for trace, v in verdicts]
        arguments.output.write_text(json.dumps(rows, indent=1, default=str) + "\n", "utf-8")
    _table(verdicts)


def _row(v: Verdict) -> dict[str, Any]:
    """What is kept of a verdict: all but the samples, of which each variant's quartiles are."""
    found = msgspec.to_builtins(v)
    times = found.pop("times")
    found["source"] = None
    if found["replay"] is not None:
        del found["replay"]["kernels"]  # the trace's own, where the names are the same
    if found["proof"] is not None:
        found["proof"] = {name: found["proof"][name] for name in ("trials", "faults", "refused", "seconds")}
    if times:
        found["quartiles_ns"] = {
            state: {name: statistics.quantiles(s["sum_ns"], n=4) for name, s in samples.items()}
            for state, samples in times["samples"].items()
        }
        found["graph_ns"] = {name: statistics.median(s) for name, s in times["graph_ns"].items() if s}
        found["wall_ns"] = {name: statistics.median(s) for name, s in times["wall_ns"].items() if s}
        found["judged"] = times["judged"]
    return found


def _table(verdicts: list[tuple[str, Verdict]]) -> None:
    print(
        f"{'trace':26} {'rule':22} calls level {'predicted':>9} {'measured':>9} {'eager':>8} {'fused':>8} compile copy"
    )
    for trace, v in verdicts:
        m = v.measured
        times = (
            ""
            if m is None
            else (
                f"{m.saving_ns / 1e3:9.1f} {m.eager_ns / 1e3:8.1f} {m.fused_ns / 1e3:8.1f} "
                f"{(m.compiled_ns or 0) / 1e3:7.1f} {m.copy_ns / 1e3:6.1f} {m.state}"
            )
        )
        says = "" if v.level in ("L4", "L5") else v.says[:70]
        print(f"{trace:26} {v.rule:22} {v.calls:5} {v.level:5} {v.predicted_ns.mid / 1e3:9.1f} {times} {says}")
    levels = Counter(v.level for _, v in verdicts)
    print("levels:", ", ".join(f"{name} {levels[name]}" for name in sorted(levels)))
    timed = [v for _, v in verdicts if v.measured is not None]
    if not timed:
        return
    errors = [abs(v.error_ns or 0) / v.measured.eager_ns for v in timed if v.measured is not None]
    inside = sum(bool(v.within_interval) for v in timed)
    wins = sum(v.measured.saving_ns > 0 for v in timed if v.measured is not None)
    print(f"{len(timed)} timed: the fused kernel is faster in {wins}")
    print(f"error of the predicted saving as a share of eager: median {statistics.median(errors):.1%}, ", end="")
    print(f"mean {statistics.mean(errors):.1%}; inside the interval {inside}")
    pairs = [(v.measured.compiled_ns, v.measured.fused_ns) for v in timed if v.measured and v.measured.compiled_ns]
    if pairs:
        mean = statistics.geometric_mean(a / b for a, b in pairs)
        print(f"torch.compile / fused, geometric mean of {len(pairs)}: {mean:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("traces", type=Path, nargs="+")
    first.add_argument("--each", type=int, default=3, help="findings of one trace")
    first.add_argument("--most", type=int, default=80, help="findings in all")
    first.add_argument("--prove", action="store_true", help="prove each in the interpreter too")
    first.add_argument("--time-limit", type=float, default=40.0, help="seconds of processor time a proof")
    first.set_defaults(run=prepare)
    second = commands.add_parser("report")
    second.add_argument("folder", type=Path)
    second.add_argument("times", type=Path)
    second.add_argument("-o", "--output", type=Path)
    second.set_defaults(run=report)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
