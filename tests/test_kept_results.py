"""Figures of the documents are those that results kept in the repository give, by the command that prints them."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@cache
def printed(folder: str) -> dict[str, str]:
    """What the command prints of each kind of chain."""
    command = [sys.executable, "benchmarks/proofs/verify.py", "kept", f"benchmarks/results/{folder}"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    parts = re.split(r"\n\n(\w+)\n(?=chain )", "\n" + text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    ("folder", "kind", "document"),
    [
        ("h200", "finding", "benchmarks/results/README.md"),
        ("h200", "catalogue", "benchmarks/results/README.md"),
        ("h200", "losing", "benchmarks/README.md"),
        ("h200/unseen", "finding", "benchmarks/results/README.md"),
    ],
)
def test_a_document_says_of_the_kernels_what_is_printed_of_them(folder: str, kind: str, document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    ratio = re.search(r"^compiled / ours, geometric mean of \d+: ([\d.]+)", printed(folder)[kind], re.M)
    share = re.search(r"of those that move 64 MB or more: (\d+ of \d+)", printed(folder)[kind])
    assert ratio is not None
    assert share is not None
    assert ratio[1] in text
    assert kind == "losing" or share[1] in text


def test_the_table_of_wrong_kernels_is_what_its_verdicts_print() -> None:
    kept = sorted(f"{path.relative_to(ROOT)}" for path in (ROOT / "benchmarks/results").glob("mutants_*.jsonl.gz"))
    assert kept
    for path in kept:
        command = [sys.executable, "benchmarks/proofs/mutants.py", path]
        text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert text == (ROOT / path.replace(".jsonl.gz", ".md")).read_text("utf-8")
        first, second = text.split("\n")[:2]
        assert " 0 right kernels refused" in first
        caught = re.match(r"([\d,]+) of ([\d,]+) wrong kernels caught", second)
        assert caught is not None
        assert caught[1] == caught[2]
        assert caught[0].removesuffix(" wrong kernels caught") in (ROOT / "benchmarks/results/README.md").read_text(
            "utf-8"
        )
