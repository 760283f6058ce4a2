"""Steps before and after a fix that tracemine prints: a `Pair` a line of PAIRS, for record_steps.py.

`rules` are those whose findings the fix answers: what they are said to save the step is held against what it got
shorter by, both steps timed with nothing recording. A fix changes what its findings name and nothing else.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.recordings import models_blocks
from benchmarks.recordings.models import (
    CASES,
    FRESH,
    SMALL,
    UNSEEN,
    B,
    H,
    S,
    classify,
    encoder,
    inference,
    language,
    next_token,
    train,
    vision,
    vit,
)
from benchmarks.recordings.models_blocks import decoder, tiny_mlp
from benchmarks.recordings.record_models import graph_of, unchanged

Step = Callable[[], Any]
GAPS = ("launch_gap", "host_stall", "first_launch_late", "tiny_kernels", "graph_launch_gap", "allocation_stall")
CHAINS = ("memory_bound_chain",)
OPTIMIZER = ("optimizer_unfused",)


@dataclass(frozen=True)
class Pair:
    name: str
    rules: Sequence[str]
    before: Callable[[], Step]
    after: Callable[[], Step]
    module: str | None = None  # only findings whose operators or module hold this word
    training: bool = False


# -- an optimizer in one pass ------------------------------------------------------------------------------------------

adamw, adam = torch.optim.AdamW, torch.optim.Adam
sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9)


def optimized(name: str, build: Callable[[], Any], dtype: torch.dtype, kind: Any, **before: bool) -> Pair:
    """The same training step with `fused=True`."""

    def step(**options: bool) -> Step:
        return train(build, dtype, partial(kind, **options), None, unchanged)

    rules = (*OPTIMIZER, "memory_bound_chain", "tiny_kernels")
    return Pair(f"fused_{name}", rules, partial(step, **before), partial(step, fused=True), "optim", True)


# -- a CUDA graph ------------------------------------------------------------------------------------------------------

small_gpt2 = partial(language, "GPT2Config", "GPT2LMHeadModel", shape=(1, 64), n_embd=768, n_layer=4, n_head=12)
KNOWN = {case.name: case for case in (*CASES, *FRESH, *UNSEEN)}


def replayed(name: str, build: Callable[[], Step]) -> Pair:
    """The same step as one CUDA graph."""

    def after() -> Step:
        step = build()
        replay = graph_of(step)
        held.append(step)  # a graph does not keep what it reads
        return replay

    held: list[Step] = []
    return Pair(f"graph_{name}", GAPS, build, after)


def known(name: str) -> Callable[[], Step]:
    return lambda: KNOWN[name].make(unchanged)


def made(build: Callable[[], Any], dtype: torch.dtype = H) -> Callable[[], Step]:
    return lambda: inference(build, dtype, unchanged)


# -- a norm in one operator --------------------------------------------------------------------------------------------


def fused_norm(module: Any, x: Tensor) -> Tensor:
    eps = getattr(module, "variance_epsilon", 1e-6)
    return F.rms_norm(x, (x.shape[-1],), module.weight, eps)


@contextmanager
def replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def with_method(build: Callable[[], Any], kind: str, forward: Callable[..., Any]) -> Callable[[], Any]:
    """The same model, the modules of a class with another forward."""

    def changed() -> Any:
        model, call, inputs = build()
        for module in model.modules():
            if type(module).__name__ == kind:
                module.forward = types.MethodType(forward, module)
        return model, call, inputs

    return changed


def normed(name: str, build: Callable[[], Any], kind: str, dtype: torch.dtype = B) -> Pair:
    return Pair(
        f"rms_norm_{name}", ("rmsnorm_unfused",), made(build, dtype), made(with_method(build, kind, fused_norm), dtype)
    )


# -- one function compiled ---------------------------------------------------------------------------------------------


class Spelled(nn.Module):
    """A network whose activation, or norm, or gate is spelled out in a function of its own."""

    def __init__(self, function: Callable[..., Tensor], layers: int, size: int) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.function(layer(x))
        return x


def gelu_spelled(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def norm_spelled(x: Tensor) -> Tensor:
    away = x - x.mean(-1, keepdim=True)
    return away * torch.rsqrt(away.pow(2).mean(-1, keepdim=True) + 1e-5)


def softmax_spelled(x: Tensor) -> Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True) * x


def mish_spelled(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(x.clamp(max=20)))) + 0.1 * torch.sin(x) * torch.sigmoid(x)


def spelled(function: Callable[..., Tensor], rows: int, size: int, layers: int = 4) -> Pair:
    def build(which: Callable[..., Tensor]) -> Any:
        return Spelled(which, layers, size), lambda m, x: m(x), [torch.randn(rows, size)]

    def after() -> Step:
        torch._dynamo.reset()
        return made(lambda: build(torch.compile(function, dynamic=False)), B)()

    return Pair(f"compiled_{function.__name__}_{rows}", CHAINS, made(lambda: build(function), B), after)


def rotated(rows: int, length: int, layers: int = 2) -> Pair:
    """The rotation of queries and keys compiled."""
    build = partial(decoder, rows, length, 0, layers, 1024)

    def after() -> Step:
        torch._dynamo.reset()
        inner = torch.compile(models_blocks.rotated, dynamic=False)
        step = made(build, B)()

        def run() -> Any:
            with replaced(models_blocks, "rotated", inner):
                return step()

        return run

    return Pair(f"compiled_rotary_{rows}x{length}", ("rotary_unfused",), made(build, B), after)


# -- waits and copies --------------------------------------------------------------------------------------------------


def waiting(layers: int, rows: int, size: int) -> Pair:
    """A value fetched behind each layer, or kept on the device."""

    class Clipped(Spelled):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
                if x.abs().max().item() > 1e6:
                    x = x / 2
            return x

    class Free(Spelled):
        def forward(self, x: Tensor) -> Tensor:
            peaks = []
            for layer in self.layers:
                x = layer(x)
                peaks.append(x.abs().max())
            return x / torch.stack(peaks).max().clamp(min=1.0)

    def build(kind: type[Spelled]) -> Any:
        return kind(torch.relu, layers, size), lambda m, x: m(x), [torch.randn(rows, size)]

    return Pair(f"no_item_{layers}x{rows}", ("host_sync",), made(lambda: build(Clipped)), made(lambda: build(Free)))


def copied(megabytes: int, rows: int) -> Pair:
    """A batch from pageable memory, or from pinned memory without waiting."""

    def build(pinned: bool) -> Step:
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda().half()
        batch = torch.randn(megabytes * 512, 1024, dtype=H, device="cpu")
        batch = batch.pin_memory() if pinned else batch
        return lambda: model(batch.to("cuda", non_blocking=pinned)[:rows])

    rules = ("pageable_copy", "host_sync", "host_stall", "first_launch_late")
    return Pair(f"pinned_{megabytes}MB", rules, partial(build, False), partial(build, True))


def allocating() -> Pair:
    """The cache emptied in each step, or kept."""
    build = partial(language, "LlamaConfig", "LlamaForCausalLM", shape=(4, 256), **SMALL)

    def before() -> Step:
        step = made(build, B)()

        def run() -> None:
            step()
            torch.cuda.empty_cache()

        return run

    return Pair("no_empty_cache", ("allocation_stall", "host_sync"), before, made(build, B))


def small_llama(layers: int = 2, shape: tuple[int, int] = (1, 64)) -> Any:
    return language("LlamaConfig", "LlamaForCausalLM", shape=shape, **{**SMALL, "num_hidden_layers": layers})


def small_qwen(shape: tuple[int, int] = (8, 512)) -> Any:
    return language("Qwen3Config", "Qwen3ForCausalLM", shape=shape, **SMALL)


PAIRS = (
    optimized("llama_loop", lambda: next_token(partial(small_llama, 2, (2, 256))), B, adamw, foreach=False),
    optimized("llama_lists", lambda: next_token(partial(small_llama, 2, (2, 256))), B, adamw, foreach=True),
    optimized("vit_loop", partial(vit, 4), B, adamw, foreach=False),
    optimized("resnet18_loop", lambda: classify(partial(vision, "resnet18", 16)), S, adam, foreach=False),
    optimized("resnet50_lists", lambda: classify(partial(vision, "resnet50", 8)), S, sgd, foreach=True),
    optimized("mlp_loop", tiny_mlp, S, adam, foreach=False),
    optimized("bert_lists", partial(encoder, "BertConfig", "BertModel", shape=(8, 384)), S, adamw, foreach=True),
    replayed("llama_small", made(small_llama, B)),
    replayed("llama_8_layers", made(partial(small_llama, 8, (1, 16)), B)),
    replayed("gpt2_small", made(small_gpt2)),
    replayed("decode_4", known("decode_4")),
    replayed("tiny_mlp", known("tiny_mlp")),
    replayed("bert_small_batch", known("bert_small_batch")),
    replayed("resnet18", made(partial(vision, "resnet18", 4))),
    replayed("efficientnet", made(partial(vision, "efficientnet_b0", 8), S)),
    replayed("densenet", made(partial(vision, "densenet121", 4))),
    replayed("swin", made(partial(vision, "swin_t", 4))),
    normed("llama", partial(small_llama, 2, (8, 512)), "LlamaRMSNorm"),
    normed("qwen3", small_qwen, "Qwen3RMSNorm"),
    normed("decoder", partial(decoder, 8, 512, 0, 2, 2048), "RMSNorm"),
    normed("decoder_small", partial(decoder, 1, 64, 0, 4, 1024), "RMSNorm"),
    spelled(gelu_spelled, 8192, 4096),
    spelled(norm_spelled, 8192, 4096),
    spelled(softmax_spelled, 16384, 2048),
    spelled(mish_spelled, 16384, 2048),
    spelled(gelu_spelled, 256, 512, 8),
    spelled(norm_spelled, 256, 512, 8),
    spelled(mish_spelled, 512, 1024, 8),
    rotated(8, 1024),
    rotated(2, 128, 4),
    waiting(8, 512, 512),
    waiting(8, 16384, 4096),
    copied(16, 1024),
    copied(64, 4096),
    allocating(),
)  # fmt: skip
