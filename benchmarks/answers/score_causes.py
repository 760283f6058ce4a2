"""Hold what scans tell of causes against the labels: `python -m benchmarks score_causes RECORDINGS --part build|held`.

RECORDINGS is what record_causes.py wrote. Each program's `before/` is scanned, and the causes of the findings that a
report shows are held against those of its label. A row a cause: programs that have it, in how many of them it was told,
and in how many programs it was told though it is not there. Then each error by name, and programs without a recording,
which count for nothing. `--savings` adds what the findings of the causes that were mended are said to save a step,
beside what the step after is faster by. `--models` does that for the models of causes/models.py, whose fixes are
applied together, and says what torch.compile saved where record_compiled.py timed it.

FOUND_AS says which finding tells of which cause. A rule that it does not know ends the script: what is not named would
count as silence.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.causes.program import PARTS, Label, labels

# A finding's cause, or its rule, to the label's cause; the finding's own cause is asked for first. None: about
# something else than these causes. The one place to add to when a rule is written.
FOUND_AS: dict[str, str | None] = {
    "optimizer_unfused": "optimizer",
    "allocation_stall": None,
    "compile_stall": None,
    "data_loading": None,
    "eager_island": None,
    "first_launch_late": None,
    "graph_break": None,
    "graph_break_print": None,
    "graph_break_size": None,
    "graph_break_value": None,
    "graph_launch_gap": None,
    "host_stall": None,
    "host_sync": None,
    "launch_gap": None,
    "memory_bound_chain": None,
    "module_load_stall": None,
    "optimizer_over_lists": None,
    "pageable_copy": None,
    "rmsnorm_unfused": None,
    "rotary_unfused": None,
    "tiny_kernels": None,
    "channels_last": "channels_last",
    "attention_unfused": "attention",
    "batch_norm_evaluated": "batch_norm",
    "cache_grown": "cache_cat",
    "conversion_pair": "conversion_pair",
    "embedding_bags_apart": "embedding_bags",
    "expert_sort": "expert_sort",
    "float32_without_tf32": "tf32",
    "float64_promoted": "float64",
    "float64_product": "float64",
    "gradient_zeroing": "zero_grad",
    "grouped_convolution": "grouped_convolution",
    "layout_leak": "permuted_stream",
    "loop_invariant": "loop_invariant",
    "library_below_rate": None,
    "misaligned_product": "misaligned",
    "no_tensor_cores": "grouped_convolution",
    "parameter_loop": "parameter_loop",
    "patch_convolution": None,
    "scaler_apart": "grad_scaler",
    "scaler_needless": "grad_scaler",
    "small_products_apart": "small_products",
    "weight_cast": "weights_cast",
}
# A finding of the first whose operators run in the backward pass tells of the second as well.
BACKWARD = {"attention": "attention_backward"}
ENOUGH = 0.97
NEAR = 10  # points of the step
BELOW = 5  # so many points less than torch.compile saved may be said


@dataclass(frozen=True)
class Told:
    """What a scan says of one program: the causes, each with the rules that tell of it, and what it saves a step."""

    causes: Mapping[str, Sequence[str]]
    saving_ns: Mapping[str, tuple[int, int, int]]  # low, mid, high
    all_ns: int  # what all findings save a step


@dataclass(frozen=True)
class Row:
    """One cause. Errors by the program's name."""

    cause: str
    found: Sequence[str]
    missed: Sequence[str]
    wrong: Sequence[str]

    @property
    def precision(self) -> float | None:
        told = len(self.found) + len(self.wrong)
        return len(self.found) / told if told else None

    @property
    def recall(self) -> float | None:
        there = len(self.found) + len(self.missed)
        return len(self.found) / there if there else None


def causes_of(rule: str, cause: str, ops: Iterable[str]) -> list[str]:
    """The labels' causes that a finding tells of. Raises KeyError where FOUND_AS knows neither cause nor rule."""
    found = FOUND_AS[cause] if cause in FOUND_AS else FOUND_AS[rule]
    if found is None:
        return []
    behind = BACKWARD.get(found)
    return [found, behind] if behind and any("backward" in op.lower() for op in ops) else [found]


def told_by(folder: Path, fixes: Sequence[str] = ()) -> Told:
    """What a scan of a capture says, with what its step takes alone where step.json beside it tells.

    What causes save is told of these fixes alone, done together: a second scan with no other rules than theirs.
    """
    from msgspec.structs import replace as with_fields

    from tracemine.causes import load_rules
    from tracemine.formats import open_trace
    from tracemine.pipeline import ScanOptions, analysed, mined

    timeline, beside = open_trace(folder), folder.parent / "step.json"
    times = json.loads(beside.read_text()) if beside.is_file() else {}
    known = {"alone_step_ns": times.get("step_ns"), "host_step_ns": times.get("step_host_ns")}
    timeline = replace(timeline, meta=with_fields(timeline.meta, **known))
    analysis = analysed(timeline)
    causes: dict[str, list[str]] = {}
    savings: dict[str, tuple[int, int, int]] = {}
    scan = mined(analysis)
    for finding, cause in of_causes(scan):
        causes.setdefault(cause, []).append(finding.rule)
    theirs = {rule for cause in fixes for rule in causes.get(cause, ())}
    chosen = ScanOptions(rules=[rule for rule in load_rules() if rule.id in theirs])
    for finding, cause in of_causes(mined(analysis, chosen) if theirs else scan):
        if finding.per_step is not None:
            saving, before = finding.per_step.step_saving_ns, savings.get(cause, (0, 0, 0))
            savings[cause] = (before[0] + saving.low, before[1] + saving.mid, before[2] + saving.high)
    return Told(causes, savings, scan.summary.step_saving_ns.mid // max(timeline.steps.num_rows, 1))


def of_causes(scan: Any) -> Iterable[tuple[Any, str]]:
    """The findings that a report shows, each with the labels' causes that it tells of."""
    for finding in scan.findings:
        if finding.reported:
            yield from ((finding, cause) for cause in causes_of(finding.rule, finding.cause, finding.ops))


def score(known: Mapping[str, Label], told: Mapping[str, Told]) -> list[Row]:
    """A row a cause, over the programs that were scanned."""
    every = {cause for label in known.values() for cause in label.causes}
    every |= {cause for one in told.values() for cause in one.causes}
    rows = []
    for cause in sorted(every):
        having = [name for name in told if cause in known[name].causes]
        rows.append(
            Row(
                cause,
                [name for name in having if cause in told[name].causes],
                [name for name in having if cause not in told[name].causes],
                [
                    name
                    for name in told
                    if cause in told[name].causes and cause not in (*known[name].causes, *known[name].accept)
                ],
            )
        )
    return rows


def overall(rows: Sequence[Row]) -> Row:
    """All causes together: a program counts once for each."""
    parts = [
        [f"{row.cause} {name}" for row in rows for name in getattr(row, kind)] for kind in ("found", "missed", "wrong")
    ]
    return Row("all", *parts)


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def lines(known: Mapping[str, Label], told: Mapping[str, Told], rows: Sequence[Row]) -> Iterable[str]:
    """The table, then each error by name with what its source says."""
    yield "| cause | with it | found | missed | told wrongly | precision | recall |"
    yield "|---|---|---|---|---|---|---|"
    for row in (*rows, overall(rows)):
        counts = (len(row.found) + len(row.missed), len(row.found), len(row.missed), len(row.wrong))
        yield f"| {row.cause} | {' | '.join(map(str, counts))} | {share(row.precision)} | {share(row.recall)} |"
    yield ""
    for row in rows:
        for name in row.missed:
            yield f"missed: {row.cause} in {name}: {known[name].where or known[name].why}"
        for name in row.wrong:
            rules = ", ".join(dict.fromkeys(told[name].causes[row.cause]))
            yield f"told wrongly: {row.cause} in {name}, by {rules}: {known[name].why}"
    clean = [name for name in told if known[name].kind == "none"]
    yield f"{sum(not told[name].causes for name in clean)} of {len(clean)} programs with no cause are told to have none"
    for name in sorted(known.keys() - told.keys()):
        yield f"not recorded: {name}"


def timed(folder: Path, stage: str) -> dict[str, Any]:
    """What record_causes.py wrote of a pass; nothing where it did not run."""
    path = folder / f"{stage}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def measured(name: str, recordings: Sequence[Path]) -> list[float]:
    """Which share of the step its fixes saved, in each recording that timed both."""
    both = [times for folder in recordings if "after_ns" in (times := timed(folder / name, "step"))]
    return [1 - times["after_ns"] / times["step_ns"] for times in both]


def near_to(errors: Sequence[float]) -> str:
    """How far predictions are off, in points of the step."""
    mean, near = sum(map(abs, errors)) / len(errors), sum(abs(error) <= NEAR for error in errors)
    return f"mean error {mean:.1f} points of the step, {near} within {NEAR}"


def savings(
    fixes: Mapping[str, Sequence[str]], told: Mapping[str, Told], recordings: Path, again: Sequence[Path] = ()
) -> Iterable[str]:
    """What fixes are said to save a step, beside what was measured: in the mean of all recordings, where there are
    several.
    """
    yield "| program | fixes | step, µs | said to save | measured | error, points | inside | all said | torch.compile |"
    yield "|---" * 9 + "|"
    errors, signs, inside, apart, widths, behind = [], [], [], [], [], []
    for name, one in told.items():
        times, shares = timed(recordings / name, "step"), measured(name, [recordings, *again])
        if "after_ns" not in times:
            continue
        said = [one.saving_ns.get(cause, (0, 0, 0)) for cause in fixes[name] if cause not in BACKWARD.values()]
        low, mid, high = (sum(each) for each in zip(*said, strict=True))
        saved = sum(shares) / len(shares) * times["step_ns"]
        apart.append(100 * (max(shares) - min(shares)))
        errors.append(100 * (mid - saved) / times["step_ns"])
        signs.append((mid > 0) == (saved > 0))
        inside.append(low <= saved <= high)
        widths.append(100 * (high - low) / times["step_ns"])
        compiled = timed(recordings / name, "compiled").get("compiled_ns")
        cells = [name, ", ".join(fixes[name]), f"{times['step_ns'] / 1000:.0f}"]
        cells += [f"{mid / 1000:.0f} ({low / 1000:.0f} to {high / 1000:.0f})", f"{saved / 1000:.0f}"]
        cells += [f"{errors[-1]:+.1f}", "yes" if inside[-1] else "no"]
        cells.append(f"{one.all_ns / 1000:.0f}")
        cells.append("–" if compiled is None else f"{(times['step_ns'] - compiled) / 1000:.0f}")
        if compiled is not None and compiled < times["step_ns"]:
            behind.append(100 * (times["step_ns"] - compiled - one.all_ns) / times["step_ns"])
        yield f"| {' | '.join(cells)} |"
    if errors:
        yield f"\n{len(errors)}: {near_to(errors)}"
        yield f"sign right in {sum(signs)}, {sum(inside)} in the interval"
        if told_of := [at for at, width in enumerate(widths) if width]:
            held, wide = sum(inside[at] for at in told_of), statistics.median(widths[at] for at in told_of)
            yield f"{len(told_of)} of which something is said: {near_to([errors[at] for at in told_of])}"
            yield f"of these {held} in the interval, which is {wide:.1f} points of the step wide in the median"
    if behind:
        few = sum(each <= BELOW for each in behind)
        yield f"torch.compile is faster in {len(behind)}; all findings say no more than {BELOW} points less in {few}"
    if errors and again:
        mean, far = sum(apart) / len(apart), sum(each > NEAR for each in apart)
        yield f"what was measured is apart by {mean:.1f} points in the mean, by more than {NEAR} in {far}"


def scanned(names: Iterable[str], fixes: Mapping[str, Sequence[str]], recordings: Path) -> dict[str, Told]:
    """What scans say of the programs that were recorded."""
    told = {}
    for name in names:
        if (folder := recordings / name / "before").exists():
            try:
                told[name] = told_by(folder, fixes.get(name, ()))
            except KeyError as rule:
                sys.exit(f"score_causes: FOUND_AS does not know {rule}, found in {name}")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--part", choices=PARTS)
    which.add_argument("--models", action="store_true", help="what fixes of whole models are said to save together")
    parser.add_argument("--savings", action="store_true", help="beside what fixes were measured to save")
    parser.add_argument("--again", type=Path, nargs="*", default=[], help="other recordings, whose times count too")
    chosen = parser.parse_args()
    if chosen.models:
        from benchmarks.causes.models import FIXES

        told = scanned(FIXES, FIXES, chosen.recordings)
        print(*savings(FIXES, told, chosen.recordings, chosen.again), sep="\n")
        return
    known = labels([chosen.part])
    fixes = {name: label.fixes for name, label in known.items()}
    told = scanned(known, fixes, chosen.recordings)
    rows = score(known, told)
    print(*lines(known, told, rows), sep="\n")
    if chosen.savings:
        print("", *savings(fixes, told, chosen.recordings, chosen.again), sep="\n")
    total = overall(rows)
    sys.exit(bool((total.precision or 0) < ENOUGH or (total.recall or 0) < ENOUGH))


if __name__ == "__main__":
    main()
