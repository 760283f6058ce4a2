"""Time generated kernels around matrix products beside what else there is: `python -m benchmarks.fixes.product_kernels
FOLDER [SECONDS]`.

Each case is a graph, as a model spells it; its kernels are `tracemine.generate`'s. Others: eager, the library's product
with a kernel of ours behind it, torch.compile, and what a class has of its own. Each line of `results.jsonl` is written
when it is measured: `time` of one form in one tile config (milliseconds, median and quartiles, the forms in turns, a
cold cache), `right` (errors against float64), `peak` (bytes beyond the inputs), `resources` (registers, spills, shared
memory, programs of a multiprocessor). Bars come first, then shapes that no table was fitted on, then torch.compile's
max-autotune of these as time allows. Kernels are compiled beforehand by processes beside each other. `--unseen`: three
times 40 other shapes, each list written down before any of it was measured; no rate is fitted to them; each beside
torch.compile, with `--tuned` its max-autotune. `--beyond FILE`: those alone that FILE has no times of; `--kinds`: of
some classes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from types import ModuleType
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
import triton

from tracemine.codegen import Graph, GraphBuilder, generate
from tracemine.codegen.options import WHATEVER
from tracemine.codegen.triton.resources import Resources

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
WORKERS, TUNERS = 10, 5  # processes that compile: our kernels, and what torch.compile tries for the bars
SOURCES = Path(tempfile.gettempdir()) / "product_kernels"
BEGAN = time.monotonic()
TUNED = "max-autotune-no-cudagraphs"
MODES = ("default", TUNED)
Forms = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """One shape of one class. `bar`: one of those that the tool promises something of."""

    kind: str
    sizes: tuple[int, ...]
    bar: bool = False
    configs: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        return f"{self.kind}_{'x'.join(map(str, self.sizes))}"

    def small(self) -> Case:
        """Return the case as an interpreter gets through it."""
        return Case(self.kind, tuple(min(n, 8 * k + 16) for k, n in enumerate(self.sizes)), self.bar)


HELD = ((128, 256, 64, 8, 4, 1, 1), (128, 256, 64, 8, 3, 1, 0), (128, 256, 64, 8, 3, 1, 1), (128, 256, 128, 8, 2, 1, 1))
TWO = ((128, 128, 64, 8, 4, 8, 0), (128, 128, 64, 8, 4, 8, 1), (128, 128, 64, 8, 3, 8, 0), (128, 128, 64, 8, 4, 16, 0))
FEW = (
    (32, 64, 128, 4, 5, 1, 0),
    (32, 32, 256, 4, 4, 1, 0),
    (32, 64, 256, 4, 3, 1, 0),
    (32, 32, 128, 4, 6, 1, 0),
    (32, 128, 128, 8, 4, 1, 0),
    (32, 64, 128, 8, 5, 1, 0),
)
WALKED = ((128, 256, 64, 8, 3, 1, 0), (128, 256, 64, 8, 4, 1, 0), (128, 128, 64, 4, 4, 1, 0))


def cases() -> list[Case]:
    """Return the bars, then 40 shapes that no table was fitted on."""
    bars = [
        Case("head", (8, 256, 30522, 768), True, HELD),
        Case("head", (16, 256, 30522, 768), True, HELD),
        *(Case("int8", (m, 14336, 4096), True, FEW if m > 1 else ()) for m in (16, 1, 4, 32)),
        Case("gate", (2048, 14336, 4096), True, TWO),
        Case("gate", (8192, 8192, 2048), True, TWO),
        Case("head", (32, 256, 128256, 1024), True, HELD),
        Case("logsumexp", (8192, 32768, 2048), True, WALKED),
    ]
    heads = (
        *((32, 128, 30522, 768), (8, 256, 50265, 768), (4, 256, 119547, 768), (16, 128, 105879, 768)),
        *((8, 256, 30522, 1024), (16, 256, 250002, 768), (8, 256, 30522, 384), (16, 180, 30522, 768)),
        *((8, 256, 32000, 2048), (4, 200, 50368, 768), (64, 64, 30522, 768), (8, 512, 30522, 768)),
    )
    gates = (
        *((2048, 11008, 4096), (4096, 14336, 4096), (1024, 8192, 2048), (8192, 5632, 2048), (512, 14336, 4096)),
        *((16384, 4864, 896), (4096, 18944, 3584), (2048, 8192, 3072), (4096, 1408, 2048), (3000, 12288, 4096)),
    )
    codes = (
        *((8, 11008, 4096), (2, 4096, 4096), (16, 4096, 14336), (32, 28672, 8192), (1, 11008, 4096), (24, 18944, 3584)),
        *((16, 8192, 8192), (4, 6144, 4096), (32, 1024, 4096), (8, 128256, 4096)),
    )
    adds = ((16, 4096, 14336), (8, 8192, 8192), (32, 4096, 4096), (16, 5120, 13824))
    sums = ((4096, 128256, 1024), (2048, 50257, 768), (8192, 151936, 896), (1024, 30522, 768))
    found = [Case("head", s) for s in heads] + [Case("gate", s) for s in gates] + [Case("int8", s) for s in codes]
    return bars + found + [Case("residual", s) for s in adds] + [Case("logsumexp", s) for s in sums]


def unseen() -> list[Case]:
    """Return shapes to judge by, of models: heads, gates, and codes of 8 bits at few rows; three lists of 40."""
    # fmt: off
    heads = (
        *((8, 128, 50257, 768), (16, 512, 30522, 768), (64, 256, 30522, 384), (24, 96, 28996, 768)),
        *((32, 64, 105879, 768), (12, 256, 31090, 1024), (4, 256, 256000, 2048), (8, 192, 32128, 512)),
        *((2, 1024, 30522, 768), (48, 32, 30522, 768), (8, 256, 151936, 896), (16, 224, 64001, 768)),
        *((6, 160, 21128, 768), (32, 256, 30522, 256)),
    )
    gates = (
        *((4096, 8192, 1024), (8192, 4096, 1024), (16384, 2048, 768), (2048, 3072, 768), (8192, 6912, 2560)),
        *((4096, 5632, 1536), (12288, 8960, 1536), (1024, 11008, 4096), (32768, 1536, 576), (6000, 7168, 2048)),
        *((2048, 28672, 8192), (4096, 2816, 1024), (20480, 3584, 1280), (777, 4096, 1024)),
    )
    codes = (
        *((1, 4096, 4096), (1, 28672, 8192), (2, 14336, 4096), (3, 9728, 2560), (6, 11008, 2048), (12, 5120, 5120)),
        *((16, 22016, 4096), (20, 4096, 11008), (32, 3072, 8192), (8, 32000, 2048), (28, 12288, 4096)),
        (16, 1536, 8960),
    )
    later_heads = (
        *((10, 200, 29298, 768), (20, 128, 58101, 512), (8, 384, 32005, 768), (16, 256, 30522, 312)),
        *((4, 128, 250112, 512), (40, 48, 30522, 768), (8, 256, 100352, 1024), (2, 512, 128256, 2048)),
        *((12, 320, 30000, 768), (64, 128, 30522, 128), (16, 96, 51200, 1280), (5, 300, 49408, 768)),
        *((8, 256, 32768, 1024), (28, 72, 119547, 768)),
    )
    later_gates = (
        *((3072, 10240, 2560), (8192, 5504, 2048), (2048, 13824, 5120), (16384, 3072, 1024), (4096, 9728, 2560)),
        *((1536, 16384, 4096), (24576, 2048, 512), (5000, 8960, 1536), (10240, 4608, 1152), (2048, 15360, 3840)),
        *((1024, 6400, 1600), (40960, 1024, 384), (8192, 13696, 4096), (3333, 5120, 1280)),
    )
    later_codes = (
        *((1, 8192, 2048), (1, 18944, 3584), (2, 11008, 4096), (4, 22016, 4096), (5, 8192, 3072), (7, 4864, 896)),
        *((10, 13824, 5120), (14, 6912, 2560), (16, 28672, 4096), (18, 3584, 18944), (30, 5120, 1536)),
        (32, 14336, 8192),
    )
    third_heads = (
        *((16, 160, 30522, 768), (8, 320, 50304, 1024), (24, 64, 128256, 2048), (12, 144, 32128, 768)),
        *((4, 640, 30522, 768), (32, 80, 28996, 768), (6, 256, 64000, 4096), (16, 192, 151936, 1024)),
        *((10, 512, 32000, 512), (3, 384, 50257, 768), (40, 96, 30522, 384), (8, 100, 119547, 768)),
        *((20, 256, 49152, 576), (2, 768, 250002, 1024), (64, 32, 50368, 512), (9, 200, 32768, 2048)),
        *((16, 300, 31090, 768), (48, 128, 28996, 256), (5, 448, 30528, 768), (8, 224, 100277, 1536)),
    )
    third_gates = (
        *((2048, 9216, 2304), (4096, 12288, 3072), (16384, 2560, 640), (8192, 3072, 768), (1200, 5632, 2048)),
        *((6144, 8192, 2048), (3072, 2048, 512), (2048, 18432, 4608), (32768, 2816, 704), (4500, 6144, 1024)),
        *((8192, 10240, 2560), (1024, 13824, 5120)),
    )
    third_codes = (
        *((1, 5120, 13824), (3, 12288, 4096), (6, 28672, 4096), (9, 4096, 14336), (13, 9216, 2304), (22, 16384, 2048)),
        *((27, 2560, 6912), (31, 11008, 4096)),
    )
    # fmt: on
    named = (("head", heads), ("gate", gates), ("int8", codes))
    later = (("head", later_heads), ("gate", later_gates), ("int8", later_codes))
    third = (("head", third_heads), ("gate", third_gates), ("int8", third_codes))
    return [Case(kind, sizes) for kind, each in (*named, *later, *third) for sizes in each]


# A case's graph, its inputs, and the forms beside.


def graph_of(case: Case) -> Graph:
    """Return what a case computes, as a model spells it."""
    b, sizes = GraphBuilder(case.kind), case.sizes
    if case.kind == "head":
        docs, tokens, words, width = sizes
        h, e = b.input("h", (docs, tokens, width), "bfloat16"), b.input("e", (words, width), "bfloat16")
        logits = b.call("aten::linear", h, e, b.input("bias", (words,), "bfloat16"))
        return b.done(b.call("aten::amax", b.call("aten::log1p", b.call("aten::relu", logits)), [1]))
    rows, columns, width = sizes
    x = b.input("x", (rows, width), "bfloat16")
    if case.kind == "int8":
        w, scale = b.input("w", (columns, width), "int8"), b.input("scale", (columns, 1), "bfloat16")
        weight = b.call("aten::mul.Tensor", b.call("aten::_to_copy", w, dtype="bfloat16"), scale)
        return b.done(b.call("aten::linear", x, weight))
    w = b.input("w", (columns, width), "bfloat16")
    if case.kind == "logsumexp":
        return b.done(b.call("aten::logsumexp", b.call("aten::linear", x, w), [1]))
    if case.kind == "residual":
        r = b.input("r", (rows, columns), "bfloat16")
        return b.done(b.call("aten::add.Tensor", b.call("aten::linear", x, w), r))
    up = b.input("up", (columns, width), "bfloat16")
    gated = b.call("aten::silu", b.call("aten::linear", x, w))
    return b.done(b.call("aten::mul.Tensor", gated, b.call("aten::linear", x, up)))


def rest_of(case: Case) -> Graph:
    """Return what is left of a case behind the library's product: the graph of a kernel of its own."""
    b, sizes = GraphBuilder(f"{case.kind}_rest"), case.sizes
    if case.kind == "head":
        docs, tokens, words, _ = sizes
        logits = b.input("logits", (docs, tokens, words), "bfloat16", (tokens * padded(words), padded(words), 1))
        added = b.call("aten::add.Tensor", logits, b.input("bias", (words,), "bfloat16"))
        return b.done(b.call("aten::amax", b.call("aten::log1p", b.call("aten::relu", added)), [1]))
    rows, columns, width = sizes
    if case.kind == "int8":
        w, scale = b.input("w", (columns, width), "int8"), b.input("scale", (columns, 1), "bfloat16")
        return b.done(b.call("aten::mul.Tensor", b.call("aten::_to_copy", w, dtype="bfloat16"), scale))
    y = b.input("y", (rows, columns), "bfloat16")
    if case.kind == "logsumexp":
        return b.done(b.call("aten::logsumexp", y, [1]))
    z = b.input("z", (rows, columns), "bfloat16")
    if case.kind == "residual":
        return b.done(b.call("aten::add.Tensor", y, z))
    return b.done(b.call("aten::mul.Tensor", b.call("aten::silu", y), z))


def padded(words: int) -> int:
    """Return a vocabulary's size rounded up to what the library's fastest products take."""
    return -(-words // 64) * 64


def inputs_of(graph: Graph) -> list[torch.Tensor]:
    """Return inputs as a model has them: activations of one, weights that keep a product's size near one."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    found = []
    for entry in graph.inputs:
        shape, dtype = entry.spec.shape, getattr(torch, str(entry.spec.dtype))
        if dtype == torch.int8:
            found.append(torch.randint(-127, 128, shape, generator=generator, device=DEVICE, dtype=dtype))
            continue
        made = torch.randn(shape, generator=generator, device=DEVICE, dtype=torch.float32)
        wide = 1 / 73 if entry.name == "scale" else 1.0
        share = shape[-1] ** -0.5 if entry.name in ("e", "w", "up") else wide
        share = share * graph.inputs[0].spec.shape[-1] ** -0.5 if entry.name == "scale" else share
        found.append((made * share).to(dtype))
    return found


def eager_of(case: Case) -> Callable[..., torch.Tensor]:
    """Return a case as a function of its inputs."""
    forms: dict[str, Callable[..., torch.Tensor]] = {
        "head": lambda h, e, bias: torch.log1p(torch.relu(F.linear(h, e, bias))).amax(1),
        "int8": lambda x, w, scale: F.linear(x, w.to(torch.bfloat16) * scale),
        "gate": lambda x, w, up: F.silu(F.linear(x, w)) * F.linear(x, up),
        "logsumexp": lambda x, w: torch.logsumexp(F.linear(x, w), 1),
        "residual": lambda x, w, r: F.linear(x, w) + r,
    }
    return forms[case.kind]


def others(case: Case, t: list[torch.Tensor], rest: Callable[..., Any] | None) -> Forms:
    """Return the library's forms, and its product with a kernel of ours behind."""
    found: Forms = {}
    if case.kind == "head":
        docs, tokens, words, width = case.sizes
        wide = torch.zeros(padded(words), width, device=DEVICE, dtype=torch.bfloat16)
        wide[:words] = t[1]
        flat, out = t[0].reshape(-1, width), t[0].new_empty(docs * tokens, padded(words))

        def behind() -> Any:
            torch.mm(flat, wide.T, out=out)
            return rest(out.view(docs, tokens, -1)[:, :, :words], t[2]) if rest else None

        found["product"] = lambda: torch.mm(flat, wide.T, out=out)
        found["padded and own kernel"] = behind
    elif case.kind == "int8":
        weight = t[1].to(torch.bfloat16) * t[2]
        found["product"] = lambda: F.linear(t[0], weight)
        found["own kernel and product"] = lambda: F.linear(t[0], rest(t[1], t[2])[0]) if rest else None
    elif case.kind == "gate":
        both, columns = torch.cat([t[1], t[2]]), case.sizes[1]
        found["product"] = lambda: F.linear(t[0], both)
        found["products and own kernel"] = lambda: rest(F.linear(t[0], t[1]), F.linear(t[0], t[2])) if rest else None

        def packed() -> Any:
            y = F.linear(t[0], both)
            return rest(y[:, :columns], y[:, columns:]) if rest else None

        found["packed and own kernel"] = packed
    elif case.kind == "residual":
        found["product"] = lambda: F.linear(t[0], t[1])
        found["addmm"] = lambda: torch.addmm(t[2], t[0], t[1].T)
    else:
        found["product"] = lambda: F.linear(t[0], t[1])
        found["product and own kernel"] = lambda: rest(F.linear(t[0], t[1])) if rest else None
    return found


# Sources.


def module_of(graph: Graph, folder: Path, name: str) -> ModuleType:
    """Return a graph's generated kernels, imported from a file."""
    path = folder / f"{name}.py"
    if not path.exists():
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(generate(graph, WHATEVER).text)
        beside.rename(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main_kernel(module: ModuleType) -> str:
    """Return the kernel that has the products."""
    return next(str(name) for name, tiles in module.BLOCKS.items() if len(tiles[0]) > 2)


def with_config(module: ModuleType, config: tuple[int, ...]) -> None:
    module.BLOCKS[main_kernel(module)][:] = [config]


def configs_of(case: Case, module: ModuleType) -> list[tuple[int, ...]]:
    """Return the tile configs to try: those of the table, and of a bar some more."""
    if not any(len(tiles[0]) > 2 for tiles in module.BLOCKS.values()):
        return []
    return list(dict.fromkeys([*module.BLOCKS[main_kernel(module)], *case.configs]))


def warm(numbers: list[int], folder: Path, tunes: bool, every: list[Case]) -> None:
    """Compile what some cases need: every form runs once. tunes: torch.compile's instead of ours."""
    for number in numbers:
        case = every[number]
        try:
            if tunes:
                tensors = inputs_of(graph_of(case))
                torch.compile(eager_of(case), mode=TUNED, dynamic=False)(*tensors)
                continue
            graph = graph_of(case)
            module, rest = module_of(graph, folder, case.name), module_of(rest_of(case), folder, f"{case.name}_rest")
            tensors = inputs_of(graph)
            for config in configs_of(case, module) or [()]:
                if config:
                    with_config(module, config)
                module.fused(*tensors)
            rest.fused(*inputs_of(rest_of(case)))
            torch.cuda.synchronize()
            del tensors
            torch.cuda.empty_cache()
        except Exception as error:  # the one that measures says it
            print("warm", case.name, type(error).__name__, str(error)[:200], file=sys.stderr)


# Measuring.


class Timer:
    """Times forms in turns, each behind what empties the cache."""

    def __init__(self) -> None:
        self._flush = torch.empty(256 * 2**20, dtype=torch.uint8, device=DEVICE) if CUDA else None

    def __call__(self, forms: Forms, rounds: int) -> dict[str, tuple[float, float, float]]:
        """Return milliseconds of each form: median and quartiles."""
        for form in forms.values():
            form()
            form()
        taken: dict[str, list[Any]] = {name: [] for name in forms}
        for _ in range(rounds):
            for name, form in forms.items():
                taken[name].append(self._once(form))
        if CUDA:
            torch.cuda.synchronize()
        numbers = {n: sorted(a.elapsed_time(b) if CUDA else b - a for a, b in spans) for n, spans in taken.items()}
        return {n: (median(s), *quantiles(s, n=4)[::2]) for n, s in numbers.items()}

    def _once(self, form: Callable[[], Any]) -> tuple[Any, Any]:
        if self._flush is None:
            begin = time.perf_counter()
            form()
            return begin * 1e3, time.perf_counter() * 1e3
        self._flush.zero_()
        torch.cuda._sleep(200_000)  # the host is ahead: no launch is waited for
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        form()
        end.record()
        return begin, end


def error_of(given: torch.Tensor, right: torch.Tensor) -> float:
    """Return the root mean square error, as a share of what is right."""
    off = (given.double() - right).square().mean().sqrt()
    return float(off / right.square().mean().sqrt())


def right_of(case: Case, eager: Callable[..., torch.Tensor], t: list[torch.Tensor]) -> torch.Tensor:
    """Return a case in float64, in strips where it is large."""
    if case.kind == "int8":
        return t[0].double() @ (t[1].double() * t[2].double()).T
    wide = [x.double() for x in t[1:]]
    strips = max(1, case.sizes[0] * case.sizes[1] * case.sizes[-2] // 2**31) if case.kind == "head" else 1
    strips = strips if case.kind == "head" else max(1, case.sizes[0] * case.sizes[1] // 2**29)
    if case.kind == "residual":
        return eager(t[0].double(), *wide)
    return torch.cat([eager(part.double(), *wide) for part in t[0].tensor_split(min(strips, len(t[0])))])


def resources_of(module: ModuleType, config: tuple[int, ...]) -> dict[str, Any]:
    """Return what the compiled kernel takes of a multiprocessor."""
    made = next((k for k in COMPILED if k.metadata.name == main_kernel(module)), None)
    if made is None:
        return {}
    made._init_handles()
    taken = Resources(
        kernel=made.metadata.name,
        tile_config=config,
        warps=made.metadata.num_warps,
        registers=made.n_regs,
        stack_bytes=0,
        shared_bytes=made.metadata.shared,
    )
    ptx = made.asm["ptx"]
    return {
        "registers": taken.registers,
        "spills": made.n_spills,
        "shared": taken.shared_bytes,
        "resident": taken.resident,
        "wgmma": ptx.count("wgmma.mma_async"),
        "tma": ptx.count("cp.async.bulk.tensor"),
    }


COMPILED: list[Any] = []


def noting() -> None:
    """Keep every kernel that is compiled or found in the cache."""
    run = triton.runtime.jit.JITFunction.run

    def kept(self: Any, *given: Any, **named: Any) -> Any:
        found = run(self, *given, **named)
        COMPILED.insert(0, found)
        return found

    triton.runtime.jit.JITFunction.run = kept


def peak_of(form: Callable[[], Any]) -> int:
    """Return bytes that a form holds at most beyond what is there."""
    form()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before: int = torch.cuda.memory_allocated()
    kept = form()
    torch.cuda.synchronize()
    del kept
    most: int = torch.cuda.max_memory_allocated()
    return most - before


class Bench:
    """Measures cases, and writes each line when it is known."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.limit_s = limit_s
        self._timer, self._file = Timer(), (folder / "results.jsonl").open("a")

    def say(self, **fields: Any) -> None:
        self._file.write(json.dumps({**fields, "at_s": round(time.monotonic() - BEGAN, 1)}) + "\n")
        self._file.flush()

    def left(self) -> float:
        return self.limit_s - (time.monotonic() - BEGAN)

    def case(self, case: Case, modes: tuple[str, ...]) -> None:
        """Measure one case. modes: of torch.compile."""
        graph = graph_of(case)
        eager, t = eager_of(case), inputs_of(graph)
        module, rest = (module_of(g, SOURCES, n) for g, n in ((graph, case.name), (rest_of(case), f"{case.name}_rest")))
        forms: Forms = {"eager": lambda: eager(*t), **others(case, t, rest.fused)}
        forms |= dict(self._compiled(case, eager, t, modes))
        configs = configs_of(case, module)
        truth = right_of(case, eager, t)
        made = self._own(case, module, t, configs, truth)
        self.say(what="right", case=case.name, form="eager", error=error_of(eager(*t), truth))
        for name, form in list(forms.items()):
            try:
                given = form()
                given = given[0] if isinstance(given, tuple) else given
                if given is not None and given.shape == truth.shape:
                    self.say(what="right", case=case.name, form=name, error=error_of(given, truth))
            except Exception as error:
                self.say(what="failed", case=case.name, form=name, why=f"{type(error).__name__}: {str(error)[:300]}")
                del forms[name]
        del truth
        times = self._timer(forms | made, (25 if case.bar else 15) if CUDA else 2)
        for name, (middle, low, high) in times.items():
            self.say(what="time", case=case.name, kind=case.kind, sizes=case.sizes, bar=case.bar, form=name,
                     ms=middle, low_ms=low, high_ms=high)  # fmt: skip
        if CUDA and case.bar:
            for name, form in (forms | made).items():
                self.say(what="peak", case=case.name, form=name, bytes=peak_of(form))

    def _own(self, case: Case, module: ModuleType, t: list[torch.Tensor], configs: list[tuple[int, ...]],
             truth: torch.Tensor) -> Forms:  # fmt: skip
        """Return our kernels in each tile config, of those that run and are right."""
        found: Forms = {}
        for config in configs or [()]:
            name = f"ours {' '.join(map(str, config))}".strip()
            try:
                if config:
                    with_config(module, config)
                COMPILED.clear()
                given = module.fused(*t)[0]
                self.say(what="right", case=case.name, form=name, error=error_of(given, truth),
                         again=bool((module.fused(*t)[0] == given).all()))  # fmt: skip
                if CUDA and config:
                    self.say(what="resources", case=case.name, form=name, **resources_of(module, config))
            except Exception as error:
                self.say(what="failed", case=case.name, form=name, why=f"{type(error).__name__}: {str(error)[:300]}")
                continue
            found[name] = self._form(module, config, t)
        return found

    def _form(self, module: ModuleType, config: tuple[int, ...], t: list[torch.Tensor]) -> Callable[[], Any]:
        def form() -> Any:
            if config:
                with_config(module, config)
            return module.fused(*t)

        return form

    def _compiled(
        self, case: Case, eager: Callable[..., Any], t: list[torch.Tensor], modes: tuple[str, ...] = MODES
    ) -> Iterator[tuple[str, Any]]:
        for mode in modes if CUDA else ():
            try:
                torch._dynamo.reset()
                function = torch.compile(eager, mode=mode, dynamic=False)
                begin = time.monotonic()
                function(*t)
                self.say(what="compiled", case=case.name, form=mode, seconds=round(time.monotonic() - begin, 1))
                yield mode, (lambda f=function: f(*t))
            except Exception as error:
                self.say(what="failed", case=case.name, form=mode, why=f"{type(error).__name__}: {str(error)[:300]}")

    def autotuned(self, case: Case) -> None:
        """Measure a case that has been measured once more, beside torch.compile's best."""
        graph = graph_of(case)
        eager, t = eager_of(case), inputs_of(graph)
        module = module_of(graph, SOURCES, case.name)
        configs = configs_of(case, module)
        forms = dict(self._compiled(case, eager, t))
        forms |= {f"ours {' '.join(map(str, c))}".strip(): self._form(module, c, t) for c in configs or [()]}
        for name, (middle, low, high) in self._timer(forms, 15).items():
            self.say(what="time", case=case.name, kind=case.kind, sizes=case.sizes, bar=False, form=name,
                     ms=middle, low_ms=low, high_ms=high, again=True)  # fmt: skip


def started(every: list[Case], given: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    """Return processes that compile: our kernels, and what torch.compile tries."""
    running = []
    tuned = len(every) if given.unseen else sum(case.bar for case in every)  # those are all held against max-autotune
    tuners = 0 if given.unseen and not given.tuned else 2 * TUNERS if given.unseen else TUNERS
    for flag, count, workers in (("--tune", tuned, tuners), ("--warm", len(every), WORKERS)):
        for k in range(min(workers, count)):
            numbers = ",".join(map(str, range(k, count, workers)))
            command = [sys.executable, "-m", "benchmarks.fixes.product_kernels", *sys.argv[1:], flag, numbers]
            beside = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2" if given.unseen else "3"}
            running.append(subprocess.Popen(command, env=beside))
    return running


def listed(given: argparse.Namespace) -> list[Case]:
    """Return the cases that are asked for."""
    lines = given.beyond.read_text("utf-8").splitlines() if given.beyond else []
    known = {row["case"] for row in map(json.loads, lines) if row["what"] == "time"}
    wanted = [case for case in (unseen() if given.unseen else cases()) if case.name not in known]
    return [case for case in wanted if not given.kinds or case.kind in given.kinds]


def main(given: argparse.Namespace) -> None:
    """Measure everything that time allows."""
    folder, limit_s, judged = given.folder, given.seconds, given.unseen
    folder.mkdir(parents=True, exist_ok=True)
    SOURCES.mkdir(parents=True, exist_ok=True)
    every = listed(given) if CUDA else [case.small() for case in listed(given)]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "12")
    running = []
    if CUDA:
        running = started(every, given)
        torch.cuda.init()
        # What was chosen while others ran beside is not to be trusted: what is compiled is kept, what was chosen not.
        # Of 40 shapes there is no time to choose again: the fastest of what was chosen is among what is measured.
        torch._inductor.config.fx_graph_cache = judged
        torch._inductor.config.autotune_local_cache = judged
    else:
        from tracemine.validate import interpreter

        interpreter.install()  # type: ignore[no-untyped-call]
    noting()
    bench = Bench(folder, limit_s)
    about = torch.cuda.get_device_name() if CUDA else "cpu"
    bench.say(what="machine", device=about, torch=torch.__version__, triton=triton.__version__)
    for process in running:
        try:
            process.wait(timeout=max(0.45 * limit_s - (time.monotonic() - BEGAN), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            bench.say(what="late", case="all", form=str(process.args))
    bench.say(what="compiled", case="all", form="ours")
    measured_all(bench, every, given)
    bench.say(what="end")


def measured_all(bench: Bench, every: list[Case], given: argparse.Namespace) -> None:
    """Measure cases: bars first; of those to judge by one of each kind in turn."""
    later, judged = list[Case](), given.unseen
    turn = {case: sum(c.kind == case.kind for c in every[:k]) for k, case in enumerate(every)} if judged else {}
    for case in sorted(every, key=lambda c: turn.get(c, not c.bar)):
        if bench.left() < (4 if judged else 12):
            break
        try:
            one = (TUNED if given.tuned else "default",)
            bench.case(case, one if judged else MODES if case.bar else ())
            later += [case] * (not case.bar)
        except Exception as error:
            bench.say(what="failed", case=case.name, form="all", why=f"{type(error).__name__}: {str(error)[:300]}")
        if CUDA:
            torch.cuda.empty_cache()
    for case in (later[k] for k in sorted(range(len(later)), key=lambda k: (k % 4, k))) if CUDA and not judged else ():
        if bench.left() < 20:
            break
        bench.autotuned(case)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=255.0)
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--beyond", type=Path)
    parser.add_argument("--kinds", nargs="*", default=())
    for flag in ("--warm", "--tune"):
        parser.add_argument(flag, help=argparse.SUPPRESS)
    given = parser.parse_args()
    numbers = given.tune if given.warm is None else given.warm
    if numbers is not None:
        warm(list(map(int, numbers.split(","))), SOURCES, given.warm is None, listed(given))
    else:
        main(given)
