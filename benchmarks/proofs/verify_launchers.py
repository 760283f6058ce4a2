"""What the host takes for a launcher, measured on a GPU machine beside the eager chain and ATen calls.

    python -m benchmarks verify_launchers prepare FOLDER CAPTURE...
    python FOLDER/run.py FOLDER -o launchers.json     # on a machine with a GPU: needs torch and triton only
    python -m benchmarks verify_launchers report launchers.json

`prepare` writes the first kernels of each capture (a folder that tracemine.capture wrote) as modules of their own.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

from tracemine.pipeline import analyse, mined
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.step.placing import place
from tracemine.verify.step.text import module_text


def prepare(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    for capture in arguments.captures:
        name = capture.parent.name if capture.name == "eager" else capture.name
        analysis = analyse(capture)
        flow, groups, scan = analysis.dataflow, analysis.groups, mined(analysis)
        kernels = place(fusable(scan.findings), Rebuilder(flow, groups)).kernels[: arguments.most]
        for k, kernel in enumerate(kernels):
            (folder / f"chain_{name}_{k}.py").write_text(module_text(*kernel), "utf-8")
        print(f"{name:20} {len(kernels)} kernels", flush=True)
    shutil.copy(Path(__file__).with_name("verify_launchers_run.py"), folder / "run.py")


def report(arguments: argparse.Namespace) -> None:
    found: dict[str, Any] = json.loads(arguments.times.read_text("utf-8"))
    chains = {name: one for name, one in found["chains"].items() if "error" not in one}
    print("| chain | inputs | outputs | kernels | eager | launcher | by Triton's own path |")
    print("|---|---|---|---|---|---|---|")
    for name, one in chains.items():
        times = " | ".join(f"{one[key]:.1f}" if key in one else "–" for key in ("eager_us", "fused_us", "triton_us"))
        print(f"| {name} | {one['inputs']} | {one['outputs']} | {one['launches']} | {times} |")
    for name, one in found["chains"].items():
        if "error" in one:
            print(f"{name}: {one['error']}")
    single = [one for one in chains.values() if one["launches"] == 1]
    for key in ("fused_us", "triton_us") if single else ():
        print(f"{key}, of {len(single)} chains of one kernel: {_spread([one[key] for one in single])}")
    print(f"An ATen call: {_spread(list(found['calls_us'].values()))} ({', '.join(found['calls_us'])})")


def _spread(found: list[float]) -> str:
    return f"{min(found):.1f} to {max(found):.1f} us, median {statistics.median(found):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    first.add_argument("folder", type=Path)
    first.add_argument("captures", type=Path, nargs="+")
    first.add_argument("--most", type=int, default=3, help="kernels of each capture")
    first.set_defaults(run=prepare)
    second = commands.add_parser("report")
    second.add_argument("times", type=Path)
    second.set_defaults(run=report)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
