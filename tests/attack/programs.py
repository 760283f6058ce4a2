"""Traces of random programs that could have run, and what their files say of time on the GPU."""

from __future__ import annotations

from random import Random
from typing import Any

OPERATORS = ("mul", "add", "add_", "neg", "silu", "pow", "mean", "rsqrt", "sum", "_softmax", "native_layer_norm", "cat",
             "copy_", "mm", "addmm", "fill_", "embedding", "native_dropout", "index", "_foreach_add_", "convolution",
             )  # fmt: skip
KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Array<char*, 3>>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)", "ampere_sgemm_128x64_tn", "mystery",
    "triton_poi_fused_add_mul_0", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "void cunn_SoftMaxForward<4, float>(x)",
)  # fmt: skip
COPIES = ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "cudaFree", "cudaStreamWaitEvent")
GPUS = ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "AMD Instinct MI300X", "unknown")
SHAPES: tuple[list[int], ...] = ([8, 512, 1024], [64], [1], [], [4096, 4096], [0, 5], [2**20, 2**12], [3, 7, 11])
GPU_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")


class Program:
    """A program on one to three devices, streams and threads; some overlap that should not, or have no call."""

    def __init__(self, seed: int) -> None:
        self.pick = r = Random(f"program {seed}")
        self.events: list[dict[str, Any]] = []
        self.calls = 0
        self.busy: dict[tuple[int, int], float] = {}
        self.devices, self.streams = r.choice((1, 1, 2, 3)), r.choice((1, 1, 2, 4))
        self.longest, self.host = r.choice((0.1, 1, 3, 20)), r.choice((1, 5, 30, 200))
        self.mess = r.choice((0, 0, 0.05, 0.3))
        self.shape, self.dtype = r.choice(SHAPES), r.choice(("float", "c10::BFloat16", "long int", "bool"))
        pattern = [r.choice(OPERATORS) for _ in range(r.choice((1, 2, 3, 6, 10)))]
        clock = dict.fromkeys(r.choice(((1,), (1,), (1, 2), (1, 2, 3))), 1e6 * r.random())
        steps, count = r.choice((0, 1, 2, 5)), r.choice((3, 20, 60))
        for step in range(max(steps, 1)):
            for thread, begin in clock.items():
                for k in range(count):
                    name = pattern[k % len(pattern)] if r.random() < 0.8 else r.choice(OPERATORS)
                    clock[thread] += self.operator(f"aten::{name}", thread, clock[thread])
                if steps:
                    length = clock[thread] - begin + r.choice((0, 5, -100 if self.mess else 0))
                    self.add("user_annotation", f"ProfilerStep#{step}", thread, begin, max(length, 0))
        if r.random() < 0.2:
            self.events = [e for e in self.events if e["cat"] != "cuda_runtime" or r.random() > 0.2]
        if r.random() < 0.2:
            r.shuffle(self.events)

    def add(self, kind: str, name: str, thread: int, ts: float, dur: float, pid: int = 1, **args: Any) -> None:
        event = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": thread, "args": args}
        self.events.append(event | {"ts": round(ts, 3), "dur": max(0, round(dur, 3))})

    def operator(self, name: str, thread: int, ts: float) -> float:
        """An operator and what it launches; how long the host is at it."""
        r = self.pick
        self.calls += 1
        length = self.host * r.uniform(0.2, 2)
        shapes = [self.shape if r.random() < 0.9 else r.choice(SHAPES) for _ in range(r.choice((1, 2, 2, 3)))]
        facts: dict[str, Any] = {
            "Input Dims": shapes,
            "Input type": [self.dtype] * len(shapes),
            "Concrete Inputs": [""] * len(shapes),
        }
        self.add("cpu_op", name, thread, ts, length, **{"External id": self.calls}, **facts)
        how = r.random()
        for k in range(r.choice((0, 1, 1, 1, 1, 2))):
            self.launch(how, thread, ts + length * 0.2 * (k + 1), length * 0.1)
        if r.random() < 0.03:
            wait = max((ts + length, *self.busy.values())) - ts - length + 1
            self.add("cuda_runtime", r.choice(WAITS), thread, ts + length, wait, correlation=10**6 + self.calls)
            length += wait
        return length + r.choice((0, 0.5, 10, 300)) * r.random() * self.host / 5

    def launch(self, how: float, thread: int, at: float, length: float) -> None:
        """A call of the runtime, and the activities that it begins: one, or of a graph several."""
        r = self.pick
        self.calls += 1
        call, kind, name, count = "cudaLaunchKernel", "kernel", r.choice(KERNELS), 1
        if how < 0.03:
            call, count = "cudaGraphLaunch", r.choice((1, 5, 20))
        elif how < 0.07:
            call, kind, name = "cudaMemcpyAsync", "gpu_memcpy", r.choice(COPIES)
        self.add("cuda_runtime", call, thread, at, length, correlation=self.calls)
        device, stream = r.randrange(self.devices), r.choice((7, 20, 21, 22)[: self.streams])
        for node in range(count):
            begin = max(self.busy.get((device, stream), 0), at + length + r.choice((0, 1, 5)))
            begin = at + r.uniform(-50, 500) if r.random() < self.mess else begin
            dur = r.choice((0, 0.001, 1, 2, 5, 50)) * self.longest * r.random()
            facts = {"correlation": self.calls, "device": device, "stream": stream, "block": [128, 1, 1]}
            facts |= {"grid": [r.choice((1, 100, 10_000)), 1, 1], "bytes": r.choice((0, 4, 2**20, 2**33))}
            facts |= {"graph id": 1, "graph node id": node} if count > 1 else {}
            self.add(kind, name, stream, begin, dur, pid=device, **facts)
            self.busy[device, stream] = begin + dur

    def trace(self) -> dict[str, Any]:
        """As the profiler writes it."""
        facts = {"totalGlobalMem": 8 << 30, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
        devices = [{"id": d, "name": self.pick.choice(GPUS), **facts} for d in range(self.devices)]
        return {"schemaVersion": 1, "record_shapes": 1, "deviceProperties": devices, "traceEvents": self.events}

    def truth(self) -> dict[str, int]:
        """What the events say, in nanoseconds: time, busy time of all devices, span, and how many there are."""
        gpu = [e for e in self.events if e["cat"] in GPU_KINDS]
        spans = [(e["pid"], round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)) for e in gpu]
        busy, ends = 0, dict.fromkeys(range(self.devices), -(1 << 62))
        for device, begin, end in sorted(spans):
            busy += max(0, end - max(begin, ends[device]))
            ends[device] = max(ends[device], end)
        first, last = min((s[1] for s in spans), default=0), max((s[2] for s in spans), default=0)
        return {
            "gpu_time_ns": sum(e - b for _, b, e in spans),
            "gpu_busy_ns": busy,
            "span_ns": last - first,
            "count": len(gpu),
        }
