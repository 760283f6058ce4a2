"""Jobs of 64 ranks made of recorded ones, with something planted: `python -m benchmarks job_retimed BASE [--ranks 64]`.

BASE: a folder of recorded ranks. The one whose host works least is copied until there are enough, on hosts of eight
with clocks of their own; a group of all recorded ranks becomes one of all copies (`--apart`: of as many copies). Every
activity is timed again by its own constraints: its launch, its stream, the collective that it waited for; a collective
ends on all members at the latest of their starts and its transfer. Between launches a host's time holds what recording
adds, by another factor on each rank, or none. What is planted is written down before anything is read; what it truly
costs is the same job without recording, with it and without. Nothing here knows how tracemine replays a job.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from tracemine.columns import numbers, string_ids
from tracemine.formats import open_trace
from tracemine.ops import classify
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import RanksRead
from tracemine.ranks.record import Job
from tracemine.ranks.summary import summarise
from tracemine.rows.host import HostCalls, threads
from tracemine.timeline import Timeline

AT, OTHER, HOST = 17, 42, 8  # planted ranks, and ranks of a host
OPERATOR_NS, CALL_NS, DELAY_NS, GATED_NS = 4_700, 1_000, 4_000, 60_000
STRETCH = (0.85, 1.4)  # what recording adds, by rank
NAMES = (
    "straggler", "length", "expert_imbalance", "slow_link", "link_below_rate", "rank_dependent", "stage_imbalance",
)  # fmt: skip


@dataclass(frozen=True)
class Plant:
    """What is done to ranks and groups, and which rule means it; None: nobody may be named."""

    rule: str | None = None
    kernels: dict[int, float] = field(default_factory=dict)
    work: dict[int, float] = field(default_factory=dict)  # larger grids, too
    host: dict[int, float] = field(default_factory=dict)
    silence_ns: dict[int, int] = field(default_factory=dict)  # at the beginning of each step
    links: dict[int, float] = field(default_factory=dict)  # by copy of the recorded job
    lengths: float = 0.0

    @property
    def ranks(self) -> set[int]:
        return {*self.kernels, *self.work, *self.host, *self.silence_ns}


def plants(copies: int) -> dict[str, Plant]:
    """Return what is planted, by name."""
    found = {f"GPU × {f}": Plant("straggler_gpu", kernels={AT: f}) for f in (1.05, 1.15, 1.5)}
    found |= {f"host × {f}": Plant(None, host={AT: f}) for f in (1.1, 1.3)}
    found |= {f"silence {ms} ms": Plant("straggler_host", silence_ns={AT: ms * 1_000_000}) for ms in (1, 3)}
    found["work × 1.15"] = Plant("straggler_work", work={AT: 1.15})
    found["work × 1.5"] = Plant("straggler_work", work={AT: 1.5})
    found["GPU × 1.5, silence 3 ms"] = Plant("straggler", kernels={AT: 1.5}, silence_ns={OTHER: 3_000_000})
    found["lengths ± 10 %"] = Plant("length_imbalance", lengths=0.1)
    if copies > 1:
        found |= {f"link × {f}": Plant("slow_link", links={3: f}) for f in (1.5, 3)}
    return found


class Base:
    """One recorded rank: what its host did between launches, and what its device ran, in order of launch."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        acts, api = timeline.activities, timeline.api
        start, self.dur = numbers(acts.column("start_ns")), numbers(acts.column("dur_ns"))
        self.stream = numbers(acts.column("stream"), null=-1)
        launch = numbers(acts.column("launch_row"), null=-1)
        self.api_begin = numbers(api.column("start_ns"))
        self.api_end = self.api_begin + numbers(api.column("dur_ns"))
        self.launched = np.where(launch >= 0, np.append(self.api_begin, 0)[launch], start - DELAY_NS)
        code, names = string_ids(acts.column("name"))
        sends = np.array([*(family.op_class == "collective" for family in classify(names)), False])
        size = numbers(acts.column("group_size"), null=-1)
        self.sends = sends[code] & (size != 1)
        self.order = np.argsort(self.launched, kind="stable")
        self.needs = self._needs(start)
        self.ops = np.sort(numbers(timeline.ops.column("start_ns")))
        self.calls = np.sort(self.api_begin)
        blocks = HostCalls.of(timeline, launch, threads(timeline)[0]).blocks
        self.actions = sorted(
            [(int(self.launched[i]), 0, int(i)) for i in self.order]
            + [(int(self.api_begin[i]), 1, int(i)) for i in np.flatnonzero(blocks)]
        )
        marks = np.sort(numbers(timeline.steps.column("start_ns"))) if timeline.steps.num_rows else self.launched[:1]
        self.marks = marks
        self.step = np.searchsorted(marks, self.launched, "right") - 1

    def _needs(self, start: np.ndarray) -> list[int]:
        """Return for each activity which other one it had to wait for besides its launch and stream; -1: none."""
        end, needs = start + self.dur, [-1] * len(start)
        order = np.argsort(end, kind="stable")
        sent = order[self.sends[order]]
        for i in np.flatnonzero(~self.sends).tolist():
            at = int(np.searchsorted(end[sent], start[i], "right")) - 1
            if at >= 0 and start[i] - end[sent[at]] < GATED_NS and self.launched[i] < end[sent[at]]:
                needs[i] = int(sent[at])
        before = -1
        for i in self.order.tolist():
            if self.sends[i]:
                needs[i] = before if before >= 0 and end[before] <= start[i] + 1_000 else -1
            else:
                before = i
        return needs

    def gap(self, since: int, until: int) -> tuple[int, int]:
        """Return what a host worked between two moments, and what recording added to it."""
        whole = max(until - since, 0)
        counted = [int(np.searchsorted(each, until) - np.searchsorted(each, since)) for each in (self.ops, self.calls)]
        added = min(counted[0] * OPERATOR_NS + counted[1] * CALL_NS, whole)
        return whole - added, added


@dataclass
class Run:
    """One rank while it is timed: where its host and streams are, and when everything began and ended."""

    base: Base
    number: int
    stretch: float
    begin: np.ndarray
    end: np.ndarray
    moments: list[tuple[int, int]] = field(default_factory=list)  # of the host: recorded, now


def timed(bases: Sequence[Base], count: int, plant: Plant, seed: int, *, recorded: bool, apart: bool) -> list[Run]:
    """Time all ranks again, together."""
    chance = Random(seed)
    runs = [
        Run(base := bases[r % len(bases)], r, chance.uniform(*STRETCH) if recorded else 0.0,
            np.zeros(len(base.dur), np.int64), np.zeros(len(base.dur), np.int64))
        for r in range(count)
    ]  # fmt: skip
    met: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    members = len(bases) if apart else count
    ended: dict[tuple[int, int], int] = {}
    waiting = {
        run.number: advance(run, plant, Random(seed * 1000 + run.number), met, ended, len(bases), apart) for run in runs
    }
    while waiting:
        before = len(ended), len(waiting)
        for number in list(waiting):
            if next(waiting[number], None) is None:
                del waiting[number]
        for key, here in list(met.items()):
            if len(here) == members and key not in ended:
                scale = plant.links.get(key[0], 1.0) if apart else 1.0
                ended[key] = max(start for start, *_ in here) + int(min(dur for _, dur, _ in here) * scale)
        if before == (len(ended), len(waiting)) and all(
            len(here) < members for key, here in met.items() if key not in ended
        ):
            raise SystemExit("ranks wait for each other: their recorded windows differ")
    return runs


def advance(
    run: Run, plant: Plant, chance: Random, met: dict[Any, Any], ended: dict[Any, int], size: int, apart: bool
) -> Iterator[bool]:
    """Go through a rank's host, launch by launch; yield where a collective has not ended."""
    base, at = run.base, run.number
    now, since = 0, min(base.actions[0][0], int(base.marks[0]))
    streams: dict[int, int] = {}
    sent, key_of, last_step = 0, {}, -1
    lengths = [1 + plant.lengths * chance.uniform(-1, 1) for _ in range(len(base.marks) + 1)]
    factor = plant.kernels.get(at, 1.0) * plant.work.get(at, 1.0)
    for when, blocks, i in base.actions:
        works, added = base.gap(since, when)
        took = int(works * plant.host.get(at, 1.0) + added * run.stretch)
        step = int(np.searchsorted(base.marks, when, "right")) - 1
        if step != last_step and step >= 0:
            mark = max(int(base.marks[step]), since)
            before = now + took * (mark - since) // max(when - since, 1)
            run.moments += [(mark, before), (mark + 1, before + plant.silence_ns.get(at, 0))]
            now += plant.silence_ns.get(at, 0)
        now, last_step = now + took, step
        run.moments.append((when, now))
        since = when
        if blocks:
            for key in list(key_of.values()):
                while key not in ended:
                    yield True
            for j, key in key_of.items():
                run.end[j] = ended[key]
            key_of = {}
            now = max(now, int(run.end.max()))
            since = max(int(base.api_end[i]), when)
            run.moments.append((since, now))
            continue
        need = base.needs[i]
        stream = int(base.stream[i])
        for j in (streams.get(stream, -1), need):
            if j in key_of:
                while key_of[j] not in ended:
                    yield True
                run.end[j] = ended[key_of.pop(j)]
        ready = max(int(run.end[j]) if j >= 0 else 0 for j in (streams.get(stream, -1), need))
        run.begin[i] = max(now + DELAY_NS, ready)
        streams[stream] = i
        if base.sends[i]:
            key = (at // size if apart else 0, sent)
            sent += 1
            met.setdefault(key, []).append((int(run.begin[i]), int(base.dur[i]), at))
            key_of[i] = key
        else:
            dur = base.dur[i] * factor * lengths[step + 1] * (1 + 0.01 * chance.uniform(-1, 1))
            run.end[i] = run.begin[i] + int(dur)
    for j, key in key_of.items():
        while key not in ended:
            yield True
        run.end[j] = ended[key]


def shortest(bases: Sequence[Base]) -> None:
    """Let a collective of each recorded rank last as long as on the member for which it lasted least."""
    rows = [base.order[base.sends[base.order]] for base in bases]
    if len({len(each) for each in rows}) > 1:
        raise SystemExit("the recorded ranks have different numbers of collectives")
    least = np.min([base.dur[each] for base, each in zip(bases, rows, strict=True)], axis=0)
    for base, each in zip(bases, rows, strict=True):
        base.dur[each] = least


def step_ns(runs: Sequence[Run]) -> float:
    """Return the job's step."""
    return max(max(int(run.end.max()), run.moments[-1][1]) for run in runs) / max(len(runs[0].base.marks), 1)


def job_of(runs: Sequence[Run], plant: Plant, count: int, size: int, seed: int, *, apart: bool) -> Job:
    """Read the ranks as if they had been recorded so."""
    chance = Random(seed + 7)
    offsets = [chance.randrange(-3_000_000, 3_000_000) for _ in range(count // HOST + 1)]
    ranks = []
    for run in runs:
        base, shift = run.base, 10_000_000 + offsets[run.number // HOST]
        origin = run.moments[0][0]  # moments of the host may lie a nanosecond apart
        old, new = (np.array(each, np.float64) for each in zip(*((a - origin, b) for a, b in run.moments), strict=True))
        new = np.maximum.accumulate(new)

        def moved(
            times: np.ndarray, old: np.ndarray = old, new: np.ndarray = new, since: int = origin, shift: int = shift
        ) -> np.ndarray:
            after = times - since
            later = np.maximum(after - old[-1], 0) + np.minimum(after, 0)
            return (np.interp(after, old, new) + later).astype(np.int64) + shift

        first = run.number // size * size
        group = range(first, first + size) if apart else range(count)
        timeline = base.timeline
        tables = {
            "activities": _with(timeline.activities, start_ns=run.begin + shift, dur_ns=run.end - run.begin),
            "collectives": _of_group(timeline.collectives, group, apart),
        }
        for name in ("ops", "api", "steps"):
            table = getattr(timeline, name)
            begin = numbers(table.column("start_ns"))
            moved_begin = moved(begin)
            dur = moved(begin + numbers(table.column("dur_ns"))) - moved_begin
            tables[name] = _with(table, start_ns=moved_begin, dur_ns=np.maximum(dur, 0))
        if run.number in plant.work:
            tables["activities"] = _larger(tables["activities"], plant.work[run.number])
        meta = {"rank": run.number, "world_size": count}
        import msgspec

        changed = msgspec.structs.replace(timeline, meta=msgspec.structs.replace(timeline.meta, **meta), **tables)
        ranks.append(summarise(changed, f"rank{run.number}.json", run.number))
    return find_job(RanksRead(tuple(ranks), {}), "job")


def _with(table: pa.Table, **columns: np.ndarray) -> pa.Table:
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    return table


def _larger(table: pa.Table, factor: float) -> pa.Table:
    place = table.schema.get_field_index("grid")
    grids = [
        None if grid is None else [max(math.ceil(grid[0] * factor), grid[0] + 1), *grid[1:]]
        for grid in table["grid"].to_pylist()
    ]
    return table.set_column(place, table.schema.field(place), pa.array(grids, table.schema.field(place).type))


def _of_group(table: pa.Table, group: Sequence[int], apart: bool) -> pa.Table:
    place = table.schema.get_field_index("ranks")
    kind = table.schema.field(place).type
    several = numbers(table.column("group_size"), null=-1) > 1
    text = str(list(group))
    ranks = pa.array([text if many else None for many in several.tolist()], pa.string()).cast(kind)
    sizes = np.where(several, len(group), numbers(table.column("group_size"), null=-1))
    table = table.set_column(place, table.schema.field(place), ranks)
    return _with(table, group_size=sizes)


def row(name: str, plant: Plant, bases: Sequence[Base], count: int, seed: int, *, apart: bool) -> str:
    """Return a plant's line: what is named and said to save a step, and what is truly lost."""
    plain = replace(Plant(), lengths=0.0)
    step, cured = (step_ns(timed(bases, count, each, seed, recorded=False, apart=apart)) for each in (plant, plain))
    runs = timed(bases, count, plant, seed, recorded=True, apart=apart)
    job = job_of(runs, plant, count, len(bases), seed, apart=apart)
    said = [one for one in job.findings if one.rule.startswith(NAMES)]
    texts = []
    for one in said:
        who = ",".join(map(str, one.ranks)) if len(one.ranks) < 3 else f"of {len(one.ranks)} ranks"
        saves = one.step_saving_ns
        ms = [] if saves is None else [f"{ns / 1e6:.2f}" for ns in (saves.mid, saves.low, saves.high)]
        texts.append(f"{one.rule} {who} " + ("{} ({}–{})".format(*ms) if ms else "–"))
    error = job.replay_error_percent
    return (
        f"| {name} | {'; '.join(texts) or 'nobody'} | {(step - cured) / 1e6:.2f} | {100 * (step - cured) / step:.1f} % "
        f"| {error:.2f} % | {job.matched} |"
    )


def main() -> None:
    """Print a row for each plant, and what is invented of jobs in which nothing is planted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--apart", action="store_true", help="each copy of the recorded job is a group of its own")
    parser.add_argument("--plants", default="", help="those whose name holds this")
    given = parser.parse_args()
    bases = [Base(open_trace(path)) for path in sorted(given.base.glob("rank*"))]
    shortest(bases)
    works = [sum(base.gap(a[0], b[0])[0] for a, b in pairwise(base.actions)) for base in bases]
    bases = [bases[int(np.argmin(works))]] * len(bases)
    print("| planted | named, and said to save a step, ms | truly lost, ms | of the step | replay off by | matched |")
    print("|---|---|---:|---:|---:|---:|")
    for name, plant in plants(given.ranks // len(bases) if given.apart else 1).items():
        if given.plants in name:
            print(row(name, plant, bases, given.ranks, 0, apart=given.apart), flush=True)
    invented = []
    for seed in range(1, given.seeds + 1):
        runs = timed(bases, given.ranks, Plant(), seed, recorded=True, apart=given.apart)
        job = job_of(runs, Plant(), given.ranks, len(bases), seed, apart=given.apart)
        invented += [one.title for one in job.findings if one.rule.startswith(NAMES)]
    print(f"\nNothing planted: {len(invented)} findings that blame somebody in {given.seeds} jobs {invented[:3]}")


if __name__ == "__main__":
    main()
