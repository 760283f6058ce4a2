"""The slowdown of three published jobs, replayed: `python -m benchmarks published_jobs FOLDER [--steps 8]`.

FOLDER holds `trace-AR.parquet`, `trace-ST.parquet` and `trace-SE.parquet` of ByteDance-Seed/StragglerAnalysis
(Apache-2.0): every operation of Megatron jobs, as their own instrumentation recorded it. Their slowdown is the job's
time by that of one in which every operation takes as long as its kind does on average. The same is asked of
tracemine's replay of ranks: with idle time that nothing recorded explains as each worker's own (plain), and with 5 ms
of each such gap kept (elastic), as if it waited for something that was not recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tracemine.ranks.clocks import Clocks, MatchBlock
from tracemine.ranks.collectives import Collectives, ProcessGroup
from tracemine.ranks.kernels import KernelTimes
from tracemine.ranks.match import MatchedCollectives
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import Meetings, RankSummary, Stretches
from tracemine.ranks.unprofiled import ELASTIC_NS
from tracemine.rows.spans import Spans

PUBLISHED = {"AR": 1.973, "ST": 1.179, "SE": 1.537}
PEERS = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
JOINED = ("grads-reduce-scatter", "params-all-gather", "embedding-grads-all-reduce", "optimizer-clip-main-grad")
OF_PIPELINE = ("embedding-grads-all-reduce", "optimizer-clip-main-grad")  # clipping needs the norm over all stages
SLACK_NS = 1_000_000  # times are float32 seconds
Operation = dict[str, Any]


class Worker:
    """One worker in one step: its kernels of communication, in order, and what it computes."""

    def __init__(self, number: int, operations: list[Operation]) -> None:
        self.number = number
        self.place = (operations[0]["dp_rank"], operations[0]["stage"])
        kernels: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        for each in operations:
            if each["optype"] in PEERS or each["optype"] in JOINED:
                kernels[each["start"], each["dur"]].append(each)  # a batch has one start and one end
        self.kernels = [kernels[key] for key in sorted(kernels)]
        own = [each for each in operations if not (each["optype"] in PEERS or each["optype"] in JOINED)]
        self.computed = sorted((each for each in own if each["dur"] > 0), key=lambda each: each["start"])
        self.window = (
            min(each["start"] for each in operations), max(each["start"] + each["dur"] for each in operations)
        )  # fmt: skip

    def summary(self) -> tuple[RankSummary, Spans, np.ndarray]:
        """Return the worker as the replay takes it, when communication held it, and when it issued it."""
        start = np.array([kernel[0]["start"] for kernel in self.kernels], np.int64)
        dur = np.array([kernel[0]["dur"] for kernel in self.kernels], np.int64)
        work = Spans.of(
            np.array([each["start"] for each in self.computed], np.int64),
            np.array([each["start"] + each["dur"] for each in self.computed], np.int64),
        )
        end, begin = start + dur, self.window[0]
        following = np.searchsorted(work.begin, end - SLACK_NS, "left")
        next_start = np.append(work.begin, np.iinfo(np.int64).max)[following]
        last_end = np.where(following > 0, np.append(work.end, 0)[following - 1], begin)
        held = (np.abs(next_start - end) <= SLACK_NS) & (last_end <= end)
        gate = np.where(held, np.minimum(np.maximum(last_end, start), end), -1)
        blocked = Spans.of(gate[held], end[held])

        def own(time: np.ndarray) -> np.ndarray:
            return time - begin - blocked.until(time)

        edges = np.concatenate(([begin], start, [self.window[1]]))
        stretch = np.diff(own(edges))
        nothing = np.zeros(len(start), np.int64)
        parts = Stretches(**dict.fromkeys(Stretches.__struct_fields__, stretch))
        names = [kernel[0]["optype"] for kernel in self.kernels]
        kinds = tuple("send_recv" if name in PEERS else "all_reduce" for name in names)
        found = Collectives(
            activity=nothing, kind=kinds, group=nothing, groups=(ProcessGroup(None, None, None),), nbytes=nothing - 1,
            sequence=nothing - 1, elements_in=nothing - 1, elements_out=nothing - 1, blocks=nothing,
            parts=((),) * len(start),
        )  # fmt: skip
        summary = RankSummary(
            rank=self.number, file="", device=None, world_size=None, steps=1, window=self.window, collectives=found,
            start=start, dur=dur, exposed=nothing, stream=np.array([name not in PEERS for name in names], np.int64),
            computes=nothing > 0, step=nothing, issue=own(start), wait=np.where(held, own(gate), -1),
            stretches=parts, by_step=parts, wait_ns_by_step=nothing[:1], silence=None, loading_ns=0,
            kernels=KernelTimes((), *(nothing[:0] for _ in range(6))), hosting_ns=0, call_ns=nothing,
            after_backward=nothing > 0, part=nothing - 1, queued_ns=nothing,
            meetings=Meetings(parts.own * 0 - 1, parts.own * 0.0),
        )  # fmt: skip
        return summary, blocked, edges

    def ideal(self, edges: np.ndarray, blocked: Spans, mean: dict[str, float], kept_ns: float) -> np.ndarray:
        """Return the stretches with every operation as long as its kind is on average, and of idle time so much."""
        begin, end = edges[:-1], edges[1:]
        idle = (end - begin - blocked.within(begin, end)).astype(float)
        busy = np.zeros(len(begin))
        for each in self.computed:
            inside = np.maximum(
                np.minimum(end, each["start"] + each["dur"]) - np.maximum(begin, each["start"]), 0
            )  # fmt: skip
            idle -= inside
            busy += inside * mean[each["optype"]] / each["dur"]
        found: np.ndarray = busy + np.minimum(np.maximum(idle, 0), kept_ns)
        return found


def matches(workers: Sequence[Worker]) -> MatchedCollectives:
    """Join the n-th send of a pair with its n-th receive, and equal collectives of a stage or of a pipeline."""
    at_place = {worker.place: at for at, worker in enumerate(workers)}
    stages = 1 + max(stage for _, stage in at_place)
    keyed: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    count: dict[tuple[Any, ...], int] = defaultdict(int)
    for at, worker in enumerate(workers):
        for k, kernel in enumerate(worker.kernels):
            for each in kernel:
                (dp, stage), name = worker.place, each["optype"]
                if name in PEERS:
                    peer = at_place.get((dp, (stage + PEERS[name]) % stages), at)
                    key = (name[:4], at, peer) if name.endswith("send") else (name[:4], peer, at)
                    count[at, key] += 1
                    keyed[(*key, count[at, key])].append((at, k))
                else:
                    keyed[(name, dp if name in OF_PIPELINE else stage, each["seq_id"])].append((at, k))
    root: dict[tuple[int, int], tuple[int, int]] = {}

    def top(kernel: tuple[int, int]) -> tuple[int, int]:
        while root.setdefault(kernel, kernel) != kernel:
            kernel = root[kernel]
        return kernel

    for members in keyed.values():
        for each in members[1:]:
            root[top(each)] = top(members[0])
    together: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for each in list(root):
        together[top(each)].append(each)
    whole = [members for members in together.values() if len({at for at, _ in members}) == len(members) > 1]
    blocks = []
    for members in whole:
        ranks, at = np.array(sorted(members), np.int64).T
        blocks.append(MatchBlock(ranks, at[None, :], np.array([True])))
    return MatchedCollectives(tuple(blocks), {}, 0)


def slowdowns(operations: list[Operation]) -> tuple[float, float, float]:
    """Return the error of the unchanged replay of one step in percent, and its slowdown, plain and elastic."""
    of: dict[int, list[Operation]] = defaultdict(list)
    for each in operations:
        of[each["rank"]].append(each)
    workers = [Worker(number, of[number]) for number in sorted(of)]
    known = [worker.summary() for worker in workers]
    ranks = [summary for summary, _, _ in known]
    zeros = np.zeros(len(ranks), np.int64)
    job = JobReplay(ranks, matches(workers), Clocks(zeros, zeros))
    spent: dict[str, list[int]] = defaultdict(list)
    for worker in workers:
        for each in worker.computed:
            spent[each["optype"]].append(each["dur"])
    mean = {name: float(np.mean(durations)) for name, durations in spent.items()}
    by_kind: dict[str, list[int]] = defaultdict(list)
    names = [workers[members[0][0]].kernels[members[0][1]][0]["optype"] for members in job.members]
    for name, took in zip(names, job.transfer.tolist(), strict=True):
        by_kind[name].append(took)
    transfer = np.array([[float(np.mean(by_kind[name])) for name in names]])
    recorded = float(job.ends(job.recorded(), together=False).max())
    found = []
    for kept_ns in (np.inf, ELASTIC_NS):
        stretches = [
            worker.ideal(edges, blocked, mean, kept_ns)[None, :]
            for worker, (_, blocked, edges) in zip(workers, known, strict=True)
        ]
        found.append(recorded / float(job.ends(stretches, transfer, together=False).max()))
    return job.error_percent(), found[0], found[1]


def main() -> None:
    """Print a row for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    given = parser.parse_args()
    print("| job | published | plain | elastic | elastic is off by | unchanged replay is off by at most |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, published in PUBLISHED.items():
        table = pq.read_table(given.folder / f"trace-{name}.parquet").to_pylist()
        for each in table:
            each["start"], each["dur"] = int(each["start_ts"] * 1e9), int(each["duration"] * 1e9)
        steps = sorted({each["step"] for each in table})[: given.steps]
        each_step = [slowdowns([each for each in table if each["step"] == step]) for step in steps]
        error, plain, elastic = max(row[0] for row in each_step), *np.mean([row[1:] for row in each_step], axis=0)
        off = 100 * abs(elastic / published - 1)
        print(f"| {name} | {published} | {plain:.3f} | {elastic:.3f} | {off:.1f} % | {error:.2f} % |")


if __name__ == "__main__":
    main()
