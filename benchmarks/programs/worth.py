"""Tables of what labelled programs gained by fixes, and of graphs that were tried, beside what is said of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs.graphs import NAMES, record_of, said, spans_of
from programs.labels import Labelled

Means = Callable[[Any, Labelled], bool]  # whether a finding means a program's main cause
CLOSE = 0.15
NOT_DONE = "not done after"  # says nothing of whether it works
WAYS = {
    "capture": "cuda_graph",
    "compiled": "compile",
    "reduce_overhead": "compile_reduce_overhead",
    "graphs_by_step": "graphs_by_step",
    "max_autotune": "compile_max_autotune",
}


def alone_ns(folder: Path) -> int:
    """Return how long a step takes without a profiler, as it was recorded."""
    return int(json.loads((folder / "capture.json").read_text("utf-8"))["alone_step_ns"])


def promised(report: Any, program: Labelled, means: Means) -> tuple[float, float, float]:
    """Return the share of a step that the fix of a program's main cause saves, as its findings say: low, mid, high."""
    step_ns = report.summary.per_step.unprofiled_ns.mid
    mine = [one.per_step for one in report if one.reported and one.per_step and means(one, program)]
    alone = [one.step_saving_alone_ns or one.step_saving_ns for one in mine]
    low, mid, high = (sum(getattr(one, end) for one in alone) / step_ns for end in ("low", "mid", "high"))
    return low, mid, min(high, 1.0)


@dataclass(frozen=True)
class Pair:
    """A program and its fixed form, and what is said of the fix as shares of the step: low, mid, high."""

    before_ns: int
    after_ns: int
    said: tuple[float, float, float]  # by findings of the main cause
    every: tuple[float, float, float]  # by those of all causes that the fix mends

    @property
    def gains(self) -> float:
        return 1 - self.after_ns / self.before_ns


def recorded_pairs(out: Path, reports: Mapping[str, Any], programs: Sequence[Labelled], means: Means,
                   mended: Means) -> dict[str, Pair]:  # fmt: skip
    """Return the pairs whose forms were both timed while they were recorded."""
    chosen = [one for one in programs if one.name in reports and f"{one.name}.fixed" in reports]
    return {
        one.name: Pair(
            alone_ns(out / one.name),
            alone_ns(out / f"{one.name}.fixed"),
            *(promised(reports[one.name], one, each) for each in (means, mended)),
        )
        for one in chosen
    }


def timed_pairs(times: Mapping[str, Any], reports: Mapping[str, Any], programs: Mapping[str, Labelled], means: Means,
                mended: Means) -> dict[str, Pair]:  # fmt: skip
    """Return the pairs whose forms were timed in turns, in one process.

    mended: whether a finding means a cause that the fix mends, the main one or another.
    """
    measured = {name: each for name, each in times.items() if "as_is" in each and name in reports}
    return {
        name: Pair(
            *(each[form]["p50_ns"] for form in ("as_is", "fixed")),
            *(promised(reports[name], programs[name], means) for means in (means, mended)),
        )
        for name, each in measured.items()
    }


def pair_lines(pairs: Mapping[str, Pair]) -> Iterable[str]:
    """Say what each fix left of the step beside what is said of it."""
    yield "| program | step, us | fixed | gains | its finding says | all that it mends | inside |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for name, one in pairs.items():
        low, mid, high = one.said
        cells = [name, f"{one.before_ns / 1e3:.0f}", f"{one.after_ns / 1e3:.0f}", f"{one.gains:.0%}"]
        cells += [
            f"{mid:.0%} ({low:.0%}-{high:.0%})",
            f"{one.every[1]:.0%}",
            "yes" if low <= one.gains <= high else "no",
        ]
        yield f"| {' | '.join(cells)} |"
    yield from ("", *sums_of(pairs.values()), "")


def sums_of(pairs: Iterable[Pair]) -> Iterable[str]:
    """Say how far off what is said of pairs lies."""
    every = list(pairs)
    gains = [one.gains for one in every]
    yield f"- by its main cause's findings: {counted(gains, [one.said for one in every])}"
    yield f"- by those of all causes that it mends: {counted(gains, [one.every for one in every])}"


def counted(gains: Sequence[float], said: Sequence[tuple[float, float, float]]) -> str:
    """Say how far off what is said lies of what was gained, each way, and what intervals hold.

    >>> counted([0.5, 0.2], [(0.1, 0.4, 0.6), (0.3, 0.4, 0.5)]).split("; ")[1:]
    ['off by +5% in the mean, +5% in the median', '1 inside intervals, 35% wide']
    """
    if not gains:
        return "0 fixes"
    off = [mid - gain for gain, (_, mid, _) in zip(gains, said, strict=True)]
    more, less = sum(each > CLOSE for each in off), sum(each < -CLOSE for each in off)
    held = sum(low <= gain <= high for gain, (low, _, high) in zip(gains, said, strict=True))
    width = statistics.mean(high - low for low, _, high in said)
    return (
        f"{len(off)} fixes, {len(off) - more - less} within {CLOSE:.0%} of the step, {more} said to gain more, "
        f"{less} less; "
        f"off by {statistics.mean(off):+.0%} in the mean, {statistics.median(off):+.0%} in the median; "
        f"{held} inside intervals, {width:.0%} wide"
    )


def served_lines(out: Path, times: Mapping[str, Any], reports: Mapping[str, Any], programs: Mapping[str, Labelled],
                 means: Means) -> Iterable[str]:  # fmt: skip
    """Say what one fix was worth to each batch's steps, beside what its finding says."""
    yield "| program.batch | p50, us | fixed | gains | p99, us | fixed | gains | its finding says | all findings |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for name, measured in times.items():
        if "as_is" not in measured or name not in reports:
            continue
        cells = []
        for key in ("p50_ns", "p99_ns"):
            before, after = measured["as_is"][key], measured["fixed"][key]
            cells += [f"{before / 1e3:.0f}", f"{after / 1e3:.0f}", f"{1 - after / before:.0%}"]
        report = reports[name]
        low, mid, high = promised(report, programs[name.partition(".")[0]], means)
        rules = [f"{f.rule} {f.per_step.share_of_unprofiled or 0:.0%}" for f in report if f.reported and f.per_step]
        yield f"| {' | '.join([name, *cells, f'{mid:.0%} ({low:.0%}-{high:.0%})', ', '.join(rules)])} |"


def given(program: Labelled) -> list[tuple[str, str]]:
    """Return kind and name of what a program gives to torch.compile, as `top --graphs` names it."""
    import torch

    found: list[tuple[str, str]] = []

    def seen(function: Any) -> Any:
        code = getattr(function, "__code__", None)
        module = ("module", type(function).__name__)
        found.append(
            module
            if code is None
            else ("function", f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_name}")
        )
        return function

    with torch.device("cpu"), torch.random.fork_rng():
        program.make(wrap=seen, **program.small)
    return found


def graph_verdicts(out: Path, tried: Mapping[str, Any], programs: Sequence[Labelled]) -> Iterable[str]:
    """Hold what `top --graphs` says of recordings against what was tried."""
    counts: dict[tuple[str, bool], int] = {}
    yield "\n| program | way | said | by | really | |\n|---|---|---|---|---|---|"
    for program in programs:
        trials = {t: one for t, one in tried.get(program.name, {}).items() if NOT_DONE not in one["why"]}
        if not trials or not (out / program.name / "capture.json").exists():
            continue
        record = record_of(out / program.name)
        spans = spans_of(record, given(program))
        for trial, real in trials.items():
            outcome, effect = said(record, spans, WAYS[trial])
            right = (outcome == "works") == real["works"]
            verdict = "abstains" if outcome == "unknown" else "right" if right else "WRONG"
            counts[verdict, real["works"]] = counts.get((verdict, real["works"]), 0) + 1
            cells = [program.name, NAMES[WAYS[trial]], outcome, effect, real["why"] or "works", verdict]
            yield f"| {' | '.join(cells)} |"
    told = [f"{verdict} {n} that {'work' if works else 'do not'}" for (verdict, works), n in sorted(counts.items())]
    yield f"\nof trials that were done: {', '.join(told)}\n"
