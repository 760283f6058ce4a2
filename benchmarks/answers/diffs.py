"""Whether `tracemine diff` says of pairs of recordings what was judged by hand.

    python -m benchmarks diffs TRACES RECORDINGS

results/diffs.toml is the list: a pair a table, before and after below one of the two folders, the findings that were
judged with the reason, and what holds for all others. TRACES are public ones (TRACEMINE_COMPAT_TRACES); RECORDINGS are
those of record_steps.py and record_models.py, a folder a GPU. Pairs that are not there are counted and left out.

Prints each disagreement with its figures, then how many findings agree, how many are called unknown where something was
judged (an abstention), and how many are called something else. A disagreement stays until one of both is mended.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tracemine import pipeline
from tracemine.comparison import Difference, FindingChange, diff
from tracemine.findings import Scan
from tracemine.formats import recording_in
from tracemine.units import time_text

LIST = Path(__file__).parents[1] / "results/diffs.toml"


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    roots = [Path(given) for given in sys.argv[1:]]
    agreed: Counter[str] = Counter()
    disagreed: list[tuple[str, str]] = []
    missing = 0
    for pair in tomllib.loads(LIST.read_text(encoding="utf-8"))["pair"]:
        paths = [found(roots, pair[side]) for side in ("before", "after")]
        if None in paths:
            missing += 1
            continue
        difference = diff(*(scanned(path) for path in paths if path is not None))
        for status, text in compared(pair, difference):
            if text is None:
                agreed[status] += 1
            else:
                disagreed.append((status, f"{pair['before']} → {pair['after']}: {text}"))
    print(*(text for _, text in disagreed), sep="\n")
    total = sum(agreed.values()) + len(disagreed)
    share = 100 * sum(agreed.values()) / max(total, 1)
    abstained = sum(status == "unknown" for status, _ in disagreed)
    print(f"\n{sum(agreed.values())} of {total} findings as judged ({share:.1f} %); {missing} pairs are not there")
    print(f"{abstained} unknown where something was judged, {len(disagreed) - abstained} something else")
    print("agreed: " + ", ".join(f"{count} {status}" for status, count in agreed.most_common()))


def compared(pair: dict[str, Any], difference: Difference) -> Iterator[tuple[str, str | None]]:
    """Of each change its status, and what was judged where that is something else; what was judged and is not there."""
    judged = {one["id"]: one for one in pair.get("finding", [])}
    rest = [pair["rest"]] if isinstance(pair["rest"], str) else pair["rest"]
    seen: set[str] = set()
    for change in difference.changes:
        mark = next((mark for mark in judged if any(m.startswith(mark) for m in marks(change))), None)
        expected = rest if mark is None else [judged[mark]["status"]]
        if mark is not None:
            seen.add(mark)
        figures = f"{time_text(change.before_ns)} → {time_text(change.after_ns)}, noise {time_text(change.noise_ns)}"
        said = f"{change.status}, judged {' or '.join(expected)}: {change.title} ({marks(change)[0]}; {figures})"
        yield change.status, None if change.status in expected else said
    for mark in judged.keys() - seen:
        yield "", f"not found, judged {judged[mark]['status']}: {mark}"


def marks(change: FindingChange) -> list[str]:
    return [part.fingerprint for part in (*change.before, *change.after)]


def found(roots: list[Path], name: str) -> Path | None:
    return next((root / name for root in roots if (root / name).exists()), None)


@cache
def scanned(path: Path) -> Scan:
    """The scan of a trace, of a recording, or of a capture that has no execution trace."""
    alone = path.is_dir() and recording_in(path) is None
    return pipeline.scan(path / "trace.json.gz" if alone else path)


if __name__ == "__main__":
    main()
