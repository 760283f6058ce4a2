"""What judged wrong kernels beside right ones in the interpreter came to: the table of a run's FILE.

    python -m benchmarks mutants FILE …

FILE is what `python -m benchmarks verify_catalogue -o FILE` wrote: one line (JSON) a chain, as it is or packed (.gz).
Of several files the last that has a chain speaks for it. Prints Markdown: a line for each kind of mistake, and what was
not caught.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any


def kept(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Each chain's last verdict."""
    return {found["chain"]: found for path in paths for found in map(json.loads, _text(path).splitlines())}


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def table(chains: dict[str, dict[str, Any]]) -> str:
    """The verdicts as Markdown."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    missed: list[str] = []
    why: Counter[str] = Counter()
    for name, found in sorted(chains.items()):
        for mutant in found["mutants"]:
            end = _end(mutant)
            counts[mutant["name"]][end] += 1
            if end == "same":
                why[mutant["equivalent"]] += 1
            elif end == "missed":
                missed.append(f"- {name}: {mutant['name']}: `{mutant['line']}`")
    refused = [f"- {name}: {f['trial']}: {f['says']}" for name, found in chains.items() for f in found["faults"]]
    total = sum(counts.values(), Counter[str]())
    caught = total["caught"] + total["sought"]
    refusals = sum(bool(found["faults"]) for found in chains.values())
    lines = [
        f"{len(chains)} chains, {sum(found['trials'] for found in chains.values()):,} trials: "
        f"{refusals} right kernels refused.",
        f"{caught:,} of {caught + total['missed']:,} wrong kernels caught, {total['sought']} of them by inputs that "
        f"were sought for them; {total['same']} others change nothing.",
        "",
        "| mistake | caught | by inputs sought | not caught | changes nothing |",
        "|---|---|---|---|---|",
        *(
            f"| {kind} | {n['caught'] + n['sought']} | {n['sought']} | {n['missed']} | {n['same']} |"
            for kind, n in sorted(counts.items())
        ),
        "",
        "Why they change nothing:",
        "",
        *(f"- {n} × {reason}" for reason, n in why.most_common()),
    ]
    lines += ["", "Not caught:", "", *missed] if missed else []
    lines += ["", "Right kernels refused:", "", *refused] if refused else []
    return "\n".join(lines)


def _end(mutant: dict[str, Any]) -> str:
    if mutant["equivalent"]:
        return "same"
    if not mutant["killed_by"]:
        return "missed"
    return "sought" if mutant["killed_by"].startswith("sought: ") else "caught"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    print(table(kept(parser.parse_args().files)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
