"""Record Proton's forms of a program, and quantised programs by torch: `python -m benchmarks record_proton OUT`.

OUT/NAME.hatchet (trees) and OUT/NAME.chrome_trace (timelines) are of one program: three steps, each with scopes, Triton
kernels of its own with FLOPs and bytes, operators of PyTorch, a compiled function and a CUDA graph. `both.*` are of one
run; `lines.*` say Python's lines in place of scopes; `inside.*` is of the inside of a kernel; `packed.hatchet_msgpack`
is the tree in its binary form. OUT/quantised/NAME_{before,after}.json.gz are traces of two steps of programs that
compute on quantised tensors, and `quantised.json` says how long their steps take unprofiled. Needs torch and Triton
with a GPU, and nothing else; each part is a process of its own, written as soon as it is done.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
import triton.profiler.language as pl

STEPS, ROWS, WIDTH = 3, 2048, 4096
SECONDS = {"both": 30, "quantised": 30, "lines": 15, "inside": 15, "packed": 12}  # at most, and all of them:
ALL_SECONDS = 58


def norm_says(grid: Any, kernel: Any, args: dict[str, Any]) -> dict[str, Any]:
    """What the norm moves and computes, for Proton's hook."""
    x = args["x_ptr"]
    return {"name": "rms_norm_kernel", "bytes": 2 * x.numel() * x.element_size(), "flops32": 4 * x.numel()}


def gate_says(grid: Any, kernel: Any, args: dict[str, Any]) -> dict[str, Any]:
    """What the gate moves and computes, for Proton's hook."""
    x = args["x_ptr"]
    return {"name": "silu_mul_kernel", "bytes": 3 * x.numel() * x.element_size(), "flops32": 5 * x.numel()}


@triton.jit(launch_metadata=norm_says)  # type: ignore[untyped-decorator]
def rms_norm_kernel(x_ptr, out_ptr, width: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, block)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + 1e-6)
    tl.store(out_ptr + row * width + at, (x * scale).to(out_ptr.dtype.element_ty), mask=at < width)


@triton.jit(launch_metadata=gate_says)  # type: ignore[untyped-decorator]
def silu_mul_kernel(x_ptr, y_ptr, out_ptr, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, (x * tl.sigmoid(x) * y).to(out_ptr.dtype.element_ty), mask=at < count)


@triton.jit  # type: ignore[untyped-decorator]
def doubled_kernel(x_ptr, out_ptr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    pl.enter_scope("load")
    x = tl.load(x_ptr + at)
    pl.exit_scope("load")
    pl.enter_scope("store")
    tl.store(out_ptr + at, x * 2.0)
    pl.exit_scope("store")


class Program:
    """The program that is recorded."""

    def __init__(self) -> None:
        import torch

        options = {"device": "cuda", "dtype": torch.bfloat16}
        self.x = torch.randn(ROWS, WIDTH, **options)
        self.weight = torch.randn(WIDTH, WIDTH, **options) / WIDTH**0.5
        self.small = torch.randn(256, 1024, **options)
        self.tail = torch.compile(lambda y: torch.nn.functional.gelu(y + 1.0) * 0.5, dynamic=False)

    def norm(self, x: Any) -> Any:
        import torch

        out = torch.empty_like(x)
        rms_norm_kernel[(x.shape[0],)](x, out, x.shape[1], block=x.shape[1])
        return out

    def gate(self, x: Any, y: Any) -> Any:
        import torch

        out = torch.empty_like(x)
        silu_mul_kernel[(x.numel() // 1024,)](x, y, out, x.numel(), block=1024)
        return out

    def captured(self) -> Any:
        """A CUDA graph of six small kernels."""
        import torch

        def body() -> Any:
            y = self.small
            for _ in range(3):
                y = torch.relu(y) + 1.0
            return y

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return graph

    def step(self, scope: Callable[[str], Any], graph: Any) -> None:
        with scope("step"):
            with scope("norm"):
                x = self.norm(self.x)
            with scope("mlp"):
                y = x @ self.weight
                x = self.gate(y, x)
                x = (x * 2.0).relu()  # two eager kernels that want to be one
            with scope("tail"):
                self.tail(x)
            with scope("replay"):
                graph.replay()


def steps(program: Program, scope: Callable[[str], Any], graph: Any) -> None:
    import torch

    for _ in range(STEPS):
        program.step(scope, graph)
    torch.cuda.synchronize()


def warm() -> tuple[Any, Program, Any]:
    import contextlib

    import torch
    import triton.profiler as proton

    program = Program()
    graph = program.captured()
    for _ in range(3):
        program.step(lambda name: contextlib.nullcontext(), graph)
    torch.cuda.synchronize()
    return proton, program, graph


def both(out: Path) -> None:
    """A tree and a timeline of one run; then each alone, with the graph captured while Proton looks on."""
    proton, program, graph = warm()
    tree = proton.start(str(out / "both"), data="tree", hook="triton")
    trace = proton.start(str(out / "both_trace"), data="trace", hook="triton")
    steps(program, proton.scope, graph)
    proton.finalize(tree)
    proton.finalize(trace)
    (out / "device.json").write_text(json.dumps(about()))
    for data in ("tree", "trace"):
        session = proton.start(str(out / f"captured_{data}"), data=data, hook="triton")
        with proton.scope("capture"):
            seen = program.captured()
        steps(program, proton.scope, seen)
        proton.finalize(session)


def lines(out: Path) -> None:
    """The same with Python's lines as context."""
    proton, program, graph = warm()
    for data in ("trace", "tree"):
        session = proton.start(str(out / f"lines_{data}"), data=data, context="python", hook="triton")
        steps(program, proton.scope, graph)
        proton.finalize(session)


def packed(out: Path) -> None:
    """The tree in its binary form."""
    proton, program, graph = warm()
    session = proton.start(str(out / "packed"), data="tree", hook="triton")
    steps(program, proton.scope, graph)
    proton.finalize(session, output_format="hatchet_msgpack")


def inside(out: Path) -> None:
    """The inside of one kernel, in cycles."""
    import torch
    import triton.profiler as proton

    pl.enable_semantic("triton")
    x = torch.randn(4096, device="cuda")
    proton.start(str(out / "inside"), data="trace", backend="instrumentation")
    doubled_kernel[(4,)](x, torch.empty_like(x), block=1024)
    torch.cuda.synchronize()
    proton.finalize()


def about() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__}
    if torch.cuda.is_available():
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["gpu"] = torch.cuda.get_device_name()
        found["driver"] = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return found


def quantised_programs(device: str) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Programs on quantised tensors, each as it is met and as it should be; results agree but for rounding."""
    import torch
    import torch.nn.functional as F

    rows, width, layers = (2048, 4096, 4) if device == "cuda" else (32, 64, 4)
    half = torch.bfloat16
    made = [torch.randint(-127, 128, (width, width), device=device, dtype=torch.int8) for _ in range(layers)]
    scales = [torch.rand(width, 1, device=device, dtype=half) / width for _ in range(layers)]
    x = torch.randn(rows, width, device=device, dtype=half)
    few = torch.randn(16, width, device=device, dtype=half)
    ready = [w.to(half) * s for w, s in zip(made, scales, strict=True)]
    flat = [s.reshape(1, -1) for s in scales]
    step_size = 0.02

    def quantised(y: Any) -> Any:
        return torch.clamp(torch.round(y / step_size), -128, 127).to(torch.int8)

    def weight_only(y: Any) -> Any:
        for w, s in zip(made, scales, strict=True):
            y = F.linear(y, w.to(half) * s)
        return y

    def weight_ready(y: Any) -> Any:
        for w in ready:
            y = F.linear(y, w)
        return y

    def island() -> Any:
        q = quantised(x)
        for w, s in zip(made, scales, strict=True):
            y = F.linear(q.to(half) * step_size, w.to(half) * s)
            q = quantised(y)
        return q

    def integer() -> Any:
        q = quantised(x)
        for w, s in zip(made, flat, strict=True):
            y = torch._int_mm(q, w.t())
            q = requantise(y, s)
        return q

    requantise = torch.compile(lambda y, s: quantised(y.float() * step_size * s), dynamic=False)

    def fake() -> Any:
        y = x
        for w in ready:
            y = torch.fake_quantize_per_tensor_affine(y, step_size, 0, -128, 127)
            y = F.linear(y, torch.fake_quantize_per_tensor_affine(w, step_size / 100, 0, -128, 127))
        return y

    def folded() -> Any:
        y = x
        for w in rounded:
            y = F.linear(torch.fake_quantize_per_tensor_affine(y, step_size, 0, -128, 127), w)
        return y

    rounded = [torch.fake_quantize_per_tensor_affine(w, step_size / 100, 0, -128, 127) for w in ready]

    def pair() -> Any:
        y = x
        for w in ready:
            y = quantised(F.linear(y, w)).to(half) * step_size
        return y

    found = {
        "weight_dequantised": (lambda: weight_only(x), lambda: weight_ready(x)),
        "weight_dequantised_decode": (lambda: weight_only(few), lambda: weight_ready(few)),
        "island": (island, integer),
        "fake_quantised": (fake, folded),
        "round_trip": (pair, lambda: weight_ready(x)),
    }
    if device == "cuda":
        eights = [w.to(half).clamp(-100, 100).to(torch.float8_e4m3fn) for w in made]
        one = torch.ones((), device=device, dtype=torch.float32)

        def eight(last: bool) -> Any:
            y = x
            for at, w in enumerate(eights):
                if at < layers - 1 or last:
                    y = torch._scaled_mm(y.to(torch.float8_e4m3fn), w.t(), one, one, out_dtype=half)
                else:
                    y = F.linear(y, w.to(half))
                y = y * 1e-3
            return y

        found["one_falls_back"] = (lambda: eight(False), lambda: eight(True))
    return found


def timed(step: Callable[[], Any], device: str) -> float:
    """The median time of a step in milliseconds, nothing recorded."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(5):
        step()
    wait()
    found = []
    for _ in range(7):
        begin = time.perf_counter()
        for _ in range(5):
            step()
        wait()
        found.append((time.perf_counter() - begin) * 200)
    return statistics.median(found)


def quantised(out: Path, device: str = "cuda") -> None:
    """Each program as it is met and as it should be: a trace of two steps, and the unprofiled step."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    folder, found = out / "quantised", dict[str, Any]()
    folder.mkdir(exist_ok=True)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    for name, forms in quantised_programs(device).items():
        for form, step in zip(("before", "after"), forms, strict=True):
            try:
                with torch.no_grad():
                    found[f"{name}_{form}_ms"] = timed(step, device)
                    with tempfile.TemporaryDirectory() as scratch:
                        written = Path(scratch) / "trace.json"
                        with profile(
                            activities=activities,
                            schedule=schedule(wait=0, warmup=1, active=2),
                            record_shapes=True,
                            with_stack=True,
                            on_trace_ready=lambda p, written=written: p.export_chrome_trace(str(written)),
                        ) as running:
                            for _ in range(3):
                                step()
                                running.step()
                        kept = folder / f"{name}_{form}.json.gz"
                        kept.write_bytes(gzip.compress(written.read_bytes(), mtime=0))
            except Exception as error:
                found[f"{name}_{form}_error"] = str(error)[:300]
            (out / "quantised.json").write_text(json.dumps(found | {"about": about()}, indent=1))


PARTS = {"both": both, "quantised": quantised, "lines": lines, "inside": inside, "packed": packed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=[*PARTS])
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.part == "quantised":
        quantised(given.out, given.device)
    elif given.part:
        PARTS[given.part](given.out)
    else:
        start = time.monotonic()
        for part in PARTS:
            left = min(SECONDS[part], ALL_SECONDS - (time.monotonic() - start))
            if left < 3:
                break
            command = [sys.executable, __file__, str(given.out), "--part", part, "--device", given.device]
            begin = time.monotonic()
            try:
                done = subprocess.run(
                    command, timeout=left, capture_output=True, text=True, check=False, env=os.environ
                )
                said = f"{done.returncode} {done.stderr[-1500:]}"
            except subprocess.TimeoutExpired:
                said = "out of time"
            text = f"{part}: {time.monotonic() - begin:.1f} s, {said}\n"
            with (given.out / "parts.txt").open("a") as file:
                file.write(text)
            print(text, end="", flush=True)


if __name__ == "__main__":
    main()
