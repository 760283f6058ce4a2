"""What fixes saved of a step beside what was said of them, by rule: `python -m benchmarks measured_fixes [--write]`.

Pairs: of programs whose fixes were made by hand (`h200/programs`), and of steps that `apply` tried fixes in
(`h200/applied.tar.xz`); those whose findings are of one rule. A rule is corrected where that helps programs that are
left out: each program's finding is corrected by what the others saved. `--write`: the table that `scan` reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from programs import applied, kept, score  # noqa: E402
from programs.run import programs  # noqa: E402
from tracemine.findings.alone import MEASURED, MeasuredBySaid, corrected  # noqa: E402
from tracemine.perfmodel import Range  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "h200"
TABLE = ROOT / "tracemine" / "findings" / "measured_fixes.toml"
LEAST = 4  # programs of a rule, or nothing is learnt of it
APART = 20_000  # millionths of the step: nearer ones have no order
NEARER = 0.9  # times the error, or what is likely stays as it is said
HEAD = """\
# By rule, what its fix saved of a step by what was said of it, in so many programs: the middle (1.0: as said), and the
# least and most without the outermost. `python -m benchmarks measured_fixes --write` writes it, of rules of which that
# helps with programs that it was not learnt from.
"""


@dataclass(frozen=True)
class Pair:
    """A fix that was tried: shares of the step in millionths."""

    program: str
    rule: str
    measured: int
    said: Range

    @property
    def inside(self) -> bool:
        return self.said.low <= self.measured <= self.said.high


def by_hand() -> Iterator[Pair]:
    """Yield fixes made by hand of programs whose recordings are kept."""
    folder = RESULTS / "programs"
    runs, known = json.loads((folder / "runs.json").read_text())["programs"], programs()
    for name, variants in runs.items():
        said = score.said_of(folder / name, known[name].by_hand) if (folder / name / "capture.json").exists() else None
        for kind, (rules, _) in known[name].by_hand.items() if said else ():
            found, one = [rule for rule in rules if rule in said.savings], variants.get(f"by_hand:{kind}", {})
            if len(found) == 1 and score.usable(one):
                savings, step_ns = said.savings[found[0]], variants["eager"]["step_ns"]
                ends = [
                    sum(getattr(saving, end) for saving in savings) / said.step_ns for end in ("low", "mid", "high")
                ]
                yield pair(name, found[0], 1 - one["step_ns"] / step_ns, ends)


def by_apply() -> Iterator[Pair]:
    """Yield what `apply` tried alone: settings and changes of source. A mode of torch.compile does other things too."""
    with kept.opened(RESULTS / "applied.tar.xz") as folder:
        applied.rescanned(folder, folder)
        for file in sorted(folder.glob("*.json")):
            said = json.loads(file.read_text())
            rule_of = {fingerprint: rule for fingerprint, rule, _ in said.get("findings", ())}
            for row in said.get("run", {}).get("alone", ()):
                rules = {rule_of.get(each, "") for each in row["findings"]}
                name = row["variants"][0]
                if row["timed"] and len(rules) == 1 and not name.startswith("compile") and name != "optimizer_foreach":
                    ends = [row[f"predicted{end}"] for end in ("_low", "", "_high")]
                    if None not in ends:
                        yield pair(f"{file.stem}, applied", *rules, 1 - row["timed"]["ratio"], ends)


def pair(program: str, rule: str, measured: float, ends: Sequence[float]) -> Pair:
    low, mid, high = (round(end * 1e6) for end in ends)
    return Pair(program, rule, round(measured * 1e6), Range(low, mid, high))


def learnt(pairs: Sequence[Pair], *, moves: bool) -> MeasuredBySaid:
    """Return what a rule's fix saved by what was said of it. moves: what is likely is corrected too."""
    times = sorted(one.measured / one.said.mid for one in pairs)
    inner = times[1:-1] if len(times) >= LEAST else times
    least, most = max(inner[0], 0.0), max(inner[-1], 0.0)
    middle = max(statistics.median(times), 0.0) if moves else 1.0
    return MeasuredBySaid(programs=len(pairs), least=round(least, 2), middle=round(middle, 2), most=round(most, 2))


def left_out(pairs: Sequence[Pair], *, moves: bool) -> list[Pair]:
    """Return each program's pair, corrected by what the others teach."""
    others = [learnt([p for p in pairs if p is not one], moves=moves) for one in pairs]
    return [replace(one, said=corrected(one.said, found)) for one, found in zip(pairs, others, strict=True)]


def taught(pairs: Sequence[Pair]) -> tuple[MeasuredBySaid | None, Sequence[Pair]]:
    """Return what is learnt of a rule, if anything, and programs as they are predicted where each is left out.

    The likely saving moves if that is much nearer; there is a row if more intervals hold what was measured.
    """
    if len(pairs) < LEAST:
        return None, pairs
    moves = error(left_out(pairs, moves=True)) < NEARER * error(pairs)
    others = left_out(pairs, moves=moves)
    better = sum(one.inside for one in others) > sum(one.inside for one in pairs)
    return (learnt(pairs, moves=moves), others) if better else (None, pairs)


def error(pairs: Sequence[Pair]) -> float:
    return statistics.mean(abs(one.measured - one.said.mid) for one in pairs) / 1e6


def width(pairs: Sequence[Pair]) -> float:
    return statistics.median((one.said.high - one.said.low) / max(one.said.mid, 1) for one in pairs)


def table(by_rule: Mapping[str, Sequence[Pair]]) -> Iterator[str]:
    """Yield a row a rule: before and after, of programs that are left out."""
    yield "| rule | programs | saved by said | off by | corrected | inside | corrected | width | corrected | learnt |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|--:|---|"
    for rule, pairs in sorted(by_rule.items()):
        found, others = taught(pairs)
        cells = [
            rule,
            str(len(pairs)),
            " ".join(
                f"{one.measured / one.said.mid:.2f}" for one in sorted(pairs, key=lambda p: p.measured / p.said.mid)
            ),
            *(f"{error(each):.3f}" for each in (pairs, others)),
            *(str(sum(one.inside for one in each)) for each in (pairs, others)),
            *(f"{width(each):.2f}" for each in (pairs, others)),
            f"{found.middle} ({found.least} to {found.most})" if found else "",
        ]
        yield f"| {' | '.join(cells)} |"


def in_order(pairs: Sequence[Pair]) -> str:
    """Say how many pairs of fixes of one program are said to save in the order of what they saved."""
    both = [
        (one, other)
        for one, other in combinations(pairs, 2)
        if one.program == other.program and abs(one.measured - other.measured) > APART
    ]
    right = sum((one.measured > other.measured) == (one.said.mid > other.said.mid) for one, other in both)
    return f"{right} of {len(both)}"


def moved(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with their likely saving times the median of what other programs' fixes of the rule saved by it."""
    found = []
    for one in pairs:
        others = [p for p in pairs if p.rule == one.rule and p.program != one.program]
        times = learnt(others, moves=True).middle if len(others) >= LEAST else 1.0
        found.append(replace(one, said=Range(0, round(one.said.mid * times), round(one.said.mid * times))))
    return found


def main() -> None:
    MEASURED.clear()  # what is said without the table
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--pairs", action="store_true", help="print each")
    given = parser.parse_args()
    by_rule: dict[str, list[Pair]] = defaultdict(list)
    for one in (*by_hand(), *by_apply()):
        if one.said.mid > 0:
            by_rule[one.rule].append(one)
            if given.pairs:
                print(one)
    print("\n".join(table(by_rule)))
    every = [one for pairs in by_rule.values() for one in pairs]
    print(f"\nin the order of what they saved, of two fixes of a program: {in_order(every)};", end=" ")
    print(f"each moved by the median of other programs: {in_order(moved(every))}")
    if given.write:
        rows = {rule: taught(pairs)[0] for rule, pairs in sorted(by_rule.items())}
        lines = [
            f"{rule} = {{ programs = {one.programs}, least = {one.least}, middle = {one.middle}, most = {one.most} }}\n"
            for rule, one in rows.items()
            if one
        ]
        TABLE.write_text("".join([HEAD, "\n" * bool(lines), *lines]), "utf-8")


if __name__ == "__main__":
    main()
