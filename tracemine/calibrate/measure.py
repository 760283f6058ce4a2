"""Run the plan on the GPU and take the medians; the only part of calibration that needs one."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
import triton
from torch.profiler import ProfilerActivity, profile

from tracemine.calibrate import kernels
from tracemine.calibrate.measure_library import Run, activities_of, library_points
from tracemine.calibrate.plan import ITEM_BYTES, PatternJob, library_plan, plan
from tracemine.errors import UsageError
from tracemine.perfmodel.calibration import Calibration, Launch, Point

_REPEATS, _FEW_REPEATS = 7, 3
_LARGE = 512 << 20  # bytes from which a launch is long enough for fewer repeats
_WARM_UP = 3  # launches between the cold and the warm ones
_CHUNK = 60  # jobs a profile: its buffers are bounded
_ALIGN = 512
_SUFFIX = "_pattern"


def measure(progress: Callable[[int, int], None] | None = None) -> Calibration:
    """Calibrate the current CUDA device: minutes of wall time, under two minutes of the GPU's.

    `progress` is called with how many jobs are done, of how many. Raises UsageError where there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise UsageError("no CUDA device to calibrate", hint="run it on the machine whose GPU the traces come from")
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    free_bytes, _ = torch.cuda.mem_get_info()
    # All tensors of a job lie in one pool; a tenth of it is spare, for alignment and partial sums.
    largest = min(8 << 30, int(free_bytes * 0.8) * 9 // 10)
    memory = _Memory(largest + largest // 10 + (64 << 20), device.L2_cache_size)
    points: list[Point] = []
    skipped: list[str] = []
    jobs = plan(largest)
    for begin in range(0, len(jobs), _CHUNK):
        points += _measured(jobs[begin : begin + _CHUNK], memory, skipped)
        if progress is not None:
            progress(min(begin + _CHUNK, len(jobs)), len(jobs))
    del memory
    gc.collect()
    torch.cuda.empty_cache()
    library = tuple(library_points(library_plan(), skipped))
    return Calibration(
        gpu=device.name,
        sm_count=device.multi_processor_count,
        l2_bytes=device.L2_cache_size,
        memory_bytes=device.total_memory,
        driver=_driver(),
        torch=str(torch.__version__),
        triton=str(triton.__version__),
        cuda=torch.version.cuda,
        launch=_launch_terms(),
        points=tuple(points),
        skipped=tuple(sorted(set(skipped))),
        library=library or None,
    )


class _Memory:
    """One pool that every job takes its tensors from, and what clears the L2 cache between two launches."""

    def __init__(self, nbytes: int, l2_bytes: int) -> None:
        self.pool = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._flush = torch.ones(l2_bytes, dtype=torch.float32, device="cuda")  # four times the cache
        self._filled: str | None = None

    def fill(self, dtype: str) -> None:
        """Fill the pool's first part with normal numbers of the type at hand: some functions branch on the value."""
        if dtype == self._filled:
            return
        self._filled = dtype
        part = self.pool[: min(self.pool.numel(), 2 << 30) // _ALIGN * _ALIGN]
        if dtype == "int8":
            part.view(torch.int8).random_(-128, 128)
        else:
            part.view(getattr(torch, dtype)).normal_()

    def take(self, *pieces: tuple[int, str]) -> list[torch.Tensor]:
        """Return tensors of (elements, dtype), one after another in the pool."""
        at, tensors = 0, []
        for count, dtype in pieces:
            size = count * ITEM_BYTES[dtype]
            tensors.append(self.pool[at : at + size].view(getattr(torch, dtype)))
            at += -(-size // _ALIGN) * _ALIGN
        return tensors

    def flush(self) -> None:
        """Fill the L2 cache with clean lines, by reading: written ones would have to be put away first."""
        self._flush.sum()


def _pointwise(job: PatternJob, memory: _Memory) -> Callable[[int, int], Run]:
    kernel = getattr(kernels, ("copy" if job.pattern == "widen" else job.pattern) + _SUFFIX)
    n = job.rows
    count = job.nbytes // (n * ITEM_BYTES[job.dtype])
    pieces = [(n, "int8"), (n, "bfloat16")] if job.pattern == "widen" else [(n, job.dtype)] * count

    def run(block: int, warps: int) -> Run:
        grid = (triton.cdiv(n, block),)
        extra = [(grid[0], "float32")] if job.pattern == "read" else []
        tensors = memory.take(*pieces, *extra)
        named = {"FUNCTION": job.function} if job.function else {}
        return lambda: kernel[grid](*tensors, n, BLOCK=block, num_warps=warps, **named)

    return run


def _strided(job: PatternJob, memory: _Memory) -> Callable[[int, int], Run]:
    side = job.rows
    x, out = memory.take((side * side, job.dtype), (side * side, job.dtype))

    def run(tile: int, warps: int) -> Run:
        grid = (triton.cdiv(side, tile), triton.cdiv(side, tile))
        return lambda: kernels.strided_pattern[grid](x, out, side, side, TILE=tile, num_warps=warps)

    return run


def _rows(job: PatternJob, memory: _Memory) -> Callable[[int, int, int], Run]:
    kernel: Any = getattr(kernels, job.pattern + _SUFFIX)
    sums = job.pattern == "row_sum"
    out_piece = (job.rows, "float32") if sums else (job.rows * job.length, job.dtype)
    x, out, weight = memory.take((job.rows * job.length, job.dtype), out_piece, (job.length, job.dtype))
    weighted = job.pattern in ("row_norm", "row_norm_looped", "row_two_sums", "row_welford")
    tensors = (x, weight, out) if weighted else (x, out)

    def run(rows: int, block: int, warps: int) -> Run:
        grid = (triton.cdiv(job.rows, rows),)
        return lambda: kernel[grid](*tensors, job.rows, LENGTH=job.length, ROWS=rows, BLOCK=block, num_warps=warps)

    return run


def _split_sum(job: PatternJob, memory: _Memory) -> Callable[[int, int, int], Run]:
    def run(part: int, block: int, warps: int) -> Run:
        parts = triton.cdiv(job.length, part)
        x, partial, out = memory.take(
            (job.rows * job.length, job.dtype), (job.rows * parts, "float32"), (job.rows, "float32")
        )
        finish = 1 << (parts - 1).bit_length()

        def both() -> None:
            kernels.split_sum_pattern[(job.rows, parts)](
                x, partial, job.rows, LENGTH=job.length, PART=part, BLOCK=block, num_warps=warps
            )
            kernels.row_sum_pattern[(job.rows,)](
                partial, out, job.rows, LENGTH=parts, ROWS=1, BLOCK=finish, num_warps=2
            )

        return both

    return run


def _column_sum(job: PatternJob, memory: _Memory) -> Callable[[int, int, int], Run]:
    def run(strip: int, tile: int, warps: int) -> Run:
        strips = triton.cdiv(job.rows, strip)
        x, partial, out = memory.take(
            (job.rows * job.length, job.dtype), (strips * job.length, "float32"), (job.length, "float32")
        )

        def both() -> None:
            kernels.column_sum_pattern[(triton.cdiv(job.length, tile), strips)](
                x, partial, job.rows, COLUMNS=job.length, STRIP=strip, TILE=tile, num_warps=warps
            )
            # What is left is small; it is summed as the columns of few rows, by the same kernel.
            kernels.column_sum_pattern[(triton.cdiv(job.length, tile), 1)](
                partial, out, strips, COLUMNS=job.length, STRIP=-(-strips // 8) * 8, TILE=tile, num_warps=warps
            )

        return both

    return run


_MAKERS: dict[str, Callable[[PatternJob, _Memory], Callable[..., Run]]] = {
    "strided": _strided,
    "split_sum": _split_sum,
    "column_sum": _column_sum,
}


def _runs(job: PatternJob, memory: _Memory) -> list[Run]:
    maker = _MAKERS.get(job.pattern, _rows if job.pattern.startswith("row_") else _pointwise)
    make = maker(job, memory)
    return [make(*config) for config in job.configs]


def _measured(jobs: Sequence[PatternJob], memory: _Memory, skipped: list[str]) -> Iterator[Point]:
    work = []
    for job in jobs:
        memory.fill(job.dtype)
        kept = compiled(job, _runs(job, memory), skipped)
        if kept is not None:
            work.append(kept)
    torch.cuda.synchronize()
    # The second profile of a process onwards warns that it begins a new cycle.
    warnings.filterwarnings("ignore", message=".*Profiler clears events.*")
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for job, runs in work:
            memory.fill(job.dtype)
            for run in runs:
                for _ in range(_repeats(job)):
                    memory.flush()
                    run()
                for _ in range(_WARM_UP + _repeats(job)):
                    run()
        torch.cuda.synchronize()
    durations = [duration for name, _, duration in activities_of(profiled) if name.endswith(_SUFFIX)]
    return medians([job for job, _ in work], durations)


def compiled(job: PatternJob, runs: Sequence[Run], skipped: list[str]) -> tuple[PatternJob, list[Run]] | None:
    """Return the job with the configurations that compile and run, once each; what does not is named in `skipped`.

    A version of Triton that cannot compile one kernel is no reason to measure none.
    """
    good: list[tuple[tuple[int, ...], Run]] = []
    for config, run in zip(job.configs, runs, strict=True):
        try:
            run()
        except Exception as error:
            text = (str(error).splitlines() or [""])[0][:200]
            skipped.append(f"{job.name} {job.dtype} {config}: {type(error).__name__}: {text}")
        else:
            good.append((config, run))
    if not good:
        return None
    return replace(job, configs=tuple(config for config, _ in good)), [run for _, run in good]


def medians(jobs: Sequence[PatternJob], durations: Sequence[int]) -> Iterator[Point]:
    """Yield points of the best configuration, from the durations of all launches of some jobs in launch order.

    Raises ValueError when there are more or fewer durations than launches: the profiler lost some.
    """
    at = 0
    for job in jobs:
        best: list[tuple[int, int]] = []
        for _ in job.configs:
            launches = 2 * _repeats(job) + _WARM_UP
            part = durations[at : at + launches * job.kernels]
            at += launches * job.kernels
            if len(part) < launches * job.kernels:
                raise ValueError("the profiler lost activities")
            totals = [sum(part[i : i + job.kernels]) for i in range(0, len(part), job.kernels)]
            best.append((median_low(totals[: _repeats(job)]), median_low(totals[-_repeats(job) :])))
        yield Point(
            pattern=job.name,
            dtype=job.dtype,
            bytes_read=job.bytes_read,
            bytes_written=job.bytes_written,
            rows=job.rows,
            length=job.length,
            kernels=job.kernels,
            cold_ns=min(cold for cold, _ in best),
            warm_ns=min(warm for _, warm in best),
        )
    if at != len(durations):
        raise ValueError("the profiler saw more activities than were launched")


# --- libraries -------------------------------------------------------------------------------------------------------


def _repeats(job: PatternJob) -> int:
    return _REPEATS if job.nbytes < _LARGE else _FEW_REPEATS


def _launch_terms(launches: int = 200) -> Launch:
    one = torch.zeros(1, device="cuda")
    busy = torch.empty(256 << 20, dtype=torch.float32, device="cuda")

    def empty() -> None:
        kernels.empty_pattern[(1,)](one)

    empty()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(8):  # milliseconds of work, so that the launches queue up behind it
            busy.fill_(0)
        for _ in range(launches):
            empty()
        torch.cuda.synchronize()
    queued_ns, queued_gap_ns = _duration_and_gap(profiled)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        empty()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            empty()
    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        graph.replay()
        torch.cuda.synchronize()
    graph_ns, graph_gap_ns = _duration_and_gap(profiled)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return Launch(
        empty_kernel_ns=queued_ns,
        queued_gap_ns=queued_gap_ns,
        graph_kernel_ns=graph_ns,
        graph_gap_ns=graph_gap_ns,
        graph_node_ns=round(begin.elapsed_time(end) * 1e6 / launches),
        host_triton_ns=_host_ns(empty),
        host_aten_ns=_host_ns(lambda: one.add_(1)),
    )


def _duration_and_gap(profiled: Any) -> tuple[int, int]:
    own = [activity for activity in activities_of(profiled) if activity[0].endswith(_SUFFIX)]
    gaps = [after[1] - before[1] - before[2] for before, after in pairwise(own)]
    return median_low(duration for _, _, duration in own), median_low(gaps)


def _host_ns(run: Run, calls: int = 300) -> int:
    best = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            run()
        best.append((time.perf_counter_ns() - begin) // calls)
    torch.cuda.synchronize()
    return min(best)


def _driver() -> str | None:
    """Return the kernel module's version, where Linux tells it."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text("utf-8").splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((word for word in first.split() if word[:1].isdigit() and "." in word), None)
