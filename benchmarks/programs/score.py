"""Hold what `scan` says of recorded programs against what fixes gave: `python benchmarks/programs/score.py RECORDINGS`.

RECORDINGS: a folder of recordings as `run.py` writes them; the times come from `runs.json` in it. Three tables:

first fix: what the first finding's text asks for, tried in the program itself: does it run, compute the same, what
    does it gain, and what share of the best that was tried (of variants whose output is the original's).
pairs: a fix made by hand beside what its rules' findings are said to save alone; and torch.compile, in the mode that is
    asked for, beside what all findings that ask for it save of what all findings save together. Where a program has a
    fix by hand that torch.compile would make in its own way as well, what compiling saves is what it adds to that fix.
    Findings that are said to save the step nothing promise nothing: those are counted, and how many of their fixes
    gained all the same.
can save: the joint saving of the findings shown beside the best that was tried. Opposites stand beside: intervals'
    width beside what they hold, signs beside ratios.

A process that times its step in turns with others has another pace than the recorder's: what is said is held as a share
of the step that the report knows, times the step that was measured.

The text decides which variant a fix is: `reduce-overhead`, then `torch.compile`, in the first code that it shows; else
the variant made by hand for the finding's rule. A fix that is none of them was not tried, and counts as such.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import tracemine
from programs.run import programs

CODE = re.compile(r"^ {4,}(.+)$", re.M)
GAIN = 0.05  # a fix gains where the step is shorter by this share: less is noise of the machine
RATIO = (0.6, 1.6)


@dataclass(frozen=True)
class Said:
    """What a report says of a program. Nanoseconds a step."""

    rule: str
    variant: str | None
    saving: Any
    joint: Any
    savings: Mapping[str, Sequence[Any]]  # by rule
    compiled: tuple[str, Sequence[Any]] | None  # the mode that is asked for, and what its findings save
    step_ns: float  # unprofiled, as the report has it


def asked(finding: Any, by_hand: Mapping[str, Any]) -> str | None:
    """Which variant the finding's text asks for."""
    code = "\n".join(CODE.findall(finding.fix)[:3])
    if "torch.func.grad(" in code and "func" in by_hand:
        return "by_hand:func"
    if "reduce-overhead" in code:
        return "compile_reduce_overhead"
    if "torch.compile" in code:
        return "compile"
    return next((f"by_hand:{name}" for name, (rules, _) in by_hand.items() if finding.rule in rules), None)


def compiled_by(found: Sequence[Any]) -> tuple[str, Sequence[Any]] | None:
    """The mode of torch.compile that findings ask for, where several differ the one that does more."""
    asking = [(asked(finding, {}), finding.per_step.step_saving_ns) for finding in found if finding.reported]
    modes = [mode for mode in ("compile_reduce_overhead", "compile") if mode in dict(asking)]
    return (modes[0], [saving for mode, saving in asking if mode]) if modes else None


def saved_alone(finding: Any) -> Any:
    """What a step gains of the finding's fix alone; where that is not said, its part of what all give."""
    return finding.per_step.step_saving_alone_ns or finding.per_step.step_saving_ns


def said_of(folder: Path, by_hand: Mapping[str, Any]) -> Said | None:
    report = tracemine.scan(folder)
    found = [finding for finding in report if finding.per_step is not None]
    steps = report.summary.per_step.count
    joint = report.summary.step_saving_ns
    if not found:
        return None
    savings: dict[str, list[Any]] = {}
    for finding in found:
        savings.setdefault(finding.rule, []).append(saved_alone(finding))
    first = found[0]
    a_step = {end: getattr(joint, end) / max(steps, 1) for end in ("low", "mid", "high")}
    step_ns = report.summary.per_step.unprofiled_ns.mid
    own = saved_alone(first)
    return Said(first.rule, asked(first, by_hand), own, a_step, savings, compiled_by(found), step_ns)


def usable(said: Mapping[str, Any]) -> bool:
    return said.get("step_ns") is not None and said.get("same_output", True) and "error" not in said


def first_fixes(told: Mapping[str, Said | None], runs: Mapping[str, Any]) -> None:
    print("| program | first finding | asks for | ms before | after | gains | best known | of the best |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    tried = gains = near = other = 0
    for name, said in told.items():
        variants = runs[name]
        before = variants["eager"]["step_ns"]
        best_kind, best = min(
            ((kind, one["step_ns"]) for kind, one in variants.items() if usable(one)), key=lambda pair: pair[1]
        )
        known = f"{(before - best) / before:.0%} ({best_kind})"
        if said is None or said.variant is None or said.variant not in variants:
            rule = said.rule if said else "nothing found"
            print(f"| {name} | {rule} | not tried | {before / 1e6:.2f} | | | {known} | |")
            continue
        tried += 1
        one = variants[said.variant]
        if not usable(one):
            why = one.get("error") or f"another output, {one.get('largest_difference')}"
            print(f"| {name} | {said.rule} | {said.variant} | {before / 1e6:.2f} | {why[:60]} | | {known} | |")
            continue
        gain = (before - one["step_ns"]) / before
        share = gain * before / (before - best) if best < before else 0.0
        gains += gain >= GAIN
        near += share >= 0.7
        other += "compile" not in said.variant
        cells = [name, said.rule, said.variant, f"{before / 1e6:.2f}", f"{one['step_ns'] / 1e6:.2f}", f"{gain:.0%}"]
        print(f"| {' | '.join([*cells, known, f'{share:.0%}'])} |")
    print(
        f"\nof {len(told)} programs: first fix tried {tried}, gains {GAIN:.0%} or more {gains}, "
        f"70 % of the best known or more {near}, other than torch.compile {other}\n"
    )


def pair_lines(told: Mapping[str, Said | None], runs: Mapping[str, Any]) -> list[tuple[str, float, Any]]:
    """Name, measured saving and what is said of each fix that was tried and that findings ask for."""
    known, pairs = programs(), []
    for name, said in told.items():
        if said is None:
            continue
        before = runs[name]["eager"]["step_ns"]
        fixes = [
            (f"by_hand:{kind}", [saving for rule in rules for saving in said.savings.get(rule, ())])
            for kind, (rules, _) in known[name].by_hand.items()
        ]
        asked_for = [(name_of, saving, before) for name_of, saving in fixes]
        if said.compiled:
            asked_for.append(compiled_pair(known[name], said, runs[name]))
        for kind, found, start in asked_for:
            one = runs[name].get(kind, {})
            if usable(one) and found:
                pace = before / said.step_ns
                ends = {end: pace * sum(getattr(saving, end) for saving in found) for end in ("low", "mid", "high")}
                pairs.append((f"{name}: {kind.removeprefix('by_hand:')}", start - one["step_ns"], ends))
    return pairs


def compiled_pair(program: Any, said: Said, runs: Mapping[str, Any]) -> tuple[str, Sequence[Any], int]:
    """The variant in which torch.compile does what is asked of it and no more, what that is said to save, and the step
    that it is held against.
    """
    mode, found = said.compiled or ("", ())
    for name in program.then_compiled:
        by_hand, both = runs.get(f"by_hand:{name}", {}), f"by_hand:{name}+{mode}"
        if usable(by_hand) and both in runs:
            return both, found, by_hand["step_ns"]
    return mode, found, runs["eager"]["step_ns"]


def promised(lines: Sequence[tuple[str, float, Any]], runs: Mapping[str, Any]) -> list[tuple[str, float, Any]]:
    """Lines of fixes that are said to save something; count the others."""
    kept = [line for line in lines if round(line[2]["mid"])]
    nothing = [(name, measured) for name, measured, ends in lines if not round(ends["mid"])]
    missed = [
        f"{name} {share:.0%}"
        for name, measured in nothing
        if (share := measured / runs[name.partition(":")[0]]["eager"]["step_ns"]) >= GAIN
    ]
    print(
        f"said to save the step nothing: {len(nothing)} fixes, of which {len(missed)} gained {GAIN:.0%} or more"
        f" ({'; '.join(missed) or 'none'})\n"
    )
    return kept


def joint_lines(told: Mapping[str, Said | None], runs: Mapping[str, Any]) -> list[tuple[str, float, Any]]:
    lines = []
    for name, said in told.items():
        if said:
            before = runs[name]["eager"]["step_ns"]
            best = min(one["step_ns"] for one in runs[name].values() if usable(one))
            pace = before / said.step_ns
            lines.append((name, before - best, {end: pace * value for end, value in said.joint.items()}))
    return lines


def compared(title: str, lines: Sequence[tuple[str, float, Any]]) -> None:
    print(f"| {title} | measured, us | said, us | measured / said | inside |\n|---|--:|--:|--:|---|")
    ratios, inside, widths, wrong = [], 0, [], 0
    for name, measured, ends in lines:
        ratio = measured / ends["mid"] if ends["mid"] else float("inf")
        held = ends["low"] <= measured <= ends["high"]
        said = f"{ends['mid'] / 1e3:.0f} ({ends['low'] / 1e3:.0f}-{ends['high'] / 1e3:.0f})"
        print(f"| {name} | {measured / 1e3:.0f} | {said} | {ratio:.2f} | {'yes' if held else 'no'} |")
        ratios.append(ratio)
        inside += held
        wrong += ends["mid"] > 0 and measured < 0
        widths.append((ends["high"] - ends["low"]) / ends["mid"] if ends["mid"] else float("inf"))
    if lines:
        within = sum(RATIO[0] <= ratio <= RATIO[1] for ratio in ratios)
        print(
            f"\n{len(lines)}: median {statistics.median(ratios):.2f}, {within} within {RATIO[0]}-{RATIO[1]}, "
            f"{wrong} wrong signs, {inside} inside their interval, median width {statistics.median(widths):.2f} x\n"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    folder = parser.parse_args().recordings
    runs = json.loads((folder / "runs.json").read_text())
    print(f"{runs['machine']}\n")
    known = programs()
    told = {
        name: said_of(folder / name, known[name].by_hand)
        for name in runs["programs"]
        if (folder / name / "capture.json").exists()
    }
    first_fixes(told, runs["programs"])
    compared("fix", promised(pair_lines(told, runs["programs"]), runs["programs"]))
    compared("can save", joint_lines(told, runs["programs"]))


if __name__ == "__main__":
    main()
