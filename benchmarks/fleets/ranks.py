"""What a job of many ranks costs to report: `python -m benchmarks ranks [--ranks 1024] [--traces FOLDER]`.

Ranks of tensor and data parallelism are simulated as the summaries that a job keeps of its traces: each computes
between its collectives, all ranks of a group end together, and rank 42's kernels take a fifth longer. Printed: seconds
and peak memory from summaries to findings in a process of its own, one replay of 20 what-ifs, who was named, what it
truly loses and what was said. --traces: of a folder of recorded ranks what one takes to become a summary, how large
that is, and what 64 traces of 50 MB follow to take.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import pickle
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.collectives import Collectives, ProcessGroup
from tracemine.ranks.find import find_job
from tracemine.ranks.kernels import KernelTimes
from tracemine.ranks.match import matched
from tracemine.ranks.reading import SummaryAnswer, packed
from tracemine.ranks.recognise import RanksRead, read_ranks
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary, Stretches

TENSOR, STEPS, LAYERS = 8, 5, 20
LATE, SLOWER = 42, 1.2
LAYER_NS, TENSOR_NS, DATA_NS = 2_000_000, 100_000, 900_000
WHAT_IFS = 20
KERNELS = 60


def simulated(count: int, slower: float) -> tuple[list[RankSummary], float]:
    """Return the ranks of a job, and how long its step takes."""
    chance = np.random.default_rng(7)
    tensor, data = np.arange(count) // TENSOR, np.arange(count) % TENSOR
    factor = np.ones(count)
    factor[min(LATE, count - 1)] = slower
    now, own, comm = np.zeros(count), np.zeros(count), np.zeros(count)
    rows: dict[str, list[Any]] = {name: [] for name in ("start", "end", "issue", "wait", "kind", "step")}
    steps = []

    def together(group: np.ndarray, times: np.ndarray) -> np.ndarray:
        latest = np.zeros(group.max() + 1)
        np.maximum.at(latest, group, times)
        return latest[group]

    for step in range(STEPS):
        for kind in ("all_reduce", "reduce_scatter"):
            for layer in range(LAYERS):
                spent = np.rint(LAYER_NS * factor * (1 + 0.01 * chance.standard_normal(count)))
                now, own = now + spent, own + spent
                start = now.copy() if kind == "all_reduce" else np.maximum(now, comm)
                group, transfer = (tensor, TENSOR_NS) if kind == "all_reduce" else (data, DATA_NS)
                end = together(group, start) + transfer
                last = kind == "reduce_scatter" and layer == LAYERS - 1
                waits = own.copy() if kind == "all_reduce" or last else np.full(count, -1.0)
                values = (start, end, own.copy(), waits, kind, step)
                for name, value in zip(rows, values, strict=True):
                    rows[name].append(value)
                if kind == "all_reduce":
                    now = end
                else:
                    comm = end
        now = np.maximum(now, comm)
        steps.append(own.copy())
    table = {name: np.stack(rows[name]).astype(np.int64) for name in ("start", "end", "issue", "wait")}
    ranks = [_summary(at, count, rows, table, np.array(steps)[:, at], int(now[at])) for at in range(count)]
    return ranks, float(now.max()) / STEPS


def _summary(at: int, count: int, rows: Any, table: Any, by_step: np.ndarray, end: int) -> RankSummary:
    number = len(rows["kind"])
    first = at - at % TENSOR
    groups = (
        ProcessGroup(tuple(range(first, first + TENSOR)), TENSOR, "tp"),
        ProcessGroup(tuple(range(at % TENSOR, count, TENSOR)), count // TENSOR, "dp"),
    )
    of = np.array([kind != "all_reduce" for kind in rows["kind"]], np.int64)
    nothing, ones = np.zeros(number, np.int64), np.ones(number, np.int64)
    issue = table["issue"][:, at]
    own = np.append(np.diff(issue, prepend=0), by_step[-1] - issue[-1]).astype(np.int64)
    parts = [own, own, *(np.zeros_like(own) for _ in range(3)), np.full_like(own, 30), np.full_like(own, 30)]
    steps = np.diff(by_step, prepend=0).astype(np.int64)
    of_steps = [steps, steps, *(np.zeros_like(steps) for _ in range(5))]
    each, times = np.full(KERNELS, own.sum() // KERNELS), np.full(KERNELS, number)
    return RankSummary(
        rank=at, file=f"rank{at}.json", device="NVIDIA H100 80GB HBM3", world_size=count, steps=STEPS, window=(0, end),
        collectives=Collectives(
            activity=np.arange(number), kind=tuple(rows["kind"]), group=of, groups=groups,
            nbytes=np.where(of == 0, 16 << 20, 256 << 20),
            sequence=nothing - 1, elements_in=ones, elements_out=ones, parts=((),) * number,
        ),
        start=table["start"][:, at], dur=table["end"][:, at] - table["start"][:, at],
        exposed=np.where(of == 0, TENSOR_NS, 0), stream=np.where(of == 0, 7, 19), computes=of == 0,
        step=np.array(rows["step"], np.int64), issue=issue, wait=table["wait"][:, at], stretches=Stretches(*parts),
        by_step=Stretches(*of_steps), wait_ns_by_step=np.zeros(STEPS, np.int64),
        kernels=KernelTimes(
            tuple(f"kernel_{n}" for n in range(KERNELS)), np.full(KERNELS, 132), each * 0, times, each, times, each
        ), hosting_ns=0,
        silence=None, loading_ns=0, host_ns=ones, after_backward=of < 0, part=-ones,
        queued_ns=ones * 0, meets=own < 0,
    )  # fmt: skip


def report(count: int, pipe: Any) -> None:
    """Report a job in this process, and send what that took."""
    ranks, step = simulated(count, SLOWER)
    _, cured = simulated(count, 1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    job = find_job(RanksRead(tuple(ranks), {}), "simulated")
    took = time.process_time() - begun
    matches = matched(ranks)
    replay = JobReplay(ranks, matches, clocks_of(ranks, matches.blocks))
    stretches = [np.repeat(own, WHAT_IFS, axis=0) for own in replay.recorded()]
    begun = time.process_time()
    replay.ends(stretches, together=True)
    once = time.process_time() - begun
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send((job, took, once, before / 1024, whole / 1024, step, step - cured, len(pickle.dumps(ranks[0], 5))))


def of_traces(folder: Path) -> None:
    """Print what recorded ranks take to become summaries, and what 64 large ones follow to take."""
    files = sorted(folder.rglob("rank*.json.gz"))
    unpacked = sum(len(gzip.decompress(path.read_bytes())) for path in files) / 1e6
    begun = time.process_time()
    ranks = read_ranks(files, processes=1).ranks
    took = time.process_time() - begun
    sizes = [(len(rank.start), len(packed(SummaryAnswer([rank])))) for rank in ranks]
    count, largest = max(sizes)
    many = 64 * 50 * took / max(unpacked, 1e-9)
    print(f"{len(files)} traces of {unpacked:.0f} MB of JSON: {took:.2f} CPU-s; so {many:.0f} CPU-s for 64 of 50 MB")
    print(f"largest summary: {count} collectives, {largest / count:.0f} bytes each as it is sent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--traces", type=Path)
    chosen = parser.parse_args()
    for count in chosen.ranks:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=report, args=(count, theirs))
        process.start()
        theirs.close()
        job, took, once, before, whole, step, loss, size = ours.recv()
        process.join()
        print(
            f"{count} ranks, {job.matched} collectives matched: {took:.1f} CPU-s to findings; a replay of "
            f"{WHAT_IFS} what-ifs {once:.2f}; {whole:.0f} MB at most, {before:.0f} of them before; "
            f"a summary has {size / 1000:.0f} kB"
        )
        print(f"   step {step / 1e6:.2f} ms, said {job.step_ns.mid / 1e6:.2f}; truly lost {loss / 1e6:.2f} ms")
        for finding in job.findings[:3]:
            saving = finding.step_saving_ns
            said = "" if saving is None else f"{saving.mid / 1e6:.2f} ms"
            print(f"   {finding.rule} of {len(finding.ranks)} ranks from {finding.ranks[0]}: {said}", flush=True)
    if chosen.traces:
        of_traces(chosen.traces)


if __name__ == "__main__":
    main()
