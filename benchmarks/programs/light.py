"""Is idle time that a light window tells the unprofiled step's? `python benchmarks/programs/light.py OUT [PROGRAM...]`.

Each program of `host.py`, `device.py`, `left_out.py` and `unseen.py` runs in a process of its own, in turns: timed
alone, recorded by `tracemine.capture` with both windows, and timed alone again. The device was idle for as long as the
step takes alone and its activities do not. That is held against what the whole window tells, with the step's time
alone and without, and against the light window as recorded and with the host as fast as alone. Beside it stands how
far two timings of one process lie apart that record nothing: no prediction comes nearer than that.

OUT/light.json: a record a program. OUT/PROGRAM/: the recording. `--device cpu` tries the machinery where no GPU is.

`--recordings`: OUT is a folder of captures that others recorded. Nothing is run: each is held against the step that it
timed itself, and light windows whose launches are others than the whole window's are counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from programs.run import LIMIT_S, SIDE_BY_SIDE, WARM, locked, machine, prepared, programs, settled, timed

TURNS, LEAST_TURNS, BEFORE_S, AFTER_S = 12, 2, 2.0, 0.5
TIMED = 20  # steps that a capture times
PACE_S = 0.3  # until a host that was waiting has its pace
CORES = 2  # of each program
CASES = ("whole_not_timed", "whole", "light_as_recorded", "light_not_timed", "light")


def alone(step: Callable[[], Any], device: str, within_s: float) -> list[dict[str, Any]]:
    """How long a step takes, in turns: a round with work in the queue behind it, and steps as a capture times them."""
    import torch
    from tracemine.recording.clock import Clock

    began, turns, clock = time.monotonic(), list[dict[str, Any]](), Clock(torch, on_device=device == "cuda")
    while len(turns) < LEAST_TURNS or (len(turns) < TURNS and time.monotonic() < began + within_s):
        turn = {"at_s": round(time.monotonic(), 3), "round_ns": timed(step)}
        for _ in range(WARM):
            step()
        clock.restart()
        for _ in range(TIMED):
            step()
            clock.lap()
        settled()
        turns.append(turn | {"steps_ns": clock.steps_ns()})
    return turns


def round_ns(turns: Sequence[dict[str, Any]]) -> int:
    return int(statistics.median(turn["round_ns"] for turn in turns))


def middle(turn: dict[str, Any]) -> int:
    """How long a step of a turn takes as a capture would say it."""
    return int(statistics.median(turn["steps_ns"]))


def off(turns: Sequence[dict[str, Any]], count: int) -> list[float]:
    """How far medians of so many steps in a row are off all rounds, once the host has its pace."""
    whole, since = round_ns(turns), turns[0]["at_s"] + PACE_S
    steps = [turn["steps_ns"] for turn in turns if turn["at_s"] > since]
    parts = [each[at : at + count] for each in steps for at in range(0, len(each) - count + 1, count)]
    return [abs(statistics.median(part) / whole - 1) for part in parts]


def record(name: str, device: str, out: Path, steps: int, built: Any, at: int) -> None:
    """One program, built beside others, and recorded and timed with nothing else at work."""
    from tracemine.recording import capture

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= CORES * SIDE_BY_SIDE:  # a host that moves between cores times no step twice alike
        os.sched_setaffinity(0, cores[CORES * at : CORES * (at + 1)])
    try:
        _, step = prepared(name, "eager", device)
        for _ in range(8):
            step()
        settled()
    finally:
        with suppress(threading.BrokenBarrierError):  # one of them failed: the others go on
            built.wait(LIMIT_S / 2)
    with (out / "turn").open("w") as turn, locked(turn):
        before = alone(step, device, BEFORE_S)
        began = time.monotonic()
        with capture(out / name, steps=steps, timed=TIMED, quiet=True) as recording:
            for _ in recording.steps():
                step()
        took = time.monotonic() - began
        after = alone(step, device, AFTER_S)
    said = {"before_ns": round_ns(before), "after_ns": round_ns(after), "before": before, "after": after}
    said |= {"capture_at_s": began, "capture_s": round(took, 2), "lacks_light": recording.lacks_light}
    (out / f"{name}.times.json").write_text(json.dumps(said))


def recorded(names: Sequence[str], device: str, out: Path, steps: int) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(names))
    processes = [
        context.Process(target=record, args=(name, device, out, steps, barrier, at)) for at, name in enumerate(names)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(2 * LIMIT_S)
        process.kill()


# -- what is predicted -------------------------------------------------------------------------------------------------


def told(folder: Path) -> dict[str, Any]:
    """Busy and idle time a step by what was recorded, and by each way to tell it."""
    from tracemine.formats import open_trace

    timeline = open_trace(folder)
    return {"warnings": list(timeline.meta.ingest.warnings), **idle_by_case(timeline)}


def idle_by_case(timeline: Any) -> dict[str, Any]:
    import msgspec
    from msgspec.structs import replace

    from tracemine.findings import device_of
    from tracemine.findings.accounting import measure
    from tracemine.findings.context import ScanContext
    from tracemine.findings.light import in_light
    from tracemine.rows import row_sets
    from tracemine.rows.arrow import rows_of
    from tracemine.rows.gaps import gap_rows
    from tracemine.rows.table import number

    rows, found = row_sets(timeline), {}
    untimed = msgspec.structs.replace(timeline.meta, alone_step_ns=None, host_step_ns=None)
    whole = replace(timeline, light=None)
    cases = {"whole_not_timed": replace(whole, meta=untimed), "whole": whole}
    if timeline.light.num_rows:
        cases["light_not_timed"] = replace(timeline, meta=untimed)
        cases["light"] = timeline
        found["matched"] = int((rows_of(timeline.light["activity_row"]) >= 0).sum())
    for case, each in cases.items():
        context = ScanContext(each, rows, device_of(each), measure(each))
        count = max(context.accounts.steps, 1)
        found["busy_ns"] = context.busy_ns
        found[case] = int(in_steps(context).sum()) // count
        slowdown = context.steps.slowdown
        found[f"{case}_host"] = None if slowdown is None else slowdown.host or slowdown.usual
    if timeline.light.num_rows:
        gaps = gap_rows(in_light(timeline))
        found["light_as_recorded"] = int(number(gaps, "dur_ns").sum()) // count
    return found


def in_steps(context: Any) -> Any:
    """Of each gap, as it lasts unprofiled, what lies in a step."""
    import numpy as np

    from tracemine.rows.table import number

    recorded = np.maximum(number(context.rows["gaps"], "dur_ns"), 1)
    return context.unprofiled_gaps_ns[1] * context.in_steps_ns / recorded


# -- what the light trace holds ----------------------------------------------------------------------------------------


def union_ns(spans: list[tuple[int, int]]) -> int:
    total, end = 0, 0
    for begin, until in sorted(spans):
        total += max(until - max(begin, end), 0)
        end = max(end, until)
    return total


def held(folder: Path) -> dict[str, Any]:
    """What both traces hold, event by event: kinds, and a step's activities and calls by the marks."""
    import gzip
    from collections import Counter

    about = json.loads((folder / "capture.json").read_text())
    found: dict[str, Any] = {key: about[key] for key in ("alone_step_ns", "recorded_step_ns", "slowdown")}
    if about["light"] is None:
        return found
    light = json.loads(gzip.decompress((folder / "light.json.gz").read_bytes()))
    base, marks = light.get("baseTimeNanoseconds", 0), about["light"]["marks_ns"]
    events = [event for event in light["traceEvents"] if event.get("ph") == "X"]
    kinds = Counter(str(event.get("cat")) for event in events)
    on_device = [
        (round(event["ts"] * 1000) + base, round((event["ts"] + event["dur"]) * 1000) + base)
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    calls = [
        round(event["ts"] * 1000) + base for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")
    ]
    return found | {
        "light_step_ns": about["light"]["step_ns"],
        "light_slowdown": about["light"]["slowdown"],
        "light_steps": len(marks),
        "light_kinds": dict(kinds),
        "light_busy_ns": union_ns(on_device) // max(len(marks), 1),
        "mark_to_mark_ns": (marks[-1][1] - marks[0][0]) // max(len(marks), 1),
        "first_call_after_mark_ns": min(calls) - marks[0][0] if calls else None,
        "last_call_before_mark_ns": marks[-1][1] - max(calls) if calls else None,
        "calls_in_steps": [sum(begin <= call <= end for call in calls) for begin, end in marks],
        "light_bytes": (folder / "light.json.gz").stat().st_size,
        "whole_bytes": (folder / "trace.json.gz").stat().st_size,
    }


def of_program(folder: Path, times: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in (lambda: json.loads(times.read_text()), lambda: held(folder), lambda: told(folder)):
        try:
            found |= part()
        except Exception as error:  # what cannot be told is a result
            found.setdefault("errors", []).append(f"{type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc()
    return found


def summary(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How far each way to tell idle time is from what the step alone says: of the step, median and ninth tenth."""
    errors: dict[str, list[float]] = {}
    own: dict[str, list[float]] = {}
    for name, said in found.items():
        if not said.get("busy_ns") or not said.get("before_ns"):
            continue
        step_ns = said["before_ns"]  # a process that was recorded stays slower
        truth = max(step_ns - said["busy_ns"], 0)
        cells = [f"{said.get('light_slowdown') or 0:.3f}", f"{(said.get('slowdown') or 0):.2f}", f"{truth / 1e3:.0f}"]
        cells.append(f"timed in the capture {said['alone_step_ns'] / step_ns - 1:+.1%}")
        errors.setdefault("two_timings", []).append(abs(said["alone_step_ns"] / step_ns - 1))
        if turns := said.get("before"):
            *earlier, last = turns
            errors.setdefault("nothing_recorded_between", []).append(abs(middle(last) / round_ns(earlier) - 1))
            signed = statistics.median(middle(turn) / turn["round_ns"] - 1 for turn in turns)
            errors.setdefault("steps_against_rounds", []).append(abs(signed))
            for count in (3, 5, 10, TIMED):
                own.setdefault(f"{count}_steps_in_a_row", []).extend(off(turns, count))
            cells.append(f"not between {middle(last) / round_ns(earlier) - 1:+.1%}, against rounds {signed:+.1%}")
        for case in CASES:
            if said.get(case) is not None:
                left_ns = max(said["alone_step_ns"] - said["busy_ns"], 0)
                own.setdefault(f"{case}_of_its_own", []).append(abs(said[case] - left_ns) / said["alone_step_ns"])
                error = (said[case] - truth) / step_ns
                errors.setdefault(case, []).append(abs(error))
                cells.append(f"{case} {said[case] / 1e3:.0f} ({error:+.1%})")
        print(name, f"{step_ns / 1e3:.0f} us", *cells, flush=True)
    said = {
        case: {
            "timings" if case.endswith("row") else "programs": len(each),
            "median": round(statistics.median(each), 4),
            "p90": round(sorted(each)[min(int(0.9 * len(each)), len(each) - 1)], 4),
        }
        for case, each in (errors | own).items()
    }
    slow = sorted(one["light_slowdown"] for one in found.values() if one.get("light_slowdown"))
    if slow:
        said["light_slowdown"] = {
            "median": statistics.median(slow),
            "p90": slow[int(0.9 * len(slow))],
            "most": slow[-1],
        }
    return said


def of_recordings(folder: Path) -> None:
    """Hold each capture of a folder against the step that it timed itself."""
    found: dict[str, dict[str, Any]] = {}
    refused, launches = [], 0
    for path in sorted(path.parent for path in folder.glob("*/light.json.gz")):
        about = json.loads((path / "capture.json").read_text())
        said = told(path) | {"alone_step_ns": about["alone_step_ns"], "before_ns": about["alone_step_ns"]}
        if "light" not in said:
            refused.append((path.name, [text for text in said["warnings"] if "light window" in text]))
        launches += said.get("matched", 0)
        found[path.name] = said | {"light_slowdown": about["light"]["slowdown"], "slowdown": about["slowdown"]}
    print(json.dumps(summary(found), indent=1))
    print(
        f"{len(found) - len(refused)} of {len(found)} light windows matched, {launches:,} launches; refused: {refused}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--within", type=float, default=1e9, help="seconds after which no more programs are begun")
    parser.add_argument("--recordings", action="store_true", help="OUT holds captures; run nothing")
    parser.add_argument("--again", action="store_true", help="record nothing; tell of what was recorded before")
    chosen = parser.parse_args()
    if chosen.recordings:
        of_recordings(chosen.out)
        return
    names, began = chosen.programs or list(programs()), time.monotonic()
    chosen.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": machine(chosen.device), "programs": {}}
    for at in range(0, len(names), SIDE_BY_SIDE):
        batch = names[at : at + SIDE_BY_SIDE]
        if time.monotonic() - began > chosen.within:
            break
        if not chosen.again:
            recorded(batch, chosen.device, chosen.out, chosen.steps)
        for name in batch:
            result["programs"][name] = of_program(chosen.out / name, chosen.out / f"{name}.times.json")
        result["summary"] = summary(result["programs"]) if at + SIDE_BY_SIDE >= len(names) else None
        (chosen.out / "light.json").write_text(json.dumps(result, indent=1))
        print(f"{at + len(batch)} of {len(names)}, {time.monotonic() - began:.0f} s", flush=True)
    print(json.dumps(summary(result["programs"]), indent=1))


if __name__ == "__main__":
    main()
