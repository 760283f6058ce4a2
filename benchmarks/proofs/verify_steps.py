"""What fused kernels and CUDA graphs save whole steps, measured on a GPU beside what a scan predicts (level L6).

    python -m benchmarks verify_steps prepare FOLDER CAPTURE...
    python FOLDER/run.py FOLDER -o steps.json     # on a machine with a GPU: needs torch and triton only
    python -m benchmarks verify_steps report FOLDER steps.json -o benchmarks/results/h200/steps.json

`prepare` scans captures (folders that tracemine.capture wrote) and writes each one's last step as a file that stands
alone, with all findings that one kernel would mend in place, in the order given. `run.py` looks at every kernel first;
those that are wrong or not faster than their chain stay out. `report` joins what the files printed with the
predictions, and prints a table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import msgspec

from tracemine.pipeline import analyse, mined
from tracemine.verdicts.verdict import StepGain, StepVerdict
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.step.build import NoStep
from tracemine.verify.step.compared import Expected, Summary, step_verdict
from tracemine.verify.step.pipeline import prepared

_CHANGES = {"fused": "eager", "graph": "eager", "fused_graph": "eager_graph"}  # and what each is taken off


class Prepared(msgspec.Struct, kw_only=True):
    """One step, ready to be run."""

    about: Summary
    expects: Expected


def prepare(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    order = []
    for capture in arguments.captures:
        name = capture.parent.name if capture.name == "eager" else capture.name
        analysis = analyse(capture)
        flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
        try:
            about, expects, text = prepared(fusable(scan.findings), Rebuilder(flow, groups), scan)
        except NoStep as reason:
            print(f"{name}: {reason.message}")
            continue
        order.append(name)
        (folder / f"step_{name}.py").write_text(text, "utf-8")
        (folder / f"step_{name}.json").write_bytes(msgspec.json.encode(Prepared(about=about, expects=expects)))
        places = sum(sum(counts.values()) for counts in about.counts)
        print(
            f"{name:20} {about.share:.1%} of its GPU time, {about.replayed_launches} of {about.launches} launches, "
            f"{places} chains replaced by {len(about.counts)} kernels, {sum(about.refused.values())} not",
            flush=True,
        )
    (folder / "order.json").write_text(json.dumps(order), "utf-8")
    shutil.copy(Path(__file__).with_name("verify_steps_run.py"), folder / "run.py")


def report(arguments: argparse.Namespace) -> None:
    ran: dict[str, Any] = json.loads(arguments.times.read_text("utf-8"))
    found: dict[str, StepVerdict] = {}
    abouts: dict[str, Summary] = {}
    for path in sorted(arguments.folder.glob("step_*.json")):
        each = msgspec.json.decode(path.read_bytes(), type=Prepared)
        name = path.stem.removeprefix("step_")
        if name in ran["steps"]:
            abouts[name] = each.about
            found[name] = step_verdict(each.about, each.expects, ran["steps"][name])
    if arguments.output is not None:
        steps = {name: msgspec.to_builtins(verdict) for name, verdict in found.items()}
        kept = {"where": ran["where"], "seconds": ran["seconds"], "steps": steps}
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    _table(found)
    _launching(found, abouts)
    prepared_count = len(list(arguments.folder.glob("step_*.json")))
    print(f"{prepared_count - len(found)} of {prepared_count} prepared steps were not begun in the time there was.")


def _table(found: dict[str, StepVerdict]) -> None:
    print(
        "Microseconds a step: measured, and in brackets predicted (low to high); * where the two are in other states.\n"
    )
    print(
        "| step | kernels | alone | replay | fused | graph | both | " + " | ".join(_NAMES[c] for c in _CHANGES) + " |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, verdict in found.items():
        if not verdict.changes:
            print(f"| {name} | {verdict.says} |")
            continue
        medians = verdict.medians_ns
        by_name = {change.change: change for change in verdict.changes}
        variants = ("eager", "fused", "eager_graph", "fused_graph")
        times = [_us(medians[v]["step_ns"]) if v in medians else "–" for v in variants]
        count = sum(f.occurrences for f in verdict.findings)
        cells = [_cell(by_name.get(change)) for change in _CHANGES]
        print(f"| {name} | {count} | {_us(verdict.recorded_ns)} | {' | '.join(times)} | {' | '.join(cells)} |")
    timed = [verdict for verdict in found.values() if verdict.changes]
    shorter = sum(bool(verdict.shorter) for verdict in timed)
    print(f"\n{len(timed)} of {len(found)} steps timed; fused kernels make {shorter} of them shorter when run eagerly.")
    busy = [abs(v.gpu_ns["replayed"] / v.gpu_ns["recorded"] - 1) for v in timed]
    print(f"The replay's GPU time is off by {statistics.median(busy):.1%} (median), {max(busy):.1%} at most.")
    for change, before in _CHANGES.items():
        mine = [(v, c) for v in timed for c in v.changes if c.change == change]
        compared = [(v, c) for v, c in mine if c.within is not None]
        inside = sum(bool(c.within) for _, c in compared)
        text = f"{_NAMES[change]}: {len(mine)} measured, {len(compared)} in the state predicted for, {inside} within"
        errors = [
            abs(c.measured_ns - c.predicted_ns.mid) / v.medians_ns[before]["step_ns"]
            for v, c in compared
            if c.predicted_ns is not None
        ]
        if errors:
            text += f"; off by {statistics.median(errors):.1%} of the step before (median), {max(errors):.1%} at most"
        print(text)


def _launching(found: dict[str, StepVerdict], abouts: dict[str, Summary]) -> None:
    """What the host takes for a call and for a kernel's launcher, of steps in which all kernels stood."""
    calls, kernels = [], []
    for name, verdict in found.items():
        about, medians = abouts[name], verdict.medians_ns
        places = sum(sum(counts.values()) for counts in about.counts)
        if not verdict.changes or sum(f.occurrences for f in verdict.findings) != places or not places:
            continue
        calls.append(medians["eager"]["host_ns"] / about.calls)
        kernels.append((medians["fused"]["host_ns"] - about.calls_beside * calls[-1]) / places)
    if calls:
        print(
            f"The host takes {_spread(calls)} for an ATen call of a replay, {_spread(kernels)} for a kernel's launcher."
        )


def _spread(found: list[float]) -> str:
    return f"{min(found) / 1000:.0f} to {max(found) / 1000:.0f} us (median {statistics.median(found) / 1000:.0f})"


_NAMES = {"fused": "fused saves", "graph": "a graph saves", "fused_graph": "fused saves in a graph"}


def _cell(change: StepGain | None) -> str:
    if change is None:
        return "–"
    claim = change.predicted_ns
    predicted = "" if claim is None else f" ({_us(claim.mid)}: {_us(claim.low)} to {_us(claim.high)})"
    return f"{_us(change.measured_ns)}{predicted}{'*' if change.says else ''}"


def _us(ns: int | None) -> str:
    return "–" if ns is None else f"{ns / 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("captures", type=Path, nargs="+")
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
