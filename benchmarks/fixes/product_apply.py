"""Take heads over a vocabulary from a trace to `apply`: `python -m benchmarks.fixes.product_apply OUT [SECONDS]`.

Each step of `steps_of_heads/` is copied to OUT/NAME/source and recorded; `scan` finds its head, `fix` writes the page
and, where it can, the diff, else the lines of CHANGES make one; `verify` times the fix alone, `apply` in the step, next
to torch.compile. OUT/applied.jsonl: what came of each, a line a part; OUT/NAME/: what the commands wrote.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.recordings.own_step import record

STEPS = Path(__file__).parent / "steps_of_heads"
RULES = {"sparse_encoder": "vocabulary_maximum", "causal_language_model": "logits_written"}
# Findings that ask for a step's change: the page pads what an odd vocabulary makes slow as well.
ASKED = {"sparse_encoder": "vocabulary_maximum", "causal_language_model": "logits_written,misaligned_product"}
PAGES = {"sparse_encoder": "vocabulary_max", "causal_language_model": "linear_losses"}
ENDS_S = 30.0  # what `apply` may take beyond its budget: it ends what it has begun
WRITES_S = 15.0  # what an interrupted command may take: `apply` writes what it knows
CHANGES = {  # as a person makes them of the advice
    "sparse_encoder": (
        ("from torch import nn\n", "from torch import nn\n\nfrom vocabulary_max import vocabulary_max\n"),
        (
            "        logits = self.head(self.body(self.words(words)))\n",
            "        hidden = self.body(self.words(words))\n",
        ),
        (
            "torch.max(torch.log1p(torch.relu(logits)) * mask.unsqueeze(-1), dim=1).values",
            "vocabulary_max(hidden, self.head.weight, self.head.bias, mask)",
        ),
    ),
    "causal_language_model": (
        ("from torch import nn\n", "from torch import nn\n\nfrom linear_losses import linear_cross_entropy\n"),
        ("        logits = self.head(hidden).float()\n", ""),
        (
            "F.cross_entropy(logits.flatten(0, 1), labels.flatten())",
            "linear_cross_entropy(hidden, self.head.weight, labels)",
        ),
    ),
}


def diff_of(text: str, name: str) -> str:
    """Return a step's change as a diff."""
    changed = text
    for old, new in CHANGES[name]:
        assert changed.count(old) == 1, old
        changed = changed.replace(old, new)
    before, after = (each.splitlines(keepends=True) for each in (text, changed))
    return "".join(difflib.unified_diff(before, after, f"a/{name}.py", f"b/{name}.py"))


def ended(running: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what an interrupted process has printed; end it, with all that it has started, where it goes on."""
    try:
        return running.communicate(timeout=WRITES_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        return running.communicate()


class Taken:
    """A step on its way: its folder, and how much time is left."""

    def __init__(self, out: Path, name: str, until: float) -> None:
        self.out, self.name, self.until, self.log = out / name, name, until, out / "applied.jsonl"
        shutil.rmtree(self.out, ignore_errors=True)
        (self.out / "source").mkdir(parents=True)
        shutil.copy(STEPS / f"{name}.py", self.out / "source")

    def ran(self, part: str, *given: str, to: str = "") -> bytes:
        """Run this package's command, or this file; write a line of what it did. It is interrupted in time."""
        begun, left = time.monotonic(), self.until - time.monotonic()
        said: dict[str, Any] = {"step": self.name, "part": part}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [sys.executable, "-m", *given], stdout=pipe, stderr=pipe, start_new_session=True
        ) as running:
            try:
                found, errors = running.communicate(timeout=max(left - WRITES_S, 1))
            except subprocess.TimeoutExpired:
                said["raised"] = "took too long"
                running.send_signal(signal.SIGINT)
                found, errors = ended(running)
        said |= {"code": running.returncode, "said": errors.decode("utf-8", "replace")[-400:]}
        if to:
            (self.out / to).write_bytes(found)
        self.note(**said, seconds=round(time.monotonic() - begun, 1))
        return found

    def note(self, **said: Any) -> None:
        """Write a line."""
        with self.log.open("a") as file:
            file.write(json.dumps(said) + "\n")
        print(said.get("part"), said.get("seconds"), flush=True)

    def go(self, verify_s: float, known: Path | None = None) -> None:
        """Take it from the recording to what `apply` says, and `verify` of the fix alone. known: earlier results."""
        source, rule, here = self.out / "source", RULES[self.name], str(self.out / "run")
        self.ran("record", "benchmarks.fixes.product_apply", str(self.out), "--record", self.name)
        scan = self.ran("scan", "tracemine", "scan", here, "--format", "json", "--quiet", to="scan.json")
        ids = [f["fingerprint"] for f in json.loads(scan or b"{}").get("findings", []) if f["rule"] == rule]
        for each in ids[:1]:
            self.ran("fix", "tracemine", "fix", each, here, "--source", str(source), "--quiet", to="fixed.txt")
        from tracemine.fix.diff import page_text

        page, change = PAGES[self.name], self.out / f"{self.name}.diff"
        (source / f"{page}.py").write_text(page_text(page))
        change.write_text(diff_of((source / f"{self.name}.py").read_text(), self.name))
        results = self.out / "applied.jsonl"
        if known is not None:
            shutil.copy(known, results)
        command = ["apply", here, "--entry", f"{self.name}:build", "--source", str(source), "--try", "compile"]
        command += ["--edit", f"{ASKED[self.name]}={change}", "-o", str(results), "--format", "json"]
        budget = max(self.until - time.monotonic() - verify_s - ENDS_S, 20)
        self.ran("apply", "tracemine", *command, "--budget", f"{budget:.0f}s", to="applied.json")
        for line in results.read_text().splitlines()[-1:] if results.exists() else ():
            self.note(step=self.name, part="applied", results=json.loads(line))
        if verify_s:
            told = ("--quick", "--format", "json", "--quiet")
            self.ran("verify", "tracemine", "verify", here, "--rule", rule, *told, to="verdicts.json")


def main() -> int:
    """Take every step; each has its share of the time that is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=240.0)
    parser.add_argument("--steps", nargs="*", default=list(RULES))
    parser.add_argument("--verify", type=float, default=45.0, help="seconds for it, of each step's; 0: not at all")
    parser.add_argument("--known", type=Path, help="what `apply` said before of the one step, in the same OUT")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        record(given.out / "source", given.record, given.out / "run")
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it was ignored commands would ignore it too
    until = time.monotonic() + given.seconds
    for k, name in enumerate(given.steps):
        now = time.monotonic()
        Taken(given.out, name, now + (until - now) / (len(given.steps) - k)).go(given.verify, given.known)
    print((given.out / "applied.jsonl").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
