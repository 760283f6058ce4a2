"""How well the step with nobody recording is told from a recording: `python -m benchmarks unprofiled DIR...`.

DIR: what record_steps.py wrote. Of several recordings of a model on one kind of GPU the fastest counts, and the fastest
of all means of its step alone: other load on a host only adds. Scored are models whose host sets the pace (the device
works for less than 60 % of the step). For each kind of recording: the host's pace at which the recorded step replays in
the time that it takes alone; the error of the replayed step at the median pace of the other model families; and the
error, the coverage and the width of the interval that tracemine states. `--csv FILE` writes a row a trace. `--savings`
counts instead the traces whose findings would leave a step shorter than the GPU time that they leave.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.findings.accounting import measure
from tracemine.findings.steps import Steps, steps_of
from tracemine.formats import open_trace
from tracemine.perfmodel import SLOWDOWNS
from tracemine.pipeline import scan
from tracemine.rows import row_sets

PACES = np.geomspace(1.0, 16.0, 49)
HOST_BOUND = 0.6  # the device works for less than this share of the step
VARIANTS = (
    r"^(pair_(fused|graph|rms_norm|compiled|no|pinned)_|small_)|"
    r"_(train|decode|lists|loop|small|tiny|eager|channels|odd|8|v3|t|b0).*$"
)


@dataclass(frozen=True)
class Row:
    host: str
    name: str
    family: str
    kind: str
    alone_ns: int  # measured, nothing recording
    recorded_ns: int
    busy_ns: int
    pace: float
    low_ns: int  # as tracemine estimates it
    mid_ns: int
    high_ns: int


def family(name: str) -> str:
    """Models that are alike, whatever their size and what is done with them.

    >>> family("pair_fused_llama_loop"), family("small_llama_decode"), family("graph_network")
    ('llama', 'llama', 'graph_network')
    """
    return re.sub(VARIANTS, "", name)


@dataclass(frozen=True)
class Recorded:
    """One trace: how long its step would take at each of PACES, and what tracemine says of it."""

    recorded_ns: int
    busy_ns: int
    replayed: np.ndarray
    unprofiled: tuple[int, int, int]  # low, mid, high


Named = tuple[str, str]  # GPU and model


def timings_of(folders: Sequence[Path]) -> dict[Named, list[int]]:
    """The fastest mean of each model's step with nothing recording, once a timing: a copy of one is no other."""
    found: dict[Named, set[int]] = {}
    for told in sorted(each for folder in folders for each in folder.glob("*/step.json")):
        about = json.loads(told.read_text())
        if "failed" not in about:
            found.setdefault((about["gpu"], about["name"]), set()).add(min(about["means_ns"]))
    return {key: sorted(each) for key, each in found.items()}


def timed_again(timings: dict[Named, list[int]]) -> None:
    """Print how far a second timing of one step lies from the fastest: what no estimate of it can do better than."""
    for gpu in sorted({gpu for gpu, _ in timings}):
        later = [each / times[0] for (host, _), times in timings.items() if host == gpu for each in times[1:]]
        if later:
            of_pace = np.array(later) / np.median(later)
            print(
                f"{gpu}: {len(later)} steps timed again, off by {told(np.array(later) - 1)} (median, 90th percentile); "
                f"with the median taken out {told(of_pace - 1)}"
            )


def gpu_of(model: Path) -> str | None:
    """The GPU that a model was recorded on."""
    for name in ("recorded.json", "step.json"):
        if (model / name).exists():
            return str(json.loads((model / name).read_text())["gpu"])
    return None


def rows_of(folders: Sequence[Path]) -> Iterator[tuple[Row, np.ndarray]]:
    """A row a GPU, model and kind of recording, and how long its step takes at each of PACES."""
    alone, fastest = {key: times[0] for key, times in timings_of(folders).items()}, dict[tuple[Named, str], Recorded]()
    for model in sorted(each for folder in folders for each in folder.iterdir() if each.is_dir()):
        key = str(gpu_of(model)), model.name
        for kind in SLOWDOWNS if key in alone else ():
            trace = model / kind / "trace.json.gz"
            found = recorded_of(trace) if trace.exists() else None
            other = fastest.get((key, kind))
            if found is not None and (other is None or found.recorded_ns < other.recorded_ns):
                fastest[key, kind] = found
    for (key, kind), one in fastest.items():
        gpu, name = key
        low, mid, high = one.unprofiled
        yield Row(
            host=gpu, name=name, family=family(name), kind=kind, alone_ns=alone[key], recorded_ns=one.recorded_ns,
            busy_ns=one.busy_ns, pace=pace_of(one.replayed, alone[key]), low_ns=low, mid_ns=mid, high_ns=high,
        ), one.replayed  # fmt: skip


def recorded_of(trace: Path) -> Recorded | None:
    timeline = open_trace(trace)
    timeline = replace(timeline, meta=msgspec.structs.replace(timeline.meta, alone_step_ns=None))
    accounts, count = measure(timeline), timeline.steps.num_rows
    if accounts.per_step is None or not count:
        return None
    steps: Steps = steps_of(timeline, row_sets(timeline)["gaps"])
    busy_ns = accounts.per_step.gpu_busy_ns
    recorded_ns = max(accounts.per_step.span_ns, busy_ns)
    guess = steps.unprofiled(timeline, recorded_ns, busy_ns, of_step=True)
    replayed = steps.replayed_ns(PACES) / steps.replayed_ns(np.ones(1)) * recorded_ns
    return Recorded(recorded_ns, busy_ns, replayed, (guess.low_ns, guess.mid_ns, guess.high_ns))


def pace_of(replayed: np.ndarray, alone_ns: int) -> float:
    """The pace at which the replayed step takes as long as it takes alone."""
    falling = np.minimum.accumulate(replayed)
    return float(np.interp(-max(alone_ns, 1.01 * falling[-1]), -falling, PACES))


def left_ns(trace: Path) -> int | None:
    """Of a step: unprofiled − savings − GPU time that is left; negative: more is claimed than there is."""
    found = scan(trace)
    step = found.summary.per_step
    if step is None or step.unprofiled_ns is None:
        return None
    each = [finding.per_step for finding in found.findings if finding.per_step is not None]
    gpu_ns = step.gpu_busy_ns - sum(one.gpu_saving_ns.mid for one in each)
    return step.unprofiled_ns.mid - sum(one.step_saving_ns.mid for one in each) - max(gpu_ns, 0)


def impossible(folders: Sequence[Path]) -> None:
    """Print how many traces claim more than there is: by more than a microsecond, and the worst."""
    counts: dict[str, list[float]] = {}
    for folder in folders:
        for trace in sorted(folder.glob("*/*/trace.json.gz")):
            room = left_ns(trace)
            if room is not None:
                counts.setdefault(trace.parent.name, []).append(room)
    for kind, rooms in counts.items():
        print(f"{kind}: {sum(room < -1000 for room in rooms)} of {len(rooms)} impossible; least left {min(rooms):,} ns")


def told(errors: Sequence[float] | np.ndarray) -> str:
    sizes = np.abs(errors)
    return f"{np.median(sizes):6.1%} {np.percentile(sizes, 90):6.1%}"


def score(kind: str, rows: Sequence[tuple[Row, np.ndarray]]) -> None:
    chosen = [each for each in rows if each[0].kind == kind and each[0].busy_ns < HOST_BOUND * each[0].alone_ns]
    if not chosen:
        return
    paces = np.array([row.pace for row, _ in chosen])
    families = np.array([row.family for row, _ in chosen])
    held_out = [float(np.median(paces[families != one])) for one in families]
    by_pace = [
        float(np.interp(pace, PACES, replayed)) / row.alone_ns - 1
        for pace, (row, replayed) in zip(held_out, chosen, strict=True)
    ]
    shipped = [row.mid_ns / row.alone_ns - 1 for row, _ in chosen]
    inside = np.mean([row.low_ns <= row.alone_ns <= row.high_ns for row, _ in chosen])
    width = np.median([(row.high_ns - row.low_ns) / row.mid_ns for row, _ in chosen])
    spread = " ".join(f"{each:.2f}" for each in np.percentile(paces, [5, 50, 95]))
    ratio = np.median([row.recorded_ns / row.alone_ns for row, _ in chosen])
    print(
        f"{kind:16s} {len(chosen):4d} {len(set(families)):4d}   {ratio:5.2f}   {spread:14s}   {told(by_pace)}   "
        f"{told(shipped)}   {inside:4.0%}   {width:5.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--savings", action="store_true")
    chosen = parser.parse_args()
    if chosen.savings:
        impossible(chosen.folders)
        return
    rows = list(rows_of(chosen.folders))
    head = (
        "recorded      models families  ratio   pace 5 50 95   left out: median p90   shipped: median p90    in   width"
    )
    hosts = sorted({row.host for row, _ in rows})
    groups: list[tuple[str, Callable[[Row], bool]]] = [("all hosts", lambda row: True)]
    groups += [(host, lambda row, name=host: row.host == name) for host in hosts]
    for name, belongs in groups if len(hosts) > 1 else groups[1:]:
        print(f"\n{name}\n{head}")
        for kind in SLOWDOWNS:
            score(kind, [each for each in rows if belongs(each[0])])
    timed_again(timings_of(chosen.folders))
    if chosen.csv is not None:
        with chosen.csv.open("w", newline="") as held:
            writer = csv.DictWriter(held, [*asdict(rows[0][0])])
            writer.writeheader()
            writer.writerows(asdict(row) for row, _ in rows)


if __name__ == "__main__":
    main()
