"""What a scan of recorded jobs finds, misses and invents, beside what was planted and what it truly costs."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from programs.jobs import step_ms

FIRST, LEAST, BLAMES = 3, 0.01, 0.03
NEAR = (0.7, 1.3)
# What may not be said of a job in which nothing, or something else, is planted.
BLAMING = ("straggler", "expert_imbalance", "slow_link", "link_below_rate", "length_imbalance", "stage_imbalance")


def score(out: Path) -> None:
    """Print a line a recording, and the counts of the jobs that rules were built on and of those held out."""
    counts: Counter[tuple[str, str]] = Counter()
    print(f"{'job':<22} {'':<8} {'true step':>9} {'said':>6} {'true loss':>15} {'saving':>7}  found")
    for path in sorted(out.glob("*/meta.json")):
        meta = json.loads(path.read_text())
        if "times" not in meta:
            print(f"{path.parent.name:<22} not recorded: {meta['error'].strip().splitlines()[-1][:80]}")
            continue
        part = "held out" if meta["held_out"] else "built on"
        for variant, times in meta["times"].items():
            folder = path.parent / variant
            files = sorted(folder.glob("rank*.json.gz"))
            if len(files) == meta["ranks"]:
                counts.update((part, what) for what in _one(path, variant, times, files))
    for part in ("built on", "held out"):
        of = {what: count for (where, what), count in sorted(counts.items()) if where == part}
        print(f"{part}: " + ", ".join(f"{count} {what}" for what, count in of.items()))


def _one(path: Path, variant: str, times: Any, files: list[Path]) -> list[str]:
    from tracemine.ranks.find import find_job
    from tracemine.ranks.recognise import read_ranks

    name, meta = path.parent.name, json.loads(path.read_text())
    job = find_job(read_ranks(files), name)
    row, alone = step_ms(times)
    base = _clean(path, meta)
    rows = _losses(times, base or times)
    losses = [statistics.median(rows), alone - step_ms(base or times)[1]]
    is_sure = _is_sure(rows)
    planted = meta["planted"] if variant == "planted" else {"rules": [], "ranks": None}
    counted, found = [], None
    for finding in job.findings[:FIRST]:
        if found is None and _means(finding, planted, meta["ranks"]):
            found = finding
    blamed = [finding for finding in job.findings if finding.rule.startswith(BLAMING)]
    blamed = [finding for finding in blamed if finding.rule not in planted["rules"]]
    blamed = [one for one in blamed if one.step_saving_ns is None or one.step_saving_ns.mid >= BLAMES * job.step_ns.mid]
    if variant == "planted" and losses[0] >= LEAST * row:
        counted.append("planted that cost 1 %")
        counted += ["of them found"] if found else ["of them missed"]
    elif variant == "planted":
        counted.append("planted that cost less")
    else:
        counted.append("clean")
    counted += ["invented"] * len(blamed)
    step = job.step_ns
    counted.append("steps in their interval" if step.low <= row * 1e6 <= step.high else "steps outside it")
    saving = found.step_saving_ns if found else None
    if saving is not None and "of them found" in counted:
        low, high = sorted(losses)
        near = NEAR[0] * low <= saving.mid / 1e6 <= NEAR[1] * high
        counted.append("savings within 30 %" if near else "savings further off")
        strict = NEAR[0] * losses[0] <= saving.mid / 1e6 <= NEAR[1] * losses[0]
        counted += ["savings within 30 % of steps in a row"] if strict else []
        counted += ["savings of a sure loss", *(["within 30 % of a sure loss"] if near else [])] if is_sure else []
        counted += ["intervals that hold it"] if saving.low / 1e6 <= high and saving.high / 1e6 >= low else []
    loss = "" if variant == "clean" else f"{losses[0]:.2f} … {losses[1]:.2f}{' ' if is_sure else '~'}"
    saved = "" if saving is None else f"{saving.mid / 1e6:.2f}"
    said = [f"{one.rule}{list(one.ranks) if len(one.ranks) < meta['ranks'] else ''}" for one in job.findings[:FIRST]]
    flag = " MISSED" if "of them missed" in counted else " INVENTED" if blamed else ""
    print(
        f"{name:<22} {variant:<8} {row:>9.2f} {step.mid / 1e6:>6.2f} {loss:>15} {saved:>7}  {', '.join(said)}{flag}"
        + ("" if (job.replay_error_percent or 0) < 5 else f" (replay {job.replay_error_percent} % off)"),
        flush=True,
    )
    return counted


def _means(finding: Any, planted: Any, size: int) -> bool:
    wanted = planted["ranks"]
    right = len(finding.ranks) == size if wanted == "all" else finding.ranks == (wanted,)
    return finding.rule in planted["rules"] and right


def _clean(path: Path, meta: Any) -> Any:
    """Return the times of the job without the plant, from its own recording or from another job's."""
    times = meta["times"].get("clean")
    if times is None and meta["planted"]["clean_is"]:
        other = path.parent.parent / meta["planted"]["clean_is"] / "meta.json"
        times = json.loads(other.read_text()).get("times", {}).get("clean") if other.is_file() else None
    return times


def _losses(times: Any, base: Any) -> list[float]:
    """Return what each block of steps in a row loses against the one that it alternated with."""
    rows = [zip(*(each["back_to_back_ms"] for each in of), strict=True) for of in (times, base)]
    return [max(step) - max(clean) for step, clean in zip(*rows, strict=False)]


def _is_sure(losses: list[float]) -> bool:
    """Return whether a loss is known as well as a saving is judged: the middle half of its blocks lies so near.

    >>> _is_sure([4.0, 4.1, 4.2, 5.0]), _is_sure([2.0, 4.1, 4.2, 9.0])
    (True, False)
    """
    first, middle, last = statistics.quantiles(losses, n=4)
    return NEAR[0] * middle <= first and last <= NEAR[1] * middle
