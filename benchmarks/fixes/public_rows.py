"""Time kernels of thirty common chains beside torch.compile's and Liger's: `python -m benchmarks public_rows OUT`.

Norms, gates, rotary embedding, softmax, cross-entropy and gradients of norms, in bfloat16, at sizes of models. OUT/
products.jsonl gets a line a form: eager PyTorch, torch.compile, our kernel with its first tiles, and with the best of
its tiles where it has several ("ours, tuned"), and Liger's where liger_kernel can be imported. Times are of interleaved
blocks with a cold cache and the host ahead; `errors` lines hold root mean squares against float32.

    public_rows OUT [--seconds 150] [NAME...]   measure; without a GPU kernels are only made
    public_rows OUT --before DIR                time sources that another tree wrote into DIR/sources as well
    public_rows OUT --judge                     print the table and the geometric means of what OUT has
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F
from fixes.product_kernels import module_of
from fixes.products import ON_GPU, Report, compared, errors, release, took

from programs.run import machine
from tests.codegen.catalogue import (
    BF16,
    add_rms_norm,
    cross_entropy_trained,
    geglu_tanh,
    layer_norm,
    layer_norm_backward,
    long_cross_entropy,
    rms_norm,
    rms_norm_backward,
    rope,
    swiglu,
)
from tracemine.codegen import Graph, GraphBuilder

Tensors = Sequence[torch.Tensor]
WORKERS = 8  # processes that compile side by side
SECONDS = 0.7  # of one row's blocks
EPS = 1e-6
ATEN = torch.ops.aten
TUNED = "ours, tuned"
# Geometric means that were asked for, and the least of a row.
AGAINST_BEST, AGAINST_COMPILED, WORST = 1.06, 1.15, 0.95


@dataclass(frozen=True)
class Row:
    """A chain at one size. eager: what a model runs, which torch.compile is given. liger: makes a call of Liger's."""

    name: str
    sizes: tuple[int, ...]
    graph: Callable[[], Graph]
    eager: Callable[..., Any]
    liger: Callable[[Any, Tensors], Callable[[], Any]]

    @property
    def case(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.sizes))}"


# -- graphs ------------------------------------------------------------------------------------------------------------


def softmax(rows: int, columns: int) -> Graph:
    b = GraphBuilder("softmax")
    return b.done(b.call("aten::_softmax", b.input("x", (rows, columns), BF16), -1, False))


def layer_norm_gradient(rows: int, columns: int) -> Graph:
    return layer_norm_backward((rows,), columns, residual=False)


# -- what a model runs -------------------------------------------------------------------------------------------------


def eager_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def eager_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    total = x + residual
    return eager_rms_norm(total, weight), total


def eager_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return ATEN.native_layer_norm(x, [x.shape[-1]], weight, bias, 1e-5)


def eager_swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def eager_geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.gelu(gate, approximate="tanh") * up


def eager_rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Tensors:
    def turned(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos.unsqueeze(1) + torch.cat((-second, first), -1) * sin.unsqueeze(1)

    return turned(q), turned(k)


def eager_cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float(), y)


def eager_trained(logits: torch.Tensor, y: torch.Tensor) -> Tensors:
    """Return the loss and its gradient, as autograd makes it."""
    scores = ATEN._log_softmax(logits.float(), 1, False)
    loss, count = ATEN.nll_loss_forward(scores, y, None, 1, -100)
    back = ATEN.nll_loss_backward(torch.ones_like(loss), scores, y, None, 1, -100, count)
    return loss, ATEN._log_softmax_backward_data(back, scores, 1, torch.float32).to(logits.dtype)


def eager_rms_norm_gradient(g: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor) -> Any:
    return ATEN._fused_rms_norm_backward(g, x, [x.shape[-1]], scale, weight, [True, True])


def eager_layer_norm_gradient(g: torch.Tensor, x: torch.Tensor, *rest: torch.Tensor) -> Any:
    return ATEN.native_layer_norm_backward(g, x, [x.shape[-1]], *rest, [True] * 3)


# -- Liger's -----------------------------------------------------------------------------------------------------------


def called(module: str, name: str, *more: Any) -> Callable[[Any, Tensors], Callable[[], Any]]:
    """Return a maker of a call of one of Liger's functions."""

    def maker(ops: Any, tensors: Tensors) -> Callable[[], Any]:
        function = getattr(ops(module), name)
        return lambda: function.apply(*tensors, *more)

    return maker


def liger_swiglu(ops: Any, tensors: Tensors) -> Callable[[], Any]:
    gate, up = (part.contiguous() for part in tensors[0].chunk(2, -1))  # it takes no views: that is not timed
    return lambda: ops("swiglu").LigerSiLUMulFunction.apply(gate, up)


def liger_trained(ops: Any, tensors: Tensors) -> Callable[[], Any]:
    logits = tensors[0].clone().requires_grad_()  # it writes the gradient over the logits
    return lambda: ops("cross_entropy").cross_entropy_forward(
        logits, tensors[1], None, -100, 0.0, 0.0, "mean", None, False
    )[0]


def liger_gradient(ops: Any, forward: Callable[[Any, Tensors], Any], leaves: Tensors, g: torch.Tensor) -> Any:
    made, inputs = forward(ops, leaves)(), tuple(leaves)
    return lambda: torch.autograd.grad(made, inputs, g, retain_graph=True)


def liger_rms_norm_gradient(ops: Any, tensors: Tensors) -> Callable[[], Any]:
    g, x, _, weight = tensors
    leaves = [each.clone().requires_grad_() for each in (x, weight)]
    forward = called("rms_norm", "LigerRMSNormFunction", EPS, 0.0, "llama", False)
    return liger_gradient(ops, forward, leaves, g)


def liger_layer_norm_gradient(ops: Any, tensors: Tensors) -> Callable[[], Any]:
    g, x, _, _, *rest = tensors
    leaves = [each.clone().requires_grad_() for each in (x, *rest)]
    return liger_gradient(ops, called("layer_norm", "LigerLayerNormFunction", 1e-5), leaves, g)


# -- rows --------------------------------------------------------------------------------------------------------------


def rows() -> list[Row]:
    """Return the thirty rows."""
    rms = called("rms_norm", "LigerRMSNormFunction", EPS, 0.0, "llama", False)
    added = called("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", EPS, 0.0, "llama", False)
    of_layers = called("layer_norm", "LigerLayerNormFunction", 1e-5)
    gelu, turn = called("geglu", "LigerGELUMulFunction"), called("rope", "LigerRopeFunction")
    soft, entropy = (
        called("softmax", "LigerSoftmaxFunction"),
        called("cross_entropy", "LigerCrossEntropyFunction", None),
    )
    squares = ((4096, 4096), (32768, 1024), (8192, 8192), (16384, 16384))
    words = ((8192, 32768), (4096, 128256), (2048, 262144))
    norms = ((8192, 4096), (32768, 1024))

    def rotary(batch: int, tokens: int) -> Graph:
        return rope(batch, tokens, (32, 8), 128)

    chains: list[tuple[str, Sequence[tuple[int, ...]], Callable[..., Graph], Callable[..., Any], Any]] = [
        ("RMSNorm", squares, lambda n, m: rms_norm((n,), m), eager_rms_norm, rms),
        ("add, RMSNorm", ((4096, 4096), (32768, 2048), (8192, 8192)), lambda n, m: add_rms_norm((n,), m),
         eager_add_rms_norm, added),
        ("LayerNorm", ((4096, 4096), (32768, 1024), (8192, 16384)), partial(layer_norm, dtype=BF16), eager_layer_norm,
         of_layers),
        ("SwiGLU", ((4096, 14336), (32768, 1024), (16384, 8192)), lambda n, m: swiglu((n,), m), eager_swiglu,
         liger_swiglu),
        ("GeGLU", ((4096, 14336), (16384, 8192)), geglu_tanh, eager_geglu, gelu),
        ("rotary embedding", ((4, 2048), (4, 8192)), rotary, eager_rope, turn),
        ("softmax", ((4096, 4096), (8192, 16384), (4096, 32768)), softmax, partial(torch.softmax, dim=-1), soft),
        ("cross-entropy", words, long_cross_entropy, eager_cross_entropy, entropy),
        ("cross-entropy with its gradient", words, cross_entropy_trained, eager_trained, liger_trained),
        ("RMSNorm's gradient", norms, partial(rms_norm_backward, dtype=BF16), eager_rms_norm_gradient,
         liger_rms_norm_gradient),
        ("LayerNorm's gradient", norms, layer_norm_gradient, eager_layer_norm_gradient, liger_layer_norm_gradient),
    ]  # fmt: skip
    return [
        Row(name, size, partial(graph, *size), eager, liger)
        for name, sizes, graph, eager, liger in chains
        for size in sizes
    ]


def inputs_of(row: Row) -> list[torch.Tensor]:
    """Return inputs as a model has them; means and inverse deviations are those of `x`."""
    generator, found = torch.Generator("cuda").manual_seed(0), dict[str, torch.Tensor]()
    for entry in row.graph().inputs:
        shape, dtype, strides = entry.spec.shape, getattr(torch, str(entry.spec.dtype)), entry.spec.strides
        if dtype == torch.int64:
            made = torch.randint(0, row.sizes[-1], shape, generator=generator, device="cuda")
        else:
            made = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)
        if strides and tuple(made.stride()) != tuple(strides):
            made = torch.empty_strided(shape, strides, dtype=dtype, device="cuda").copy_(made)
        found[entry.name] = made
    if "scale" in found:
        wide = found["x"].float()
        centred = wide - wide.mean(-1, keepdim=True) if "mean" in found else wide
        found["scale"] = torch.rsqrt(centred.square().mean(-1, keepdim=True) + (1e-5 if "mean" in found else EPS))
        found |= {"mean": wide.mean(-1, keepdim=True)} if "mean" in found else {}
    return list(found.values())


# -- measuring ---------------------------------------------------------------------------------------------------------


def ops_of_liger() -> Callable[[str], Any] | None:
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    return lambda name: importlib.import_module(f"liger_kernel.ops.{name}")


def tiles_of(module: Any) -> list[dict[str, Any]]:
    """Return which tiles to try: each kernel's first and one other at a time, for that kernel alone."""
    first = {name: tiles[0] for name, tiles in module.BLOCKS.items()}
    others = [{**first, name: tile} for name, tiles in module.BLOCKS.items() for tile in tiles[1:]]
    return [first, *others]


def set_tiles(module: Any, tiles: Mapping[str, Any]) -> None:
    for name, tile in tiles.items():
        module.BLOCKS[name][:] = [tile]


def best_tiles(module: Any, tensors: Tensors) -> dict[str, Any]:
    """Return each kernel's fastest tile, one kernel after another; a tile that does not compile is left out."""
    flush, chosen = torch.empty(64 << 20, dtype=torch.int32, device="cuda"), {n: t[0] for n, t in module.BLOCKS.items()}
    every = {name: list(tiles) for name, tiles in module.BLOCKS.items()}
    for name, tiles in every.items():
        times = {}
        for tile in tiles:
            set_tiles(module, {**chosen, name: tile})
            try:
                module.fused(*tensors)
                times[tile] = sorted(took(partial(module.fused, *tensors), flush) for _ in range(5))[2]
            except Exception as error:
                print(name, tile, type(error).__name__, str(error)[:100], file=sys.stderr)
        chosen[name] = min(times, key=times.__getitem__)
    return chosen


def forms_of(row: Row, tensors: Tensors, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the forms of a row: each a call without arguments."""
    module, liger = module_of(row.graph(), folder, stem(row)), ops_of_liger()
    compiled = torch.compile(row.eager, dynamic=False)
    forms: dict[str, Callable[[], Any]] = {
        "eager": partial(row.eager, *tensors),
        "compiled": partial(compiled, *tensors),
        "ours": partial(module.fused, *tensors),
    }
    if liger is not None:
        forms["liger"] = row.liger(liger, tensors)
    return forms


def stem(row: Row) -> str:
    return "".join(c if c.isalnum() else "_" for c in row.case)


def warmed(part: int, folder: Path, chosen: Sequence[Row]) -> None:
    """Compile what every WORKERS-th row needs."""
    for row in chosen[part::WORKERS]:
        try:
            tensors = inputs_of(row)
            for form in forms_of(row, tensors, folder).values():
                form()
            module = module_of(row.graph(), folder, stem(row))
            for tiles in tiles_of(module):
                set_tiles(module, tiles)
                module.fused(*tensors)
        except Exception as error:  # the one that measures says it
            print("warm", row.case, type(error).__name__, str(error)[:200], file=sys.stderr)
        release()


def tensors_of(given: Any) -> list[torch.Tensor]:
    return [given] if isinstance(given, torch.Tensor) else [each for each in given if isinstance(each, torch.Tensor)]


def measured(report: Report, row: Row, folder: Path, before: Path | None) -> None:
    """Measure one row: errors, then times. before: a folder of other sources."""
    tensors = inputs_of(row)
    forms = forms_of(row, tensors, folder)
    module = module_of(row.graph(), folder, stem(row))
    chosen = best_tiles(module, tensors)
    set_tiles(module, chosen)
    forms[TUNED] = partial(module.fused, *tensors)
    if before is not None:
        forms["before"] = partial(module_of(row.graph(), before / "sources", stem(row)).fused, *tensors)
    report.line(case=f"{row.case} tiles", variant=TUNED, tiles={name: str(tile) for name, tile in chosen.items()})
    wide = [each.float() if each.is_floating_point() else each for each in tensors]
    truth = [each.float() for each in tensors_of(row.eager(*wide))]
    del wide
    for name in ("eager", "compiled", "ours", TUNED):
        found = tensors_of(forms[name]())[: len(truth)]
        report.line(case=f"{row.case} errors", variant=name, errors=errors(found, truth[: len(found)]))
    del truth
    release()
    compared(report, row.case, forms, SECONDS)


# -- judging -----------------------------------------------------------------------------------------------------------


def judged(file: Path) -> str:
    """Return the table of a run, and its geometric means."""
    times: dict[str, dict[str, float]] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        if "ms" in line:
            times.setdefault(line["case"], {})[line["variant"]] = 1e3 * line["ms"]
    heads = ("eager", "compiled", "liger", "before", "ours", TUNED)
    table = [
        f"| {' | '.join(('chain, us', *heads, 'faster of both by ours', 'by ours, tuned'))} |",
        f"|---{'|--:' * 8}|",
    ]
    by: dict[tuple[str, str], list[float]] = {}
    for case, of in times.items():
        if not {"compiled", "ours"} <= of.keys():
            continue
        best = min(of[name] for name in ("compiled", "liger") if name in of)
        for ours, (other, least) in product(
            ("before", "ours", TUNED), {"best": best, "compiled": of["compiled"], "liger": of.get("liger", 0.0)}.items()
        ):
            if ours in of and least:
                by.setdefault((ours, other), []).append(least / of[ours])
                if other == "best" and not case.startswith("cross-entropy"):
                    by.setdefault((ours, "best without cross-entropy"), []).append(least / of[ours])
        cells = [f"{of[name]:.1f}" if name in of else "-" for name in heads]
        shares = [f"{best / of[name]:.3f}" if name in of else "-" for name in ("ours", TUNED)]
        table.append(f"| {' | '.join((case, *cells, *shares))} |")
    table.append("")
    for (ours, other), found in by.items():
        below = sum(each < WORST for each in found)
        table.append(
            f"- {other} by {ours}: {geometric_mean(found):.3f} over {len(found)} rows, least {min(found):.3f}, "
            f"{below} below {WORST}"
        )
    asked = f"{AGAINST_BEST} against the faster of both, {AGAINST_COMPILED} against torch.compile, none below {WORST}"
    return "\n".join((*table, f"\nAsked: {asked}."))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="words of the rows to measure")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--warm", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        print(judged(options.out if options.out.is_file() else options.out / "products.jsonl"))
        return
    chosen = [row for row in rows() if not options.names or any(name in row.case for name in options.names)]
    folder = options.out / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    if not ON_GPU:
        for row in chosen:
            module_of(row.graph(), folder, stem(row))
        print(f"{len(chosen)} rows are generated; a GPU times them")
        return
    if options.warm is not None:
        warmed(options.warm, folder, chosen)
        return
    report = Report(options.out, options.seconds)
    report.line(case="machine", **machine("cuda"))
    command = [sys.executable, __file__, str(options.out), *options.names, "--warm"]
    running = [subprocess.Popen([*command, str(part)]) for part in range(min(WORKERS, len(chosen)))]
    for process in running:
        try:
            process.wait(timeout=max(0.5 * options.seconds, 1))
        except subprocess.TimeoutExpired:
            process.kill()
    report.line(case="warm", seconds_left=round(report.left, 1))
    for row in chosen:
        if report.left < 3:
            report.line(case=row.case, left_out="no time was left")
            continue
        try:
            measured(report, row, folder, options.before)
        except Exception as error:
            report.line(case=row.case, variant="all", raised=f"{type(error).__name__}: {str(error)[:300]}")
        release()
    print(judged(report.path))


if __name__ == "__main__":
    main()
