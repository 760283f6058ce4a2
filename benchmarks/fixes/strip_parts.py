"""Time the parts of a linear layer's cross-entropy in strips: `python -m benchmarks.fixes.strip_parts OUT SECONDS`.

The products of a strip by its rows, the kernel of losses and gradients as it is and in other forms, and the whole by
strips of several sizes. OUT/strip_parts.jsonl: a line a variant, as soon as it is known.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.fixes import products
from benchmarks.fixes.products import DEVICE, ON_GPU, Report, Work, compared, head
from tracemine.verify.gpu import linear_losses, strips


@triton.jit
def _forms(
    logits, stride, labels, losses, sums, factors, rows, words, ignored,
    BLOCK: tl.constexpr, BACK: tl.constexpr, HINT: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    first_policy: tl.constexpr = "evict_last" if HINT else ""
    second_policy: tl.constexpr = "evict_first" if HINT else ""
    blocks = tl.cdiv(words, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        here = logits + tl.cast(row, tl.int64) * stride
        label = tl.load(labels + row)
        counted = label != ignored
        inside = (label >= 0) & (label < words)
        at_label = tl.load(here + label, mask=inside, other=float("nan")).to(tl.float32)
        column = tl.arange(0, BLOCK)
        z = tl.load(here + column, mask=column < words, other=-float("inf")).to(tl.float32)
        base = tl.max(z, 0)
        base = tl.where(base == -float("inf"), 0.0, base)
        largest, total = z, tl.exp(z - base)
        for k in tl.range(1, blocks, num_stages=STAGES):
            column = k * BLOCK + tl.arange(0, BLOCK)
            z = tl.load(here + column, mask=column < words, other=-float("inf"), eviction_policy=first_policy).to(
                tl.float32
            )
            largest = tl.maximum(largest, z)
            total += tl.exp(z - base)
        top, found = tl.max(largest, 0), tl.sum(total, 0)
        if tl.abs(top - base) > 64.0:
            base = tl.where(top == -float("inf"), 0.0, top)
            found = 0.0
            for k in range(blocks):
                column = k * BLOCK + tl.arange(0, BLOCK)
                z = tl.load(here + column, mask=column < words, other=-float("inf")).to(tl.float32)
                found += tl.sum(tl.exp(z - base), 0)
        found = base + tl.log(found)
        tl.store(sums + row, found)
        tl.store(losses + row, tl.where(counted, found - at_label, 0.0))
        factor = tl.where(counted, tl.load(factors).to(tl.float32), 0.0)
        for k in tl.range(0, blocks, num_stages=STAGES):
            at = (blocks - 1 - k) if BACK else k
            column = at * BLOCK + tl.arange(0, BLOCK)
            z = tl.load(here + column, mask=column < words, other=-float("inf"), eviction_policy=second_policy).to(
                tl.float32
            )
            gradient = tl.exp(z - found) - tl.where(column == label, 1.0, 0.0)
            tl.store(here + column, (gradient * factor).to(logits.dtype.element_ty), mask=column < words)


@triton.jit
def _scaled(tensor, factor, size, BLOCK: tl.constexpr):
    number = tl.load(factor).to(tl.float32)
    if number != 1.0:
        for first in range(tl.program_id(0), tl.cdiv(size, BLOCK), tl.num_programs(0)):
            at = tl.cast(first, tl.int64) * BLOCK + tl.arange(0, BLOCK)
            product = tl.load(tensor + at, mask=at < size).to(tl.float32) * number
            tl.store(tensor + at, product.to(tensor.dtype.element_ty), mask=at < size)


CORES = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 4
SHAPES = ((4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16), (16384, 32))


def run_form(z: Any, labels: Any, one: Any, block: int, warps: int, programs: int, back: bool, hint: bool, stages: int) -> Any:
    losses, sums = (torch.empty(len(z), dtype=torch.float32, device=z.device) for _ in range(2))
    _forms[(min(programs * CORES, len(z)) if programs else len(z),)](
        z, z.stride(0), labels, losses, sums, one, len(z), z.shape[1], -100,
        BLOCK=block, BACK=back, HINT=hint, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return losses


def kernels(report: Report, rows: int, words: int, seconds: float) -> None:
    """Time forms of the kernel on a strip: logits are what they are, gradients from the second call on."""
    z = torch.randn(rows, words, device=DEVICE, dtype=torch.bfloat16)
    labels, one = torch.randint(0, words, (rows,), device=DEVICE), torch.ones((), device=DEVICE)
    own = linear_losses._Words(labels, z.t(), None, -100, 0.0)
    kept = z.clone()
    wanted = own.strip(z, slice(0, rows), one)
    right = z.clone()
    works: dict[str, Work] = {"as it is": lambda: own.strip(z, slice(0, rows), one), "copied": lambda: z.copy_(kept)}
    every = [(True, hint, programs, 1, shape) for shape in SHAPES for hint, programs in ((0, 0), (1, 0), (1, 1), (1, 2))]
    every += [(False, 0, 0, 1, shape) for shape in SHAPES[1:4:2]] + [(True, 0, 0, 3, shape) for shape in SHAPES[1:3]]
    for back, hint, programs, stages, (block, warps) in every:
        name = f"{block}, {warps} warps" + " back" * back + " hint" * hint + f" {programs} a core" * bool(programs)
        name += f" {stages} stages" * (stages > 1)
        works[name] = partial(run_form, z, labels, one, block, warps, programs, back, bool(hint), stages)
    for name, work in list(works.items())[2:]:
        if name.startswith("4096, 8") or not ON_GPU:
            z.copy_(kept)
            found = work()
            off = float((found - wanted).abs().max()), float((z.float() - right.float()).abs().max())
            report.line(case=f"kernel errors {rows}x{words}", variant=name, losses=off[0], gradients=off[1])
    compared(report, f"kernel {rows}x{words}", works, seconds)


def parts(report: Report, width: int, words: int, every: tuple[int, ...], seconds: float) -> None:
    """Time the products of a strip by its rows, and what follows them."""
    hidden, weight, _ = (t.detach() for t in head(max(every), width, words))
    buffer, made = weight.new_empty(max(every), words), torch.zeros_like(weight)
    one, works = torch.ones((), device=DEVICE), dict[str, Work]()
    buffer.normal_()
    found = torch.empty_like(hidden)
    for rows in every:
        g, h, out = buffer[:rows], hidden[:rows], found[:rows]
        works[f"logits {rows}"] = lambda g=g, h=h: torch.mm(h, weight.t(), out=g)
        works[f"of hidden {rows}"] = lambda g=g, out=out: torch.mm(g, weight, out=out)
        works[f"of weight {rows} beta 0"] = lambda g=g, h=h: made.addmm_(g.t(), h, beta=0)
        works[f"of weight {rows} beta 1"] = lambda g=g, h=h: made.addmm_(g.t(), h, beta=1)
    works["multiplied"] = lambda: strips._multiply_by(made, one)
    size = made.numel()
    works["multiplied, few programs"] = lambda: _scaled[(8 * CORES,)](made, one, size, BLOCK=4096)
    compared(report, f"parts {width}x{words}", works, seconds)


def whole(report: Report, rows: int, width: int, words: int, every: tuple[int, ...], seconds: float) -> None:
    """Time all of it by strips of several sizes, next to torch.compile."""
    hidden, weight, labels = head(rows, width, words)

    def eager(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w).float(), labels)

    works = {"compiled": products.trained(torch.compile(eager, dynamic=False), (hidden, weight))}
    for n in every:
        loss = partial(linear_losses.linear_cross_entropy, labels=labels, rows=n)
        works[f"strips of {n}"] = products.trained(lambda h, w, loss=loss: loss(h, w), (hidden, weight))
    compared(report, f"whole {rows}x{width}x{words}", works, seconds)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out, float(sys.argv[2]))
    report.path = out / "strip_parts.jsonl"
    products.MOST = 15
    sizes = (128_256, 256_000, 32_768) if ON_GPU else (3000, 700)
    steps = [partial(kernels, report, 1024 if ON_GPU else 8, words, 4.0) for words in sizes]
    rows = (2048, 2688, 2752, 2816, 3072, 3968, 4096, 8192) if ON_GPU else (16, 24)
    steps.insert(1, partial(parts, report, 2048 if ON_GPU else 16, sizes[0], rows, 4.0))
    given = (8192, 2048, sizes[0], (8192, 4096, 2816, 2752, 2048)) if ON_GPU else (40, 16, 300, (16, 40))
    steps.insert(2, partial(whole, report, *given, 4.0))
    for step in steps:
        if report.left > 0:
            step()


if __name__ == "__main__":
    main()
