"""How much of the GPU's time is classified: `python -m benchmarks coverage [--names N] TRACE_OR_FOLDER…`.

For each trace the share of its GPU time whose kernels have a class (product, attention, norm …), and its classes by
time. Beside it what is not: the names that take most of the unclassified time. With `--names N` also the N names that
take most time, each with its operator, family and class, to be read: a class that is wrong is worse than none.
`unlike` counts the time of kernels whose name is of one class and whose operator is of another, where both are known
and neither is a helper; `by name` is what names alone classify, as within CUDA graphs.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tracemine.errors import TracemineError
from tracemine.formats import open_trace
from tracemine.ops import classify, lookup
from tracemine.rows.activities import activity_rows
from tracemine.rows.table import Categories, Rows, category, number
from tracemine.timeline import Timeline

_UNCLASSIFIED = "other"
_SHOWN = 88


def main() -> None:
    """Print a paragraph a trace, and the least of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--names", type=int, default=0)
    asked = parser.parse_args()
    shares: dict[str, float] = {}
    for path in sorted(path for place in asked.places for path in _traces(place)):
        try:
            timeline = open_trace(path)
        except TracemineError as error:
            print(f"{path.name}: not read, {error.message[:60]}")
            continue
        rows = activity_rows(timeline)
        if not int(number(rows, "dur_ns").sum()):
            print(f"{path.name}: no GPU time")
            continue
        shares[path.name] = _told(path, timeline, rows, asked.names)
    print(f"\n{sum(share >= 0.95 for share in shares.values())} of {len(shares)} traces have 95 % classified")
    for name, share in sorted(shares.items(), key=lambda each: each[1]):
        if share < 0.95:
            print(f"  {share:6.1%}  {name}")


def _traces(place: Path) -> Iterator[Path]:
    if place.is_file() or Timeline.lies_in(place) or (place / "trace.json.gz").exists():
        yield place
        return
    yield from (each for each in place.iterdir() if each.is_dir() or each.name.endswith((".json", ".gz", ".sqlite")))


def _told(path: Path, timeline: Timeline, rows: Rows, names: int) -> float:
    dur, name, kind = number(rows, "dur_ns"), category(rows, "name"), category(rows, "op_class")
    time: Counter[str] = Counter()
    for text, ns in zip(_texts(kind), dur.tolist(), strict=True):
        time[text] += ns
    whole = time.total()
    share = 1 - time[_UNCLASSIFIED] / whole
    classes = ", ".join(f"{text} {ns / whole:.1%}" for text, ns in time.most_common(12) if ns / whole >= 0.001)
    beside = f"unlike {_unlike(rows) / whole:.1%}; by name {_by_name(rows) / whole:.1%}"
    print(f"\n{share:6.1%}  {path.name}: {classes}; {beside}")
    by_name: Counter[tuple[str, str, str, str]] = Counter()
    for each, ns in zip(
        zip(_texts(kind), _texts(category(rows, "family")), _texts(category(rows, "op")), _texts(name), strict=True),
        dur.tolist(),
        strict=True,
    ):
        by_name[each] += ns
    missing = [(each, ns) for each, ns in by_name.most_common() if each[0] == _UNCLASSIFIED][:8]
    for (_, _, op, text), ns in missing:
        print(f"    ? {ns / whole:6.2%}  {op:<30} {text[:_SHOWN]}")
    for (op_class, family, op, text), ns in by_name.most_common(names):
        print(f"      {ns / whole:6.2%}  {op_class:<10} {family:<18} {op:<34} {text[:_SHOWN]}")
    return share


def _texts(categories: Categories) -> list[str]:
    return [*(categories.values[code] if code >= 0 else "" for code in categories.codes.tolist())]


def _by_name(rows: Rows) -> int:
    """Time of kernels whose names are known to the table."""
    names = category(rows, "name")
    known = np.array([*(each.op_class != _UNCLASSIFIED for each in classify(names.values)), False])
    return int(number(rows, "dur_ns")[known[names.codes]].sum())


def _unlike(rows: Rows) -> int:
    """Time of kernels whose name and whose operator are of other classes, both known, the operator's only kernel."""
    dur, auxiliary = number(rows, "dur_ns"), rows.columns["auxiliary"]
    names, ops = category(rows, "name"), category(rows, "op")
    by_name = np.array([*(each.op_class for each in classify(names.values)), ""])[names.codes]
    meant = [lookup(op) for op in ops.values]
    by_op = np.array([*("" if each is None else each.op_class for each in meant), ""])[ops.codes]
    known = ~np.isin(by_name, (_UNCLASSIFIED, "")) & ~np.isin(
        by_op, (_UNCLASSIFIED, "", "view", "allocate", "metadata")
    )
    return int(dur[known & (by_name != by_op) & ~auxiliary.values].sum())  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
