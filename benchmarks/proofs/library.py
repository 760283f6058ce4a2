"""How many findings have a call of PyTorch's library that says the same, and how many of those prove on a CPU.

    python -m benchmarks library TRACE... [-o FILE]

Findings that one kernel would mend, their first occurrence, each distinct chain proved once. `with products`: calls
that do the matrix products around the chain too, another algorithm and no fusion. -o: a row a call, as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tracemine.pipeline import analyse, mined
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import Sandbox
from tracemine.verify.library import find
from tracemine.verify.library.validation_job import WORKER, job
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds of processor time a proof")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    near: Counter[str] = Counter()
    findings = 0
    known: dict[bytes, Validation | str] = {}
    with Sandbox(time_limit_s=asked.time_limit, command=WORKER) as sandbox:
        for trace in asked.traces:
            analysis = analyse(trace)
            flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
            rebuilder = Rebuilder(flow, groups)
            for finding in fusable(scan.findings):
                findings += 1
                for kind, rebuild in (("alone", rebuilder.rebuild), ("with products", rebuilder.with_products)):
                    try:
                        rebuilt = rebuild(finding.activities[0], "chain")
                    except NotRebuilt:
                        continue
                    if rebuilt is None:
                        continue
                    found = find(rebuilt.graph, rebuilt.unread)
                    call = found.replacement
                    if call is None or (kind == "with products" and not call.products):
                        near.update(found.refused if kind == "alone" and finding.rule else ())
                        continue
                    asking = job(rebuilt.graph, rebuilt.unread)
                    if asking not in known:
                        known[asking] = call.gpu_only or sandbox.answer(asking)
                    name = trace.parent.name if trace.name == "eager" else trace.name
                    saving_ns = finding.gpu_saving_ns.mid
                    rows.append(_row(name, finding.fingerprint, kind, call.call, call.says, known[asking]))
                    rows[-1] |= {"eager_calls": call.eager_calls, "finding_saving_ns": saving_ns}
                    print(f"{name:24} {kind:14} {call.says[:76]:76} {rows[-1]['says']}", flush=True)
    _summary(findings, rows, near, len(known))
    if asked.output is not None:
        asked.output.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def _row(trace: str, fingerprint: str, kind: str, call: str, text: str, validation: Validation | str) -> dict[str, Any]:
    row: dict[str, Any] = {"trace": trace, "fingerprint": fingerprint, "kind": kind, "call": call, "text": text}
    if isinstance(validation, str) or validation.refused is not None:
        says = validation if isinstance(validation, str) else validation.refused
        return row | {"proved": None, "says": f"not tried: {says}"}
    caught, wrong = validation.killed
    says = f"wrong: {validation.faults[0].trial}: {validation.faults[0].says}" if validation.faults else "right"
    error = {name: float(f"{getattr(validation, name):.3g}") for name in ("error", "eager_error", "seconds")}
    counts = {"trials": validation.trials, "skipped": len(validation.skipped), "wrong_calls": wrong, "caught": caught}
    survives = [m.name for m in validation.mutants if m.killed_by is None]
    return row | {"proved": not validation.faults, "says": says, **counts, **error, "not_caught": survives}


def _summary(findings: int, rows: list[dict[str, Any]], near: Counter[str], distinct: int) -> None:
    for kind in ("alone", "with products"):
        own = [row for row in rows if row["kind"] == kind]
        right = sum(row["proved"] is True for row in own)
        wrong = sum(row["proved"] is False for row in own)
        print(
            f"{kind}: of {findings} findings {len(own)} have a call; {right} prove on a CPU, {wrong} do not, ", end=""
        )
        print(f"{len(own) - right - wrong} were not tried")
        for call, count in Counter(row["call"] for row in own).most_common():
            print(f"  {count:4} {call}")
    tried = [row for row in rows if row["proved"] is not None]
    print(f"{distinct} distinct chains; wrong calls caught: {sum(r['caught'] for r in tried)} of ", end="")
    print(f"{sum(r['wrong_calls'] for r in tried)}; not caught: {sorted({n for r in tried for n in r['not_caught']})}")
    for reason, count in near.most_common(12):
        print(f"  no call {count:4} {reason}")


if __name__ == "__main__":
    main()
