"""Does `apply` find what makes a step of several ranks faster: `python benchmarks/programs/applied_ranks.py OUT`?

Each rank of the step in `steps_of_ranks/` is recorded, the first one's recording scanned, and `apply` tries what that
asks for, torch.compile's modes and changes of the source, in as many processes. Three changes are wrong: one in a rank
alone, one by gradients that are not summed, one fails in a rank. OUT/data_parallel.json: what came of it, written as it
comes; the table is printed. On a CPU the changes alone are tried: it compiles for minutes. `--only NAME`: nothing is
recorded, and that alone is tried, a change or one of torch.compile's modes.
"""

from __future__ import annotations

import argparse
import difflib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
STEPS = Path(__file__).resolve().parent / "steps_of_ranks"
NAME = "data_parallel"
# By name the rules that advise a change, and the change.
EDITS: Mapping[str, tuple[Sequence[str], tuple[str, str]]] = {
    "larger_buckets": (("small_messages", "communication_exposed"), ("bucket_cap_mb=1", "bucket_cap_mb=25")),
    "not_printed": (("host_sync",), ("losses.append(loss.item())", "held = loss.detach()")),
    "wrong_in_one_rank": ((), ("said = model(words)", "said = model(words) * (1.5 if rank else 1.0)")),
    "not_summed": ((), ("said = model(words)", "said = model.module(words)")),
    "fails_in_one_rank": ((), ("loss.backward()", "loss.backward() if not rank else missing")),
}
WRONG = ("wrong_in_one_rank", "not_summed", "fails_in_one_rank")


def diff_of(change: tuple[str, str]) -> str:
    """Return a unified diff of the step's source. The text that is changed is there once."""
    old = (STEPS / f"{NAME}.py").read_text("utf-8")
    if old.count(change[0]) != 1:
        raise ValueError(f"{change[0]!r} is there {old.count(change[0])} times")
    sides = (text.splitlines(keepends=True) for text in (old, old.replace(*change)))
    return "".join(difflib.unified_diff(*sides, f"a/{NAME}.py", f"b/{NAME}.py", n=1))


def record(out: Path) -> None:
    """Record a rank, in its own process."""
    import torch

    sys.path.insert(0, str(STEPS))
    from importlib import import_module

    from tracemine.recording import capture

    step = import_module(NAME).build()
    batches = [step.batches[at % len(step.batches)] for at in range(24)]
    for batch in batches[:6]:
        step.run(batch)
    with capture(out / "recordings" / os.environ["RANK"], steps=2, timed=8, quiet=True) as run:
        for batch in run.steps(batches):
            step.run(batch)
    torch.distributed.destroy_process_group()  # else the other rank waits for it, and says so


def recorded(out: Path, ranks: int) -> None:
    """Record all ranks."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(found.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    begun = [
        subprocess.Popen(
            [sys.executable, __file__, str(out), "--record"],
            env={"OMP_NUM_THREADS": "2", **os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    if codes := [code for process in begun if (code := process.wait(180))]:
        raise SystemExit(f"recording ended with {codes}")


def wanted_in(out: Path, only: Sequence[str]) -> Any:
    """Scan the first rank's recording, and return what it asks for; or what is named."""
    import torch

    from benchmarks.programs.applied import looked_at
    from tracemine.apply.asked import Wanted, asked_by, asked_for, found_in
    from tracemine.apply.variants import VARIANTS, edit_name

    findings, modes = ([], {}) if only else found_in(*looked_at(out / "recordings" / "0"))
    print(*(f"{finding.rule}: {finding.title}" for finding in findings), sep="\n")
    named = [name for name in only if name in VARIANTS]
    wanted = asked_for(findings, modes, named) if named or (torch.cuda.is_available() and not only) else Wanted()
    for name, (rules, change) in EDITS.items():
        if name in only or not only:
            file = out / f"{name}.diff"
            file.write_text(diff_of(change), "utf-8")
            wanted[edit_name(file)] = asked_by(findings, rules)
    return wanted


def tried(out: Path, wanted: Any, ranks: int, until: float, limit_s: float) -> Any:
    """Try what is wanted; write what is known so far."""
    from tracemine.apply.record import in_json
    from tracemine.apply.run import applied

    def keep(run: Any) -> None:
        (out / f"{NAME}.json").write_text(in_json(run) + "\n", "utf-8")

    run = applied(
        f"{NAME}:build",
        STEPS,
        wanted,
        ranks=ranks,
        budget_s=max(until - time.monotonic(), 1.0),
        limit_s=limit_s,
        say=lambda text: print(f"{until - time.monotonic():.0f} s left: {text}", flush=True),
        progress=keep,
    )
    keep(run)
    return run


def main() -> int:
    """Record, try, print; 1 where a change that is wrong was not found so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds, of recording too")
    parser.add_argument("--limit", type=float, default=50.0, help="seconds, of building a variant")
    parser.add_argument("--only", action="append", default=[], help="try that alone, and record nothing")
    parser.add_argument("--record", action="store_true", help="as one rank of several")
    given = parser.parse_args()
    until = time.monotonic() + given.budget
    given.out.mkdir(parents=True, exist_ok=True)
    if given.record:
        record(given.out)
        return 0
    if not given.only:
        recorded(given.out, given.ranks)
    run = tried(given.out, wanted_in(given.out, given.only), given.ranks, until, given.limit)
    from tracemine.apply.table import table

    print("\n".join(table(run)))
    said = {row.variants[0].rpartition("/")[2].removesuffix(".diff"): row.said for row in run.alone}
    return int(any(said.get(name) not in ("wrong", "failed") for name in given.only or WRONG if name in WRONG))


if __name__ == "__main__":
    sys.exit(main())
