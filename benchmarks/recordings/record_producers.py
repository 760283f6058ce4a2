"""Record one transformer block as three compilers make it: `python -m benchmarks record_producers OUT`.

The block is PyTorch's eager, torch.compile's and JAX's under `jit`: the same weights, attention spelled out, in
bfloat16; `forward` alone, and `train` with a loss and plain SGD. OUT/PROGRAM_{eager,compiled}.json.gz are of
torch.profiler, OUT/PROGRAM_jax.xplane.pb.xz of jax.profiler, three steps each. OUT/producers.json has a row each: the
median step that nothing recorded, and what the program computed, so that all three are seen to compute the same. Each
producer is a process of its own; they compile side by side, and take turns to run. Needs torch and jax, both with CUDA.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

BATCH, TOKENS, WIDTH, HEADS, RATE = 8, 1024, 1024, 16, 0.001
RECORDED, WARM, TIMED, BLOCKS = 3, 5, 10, 5
SECONDS = 48
PROGRAMS = ("forward", "train")
PRODUCERS = ("eager", "compiled", "jax")
SHAPES = {"qkv": (WIDTH, 3 * WIDTH), "o": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
Step = Callable[[], Any]


def given() -> tuple[dict[str, Any], Any]:
    """Return weights and input as every producer gets them."""
    made = np.random.default_rng(5)
    weights = {name: (made.standard_normal(shape) * 0.02).astype(np.float32) for name, shape in SHAPES.items()}
    ones = {name: np.ones(WIDTH, np.float32) for name in ("a", "b")}
    return weights | ones, made.standard_normal((BATCH, TOKENS, WIDTH)).astype(np.float32)


class Torch:
    """The block in PyTorch."""

    def __init__(self, compiled: bool) -> None:
        import torch

        self.torch, self.compiled = torch, compiled
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        weights, x = given()
        self.weights = {name: self.tensor(value) for name, value in weights.items()}
        self.x = self.tensor(x)
        self.mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=self.device).tril()

    def tensor(self, value: Any) -> Any:
        return self.torch.from_numpy(value).to(self.device, self.torch.bfloat16)

    def norm(self, x: Any, scale: Any) -> Any:
        wide = x.float()
        return (wide * self.torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale

    def block(self, weights: Any, x: Any) -> Any:
        torch = self.torch
        qkv = (self.norm(x, weights["a"]) @ weights["qkv"]).chunk(3, -1)
        q, k, v = (each.reshape(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for each in qkv)
        scores = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        held = torch.softmax(torch.where(self.mask, scores.float(), -1e30), -1).to(q.dtype)
        x = x + (held @ v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ weights["o"]
        up = torch.nn.functional.gelu(self.norm(x, weights["b"]) @ weights["up"], approximate="tanh")
        return x + up @ weights["down"]

    def step(self, program: str) -> Step:
        torch = self.torch
        block = torch.compile(self.block, dynamic=False) if self.compiled else self.block
        if program == "forward":

            def forward() -> Any:
                with torch.no_grad():
                    return block(self.weights, self.x)

            return forward
        weights = {name: value.clone().requires_grad_() for name, value in self.weights.items()}

        def loss_of(x: Any) -> Any:
            return self.block(weights, x).float().square().mean()

        loss_of = torch.compile(loss_of, dynamic=False) if self.compiled else loss_of

        def train() -> Any:
            loss = loss_of(self.x)
            loss.backward()
            with torch.no_grad():
                for value in weights.values():
                    value -= RATE * value.grad
                    value.grad = None
            return loss.detach()

        return train

    def wait(self, made: Any) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def numbers(self, made: Any) -> Any:
        return made.float().cpu().numpy()

    def record(self, step: Step, path: Path) -> Path:
        from torch.profiler import ProfilerActivity, profile, schedule

        kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self.device == "cuda" else [])
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "trace.json"
            with profile(
                activities=kinds,
                schedule=schedule(wait=0, warmup=1, active=RECORDED),
                record_shapes=True,
                with_stack=True,
                on_trace_ready=lambda profiled: profiled.export_chrome_trace(str(written)),
            ) as running:
                for _ in range(1 + RECORDED):
                    self.wait(step())
                    running.step()
            kept = path.with_suffix(".json.gz")
            kept.write_bytes(gzip.compress(written.read_bytes(), mtime=0))
        return kept

    def about(self) -> dict[str, str]:
        gpu = self.torch.cuda.get_device_name() if self.device == "cuda" else "none"
        return {"torch": self.torch.__version__, "gpu": gpu}


class Jax:
    """The block in JAX."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        self.jax, self.jnp = jax, jnp
        weights, x = given()
        self.weights = {name: jnp.asarray(value, jnp.bfloat16) for name, value in weights.items()}
        self.x = jnp.asarray(x, jnp.bfloat16)

    def norm(self, x: Any, scale: Any) -> Any:
        wide = x.astype(self.jnp.float32)
        return (wide * self.jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale

    def block(self, weights: Any, x: Any) -> Any:
        jax, jnp = self.jax, self.jnp
        qkv = jnp.split(self.norm(x, weights["a"]) @ weights["qkv"], 3, -1)
        q, k, v = (each.reshape(BATCH, TOKENS, HEADS, WIDTH // HEADS) for each in qkv)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5
        mask = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        held = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e30), -1).astype(q.dtype)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", held, v).reshape(BATCH, TOKENS, WIDTH) @ weights["o"]
        return x + jax.nn.gelu(self.norm(x, weights["b"]) @ weights["up"], approximate=True) @ weights["down"]

    def step(self, program: str) -> Step:
        jax, jnp = self.jax, self.jnp
        if program == "forward":
            forward = jax.jit(self.block)
            return lambda: forward(self.weights, self.x)

        def loss_of(weights: Any, x: Any) -> Any:
            return jnp.square(self.block(weights, x).astype(jnp.float32)).mean()

        @jax.jit
        def update(weights: Any, x: Any) -> Any:
            loss, gradients = jax.value_and_grad(loss_of)(weights, x)
            return loss, jax.tree.map(lambda w, g: w - (RATE * g).astype(w.dtype), weights, gradients)

        held = [self.weights]

        def train() -> Any:
            loss, held[0] = update(held[0], self.x)
            return loss

        return train

    def wait(self, made: Any) -> None:
        self.jax.block_until_ready(made)

    def numbers(self, made: Any) -> Any:
        return np.asarray(made, np.float32)

    def record(self, step: Step, path: Path) -> Path:
        with tempfile.TemporaryDirectory() as folder:
            with self.jax.profiler.trace(folder):
                for number in range(RECORDED):
                    with self.jax.profiler.StepTraceAnnotation("train", step_num=number):
                        self.wait(step())
            (raw,) = Path(folder).rglob("*.xplane.pb")
            kept = path.with_suffix(".xplane.pb.xz")
            kept.write_bytes(lzma.compress(raw.read_bytes(), preset=6))
        return kept

    def about(self) -> dict[str, str]:
        return {"jax": self.jax.__version__, "gpu": self.jax.devices()[0].device_kind}


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold the device: the other producers wait."""
    with (out / "turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timed(one: Torch | Jax, step: Step) -> float:
    """Return the median of blocks of steps in milliseconds, each block waited for once."""
    found = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(TIMED):
            made = step()
        one.wait(made)
        found.append((time.perf_counter() - begin) * 1e3 / TIMED)
    return statistics.median(found)


def produced(out: Path, producer: str) -> None:
    """Record a producer's programs, and write its rows."""
    one = Jax() if producer == "jax" else Torch(producer == "compiled")
    rows = []
    for program in PROGRAMS:
        step = one.step(program)
        first = one.numbers(step())  # compiled here, while others may run
        for _ in range(WARM):
            one.wait(step())
        row = {"program": program, "producer": producer} | one.about()
        row |= {"mean": float(first.mean()), "mean_of_squares": float((first.astype(np.float64) ** 2).mean())}
        with alone(out):
            row["step_ms"] = timed(one, step)
            row["file"] = one.record(step, out / f"{program}_{producer}").name
        rows.append(row)
        (out / f"{producer}.rows.json").write_text(json.dumps(rows))
        print(row, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=PRODUCERS, help="this producer alone, in this process")
    asked = parser.parse_args()
    out = asked.out
    out.mkdir(parents=True, exist_ok=True)
    if asked.only:
        produced(out, asked.only)
        return 0
    begin = time.monotonic()
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    running = []
    for name in PRODUCERS:
        with (out / f"{name}.txt").open("w") as said:  # what it prints is looked at where it fails
            command = [sys.executable, __file__, str(out), "--only", name]
            running.append(subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment))
    for one in running:
        try:
            one.wait(max(1.0, SECONDS - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            one.kill()
    rows = [
        row
        for name in PRODUCERS
        if (path := out / f"{name}.rows.json").exists()
        for row in json.loads(path.read_text())
    ]
    (out / "producers.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} of {len(PROGRAMS) * len(PRODUCERS)} recorded in {time.monotonic() - begin:.0f} s")
    return len(rows) < len(PROGRAMS) * len(PRODUCERS)


if __name__ == "__main__":
    raise SystemExit(main())
