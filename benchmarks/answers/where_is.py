"""Print how fast a newcomer found where things are, in this tree and in two others.

    python -m benchmarks where_is [benchmarks/results/where_is.json]

The questions, twenty a tree, and the files that answer them stand in questions/*.toml; they were written before anybody
was asked. Somebody who knows Triton, and had the tree alone, said for each which files they opened, in order, having
seen a listing of names and nothing else of the contents: no search for words. What they opened is kept in the results.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
WITHIN = 2  # files opened


def opened_until(files: Sequence[str], opened: Sequence[str]) -> int | None:
    """How many files were opened until one that answers; None where none of them does.

    >>> opened_until(["a.py"], ["b.py", "a.py"]), opened_until(["a.py"], ["b.py"])
    (2, None)
    """
    return next((count for count, name in enumerate(opened, 1) if name in files), None)


def questions(tree: str) -> list[dict[str, Any]]:
    """The questions of one tree, each `ask` and `files`."""
    asked: list[dict[str, Any]] = tomllib.loads((HERE / "questions" / f"{tree}.toml").read_text())["question"]
    return asked


def table(results: Mapping[str, Sequence[Sequence[str]]]) -> list[str]:
    """A line a tree, and under it a line a question that took more files. Raises ValueError for answers missing.

    results: of each tree the files that were opened, in order, a list a question.
    """
    lines = []
    for tree, answers in results.items():
        asked = questions(tree)
        if len(answers) != len(asked):
            raise ValueError(f"{tree}: {len(answers)} answers to {len(asked)} questions")
        counts = [opened_until(each["files"], opened) for each, opened in zip(asked, answers, strict=True)]
        within = sum(count is not None and count <= WITHIN for count in counts)
        first = counts.count(1)
        lines.append(f"{tree}: {within} of {len(asked)} within {WITHIN} files, {first} at the first")
        for each, opened, count in zip(asked, answers, counts, strict=True):
            if count is None or count > WITHIN:
                took = "not found" if count is None else f"{count} files"
                lines.append(f"  {took}: {each['ask']} opened {', '.join(opened)}; it is in {each['files'][0]}")
    return lines


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "where_is.json"
    print("\n".join(table(json.loads(kept.read_text()))))
