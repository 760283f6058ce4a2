"""Ask a reader what to change first, who sees first screens alone: `python benchmarks/programs/reading.py RECORDINGS…`.

    reading.py RECORDINGS…                   print the screens, numbered, without the programs' names
    reading.py RECORDINGS… --key             print what was measured of each: fixes, best first, and which are close
    reading.py RECORDINGS… --answers FILE    count a reader's answers: lines "NUMBER FIX", as --key names it
    reading.py RECORDINGS… --order SEED      any of these in another order than the names', for a reader who saw one

The reader answers in words; who knows the key says which fix the words mean, or "none". An answer is right where the
fix gains at least nine tenths of what the best one did; a first change is one fix, so what joins two is left out. So
are programs in which nothing gained 5 %. An answer that is a fix by hand which was not measured is neither right nor
wrong. Close are those whose second fix, of another kind, gained at least two thirds
of the best.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import tracemine
from benchmarks.programs.run import programs
from benchmarks.programs.score import GAIN, usable
from tracemine.report import Drawing, render

RIGHT, CLOSE = 0.9, 2 / 3


def gains(variants: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Each fix that computes the same and the share of the step it saves, best first."""
    before = variants["eager"]["step_ns"]
    single = {name: one for name, one in variants.items() if name != "eager" and "+" not in name}
    found = [(name, 1 - one["step_ns"] / before) for name, one in single.items() if usable(one)]
    return sorted(found, key=lambda pair: -pair[1])


def kind(variant: str) -> str:
    """What a variant changes: modes of torch.compile are one kind."""
    return "compile" if variant.startswith("compile") else variant


def close(measured: list[tuple[str, float]]) -> bool:
    best = measured[0]
    other = next((gain for name, gain in measured if kind(name) != kind(best[0])), 0.0)
    return other >= CLOSE * best[1]


def rules_of(program: str, variant: str) -> str:
    """Return whose findings' fix a variant made by hand is: what they ask for counts as that variant."""
    by_hand = programs()[program].by_hand
    rules, _ = by_hand.get(variant.removeprefix("by_hand:"), ((), None))
    return f" [{', '.join(rules)}]" if rules else ""


def screen(folder: Path) -> str:
    """The first screen of a recording, without its path."""
    report, text = tracemine.scan(folder), StringIO()
    render("text", report.scan, text, Drawing(whole=False, width=100))
    return re.sub(r"\S*/" + re.escape(folder.name) + r"(?=[\s/])\S*", "TRACE", text.getvalue())


def asked(places: Sequence[Path], order: int | None) -> list[tuple[Path, list[tuple[str, float]]]]:
    """Return the recordings of which something gained enough, with what was measured of each, in the order asked."""
    found = []
    for place in places:
        runs = json.loads((place / "runs.json").read_text("utf-8"))["programs"]
        every = ((place / name, gains(variants)) for name, variants in sorted(runs.items()))
        found += [(one, measured) for one, measured in every if one.is_dir() and measured and measured[0][1] >= GAIN]
    if order is not None:
        random.Random(order).shuffle(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--key", action="store_true")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--order", type=int)
    options = parser.parse_args()
    questions = asked(options.recordings, options.order)
    if options.answers:
        given = dict(line.split()[:2] for line in options.answers.read_text("utf-8").splitlines() if line.strip())
        right = of_close = unknown = 0
        for number, (folder, measured) in enumerate(questions, 1):
            answer = given.get(str(number), "none")
            good = dict(measured).get(answer, 0.0) >= RIGHT * measured[0][1]
            tried = answer in dict(measured) or answer.removeprefix("by_hand:") not in programs()[folder.name].by_hand
            right, of_close, unknown = right + good, of_close + (good and close(measured)), unknown + (not tried)
            wrong = f"{answer} gains {dict(measured).get(answer, 0.0):.0%}" if tried else f"{answer} was not measured"
            said = "right" if good else wrong
            print(f"{number:>3} {folder.name:<20} best {measured[0][0]} {measured[0][1]:.0%}: {said}")
        count = sum(close(measured) for _, measured in questions)
        print(f"{right} of {len(questions) - unknown} right, {unknown} not measured; of {count} close ones {of_close}")
        return 0
    for number, (folder, measured) in enumerate(questions, 1):
        if options.key:
            each = ", ".join(f"{variant}{rules_of(folder.name, variant)} {gain:.0%}" for variant, gain in measured)
            print(f"{number:>3} {folder.name}{' (close)' if close(measured) else ''}: {each}")
        else:
            print(f"=== {number} ===\n{screen(folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
