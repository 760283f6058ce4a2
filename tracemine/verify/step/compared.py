"""What replaying a step came to: predicted and measured, each where both were in the same state.

A replay is not the model: its Python is a list of calls, the model's is modules, hooks and autograd. So what the host
takes differs, and a saving is compared only where the same of the two, host or device, set the pace of both. Within a
CUDA graph the device does, whatever the host is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.findings.record import Finding, Scan
from tracemine.matching.rule import IDLE_SAVINGS
from tracemine.perfmodel import NOTHING, Range
from tracemine.pipeline import Analysis, ScanOptions, mined
from tracemine.units import Threshold
from tracemine.verdicts.verdict import InPlace, Left, StepGain, StepVerdict
from tracemine.verify.step.placing import Placed
from tracemine.verify.step.program import StepCall
from tracemine.verify.step.text import items_of, needed

_WIRED_APART = 0.01  # as a share of a tensor: the same calls in another order may round otherwise, and no more
_FINITE = 0.5  # share of a final tensor; of one with fewer finite elements a comparison says little
HOST_BOUND = 0.8  # the device's busy share of a step below which the host sets the pace
# What the host takes for a generated launcher, and for the ATen call that a scan leaves in its place: medians of 17
# steps replayed on the host of an H200 (benchmarks/results/h200/steps.json).
LAUNCHER_NS, CALL_NS = 27_000, 14_000


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan says of one step. Savings of findings are those of one occurrence."""

    step_ns: dict[str, Range]  # of a finding, by fingerprint: what the eager step gains with a launcher in its place
    gpu_ns: dict[str, Range]  # and what its kernels do
    graph: Range  # what the eager step gains where all of its launch gaps are closed and nothing else is done
    busy_ns: int  # of the device, in a recorded step
    alone_step_ns: int | None  # the step unprofiled; null: not timed


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What of a step is replayed, and what stands in it: all of it but the calls."""

    step: str
    share: float  # of the step's GPU time, what is replayed
    launches: int
    replayed_launches: int
    replayed_ns: int  # recorded GPU time of the replayed launches
    left: tuple[Left, ...]
    findings: tuple[tuple[str, str], ...]  # fingerprint and title
    counts: tuple[dict[str, int], ...]  # of each kernel, how often it replaces which finding
    calls: int  # of ATen, that the replay makes
    calls_beside: int  # that it makes besides kernels
    refused: dict[str, int]  # occurrences that stay as they are, by reason
    assumptions: tuple[str, ...]


def summary(placed: Placed) -> Summary:
    """Return the summary of a step with findings in place."""
    counts: list[dict[str, int]] = [{} for _ in placed.kernels]
    for group in sorted(placed.placed):
        one = placed.fused[group]
        mark = placed.findings[one.finding].fingerprint
        counts[one.kernel][mark] = counts[one.kernel].get(mark, 0) + 1
    program = placed.program
    return Summary(
        step=program.step,
        share=round(program.share, 4),
        launches=program.launches,
        replayed_launches=program.replayed_launches,
        replayed_ns=program.replayed_ns,
        left=program.left,
        findings=tuple((f.fingerprint, f.title) for f in placed.findings),
        counts=tuple(counts),
        calls=len(program.calls),
        calls_beside=sum(isinstance(item, StepCall) for item in needed(items_of(placed), program)),
        refused=dict(placed.refused),
        assumptions=program.assumptions,
    )


def expected(scan: Scan, analysis: Analysis, findings: Sequence[Finding]) -> Expected:
    """Return what is predicted of one step."""
    timeline = analysis.timeline
    steps = max(timeline.steps.num_rows, 1)
    # One graph of the step closes them all, not only the model's.
    gaps = [replace(rule, saving="close_gap") for rule in analysis.rules if rule.saving in IDLE_SAVINGS]
    alone = mined(analysis, ScanOptions(rules=gaps, threshold=Threshold(ns=0))).summary.step_saving_ns
    busy_ns, alone_ns = scan.summary.gpu_busy_ns // steps, timeline.meta.alone_step_ns
    more_ns = LAUNCHER_NS - CALL_NS if alone_ns and _host_bound(busy_ns, alone_ns) else 0
    return Expected(
        step_ns={f.fingerprint: launched(f.step_saving_ns // max(f.occurrences, 1), more_ns) for f in findings},
        gpu_ns={f.fingerprint: f.gpu_saving_ns // max(f.occurrences, 1) for f in findings},
        graph=alone // steps,
        busy_ns=busy_ns,
        alone_step_ns=alone_ns,
    )


def launched(saving: Range, more_ns: int) -> Range:
    """Return what is left of a step's saving where a launcher takes the host longer than the call that it replaces.

    The high end stays: calls of a model, with its modules and autograd, may take as much.

    >>> launched(Range(low=0, mid=30, high=90), 10)
    Range(low=-10, mid=20, high=90)
    """
    return Range(low=saving.low - more_ns, mid=saving.mid - more_ns, high=saving.high)


def summed(ranges: Mapping[str, Range], counts: Mapping[str, int]) -> Range:
    """Return savings of findings, each so many times.

    >>> summed({"a": Range(low=1, mid=2, high=4)}, {"a": 3})
    Range(low=3, mid=6, high=12)
    """
    return sum((ranges[name] * count for name, count in counts.items() if name in ranges), NOTHING)


def step_verdict(
    about: Summary, expects: Expected, ran: Mapping[str, Any] | str | None, source: str | None = None
) -> StepVerdict:
    """Return what a step came to. ran: what its file printed; a text, or None: why there is nothing."""
    answer = ran if isinstance(ran, Mapping) else {}
    kernels = answer.get("kernels", ())
    kept = _kept(about, kernels)
    savings, times = answer.get("savings", {}), answer.get("times", {})
    replay = answer.get("replay")
    shorter = None
    wrong = _wrong(answer.get("right"))
    changes = _changes(expects, kept, answer) if savings else ()
    if "fused" in savings and not wrong:
        low_ns = min(next(c.low_ns for c in changes if c.change == "fused"), savings["fused"]["low"])
        shorter = bool(any(kept.values()) and low_ns > savings["eager_noise_ns"])
    return StepVerdict(
        step=about.step,
        device=answer.get("device"),
        says=wrong or _says(ran, kept, changes, shorter),
        shorter=shorter,
        share=about.share,
        launches=about.launches,
        replayed_launches=about.replayed_launches,
        left=about.left,
        findings=tuple(
            InPlace(fingerprint=mark, title=title, occurrences=kept[mark], says=_why(about, mark, kernels, kept[mark]))
            for mark, title in about.findings
        ),
        refused=about.refused,
        same_names=None if replay is None else replay["same_names"],
        medians_ns={
            name: {key: round(statistics.median(samples[key])) for key in ("step_ns", "host_ns")}
            for name, samples in times.items()
        },
        recorded_ns=expects.alone_step_ns,
        gpu_ns={
            "recorded": about.replayed_ns,
            **({"replayed": replay["gpu_ns"]} if replay else {}),
            **({"fused": answer["fused_gpu_ns"]} if "fused_gpu_ns" in answer else {}),
        },
        changes=changes,
        right=answer.get("right"),
        not_captured=answer.get("not_captured", {}),
        assumptions=about.assumptions,
        source=source,
    )


def _wrong(right: Mapping[str, Any] | None) -> str:
    """Return why the step's results with kernels in place are not trusted; "" where they are."""
    if right is None:
        return ""
    if right["finite"] < _FINITE:
        return "with random values the step's results are not finite: whether kernels are right in it is not known"
    if right["wired_apart"] > _WIRED_APART:
        return "with the rebuilt subgraphs in place, run eagerly, the step gives other results"
    if right["beyond"] and not right["draws"]:
        return f"with fused kernels in place {right['beyond']} of {right['tensors']} final tensors differ"
    return ""


def _kept(about: Summary, kernels: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how often each finding's kernel stood in the step. kernels: whether each was put in place."""
    found = {mark: 0 for mark, _ in about.findings}
    for kernel, counts in zip(kernels, about.counts, strict=False):
        for mark, count in counts.items() if kernel["kept"] else ():
            found[mark] += count
    return found


def _why(about: Summary, mark: str, kernels: Sequence[Mapping[str, Any]], kept: int) -> str:
    mine = [k for k, counts in enumerate(about.counts) if mark in counts]
    if not mine:
        return "no occurrence of it can be replaced in this step"
    if kept or not kernels:
        return ""
    return "; ".join(dict.fromkeys(kernels[k]["says"] for k in mine))


def _says(
    ran: Mapping[str, Any] | str | None, kept: Mapping[str, int], changes: Sequence[StepGain], shorter: bool | None
) -> str:
    if not isinstance(ran, Mapping):
        return ran or "this machine has no GPU"
    if "says" in ran:
        return str(ran["says"])
    if shorter is None:
        return "it was not timed"
    if not any(kept.values()):
        return "no fused kernel stood in the step"
    fused = next(c for c in changes if c.change == "fused")
    count = sum(kept.values())
    measured = f"{_us(fused.measured_ns)} µs ({_us(fused.low_ns)} to {_us(fused.high_ns)})"
    predicted = "" if fused.predicted_ns is None else f", predicted {_us(fused.predicted_ns.mid)} µs"
    if fused.replay_ns > fused.measured_ns:
        predicted += f"; the replay, whose host is slower, by {_us(fused.replay_ns)} µs"
    if fused.says:
        predicted += f" where {fused.says}"
    if shorter:
        return f"with {count} fused kernels in place the step got shorter by {measured}{predicted}"
    if fused.high_ns < 0:
        return f"with {count} fused kernels in place the step got longer: saved {measured}{predicted}"
    return f"with {count} fused kernels in place the step did not get shorter beyond noise: saved {measured}{predicted}"


def _us(ns: int) -> str:
    return f"{ns / 1000:.1f}"


def of_the_model(
    saved: Mapping[str, int], change: str, *, replay_ns: float, alone_ns: int, kernels: int
) -> dict[str, int]:
    """Return how much of a replay's saving holds for the model's own step, where the host sets the pace of both.

    A replay's host is slower than the model's, for its Python calls each operator: that time is no saving. A graph
    saves all that the host does, but no more than the model has. Kernels save calls, which the model makes in so much
    less time, while launching them takes as long. A replay that is faster than the model is taken as it is.

    >>> of_the_model({"ns": 900, "low": 800, "high": 950}, "graph", replay_ns=1000, alone_ns=600, kernels=0)
    {'ns': 500, 'low': 400, 'high': 550}
    >>> of_the_model({"ns": 400_000, "low": 0}, "fused", replay_ns=1_000_000, alone_ns=500_000, kernels=4)
    {'ns': 146000, 'low': -54000}
    """
    share = min(alone_ns / replay_ns, 1.0)
    if change == "fused":
        launchers_ns = (1 - share) * kernels * LAUNCHER_NS
        return {end: min(ns, round(share * ns - launchers_ns)) for end, ns in saved.items()}
    return {end: round(ns - (1 - share) * replay_ns) for end, ns in saved.items()}


def _changes(expects: Expected, kept: Mapping[str, int], answer: Mapping[str, Any]) -> tuple[StepGain, ...]:
    savings, times = answer["savings"], answer["times"]
    replayed = _host_bound(answer["replay"]["gpu_ns"], statistics.median(times["eager"]["step_ns"]))
    recorded = None if not expects.alone_step_ns else _host_bound(expects.busy_ns, expects.alone_step_ns)
    other = ""
    if recorded is None:
        other = "what the model's step takes alone was not recorded"
    elif recorded != replayed:
        paces = {True: "the host", False: "the device"}
        other = f"{paces[recorded]} sets the model's pace, {paces[replayed]} the replay's"
    predicted = {
        "fused": summed(expects.step_ns, kept),
        "graph": expects.graph,
        "fused_graph": summed(expects.gpu_ns, kept),
    }
    found = []
    for name in ("fused", "graph", "fused_graph", "all"):
        if name not in savings:
            continue
        replay, claim = savings[name], predicted.get(name)
        saved = replay
        if recorded and replayed and expects.alone_step_ns and name != "fused_graph":
            eager_ns = statistics.median(times["eager"]["step_ns"])
            count = sum(kept.values())
            saved = of_the_model(replay, name, replay_ns=eager_ns, alone_ns=expects.alone_step_ns, kernels=count)
        says = "" if name in ("fused_graph", "all") else other
        within = None if says or claim is None else bool(claim.low <= saved["ns"] <= claim.high)
        found.append(
            StepGain(
                change=name,
                measured_ns=saved["ns"],
                low_ns=saved["low"],
                high_ns=saved["high"],
                replay_ns=replay["ns"],
                predicted_ns=claim,
                within=within,
                says=says,
            )
        )
    return tuple(found)


def _host_bound(busy_ns: float, step_ns: float) -> bool:
    return busy_ns < HOST_BOUND * step_ns
