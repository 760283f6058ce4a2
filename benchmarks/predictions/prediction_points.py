"""Predicted beside measured: what fusing each recorded pattern saves, and how far off the prediction is.

    python -m benchmarks prediction_points [-v] [--by-durations] [--fit] [--left-out] [FILE...]

FILE is benchmarks/results/h200/points_*.json by default.

Unfused is what eager's kernels took, measured; fused is what torch.compile's kernels took, measured, and what
tracemine.perfmodel predicts. Whole patterns are held out: DEVELOPMENT is what the predictor was first fitted to,
`held out` the other half of the patterns recorded first, `fresh` patterns were written after the predictor was, and
`third` ones after those were known; THIRD_SEEN of them taught what kinds of kernel had no class, `third, unseen` are
the other half; `gemm` is a matrix product and what follows it; `native` are norms, softmaxes and cross entropy, one or
two of PyTorch's own kernels each. All of benchmarks/results/h100 is held out: nothing was fitted to an H100.
--by-durations takes how warm the cache is from the unfused kernels' durations, as a scan does. --fit prints the
intervals' factors, from the residuals of all patterns but the unseen ones, the cache's state known and told by
durations. --left-out prints how often intervals hold that are fitted so, but without any point of the pattern that they
are asked of: what to expect of a pattern that nobody recorded. The width is of the interval, as a share of the measured
saving, the median of patterns of two operators.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.devices import find_device
from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.perfmodel import Curves, calibration_of

# Half of the patterns recorded first, drawn by lot (random.Random(3).shuffle of the sorted names).
DEVELOPMENT = frozenset(
    (  # noqa: SIM905
        "add_layernorm add_rmsnorm affine_broadcast bias_gelu_tanh bias_silu_img cosine cross_entropy_spelled "
        "dequant glu_sigmoid layernorm_spelled lerp_spelled log_relu_bias lone_add lone_cast lone_gelu "
        "lone_layer_norm lone_relu mse rotary sibling_scales softmax_spelled squared_relu swiglu two_outputs "
    ).split()
)
# Half of the third set, drawn in the same way.
THIRD_SEEN = frozenset(
    (  # noqa: SIM905
        "binary_cross_entropy_spelled dequant_bias_gelu dropout_add entropy_rows gather_scale_add "
        "gelu_tanh_spelled layernorm_backward_spelled lone_addcmul lone_column_sum lone_rms_norm reglu "
        "relu_bias_grad scaled_cumsum softmax_backward_spelled token_shift_mix "
    ).split()
)
HALVES = {"development": DEVELOPMENT, "third, seen": THIRD_SEEN}
GROUPS = ("development", "held out", "fresh", "third, seen", "third, unseen", "gemm", "native")
NOTHING_TO_WIN = 0.03  # of the unfused time: below, the sign of a saving is noise


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pattern at one size, cold or warm; nanoseconds."""

    pattern: str
    label: str
    group: str
    operators: int  # that launch something: one alone is nothing to fuse
    unfused: int
    fused: int
    low: float
    mid: float
    high: float
    kind: str

    @property
    def error(self) -> float:
        """Of the saving, as a share of the unfused time."""
        return abs(self.mid - self.fused) / self.unfused

    @property
    def of_saving(self) -> float:
        """The same as a share of the saving."""
        return abs(self.mid - self.fused) / abs(self.unfused - self.fused)

    @property
    def width(self) -> float:
        """The interval as a share of the saving that was measured."""
        return (self.high - self.low) / max(self.unfused - self.fused, 1)

    @property
    def right_sign(self) -> bool:
        saved, predicted = self.unfused - self.fused, self.unfused - self.mid
        return saved * predicted > 0 or abs(saved) < NOTHING_TO_WIN * self.unfused


def warmth(curves: Curves, kernel: FusedKernel, point: dict[str, Any], state: str) -> float | None:
    """How warm the inputs are as the unfused kernels tell it; None where it was not kept which of them took what."""
    durations = point[f"eager_{state}_ns"]
    if len(durations) != len(point["unfused"]):
        return None
    unfused = [
        Unfused(reads=sum(each["reads"]), writes=sum(each["writes"]), dur_ns=ns)
        for each, ns in zip(point["unfused"], durations, strict=True)
    ]
    return curves.warmth(kernel, unfused)


def product_ns(point: dict[str, Any], state: str) -> int:
    """What the library's part took: the product, and clearing what it counts in."""
    durations = zip(point["eager_kernels"], point[f"eager_{state}_ns"], strict=True)
    return sum(ns for name, ns in durations if "at::native" not in name)


def outcomes(path: Path, by_durations: bool = False) -> list[Outcome]:
    """What was measured and predicted; cold or warm as it was, or as the unfused kernels' own durations tell it."""
    recorded = json.loads(path.read_text("utf-8"))
    device = find_device(recorded["gpu"])
    calibration = calibration_of(device.title) if device else None
    if calibration is None:
        raise SystemExit(f"{path}: no calibration of {recorded['gpu']}: run tracemine calibrate there")
    curves = Curves(calibration)
    found = []
    for point in recorded["points"]:
        if not point["fused"]:
            continue  # a library's kernel is part of it
        group = next((name for name, patterns in HALVES.items() if point["pattern"] in patterns), None)
        group = group or {"first": "held out", "third": "third, unseen"}.get(point["group"], point["group"])
        kernels = [
            FusedKernel(**{k: tuple(v) if isinstance(v, list) else v for k, v in fused.items()})
            for fused in point["fused"]
        ]
        for state, warm in (("cold", 0.0), ("warm", 1.0)):
            unfused, fused = sum(point[f"eager_{state}_ns"]), sum(point[f"compiled_{state}_ns"])
            if not unfused or not fused:
                continue
            if by_durations:
                told = warmth(curves, kernels[0], point, state)
                if told is None:
                    continue
                warm = told
            if "product_bytes" in point:
                parts = [curves.epilogue(product_ns(point, state), point["product_bytes"], kernels[0])]
            else:
                parts = [curves.predict(kernel, warm) for kernel in kernels]
            low, mid, high = (sum(getattr(p, name) for p in parts) for name in ("low_ns", "mid_ns", "high_ns"))
            kind = max(parts, key=lambda p: p.mid_ns).kind
            label = f"{point['dtype']} {point['size'][0]}x{point['size'][1]} {state}"
            operators = len(point["unfused"])
            found.append(Outcome(point["pattern"], label, group, operators, unfused, fused, low, mid, high, kind))
    return found


def score(name: str, rows: list[Outcome]) -> str:
    if not rows:
        return f"| {name} | 0 | | | | | | | | |"
    error = np.array([100 * row.error for row in rows])
    close = [r for r in rows if r.unfused < 2 * r.fused and r.unfused != r.fused]
    several = [r.of_saving for r in close if r.operators > 1]
    sign = np.mean([row.right_sign for row in rows])
    covered = np.mean([row.low <= row.fused <= row.high for row in rows])
    ratio = np.array([abs(math.log(row.mid / row.fused)) for row in rows])
    width = np.median([row.width for row in rows if row.operators > 1 and row.unfused > row.fused] or [math.nan])
    return (
        f"| {name} | {len(rows)} | {error.mean():.1f} | {np.percentile(error, 90):.1f} | "
        f"{100 * np.median(several) if several else math.nan:.0f} % ({len(several)}) | "
        f"{100 * np.median([r.of_saving for r in close]) if close else math.nan:.0f} % ({len(close)}) | "
        f"{100 * sign:.1f} % | "
        f"{100 * covered:.0f} % | {width:.2f} | {100 * ratio.mean():.1f} % |"
    )


def interval_factors(rows: list[Outcome]) -> dict[str, tuple[float, float]]:
    """Per class the 5th and 95th percentile of measured ÷ predicted, a little outwards for few samples."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row.fused / row.mid)
    factors = {}
    for kind, ratios in sorted(by_kind.items()):
        n = len(ratios)
        tail = 5 * max(n - 20, 1) / n if n > 20 else 0  # split-conformal: (n + 1) in place of n
        factors[kind] = (
            round(float(np.percentile(ratios, tail)), 2),
            round(float(np.percentile(ratios, 100 - tail)), 2),
        )
    return factors


def left_out(rows: list[Outcome], fitted_to: list[Outcome]) -> str:
    """How often the intervals hold, and how wide they are, when each pattern's own points are left out of the fit."""
    held, widths = [], []
    for pattern in sorted({row.pattern for row in rows}):
        factors = interval_factors([row for row in fitted_to if row.pattern != pattern])
        for row in rows:
            if row.pattern == pattern and row.kind in factors:
                low, high = (factor * row.mid for factor in factors[row.kind])
                held.append(low <= row.fused <= high)
                if row.operators > 1 and row.unfused > row.fused:
                    widths.append((high - low) / (row.unfused - row.fused))
    return (
        f"each pattern left out in turn: {np.mean(held):.0%} of {len(held)} held, median width {np.median(widths):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="a line a pattern: predicted ÷ measured fused time"
    )
    parser.add_argument("--by-durations", action="store_true", help="cold or warm as the unfused kernels tell it")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--left-out", action="store_true", help="intervals that were fitted without the pattern")
    chosen = parser.parse_args()
    files = chosen.files or sorted((Path(__file__).parents[1] / "results" / "h200").glob("points_*.json"))
    rows = [row for path in files for row in outcomes(path, chosen.by_durations)]
    print("| | points | mean error | p90 | ratio < 2 | one operator, too | sign | in interval | width | fused time |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for group in GROUPS:
        own = [row for row in rows if row.group == group]
        print(score(group, own))
        for state in ("cold", "warm"):
            print(score(f"{group}, {state}", [row for row in own if row.label.endswith(state)]))
    print(score("all", rows))
    for kind in sorted({row.kind for row in rows}):
        print(score(f"not development: {kind}", [r for r in rows if r.kind == kind and r.group != "development"]))
    if chosen.left_out:
        other = [row for path in files for row in outcomes(path, not chosen.by_durations)]
        print(left_out(rows, [*rows, *other]))
    if chosen.fit:
        other = [row for path in files for row in outcomes(path, not chosen.by_durations)]
        print(interval_factors([row for row in (*rows, *other) if row.group != "third, unseen"]))
    if chosen.verbose:
        by_pattern: dict[str, list[Outcome]] = defaultdict(list)
        for row in rows:
            by_pattern[f"{row.group}: {row.pattern}"].append(row)
        for name, own in sorted(by_pattern.items(), key=lambda kv: -np.mean([row.error for row in kv[1]])):
            cells = "  ".join(f"{row.label} {row.mid / row.fused:.2f}" for row in own)
            print(f"{100 * np.mean([row.error for row in own]):5.1f} {name} [{own[0].kind}] {cells}")


if __name__ == "__main__":
    main()
