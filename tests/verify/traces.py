"""Made-up recordings: events as Kineto writes them."""

from __future__ import annotations

from typing import Any


def event(
    name: str,
    begin: int,
    end: int,
    shapes: list[Any] | None,
    types: list[str],
    strides: list[Any] | None = None,
    values: list[str] | None = None,
) -> dict[str, Any]:
    """An operator's call; what older profilers do not record is None."""
    told = {} if shapes is None else {"Input Dims": shapes, "Input type": types}
    told |= {} if strides is None else {"Input Strides": strides}
    told |= {} if values is None else {"Concrete Inputs": values}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": end - begin, "args": told}


def launched(number: int, at: int, kernel: str) -> list[dict[str, Any]]:
    """A launch, and the kernel that it launched."""
    launch = {"correlation": number}
    on_gpu = {"correlation": number, "device": 0, "stream": 7}
    return [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 1}
        | {"args": launch},
        {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 1000 + 100 * number, "dur": 90}
        | {"args": on_gpu},
    ]
