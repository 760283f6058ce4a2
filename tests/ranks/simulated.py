"""Jobs of many ranks, simulated from a program: what each host does, when kernels run, and who waits for whom.

A rank's host launches kernels in order and is stretched by recording; the device runs them in order on one stream, an
all-reduce runs on a stream of its own once the kernel before it has ended, and ends on all ranks together. Nothing here
knows how tracemine replays a job: the same program with and without recording gives the true loss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

RECORDING_NS = 8_000  # what recording adds to an operator with its launch
LAUNCH_NS, DELAY_NS = 6_000, 4_000
SM_BLOCKS = 132


@dataclass(frozen=True)
class Rank:
    """What is particular to one rank: by how much its kernels and host are slower, and what it does beside."""

    slow_kernels: float = 1.0
    more_work: float = 1.0
    host: float = 1.0  # while recorded as well as alone
    recorded_host: float = 1.0  # recording alone stretches it
    silence_ns: int = 0  # at the beginning of each step
    loads: bool = False  # that is a DataLoader's
    tail_ns: int = 0  # a kernel behind the step's last all-reduce, which no collective shows to the others


@dataclass(frozen=True)
class Program:
    """A training step of equal layers whose gradients are all-reduced, one a layer."""

    ranks: Sequence[Rank]
    layers: int = 6
    kernels: int = 8  # a layer
    kernel_ns: int = 60_000
    steps: int = 4
    transfer_ns: int = 120_000
    bytes_each: int = 32 << 20
    overlapped: bool = True  # on a stream of its own; else on the one that computes
    lengths: float = 0.0  # by so much the work of a rank differs from step to step
    barrier: bool = False  # hosts wait for each other at the end of each step, and nothing records it
    jitter: float = 0.01
    offset_ns: Sequence[int] = field(default_factory=tuple)  # of each rank's clock
    seed: int = 0


@dataclass
class _State:
    host: int
    stream: int = 0
    comm: int = 0
    events: list[dict[str, object]] = field(default_factory=list)
    number: int = 0
    length: float = 1.0


def run(program: Program, *, recorded: bool) -> tuple[int, list[list[dict[str, object]]]]:
    """Return how long the job takes in nanoseconds a step, and the events of each rank."""
    random = Random(program.seed)
    states = [_State(host=0) for _ in program.ranks]
    begins = []
    for step in range(program.steps):
        marks = [state.host for state in states]
        begins.append(max(marks))
        for state, rank in zip(states, program.ranks, strict=True):
            state.host += rank.silence_ns
            state.length = 1 + program.lengths * random.uniform(-1, 1) if program.lengths else 1.0
            if rank.loads:
                name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
                state.events.append(_event("user_annotation", name, state.host - rank.silence_ns, rank.silence_ns))
        for _ in range(program.layers):
            for state, rank in zip(states, program.ranks, strict=True):
                for kernel in range(program.kernels):
                    work = int(program.kernel_ns * rank.slow_kernels * rank.more_work * state.length)
                    work = int(work * (1 + program.jitter * random.uniform(-1, 1)))
                    _launch(state, rank, f"kernel_{kernel}", work, int(SM_BLOCKS * rank.more_work), recorded)
            _all_reduce(states, program, recorded)
        for state in states:  # the optimizer reads what was reduced, and the host waits for it
            state.stream = max(state.stream, state.comm)
        for state, rank in zip(states, program.ranks, strict=True):
            _launch(state, rank, "optimizer", program.kernel_ns, SM_BLOCKS, recorded)
            if rank.tail_ns:
                _launch(state, rank, "evaluate", rank.tail_ns, SM_BLOCKS, recorded)
            waits = state.host
            state.host = max(state.host, state.stream)
            _call(state, "cudaDeviceSynchronize", waits, state.host)
        for state, mark in zip(states, marks, strict=True):
            state.host = max(other.host for other in states) if program.barrier else state.host
            state.events.append(_event("user_annotation", f"ProfilerStep#{step}", mark, state.host - mark))
    whole = max(state.host for state in states)
    return whole // program.steps, [state.events for state in states]


def write(program: Program, folder: Path, *, distributed: bool = True) -> list[Path]:
    """Write a file for each rank, as torch.profiler does, and return their paths."""
    _, ranks = run(program, recorded=True)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank, events in enumerate(ranks):
        offset = (program.offset_ns[rank] if program.offset_ns else 0) + 1_000_000_000
        header: dict[str, object] = {"schemaVersion": 1, "record_shapes": 1, "baseTimeNanoseconds": 0}
        header["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": SM_BLOCKS}]
        if distributed:
            header["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": len(ranks)}
        shifted = [{**event, "ts": (int(str(event["ts"])) + offset) / 1000} for event in events]
        header["traceEvents"] = [{**event, "dur": int(str(event["dur"])) / 1000} for event in shifted]
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(header))
        paths.append(path)
    return paths


def true_loss(program: Program, cured: Sequence[Rank]) -> int:
    """Return what a step of the program loses, without recording, against one whose ranks are as given."""
    return run(program, recorded=False)[0] - run(replace(program, ranks=cured), recorded=False)[0]


def _launch(state: _State, rank: Rank, name: str, work: int, blocks: int, recorded: bool, stream: int = 7) -> None:
    begin = state.host
    host = LAUNCH_NS * rank.host + (RECORDING_NS * rank.recorded_host if recorded else 0)
    state.host += int(host)
    state.number += 1
    start = max(state.stream, begin + DELAY_NS)
    state.stream = start + work
    arguments: dict[str, object] = {"correlation": state.number, "External id": state.number}
    state.events.append(_event("cpu_op", f"aten::{name}", begin, int(host) - 500, {"External id": state.number}))
    _call(state, "cudaLaunchKernel", begin + 1_000, begin + 3_000, arguments)
    state.events.append(_kernel(name, start, work, stream, blocks, arguments))


def _all_reduce(states: Sequence[_State], program: Program, recorded: bool) -> None:
    starts = []
    for state, rank in zip(states, program.ranks, strict=True):
        begin = state.host
        state.host += int(LAUNCH_NS * rank.host + (RECORDING_NS * rank.recorded_host if recorded else 0))
        state.number += 1
        starts.append((begin, max(state.stream, state.comm, begin + DELAY_NS)))
    end = max(start for _, start in starts) + program.transfer_ns
    for number, (state, (begin, start)) in enumerate(zip(states, starts, strict=True)):
        state.comm = end
        if not program.overlapped:
            state.stream = end
        elements = program.bytes_each // 4
        sent: dict[str, object] = {
            "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float",
            "Group size": len(states), "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(len(states)))),
        }  # fmt: skip
        arguments: dict[str, object] = {"correlation": state.number, "External id": state.number}
        record = {"External id": state.number, "Rank": number, **sent}
        state.events.append(_event("cpu_op", "record_param_comms", begin, state.host - begin - 500, record))
        _call(state, "cudaLaunchKernelExC", begin + 1_000, begin + 3_000, arguments)
        stream = 19 if program.overlapped else 7
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        state.events.append(_kernel(name, start, end - start, stream, 24, {**arguments, **sent}))


def _kernel(name: str, start: int, dur: int, stream: int, blocks: int, more: dict[str, object]) -> dict[str, object]:
    arguments = {"device": 0, "stream": stream, "grid": [blocks, 1, 1], "block": [256, 1, 1], **more}
    return {**_event("kernel", name, start, dur, arguments), "pid": 0, "tid": stream}


def _call(state: _State, name: str, begin: int, end: int, more: dict[str, object] | None = None) -> None:
    state.events.append(_event("cuda_runtime", name, begin, end - begin, more or {"correlation": 0}))


def _event(
    category: str, name: str, begin: int, dur: int, arguments: dict[str, object] | None = None
) -> dict[str, object]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 100, "tid": 100, "ts": begin, "dur": dur,
        "args": arguments or {},
    }  # fmt: skip
