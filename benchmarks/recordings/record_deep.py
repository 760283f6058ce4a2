"""Record deep transformers, a few steps each, on a CUDA machine: `python -m benchmarks record_deep OUT [NAME...]`.

    python -m benchmarks record_deep /tmp/deep
    gunzip /tmp/deep/*.gz && python -m benchmarks rates --trace /tmp/deep/*.json

    python -m benchmarks record_deep --execution-trace OUT llama_train      writes OUT/NAME.et.json.gz too

What rates.py makes of fixtures repeats a few steps of a shallow model often; these have few steps of many layers, as
recordings of production do. Writes OUT/NAME.json.gz, and OUT/machine.json: GPU, driver, versions, and what a step takes
with no profiler. Needs what record_models.py needs; models are made from their configuration, nothing is fetched.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from benchmarks.recordings.record_models import machine, mean_ns, warmed

Step = Callable[[], object]


@dataclass(frozen=True)
class Recording:
    """What is recorded of one model."""

    make: Callable[[], Step]
    steps: int
    stacks: bool


def _llama(layers: int = 32) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
    )
    return transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16)


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 32000, (batch, length), device="cuda")


def llama_train() -> Step:
    """Forward, backward, AdamW."""
    model = _llama().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = _tokens(4, 512)

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()

    return step


def gpt2_accumulate() -> Step:
    """Eight parts of a batch, whose gradients are summed before the optimizer runs."""
    config = transformers.GPT2Config(n_embd=768, n_layer=12, n_head=12, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 50000, (2, 512), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(8):
            (model(input_ids=ids, labels=ids, use_cache=False).loss / 8).backward()
        optimizer.step()

    return step


def llama_decode() -> Step:
    """A token a step, of a cache that grows: no step has the shapes of another."""
    model = _llama().eval()
    cache = transformers.DynamicCache()
    with torch.inference_mode():
        model(input_ids=_tokens(8, 256), past_key_values=cache, use_cache=True)
    token = _tokens(8, 1)

    @torch.inference_mode()
    def step() -> None:
        logits = model(input_ids=token, past_key_values=cache, use_cache=True).logits
        token.copy_(logits[:, -1].argmax(-1, keepdim=True))

    return step


def llama_prompts() -> Step:
    """Prompts of different lengths, one after another."""
    model = _llama().eval()
    lengths = iter(range(128, 1 << 14, 32))

    @torch.inference_mode()
    def step() -> None:
        model(input_ids=_tokens(1, next(lengths)), use_cache=False)

    return step


RECORDINGS = {
    "llama_train": Recording(llama_train, 3, stacks=True),
    "llama_train_shapes": Recording(llama_train, 6, stacks=False),
    "gpt2_accumulate": Recording(gpt2_accumulate, 2, stacks=True),
    "llama_decode": Recording(llama_decode, 12, stacks=True),
    "llama_prompts": Recording(llama_prompts, 12, stacks=False),
}


def unprofiled_ns(step: Step) -> int:
    """A step of ten back to back, as the host runs ahead: median of three means."""
    return int(statistics.median(mean_ns(step, 10) for _ in range(3)))


def record(name: str, recording: Recording, out: Path, *, execution_trace: bool) -> int:
    """Write one trace; return what a step takes with no profiler."""
    torch.manual_seed(0)
    step = warmed(recording.make(), 3)
    taken_ns = unprofiled_ns(step)
    path = out / f"{name}.json"
    observer = ExecutionTraceObserver().register_callback(str(out / f"{name}.et.json")) if execution_trace else None
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=1, active=recording.steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        with_stack=recording.stacks,
        execution_trace_observer=observer,
    ) as profiler:
        for _ in range(1 + recording.steps):
            step()
            profiler.step()
    for written in (path, out / f"{name}.et.json")[: 1 + execution_trace]:
        with written.open("rb") as source, gzip.open(f"{written}.gz", "wb", compresslevel=9) as packed:
            shutil.copyfileobj(source, packed)
        written.unlink()
    return taken_ns


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", choices=[*RECORDINGS, []])
    parser.add_argument("--execution-trace", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.names or [*RECORDINGS]
    if len(names) > 1:  # a process each: once something was profiled, steps take longer to the end of the process
        more = ["--execution-trace"] if options.execution_trace else []
        runs = (
            subprocess.run([sys.executable, __file__, str(options.out), name, *more], check=False) for name in names
        )
        return max(run.returncode for run in runs)
    begin, name = time.perf_counter(), names[0]
    taken_ns = record(name, RECORDINGS[name], options.out, execution_trace=options.execution_trace)
    size = (options.out / f"{name}.json.gz").stat().st_size
    took_s = time.perf_counter() - begin
    print(f"{name}: {size / 1e6:.1f} MB packed, a step unprofiled {taken_ns / 1e6:.1f} ms, {took_s:.0f} s", flush=True)
    note(options.out / "machine.json", name, taken_ns)
    return 0


def note(path: Path, name: str, taken_ns: int) -> None:
    """Write what a step took beside what was written before, and on which machine."""
    known = json.loads(path.read_text()) if path.exists() else {}
    steps = {**known.get("unprofiled_step_ns", {}), name: taken_ns}
    path.write_text(json.dumps({**machine(), "unprofiled_step_ns": steps}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
