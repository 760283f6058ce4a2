"""What a CUDA graph saves a step, predicted from a trace and measured: `python -m benchmarks step_savings MODELS`.

MODELS is what record_models.py wrote. Predicted is what the gap rules alone say of the eager step's traces: of `eager`,
whose capture measured the step alone, and of `lean`, of which only the usual slowdown is known. Measured is the eager
step without a profiler less the replay of the same step as a CUDA graph; of two measurements of the eager step the
lesser, since noise only adds.

Two kinds of models are shown and not scored. `masked`: the replay runs other kernels than the eager step, because
transformers makes attention masks real while a graph is captured. `unsteady`: the step alone, timed once more in the
process that recorded it, differs by more than a tenth, so that what is to be predicted is not known to 15 %. Every
second of the others, in order of name, is held out from whatever is chosen by looking at single models.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.causes import load_rules
from tracemine.matching import Rule
from tracemine.pipeline import ScanOptions, scan
from tracemine.units import Threshold

# Of transformers' models those whose attention masks are made real while a graph is captured.
MASKED = frozenset(
    {
        *("bert", "bert_small_batch", "clip", "distilbert", "gemma", "gpt2"),
        *("gpt2_odd_vocabulary", "gpt_neox", "llama", "mistral", "opt", "phi"),
        *("phi3", "qwen2", "qwen3", "roberta", "vit", "whisper_encoder"),
    }
)
STEADY = 0.1
HOST_BOUND = 0.8  # busy share of the step alone below which the host sets its pace
WITHIN = 0.15


def predicted(path: Path, rules: Sequence[Rule]) -> tuple[int, int, int, float]:
    """Low, mid and high of what closing gaps saves a step, and what the device is busy in one. Nanoseconds."""
    found = scan(path, ScanOptions(rules=rules, threshold=Threshold(ns=0)))
    steps, step = max(found.trace.steps, 1), found.summary.step_saving_ns
    return step.low // steps, step.mid // steps, step.high // steps, found.summary.gpu_busy_ns / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    models = parser.parse_args().models
    rules = [rule for rule in load_rules() if rule.saving == "close_gap"]
    errors: dict[tuple[str, str], list[float]] = {}
    claims: list[tuple[str, float]] = []
    print("| model | half | step alone | captured | busy | measured | eager says | error | lean says | error |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    fair = 0
    for folder in sorted(models.iterdir()):
        times = json.loads((folder / "times.json").read_text()) if (folder / "times.json").exists() else {}
        if not times.get("graph_pipelined_ns"):
            continue
        step = min(times["eager_pipelined_ns"], times["eager_alone_ns"])
        measured = step - times["graph_pipelined_ns"]
        alone = json.loads((folder / "eager" / "capture.json").read_text())["alone_step_ns"]
        half = "masked" if folder.name in MASKED else "unsteady" if abs(alone / step - 1) > STEADY else ""
        fair += not half
        half = half or ("held out", "tuned on")[fair % 2]
        cells = []
        for trace in ("eager", "lean.json.gz"):
            low, mid, high, busy = predicted(folder / trace, rules)
            share = busy / step
            error = (mid - measured) / max(measured, 1)
            cells += [
                f"{mid / 1000:.0f} ({low / 1000:.0f}–{high / 1000:.0f})",
                f"{error:+.0%}" if share < HOST_BOUND and measured > 0 else "–",
            ]
            if half in ("masked", "unsteady"):
                continue
            if share < HOST_BOUND:
                errors.setdefault((trace.split(".")[0], half), []).append(error)
            else:
                claims.append((f"{folder.name} {trace}", mid / step))
        row = [
            folder.name,
            half,
            f"{step / 1000:.0f}",
            f"{alone / 1000:.0f}",
            f"{share:.0%}",
            f"{measured / 1000:.0f}",
            *cells,
        ]
        print("| " + " | ".join(row) + " |", flush=True)
    print()
    for (trace, half), found in sorted(errors.items()):
        inside = sum(abs(error) <= WITHIN for error in found)
        print(
            f"{trace}, {half}: {len(found)} host-bound models, {inside} within {WITHIN:.0%}; "
            f"median error {statistics.median(map(abs, found)):.1%}, mean {statistics.mean(map(abs, found)):.1%}"
        )
    if claims:
        name, most = max(claims, key=lambda claim: claim[1])
        print(f"GPU-bound: {len(claims)} traces; closing gaps is said to save {most:.1%} of the step at most ({name})")


if __name__ == "__main__":
    main()
