"""Measure what libraries reach: products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median_low
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tracemine.calibrate import kernels
from tracemine.calibrate.plan import LibraryJob
from tracemine.perfmodel.calibration import LibraryPoint

Run = Callable[[], object]
_MARK = "empty_pattern"  # the kernel that stands between two jobs of a profile

_LIBRARY_WARM_UP = 3
_LIBRARY_CALLS = 7


def library_points(jobs: Sequence[LibraryJob], skipped: list[str]) -> Iterator[LibraryPoint]:
    """Yield each job's usual time, all kernels of a call together; jobs that do not run are named in `skipped`."""
    one = torch.zeros(1, device="cuda")
    done: list[LibraryJob] = []
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for job in jobs:
            try:
                with library_call_of(job, "cuda") as run:
                    for _ in range(_LIBRARY_WARM_UP):
                        run()
                    torch.cuda.synchronize()
                    kernels.empty_pattern[(1,)](one)
                    for _ in range(_LIBRARY_CALLS):
                        run()
                    kernels.empty_pattern[(1,)](one)
                    torch.cuda.synchronize()
            except (RuntimeError, NotImplementedError) as error:  # too little memory, a type that the GPU lacks
                text = (str(error).splitlines() or [""])[0][:200]
                skipped.append(f"{job.operation} {job.arithmetic} {job.shape}: {type(error).__name__}: {text}")
                torch.cuda.empty_cache()
            else:
                done.append(job)
    yield from library_medians(done, [(name, dur) for name, _, dur in activities_of(profiled)])


@contextmanager
def library_call_of(job: LibraryJob, device: str) -> Iterator[Run]:
    """Yield what runs a job once, with TF32 allowed as its arithmetic says; the setting is put back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = job.arithmetic == "tf32"
    try:
        yield _LIBRARY_MAKERS[job.operation](job, {"device": device, "dtype": getattr(torch, job.dtype)})
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _product_run(job: LibraryJob, like: dict[str, Any]) -> Run:
    rows, inner, columns = job.sizes
    first, second = torch.randn(rows, inner, **like), torch.randn(columns, inner, **like).t()
    return lambda: first @ second


def _convolution_run(job: LibraryJob, like: dict[str, Any]) -> Run:
    batch, channels, side, out, window = job.sizes
    source = torch.randn(batch, channels, side, side, **like)
    weight = torch.randn(out, channels, window, window, **like)

    def forward() -> torch.Tensor:
        return torch.nn.functional.conv2d(source, weight, padding=window // 2)

    return _with_gradients(forward, [source, weight]) if job.operation.endswith("_backward") else forward


def _attention_run(job: LibraryJob, like: dict[str, Any]) -> Run:
    inputs = [torch.randn(*job.sizes, **like) for _ in range(3)]

    def forward() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*inputs)

    return _with_gradients(forward, inputs) if job.operation.endswith("_backward") else forward


def _with_gradients(forward: Callable[[], torch.Tensor], inputs: Sequence[torch.Tensor]) -> Run:
    """Return the backward pass alone."""
    for one in inputs:
        one.requires_grad_()
    result = forward()
    grad = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, inputs, grad, retain_graph=True)


_LIBRARY_MAKERS: dict[str, Callable[[LibraryJob, dict[str, Any]], Run]] = {
    "product": _product_run,
    "convolution": _convolution_run,
    "convolution_backward": _convolution_run,
    "attention": _attention_run,
    "attention_backward": _attention_run,
}


def library_medians(jobs: Sequence[LibraryJob], activities: Sequence[tuple[str, int]]) -> Iterator[LibraryPoint]:
    """Yield points from all activities in the order of running: a job's calls stand between two marks.

    A job whose calls launched different numbers of kernels gets the mean. Raises ValueError where a mark is missing.
    """
    marks = [at for at, (name, _) in enumerate(activities) if name.endswith(_MARK)]
    if len(marks) != 2 * len(jobs):
        raise ValueError("the profiler lost activities")
    for job, begin, end in zip(jobs, marks[::2], marks[1::2], strict=True):
        durations = [dur for _, dur in activities[begin + 1 : end]]
        each, rest = divmod(len(durations), _LIBRARY_CALLS)
        if not durations:
            raise ValueError("the profiler lost activities")
        calls = [sum(durations[at : at + each]) for at in range(0, len(durations), each)] if each and not rest else []
        ns = median_low(calls) if calls else sum(durations) // _LIBRARY_CALLS
        yield LibraryPoint(job.operation, job.arithmetic, job.shape, job.flops, job.nbytes, ns)


def activities_of(profiled: Any) -> list[tuple[str, int, int]]:
    """Return (name, start, duration) of the GPU's activities, in the order in which they ran."""
    events = profiled.profiler.kineto_results.events()
    return sorted(
        (
            (event.name(), event.start_ns(), event.duration_ns())
            for event in events
            if event.device_type() == torch.autograd.DeviceType.CUDA
        ),
        key=lambda activity: activity[1],
    )
