"""Does `apply` find what makes a step faster: `python benchmarks/programs/applied.py OUT [PROGRAM...]`?

Each step of `steps/` is recorded and scanned; then `apply` tries torch.compile's modes, settings that findings ask for
and the changes of `applied_edits.py`, alone and together. Into a step of its own six faults are planted, and ten
changes that do nothing. Several programs build at once; while one is timed or recorded all others rest.

OUT/PROGRAM.json: what came of it, written as it comes. OUT/summary.json: the judgement. Several GPUs have a share of
the programs and of the cores each. `--before ARCHIVE`: recordings and results of an earlier run, which are not made
anew. `--device cpu` tries the machinery where no GPU is; `--judge` judges what is there, scanning recordings anew:
`--before benchmarks/results/h200/applied.tar.xz --judge` what is kept.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from recordings.own_step import record  # noqa: E402

from programs import kept  # noqa: E402
from programs.applied_edits import EDITS, FAULTS, FAULTS_ON_CPU, NOTHING, STEPS, diff_of  # noqa: E402

FAULTY = "plain"
# By what is learnt most of in the time there is.
ORDER = (
    "experts", "generate", "preference", "graph_network", "policy", "detections", "amp_training", "recommender",
    "pictures_training", "language_model", "sampler", "recurrent", FAULTY,
)  # fmt: skip
# Products of the library alone: to tune Triton's takes minutes a program, and these are bound by what they launch.
TUNED = {f"TORCHINDUCTOR_MAX_AUTOTUNE_{kind}_BACKENDS": "ATEN" for kind in ("GEMM", "CONV")}
AT_ONCE = 4  # programs whose variants are built at once, of a GPU
LIMIT_S, BUDGET_S, BUILD_LIMIT_S = 320, 220, 200  # of a program, of beginning its variants, of building one
GRACE_S = 60  # for what has begun
GAIN = 0.05  # of the step: less is noise
MODES = ("compile", "compile_reduce_overhead", "compile_max_autotune")


# -- only one at a time is timed ---------------------------------------------------------------------------------------


def parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started, as they are now."""
    above, found = parents(), [pid]
    for each in found:
        found += [child for child, parent in above.items() if parent == each]
    return found


def told(pids: Sequence[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, what)


def stopped(pid: int) -> list[int]:
    """Let a process and all that it started rest."""
    resting: list[int] = []
    for _ in range(5):  # what began while others were stopped
        new = [each for each in descendants(pid) if each not in resting]
        if not new:
            break
        told(new, signal.SIGSTOP)
        resting += new
    return resting


@contextmanager
def turn(slot: Path, mine: int) -> Iterator[None]:
    """Wait until no other program of the same GPU is timed, and let all of them rest."""
    with slot.with_suffix(".turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        resting: list[int] = []
        try:
            for other in (int(each.name) for each in slot.iterdir()):
                if other != mine:
                    resting += stopped(other)
            time.sleep(0.1)  # what they had asked of the GPU
            yield
        finally:
            told(resting, signal.SIGCONT)
            fcntl.flock(file, fcntl.LOCK_UN)


# -- one program -------------------------------------------------------------------------------------------------------


def looked_at(folder: Path) -> tuple[Any, Any]:
    """Return what is found in a recording, and what graphs and torch.compile's modes come to."""
    from tracemine.api.pictures import tops_of
    from tracemine.pipeline import ScanOptions, analyse, mined

    analysis = analyse(folder)
    scan = mined(analysis)
    return scan, tops_of(analysis, scan, ScanOptions()).graphs()


def named(findings: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Return fingerprints, as what was tried names them, with rules and titles."""
    from tracemine.findings.grouping import variants_of

    return [(variants_of(finding)[0].fingerprint, finding.rule, finding.title) for finding in findings]


def edits_of(name: str, folder: Path, on_gpu: bool) -> dict[Path, Sequence[str]]:
    """Write a program's diffs; return the rules that advise each."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = FAULTS if on_gpu else {**FAULTS, **FAULTS_ON_CPU}
    planted = {fault: ((), changes) for fault, (_, _, changes) in faults.items()}
    planted |= {nothing: ((), changes) for nothing, changes in NOTHING.items()}
    edits = planted if name == FAULTY else {key: (edit.rules, edit.changes) for key, edit in EDITS[name].items()}
    found = {}
    for key, (rules, changes) in edits.items():
        (folder / f"{key}.diff").write_text(diff_of(name, changes), "utf-8")
        found[folder / f"{key}.diff"] = rules
    return found


def known_of(file: Path, names: Sequence[str]) -> dict[tuple[str, ...], Any]:
    """Return what an earlier run found of variants that are still the same, but what more time may change."""
    import msgspec

    from tracemine.apply.record import Tried

    said, now = json.loads(file.read_text()) if file.exists() else {}, {name.rpartition(":")[0]: name for name in names}
    found = {}
    for row in (*said.get("run", {}).get("alone", ()), *said.get("run", {}).get("together", ())):
        variants = tuple(now.get(each.rpartition(":")[0], "") if ":" in each else each for each in row["variants"])
        doubtful = row["said"] == "no difference" and row["timed"]["ratio"] < 0.9
        late = row["said"] == "failed" and "did not answer" in row["why"]
        if all(variants) and row["said"] not in ("wrong", "not tried") and not doubtful and not late:
            found[variants] = msgspec.convert({**row, "variants": variants}, Tried)
    return found


def one(name: str, out: Path, slot: Path, on_gpu: bool, until: float) -> None:
    """Record, scan and apply; write what came of it, as it comes."""
    import msgspec

    from tracemine.apply.asked import asked_by, asked_for, found_in
    from tracemine.apply.run import applied
    from tracemine.apply.variants import edit_name

    began, said = time.monotonic(), dict[str, Any](program=name)

    def keep(run: Any = None, **more: Any) -> None:
        said.update(more, took_s=round(time.monotonic() - began, 1))
        if run is not None:
            said["run"] = msgspec.to_builtins(run)
        (out / f"{name}.new").write_text(json.dumps(said, indent=1))
        (out / f"{name}.new").rename(out / f"{name}.json")

    keep()
    findings, modes = list[Any](), dict[str, Any]()
    if name != FAULTY:
        try:
            command = (sys.executable, __file__, str(out), name, "--slot", str(slot), "--record", str(os.getpid()))
            if not (out / "recordings" / name).exists():
                done = subprocess.run(command, timeout=90, capture_output=True, text=True, check=False)
                if done.returncode:
                    keep(recording=done.stderr[-1500:])
            findings, modes = found_in(*looked_at(out / "recordings" / name))
        except Exception as error:  # goes on without predictions
            keep(recording=f"{said.get('recording', '')}\n{type(error).__name__}: {str(error)[:500]}")
    asking = {} if name == FAULTY else asked_for(findings, modes)
    edits = edits_of(name, out / "diffs" / name, on_gpu)
    wanted = {edit_name(file): asked_by(findings, rules) for file, rules in edits.items()} | asking
    keep(findings=named(findings), scanned_s=round(time.monotonic() - began, 1))
    if not until:
        return
    try:
        run = applied(
            f"{name}:build",
            STEPS,
            wanted,
            budget_s=max(min(BUDGET_S, until - time.time()), 1),
            limit_s=BUILD_LIMIT_S,
            known=known_of(out / "before" / f"{name}.json", list(wanted)),
            say=lambda text: print(f"{name} {time.monotonic() - began:.0f} s: {text}", flush=True),
            turn=lambda: turn(slot, os.getpid()),
            progress=keep,
        )
        keep(run, whole=True)
    except Exception as error:  # what fails is a result
        keep(error=f"{type(error).__name__}: {str(error)[:500]}", trace=traceback.format_exc()[-2000:])


# -- all of them -------------------------------------------------------------------------------------------------------


def slots_in(out: Path, device: str) -> list[tuple[Path, dict[str, str], set[int]]]:
    """Return for each GPU a folder for what runs there, its environment, and its share of the cores."""
    listed = () if device == "cpu" else ("nvidia-smi", "-L")
    said = subprocess.run(listed, capture_output=True, text=True, check=False).stdout if listed else ""
    count, cores = max(said.count("GPU "), 1), sorted(os.sched_getaffinity(0))
    found = []
    for number in range(count):
        slot = out / "slots" / str(number)
        slot.mkdir(parents=True, exist_ok=True)
        visible = (
            {"CUDA_VISIBLE_DEVICES": "" if device == "cpu" else str(number)} if device == "cpu" or count > 1 else {}
        )
        share = cores[number * len(cores) // count : (number + 1) * len(cores) // count]
        found.append((slot, visible, {*share}))
    return found


def all_of(names: Sequence[str], out: Path, device: str, within: float, jobs: int, scan: bool) -> None:
    """Run programs, several at once, each with a limit; begin none after so long. scan: nothing is tried in them."""
    running, left, began = dict[str, tuple[Any, float, Path]](), list(names), time.monotonic()
    until, slots = 0.0 if scan else time.time() + within, slots_in(out, device)
    environment = {"OMP_NUM_THREADS": "2", **TUNED, **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent.parent), environment.get("PYTHONPATH", "")])
    while running or left:
        passed = time.monotonic() - began
        for name, (process, since, slot) in list(running.items()):
            late = time.monotonic() - since > LIMIT_S or passed > within + GRACE_S
            if process.poll() is None and late:
                family = descendants(process.pid)
                told(family, signal.SIGKILL)
                process.wait(10)
                print(f"{name}: stopped after {time.monotonic() - since:.0f} s", flush=True)
            if process.poll() is not None:
                (slot / str(process.pid)).unlink(missing_ok=True)
                del running[name]
                for other, _, its in running.values():  # it may have let them rest
                    if late and its == slot:
                        told(descendants(other.pid), signal.SIGCONT)
                print(f"{name}: ended after {time.monotonic() - since:.0f} s, {passed:.0f} s in all", flush=True)
        while left and len(running) < jobs * len(slots) and passed < within:
            name = left.pop(0)
            slot, own, cores = min(slots, key=lambda each: sum(its == each[0] for *_, its in running.values()))
            command = (sys.executable, __file__, str(out), name, "--one", str(until), "--device", device)
            with (out / f"{name}.log").open("w") as log:
                process = subprocess.Popen(
                    (*command, "--slot", str(slot)),
                    env=environment | own,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            os.sched_setaffinity(process.pid, cores)
            (slot / str(process.pid)).touch()
            running[name] = process, time.monotonic(), slot
        if not running and passed >= within:
            print(f"not begun: {', '.join(left)}", flush=True)
            break
        time.sleep(0.5)


# -- what it showed ----------------------------------------------------------------------------------------------------


def rows_of(run: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    return {tuple(tried["variants"]): tried for tried in (*run["alone"], *run["together"])}


def shown(names: Sequence[str]) -> str:
    return " + ".join(name.rpartition("/")[2].removesuffix(".diff") for name in names)


def chosen_of(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what stays by the present rules, of what a run measured: it may have been made before they were mended."""
    rows, best = rows_of(run), tuple(run["best"])
    faster = {
        names: row["timed"]["ratio"] for names, row in rows.items() if row["said"] == "faster" and row.get("timed")
    }
    if best not in faster:
        return min(faster, key=lambda names: faster[names], default=())
    beside, mode = run.get("beside_compile"), (run.get("compiled"),)
    return mode if beside and beside["ratio"] > 1 and mode in faster else best  # type: ignore[return-value]


def judged(said: Mapping[str, Any]) -> dict[str, Any]:
    """Of one program: what stays, its gain with its interval, what was predicted, and next to torch.compile alone."""
    run = said.get("run")
    if not run:
        return {"error": said.get("error", "nothing was tried")}
    rows, best = rows_of(run), chosen_of(run)
    chosen = rows.get(best)
    modes = {name: rows.get((name,), {}) for name in MODES}
    faster = [mode["timed"]["ratio"] for mode in modes.values() if mode.get("timed") and mode["said"] != "wrong"]
    found: dict[str, Any] = {
        "whole": said.get("whole", False) and all(mode.get("said") != "not tried" for mode in modes.values()),
        "step_ms": round(run["step_ns"] / 1e6, 3),
        "chosen": shown(best) or "nothing",
        "kept by the run itself": shown(run["best"]) or "nothing",
        "modes": {
            name: mode["timed"]["ratio"] if mode.get("timed") else mode.get("why") for name, mode in modes.items()
        },
        "failed": {shown(n): f"{t['said']}: {t['why']}" for n, t in rows.items() if t["said"] in ("wrong", "failed")},
        "slower": [shown(names) for names, tried in rows.items() if tried["said"] == "slower"],
        "took_s": said["took_s"],
    }
    ratio = chosen["timed"]["ratio"] if chosen else 1.0
    same = tuple(run["best"]) == best and run.get("beside_compile")
    beside = run["beside_compile"]["ratio"] if same else ratio / min([1.0, *faster])
    found["times_best_mode"] = round(1.0 if best in [(name,) for name in MODES] else 1 / beside, 4)
    if chosen:
        timed = chosen["timed"]
        found["saved"] = [round(1 - timed[key], 4) for key in ("high", "ratio", "low")]
        found["width"] = round((timed["high"] - timed["low"]) / max(1 - timed["ratio"], 1e-9), 4)
        found["peak"] = round(chosen["peak_bytes"] / max(run["peak_bytes"], 1), 3)
        if chosen["predicted"] is not None:
            found["predicted"] = [chosen[key] for key in ("predicted_low", "predicted", "predicted_high")]
            low, high = 1 - timed["high"], 1 - timed["low"]
            found["holds"] = chosen["predicted_low"] <= high and low <= chosen["predicted_high"]
            found["predicted_width"] = round(
                (chosen["predicted_high"] - chosen["predicted_low"]) / max(1 - timed["ratio"], 1e-9), 3
            )
    return found


def planted(said: Mapping[str, Any], on_gpu: bool) -> dict[str, Any]:
    """Which faults were named, and which changes that do nothing were called no difference."""
    rows = {shown(names): tried for names, tried in rows_of(said.get("run", {"alone": [], "together": []})).items()}
    faults = FAULTS if on_gpu else {**FAULTS, **FAULTS_ON_CPU}
    named = {}
    for name, (as_what, why, _) in faults.items():
        tried = rows.get(name, {"said": "not tried", "why": ""})
        ratio = tried["timed"]["ratio"] if tried.get("timed") else None
        right = tried["said"] == as_what and why in tried["why"]
        named[name] = {"right": right, "said": tried["said"], "why": tried["why"], "ratio": ratio}
    nothing = {name: rows[name]["said"] for name in NOTHING if name in rows}
    return {
        "faults": named,
        "named": sum(one["right"] for one in named.values()),
        "nothing": sum(said == "no difference" for said in nothing.values()),
        "nothing_ratios": [rows[name]["timed"]["ratio"] for name in nothing if rows[name].get("timed")],
        "error": said.get("error"),
    }


def summary(out: Path, on_gpu: bool) -> dict[str, Any]:
    """What the whole run showed, bar by bar."""
    said = {file.stem: json.loads(file.read_text()) for file in sorted(out.glob("*.json")) if file.stem != "summary"}
    programs = {name: judged(one) for name, one in said.items() if name != FAULTY}
    tried = {name: one for name, one in programs.items() if one.get("whole")}
    times = sorted(one["times_best_mode"] for one in tried.values())
    mean = [math.exp(sum(map(math.log, part)) / len(part)) if part else None for part in (times, times[:-2])]
    widths = sorted(one["width"] for one in tried.values() if "width" in one)
    wide = sorted(one["predicted_width"] for one in tried.values() if "predicted_width" in one)
    known = [one["holds"] for one in tried.values() if "holds" in one]
    every = [row for one in said.values() for row in rows_of(one.get("run", {"alone": [], "together": []})).values()]
    return {
        "programs": programs,
        "planted": planted(said[FAULTY], on_gpu) if FAULTY in said else None,
        "bars": {
            "programs to the end": f"{len(tried)} of {len(programs)}",
            "times_best_mode, geometric mean": mean[0],
            "without the two largest": mean[1],
            "above 1.02": sum(each > 1.02 for each in times),
            "below 0.99": sum(each < 0.99 for each in times),
            "predicted holds": f"{sum(known)} of {len(known)}",
            "width of what is predicted by saving, median": wide[len(wide) // 2] if wide else None,
            "width of what is measured by saving, median": widths[len(widths) // 2] if widths else None,
            "predicted of one variant": held([row for row in every if len(row["variants"]) == 1]),
            "predicted of several": held([row for row in every if len(row["variants"]) > 1]),
        },
    }


def held(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all that was timed: how many predictions hold, and how wide they are in the median, of step and saving."""
    ends = [
        (row["predicted_low"], row["predicted_high"], 1 - row["timed"]["high"], 1 - row["timed"]["low"])
        for row in rows
        if row.get("timed") and row["predicted"] is not None
    ]
    gains = [(high - low) * 2 / (least + most) for low, high, least, most in ends if least + most > 2 * GAIN]
    return {
        "hold": f"{sum(low <= most and least <= high for low, high, least, most in ends)} of {len(ends)}",
        "width of step": round(statistics.median(high - low for low, high, *_ in ends), 3) if ends else None,
        "by saving": round(statistics.median(gains), 3) if gains else None,
    }


def rescanned(out: Path, recordings: Path) -> None:
    """Say again what was predicted, from the recordings."""
    import msgspec

    from tracemine.apply.asked import asked_by, asked_for, found_in, predicted
    from tracemine.apply.record import Tried
    from tracemine.apply.run import saved_alone
    from tracemine.apply.variants import VARIANTS

    for file in out.glob("*.json"):
        said, folder = json.loads(file.read_text()), recordings / file.stem
        if not folder.exists() or not said.get("run"):
            continue
        findings, modes = found_in(*looked_at(folder))
        wanted = asked_for(findings, modes, list(VARIANTS))
        rows = [*said["run"]["alone"], *said["run"]["together"]]
        for name in {name for tried in rows for name in tried["variants"] if name.startswith("edit:")}:
            wanted[name] = asked_by(findings, EDITS[file.stem][shown([name])].rules)
        known = msgspec.convert(rows, list[Tried])
        for tried in rows:
            alone = saved_alone(known, tuple(tried["variants"]))
            tried.update(predicted(wanted, tried["variants"], alone))
        said["findings"] = named(findings)
        file.write_text(json.dumps(said, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--within", type=float, default=1e9, help="seconds after which nothing more is begun")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help="programs that are built at once")
    parser.add_argument("--judge", action="store_true", help="run nothing; judge what is there")
    parser.add_argument("--scan", action="store_true", help="record and scan each, and try nothing")
    parser.add_argument("--before", type=Path, help="a folder or an archive of recordings and results")
    parser.add_argument("--slot", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--record", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    out = chosen.out.resolve()
    on_gpu = chosen.device != "cpu"
    if chosen.record:
        name, rests = chosen.programs[0], partial(turn, chosen.slot, chosen.record)
        record(STEPS, name, out / "recordings" / name, timed=12, around=rests)
        return
    if chosen.one is not None:
        one(chosen.programs[0], out, chosen.slot, on_gpu, chosen.one)
        return
    for folder in ("recordings", "before"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    if chosen.before:
        with kept.opened(chosen.before) as before:
            for each in before.iterdir():
                if each.is_dir():
                    shutil.copytree(each, out / "recordings" / each.name, dirs_exist_ok=True)
                else:
                    shutil.copy(each, (out if chosen.judge else out / "before") / each.name)
    if chosen.judge:
        rescanned(out, out / "recordings")
    else:
        all_of(chosen.programs or ORDER, out, chosen.device, chosen.within, chosen.jobs, chosen.scan)
    found = summary(out, on_gpu)
    (out / "summary.json").write_text(json.dumps(found, indent=1))
    for name, program in found["programs"].items():
        print(name, json.dumps(program), flush=True)
    print(json.dumps({"planted": found["planted"], "bars": found["bars"]}, indent=1))


if __name__ == "__main__":
    main()
