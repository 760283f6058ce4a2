"""Time the parts of a linear layer's cross-entropy in strips: `python -m benchmarks.fixes.strip_parts OUT SECONDS`.

The products of a strip by its rows, the kernel of losses and gradients as it is and in other forms, and the whole by
strips of several sizes. OUT/strip_parts.jsonl: a line a variant, as soon as it is known.
"""

from __future__ import annotations

import json
import re
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
def _exponentials(z, base, GROUP: tl.constexpr):
    """Return sums of a thread's exponentials, less a base, both times log2(e)."""
    raised = tl.exp2(z.to(tl.float32) * 1.4426950408889634 - base)
    return tl.sum(tl.reshape(raised, (z.shape[0] // GROUP, GROUP), can_reorder=True), 1)


@triton.jit
def _forms(
    logits, stride, labels, losses, sums, factors, rows, words, ignored,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr, GROUP: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    first_policy: tl.constexpr = "evict_last" if HINT else ""
    second_policy: tl.constexpr = "evict_first" if HINT else ""
    blocks = tl.cdiv(words, BLOCK)
    lane = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        here = logits + tl.cast(row, tl.int64) * stride
        label = tl.load(labels + row)
        counted = label != ignored
        inside = (label >= 0) & (label < words)
        at_label = tl.load(here + label, mask=inside, other=float("nan")).to(tl.float32)
        z = tl.load(here + lane, mask=lane < words, other=-float("inf"), eviction_policy=first_policy)
        base = tl.max(z, 0).to(tl.float32) * 1.4426950408889634
        base = tl.where(base == -float("inf"), 0.0, base)
        total = tl.zeros((BLOCK // GROUP,), tl.float32)
        for k in range(1, blocks):
            if AHEAD:
                after = tl.load(
                    here + k * BLOCK + lane, mask=k * BLOCK + lane < words, other=-float("inf"),
                    eviction_policy=first_policy,
                )  # fmt: skip
                total += _exponentials(z, base, GROUP)
                z = after
            else:
                total += _exponentials(z, base, GROUP)
                z = tl.load(
                    here + k * BLOCK + lane, mask=k * BLOCK + lane < words, other=-float("inf"),
                    eviction_policy=first_policy,
                )  # fmt: skip
        found = tl.sum(total + _exponentials(z, base, GROUP), 0)
        if (found == 0.0) | (found == float("inf")):
            top = -float("inf")
            for k in range(blocks):
                each = tl.load(here + k * BLOCK + lane, mask=k * BLOCK + lane < words, other=-float("inf"))
                top = tl.maximum(top, tl.max(each, 0).to(tl.float32))
            base = tl.where(top == -float("inf"), 0.0, top) * 1.4426950408889634
            found = 0.0
            for k in range(blocks):
                each = tl.load(here + k * BLOCK + lane, mask=k * BLOCK + lane < words, other=-float("inf"))
                found += tl.sum(_exponentials(each, base, GROUP), 0)
        whole = base + tl.log2(found)
        tl.store(sums + row, whole * 0.6931471805599453)
        tl.store(losses + row, tl.where(counted, whole * 0.6931471805599453 - at_label, 0.0))
        factor = tl.where(counted, tl.load(factors).to(tl.float32), 0.0)
        for k in range(0, blocks):
            at = (blocks - 1 - k) * BLOCK
            if AHEAD:
                after = tl.load(
                    here + at - BLOCK + lane, mask=lane >= BLOCK - at, other=-float("inf"),
                    eviction_policy=second_policy,
                )  # fmt: skip
            gradient = tl.exp2(z.to(tl.float32) * 1.4426950408889634 - whole) * factor
            gradient -= tl.where(at + lane == label, factor, 0.0)
            tl.store(here + at + lane, gradient.to(logits.dtype.element_ty), mask=at + lane < words)
            if AHEAD:
                z = after
            else:
                z = tl.load(
                    here + at - BLOCK + lane, mask=lane >= BLOCK - at, other=-float("inf"),
                    eviction_policy=second_policy,
                )  # fmt: skip


@triton.jit
def _scaled(tensor, factor, size, BLOCK: tl.constexpr):
    number = tl.load(factor).to(tl.float32)
    if number != 1.0:
        for first in range(tl.program_id(0), tl.cdiv(size, BLOCK), tl.num_programs(0)):
            at = tl.cast(first, tl.int64) * BLOCK + tl.arange(0, BLOCK)
            product = tl.load(tensor + at, mask=at < size).to(tl.float32) * number
            tl.store(tensor + at, product.to(tensor.dtype.element_ty), mask=at < size)


CORES = torch.cuda.get_device_properties(0).multi_processor_count if ON_GPU else 4
SHAPES = ((2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32))


def run_form(
    z: Any, labels: Any, one: Any, block: int, warps: int, programs: int, ahead: bool, group: int, hint: bool
) -> Any:
    losses, sums = (torch.empty(len(z), dtype=torch.float32, device=z.device) for _ in range(2))
    _forms[(min(programs * CORES, len(z)) if programs else len(z),)](
        z, z.stride(0), labels, losses, sums, one, len(z), z.shape[1], -100,
        BLOCK=block, AHEAD=ahead, GROUP=group, HINT=hint, num_warps=warps,
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
    every = [
        (ahead, 8, False, programs, shape) for shape in SHAPES for ahead in (False, True) for programs in (0, 1, 2)
    ]
    every += [(True, 8, True, 0, shape) for shape in SHAPES[1::2]] + [
        (True, 16, False, 0, shape) for shape in SHAPES[2:]
    ]
    for ahead, group, hint, programs, (block, warps) in every:
        name = f"{block}, {warps} warps" + " ahead" * ahead + " hint" * hint + f" {programs} a core" * bool(programs)
        name += f" group {group}" * (group != 8)
        works[name] = partial(run_form, z, labels, one, block, warps, programs, ahead, group, hint)
    for name, work in list(works.items())[2:]:
        if name.startswith("4096, 8") or not ON_GPU:
            z.copy_(kept)
            found = work()
            off = float((found - wanted).abs().max()), float((z.float() - right.float()).abs().max())
            report.line(case=f"kernel errors {rows}x{words}", variant=name, losses=off[0], gradients=off[1])
    compared(report, f"kernel {rows}x{words}", works, seconds)


class Narrow(strips.Gradients):
    """Adds up the weight's gradient in its own type, of however many strips."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:-1], min(given[-1], 2))


def fastest(report: Report) -> tuple[Any, ...]:
    """Return the form that was fastest at the first size."""
    lines = [json.loads(line) for line in report.path.read_text().splitlines()]
    told = [d for d in lines if d["case"].startswith("kernel 1024x128256") and d.get("ms") and "warps" in d["variant"]]
    name = min(told, key=lambda d: d["ms"])["variant"] if told else "4096, 8 warps"
    block, warps = (int(part) for part in re.findall(r"(\d+), (\d+) warps", name)[0])
    programs = re.findall(r"(\d) a core", name)
    return (
        block,
        warps,
        int(programs[0]) if programs else 0,
        "ahead" in name,
        16 if "group 16" in name else 8,
        "hint" in name,
    )


def whole(report: Report, rows: int, width: int, words: int, seconds: float) -> None:
    """Time all of it by strips of several sizes, next to torch.compile, and with the fastest form of the kernel."""
    hidden, weight, labels = head(rows, width, words)
    form, kept = fastest(report), (linear_losses._Words.strip, linear_losses.Gradients)
    report.line(case="fastest form", variant=str(form))

    def eager(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, w).float(), labels)

    def stripped(self: Any, logits: Any, place: slice, factor: Any, *_: Any) -> Any:
        return run_form(logits, self.labels[place], factor, *form)

    def called(n: int, narrow: bool, formed: bool) -> Work:
        def loss(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            linear_losses.Gradients = Narrow if narrow else kept[1]
            linear_losses._Words.strip = stripped if formed else kept[0]
            try:
                return linear_losses.linear_cross_entropy(h, w, labels, rows=n)
            finally:
                linear_losses._Words.strip, linear_losses.Gradients = kept

        return products.trained(loss, (hidden, weight))

    half, third, quarter = rows // 2, -(-rows // 384) * 128, rows // 4
    works = {"compiled": products.trained(torch.compile(eager, dynamic=False), (hidden, weight))}
    works |= {f"strips of {n}, narrow": called(n, True, False) for n in (half, third, quarter)}
    works |= {f"strips of {n}, narrow, best form": called(n, True, True) for n in (rows, half, quarter)}
    truth = products.true_gradients(hidden, weight, labels)
    plain = {"eager": products.trained(eager, (hidden, weight))}
    for name, work in (plain | {k: v for k, v in works.items() if k != "compiled"}).items():
        products.trained_errors(report, f"whole errors {words}", name, work, truth)
    del truth
    products.release()
    compared(report, f"whole {rows}x{width}x{words}", works, seconds)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out, float(sys.argv[2]))
    report.path = out / "strip_parts.jsonl"
    products.MOST = 15
    sizes = (128_256, 256_000, 32_768) if ON_GPU else (3000, 700)
    every = [partial(kernels, report, 1024 if ON_GPU else 8, words, 3.0) for words in sizes]
    wide = [(8192, 2048, words) for words in sizes] if ON_GPU else [(40, 16, 500)]
    both = [partial(whole, report, *given, 4.0) for given in wide]
    for step in (every[0], *both[:2], *every[1:], *both[2:]):
        if report.left > 0:
            step()


if __name__ == "__main__":
    main()
