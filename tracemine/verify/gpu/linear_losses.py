# mypy: ignore-errors
"""A linear layer over a vocabulary and what is made of its logits, in strips of rows: one strip of them is in memory.

linear_cross_entropy  F.cross_entropy(F.linear(hidden, weight, bias).float(), labels, …), with gradients
chosen_log_probs      log-probabilities of chosen words, a number a row: preference losses, policy gradients
linear_kl_div         how far a student's head is from a teacher's: KL divergence, with gradients for the student

It needs torch alone, and on a GPU triton, which comes with it. Weights that are sharded (FSDP) must be whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from tracemine.verify.gpu.strips import (
    Gradients,
    Tensor,
    by_kernel,
    cast,
    linear_into,
    padded,
    row_block,
    strip_rows,
    strips,
    wide,
)

_Strip = Callable[[Tensor, slice, Tensor | None], Tensor]
_AT_ONCE = 8192  # of a row at once: of twice as many a multiprocessor holds half the rows
LOG2_E, LN_2 = tl.constexpr(1.4426950408889634), tl.constexpr(0.6931471805599453)


@torch._disable_dynamo  # a compiled step calls it as it is: strips write in place; torch.compiler.disable loads Dynamo
def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    *,
    class_weights: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    rows: int | None = None,
) -> Tensor:
    """Compute cross-entropy of a linear layer's logits. hidden: [..., width]; labels: [...]; weight: [words, width].

    The loss is in float32. Of a mean or a sum gradients are made in the forward pass, and those of the weight added up
    in float32 of many strips; of "none" logits are computed again in the backward pass. rows: of a strip.
    """
    hidden, weight, bias = cast(hidden, weight, bias)
    flat, words = hidden.flatten(0, -2), labels.flatten()
    rows = rows or strip_rows(weight, len(flat))
    of = _Words(words, weight, class_weights, ignore_index, label_smoothing)
    if reduction == "none":
        return _EachRow.apply(flat, weight, bias, of, rows).view(labels.shape)
    divisor = of.counted() if reduction == "mean" else torch.ones_like(of.all)
    return _Summed.apply(flat, weight, bias, divisor, of.strip, rows)


def chosen_log_probs(
    hidden: Tensor,
    weight: Tensor,
    words: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    rows: int | None = None,
) -> Tensor:
    """Compute the log-probability of each row's word, 0 where that is `ignore_index`; shaped as the words are.

    A preference loss takes sums of them: `chosen_log_probs(h, w, words).sum(-1)`.
    """
    return -linear_cross_entropy(hidden, weight, words, bias, ignore_index=ignore_index, reduction="none", rows=rows)


@torch._disable_dynamo  # a compiled step calls it as it is: strips write in place; torch.compiler.disable loads Dynamo
def linear_kl_div(
    hidden: Tensor,
    weight: Tensor,
    teacher_hidden: Tensor,
    teacher_weight: Tensor,
    bias: Tensor | None = None,
    teacher_bias: Tensor | None = None,
    *,
    keep: Tensor | None = None,
    temperature: float = 1.0,
    reduction: str = "batchmean",
    rows: int | None = None,
) -> Tensor:
    """Compute F.kl_div(log_softmax(student / temperature), log_softmax(teacher / temperature), log_target=True).

    keep: rows that count; "batchmean" divides by how many these are, "mean" by the words of all too.
    """
    hidden, weight, bias = cast(hidden, weight, bias)
    flat = hidden.flatten(0, -2)
    kept = torch.ones(len(flat), dtype=torch.bool, device=flat.device) if keep is None else keep.flatten().bool()
    teacher = [None if t is None else t.detach() for t in cast(teacher_hidden, teacher_weight, teacher_bias)]
    count = {"batchmean": 1, "mean": weight.shape[0]}.get(reduction)
    counted = kept.sum(dtype=wide(flat))
    divisor = torch.ones_like(counted) if count is None else counted * count
    of = _Teacher(teacher[0].flatten(0, -2), teacher[1], teacher[2], kept, temperature)
    return _Summed.apply(flat, weight, bias, divisor, of.strip, rows or strip_rows(weight, len(flat)))


class _Summed(torch.autograd.Function):
    """A loss that is one number, made with its gradients.

    strip(logits, place, factor) gives a strip's losses, and leaves their gradient times the factor in the logits'
    memory; without a factor it gives losses alone. Gradients are divided before they are rounded; of float16, whose
    range is small, by a number between 1/2 and 1: the rest, a power of two, is left to the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, divisor: Tensor, strip: _Strip, rows: int
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        above = divisor.where(divisor > 0, 1)
        first = torch.frexp(above).mantissa if hidden.dtype == torch.float16 else above
        ctx.rest, factor = first / above, first.reciprocal() if any(wanted) else None
        words, (weight, bias) = len(weight), padded(weight, bias)
        ctx.made = made = Gradients(hidden, weight, bias, wanted, words, triton.cdiv(len(hidden), rows))
        total = torch.zeros((), dtype=wide(hidden), device=hidden.device)
        for place, part, logits in strips(hidden, weight, bias, rows):
            total += strip(logits[:, :words], place, factor).sum(dtype=total.dtype)
            if factor is not None:
                made.add(place, part, logits)
        return total / divisor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.made is None:
            raise RuntimeError("its gradients were made once, and are given away: call backward once")
        made, ctx.made = ctx.made, None
        return (*made.times(gradient * ctx.rest), None, None, None)


class _EachRow(torch.autograd.Function):
    """A loss of each row. What it will be multiplied by is not known: the backward pass computes the logits again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, of: Any, rows: int) -> Tensor:
        losses = torch.empty(len(hidden), dtype=wide(hidden), device=hidden.device)
        ctx.sums, ctx.of, ctx.rows, words = torch.empty_like(losses), of, rows, len(weight)
        for place, _, logits in strips(hidden, *padded(weight, bias), rows):
            losses[place] = of.strip(logits[:, :words], place, None, ctx.sums[place])
        ctx.save_for_backward(hidden, weight, bias)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        words, (weight, bias) = len(weight), padded(weight, bias)
        count = triton.cdiv(len(hidden), ctx.rows)
        made = Gradients(hidden, weight, bias, ctx.needs_input_grad[:3], words, count)
        for place, part, logits in strips(hidden, weight, bias, ctx.rows):
            ctx.of.strip(logits[:, :words], place, gradient[place].contiguous(), ctx.sums[place], known=True)
            made.add(place, part, logits)
        return (*made.times(None), None, None)


# -- a strip's losses, and their gradient in the logits' place ---------------------------------------------------------


class _Words:
    """Cross-entropy with one word a row. Where a row's words count t: loss = sum(t) logsumexp(z) - sum(t z)."""

    def __init__(self, labels: Tensor, head: Tensor, weights: Tensor | None, ignored: int, smoothing: float) -> None:
        self.labels, self.ignored, self.smoothing = labels.contiguous(), ignored, smoothing
        self.weights = None if weights is None else weights.detach().to(wide(head)).contiguous()
        self.spread = smoothing / len(head)  # that each word counts, times its weight
        self.all = labels.new_full((), len(head), dtype=wide(head)) if weights is None else self.weights.sum()

    def counted(self) -> Tensor:
        """Return what a mean divides by: rows with a word, or the weights of their words."""
        counted = self.labels != self.ignored
        chosen = counted if self.weights is None else self.weights[self.labels.where(counted, 0)] * counted
        return chosen.sum(dtype=self.all.dtype)

    def strip(
        self, logits: Tensor, place: slice, factor: Tensor | None, sums: Tensor | None = None, *, known: bool = False
    ) -> Tensor:
        """Return losses. sums: logarithms of the sums of exponentials, which are written there, or read where known."""
        labels = self.labels[place]
        if not by_kernel(logits):
            return self._by_torch(logits, labels, factor, sums)
        losses = torch.empty(len(labels), dtype=torch.float32, device=logits.device)
        sums = torch.empty_like(losses) if sums is None else sums
        _cross_entropy[(len(labels),)](
            logits, logits.stride(0), labels, self.weights, self.all, losses, sums, factor,
            int(factor is not None and factor.dim() > 0), logits.shape[1], self.ignored, self.smoothing, self.spread,
            WEIGHTED=self.weights is not None, SMOOTH=self.smoothing != 0, KNOWN=known, GRADIENT=factor is not None,
            **row_block(logits.shape[1], _AT_ONCE),
        )  # fmt: skip
        return losses

    def _by_torch(self, logits: Tensor, labels: Tensor, factor: Tensor | None, sums: Tensor | None) -> Tensor:
        z = logits.to(wide(logits))
        counted = labels != self.ignored
        safe = labels.where(counted, 0)
        weights = z.new_ones(z.shape[1]) if self.weights is None else self.weights
        t = F.one_hot(safe, z.shape[1]) * ((1 - self.smoothing) * weights[safe].unsqueeze(1)) + self.spread * weights
        t, found = t.to(z.dtype), z.logsumexp(1)
        if sums is not None:
            sums.copy_(found)
        losses = (t.sum(1) * found - (t * z).where(t != 0, 0).sum(1)).where(counted, 0)
        if factor is not None:
            gradient = (z - found.unsqueeze(1)).exp() * t.sum(1, keepdim=True) - t
            logits.copy_((gradient * factor.view(-1, 1)).where(counted.unsqueeze(1), 0))
        return losses


class _Teacher:
    """KL divergence from a teacher's logits, which are computed strip by strip too."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, kept: Tensor, temperature: float) -> None:
        self.hidden, self.kept, self.sharper, self.buffer = hidden, kept, 1 / temperature, None
        self.weight, self.bias = padded(weight, bias)

    def strip(self, logits: Tensor, place: slice, factor: Tensor | None) -> Tensor:
        """Return losses."""
        self.buffer = logits.new_empty(len(logits), len(self.weight)) if self.buffer is None else self.buffer
        wanted, kept = linear_into(self.hidden[place], self.weight, self.bias, self.buffer), self.kept[place]
        wanted = wanted[:, : logits.shape[1]]
        if not by_kernel(logits):
            kind = wide(logits)
            ours, theirs = ((z.to(kind) * self.sharper).log_softmax(1) for z in (logits, wanted))
            if factor is not None:
                gradient = (ours.exp() - theirs.exp()) * (self.sharper * factor)
                logits.copy_(gradient.where(kept.unsqueeze(1), 0))
            return (theirs.exp() * (theirs - ours)).sum(1).where(kept, 0)
        losses = torch.empty(len(kept), dtype=torch.float32, device=logits.device)
        _divergence[(len(kept),)](
            logits, logits.stride(0), wanted, wanted.stride(0), kept.view(torch.uint8), losses, factor,
            logits.shape[1], self.sharper,
            GRADIENT=factor is not None, **row_block(logits.shape[1]),
        )  # fmt: skip
        return losses


# -- kernels -----------------------------------------------------------------------------------------------------------


@triton.jit
def _exponentials(z, base, BLOCK: tl.constexpr):
    """Return what 8 elements of a thread add up to, each two to the power of its bits less the base's."""
    raised = tl.exp2(z.to(tl.float32) * LOG2_E - base)
    return tl.sum(tl.reshape(raised, (BLOCK // 8, 8)), 1)


@triton.jit
def _smoothing(z, weights, column, words, WEIGHTED: tl.constexpr):
    """Return what a block's logits add up to, times the words' weights."""
    of_word = tl.load(weights + column, mask=column < words, other=0.0) if WEIGHTED else 1.0
    return tl.sum(tl.where(column < words, z.to(tl.float32), 0.0) * of_word, 0)


@triton.jit
def _log_sum(logits, words, BLOCK: tl.constexpr):
    """Return the logarithm (of base 2) of a row's sum of exponentials, by its largest number."""
    lane, largest, total = tl.arange(0, BLOCK), -float("inf"), 0.0
    for first in range(0, words, BLOCK):
        z = tl.load(logits + first + lane, mask=first + lane < words, other=-float("inf"))
        largest = tl.maximum(largest, tl.max(z, 0).to(tl.float32))
    base = tl.where(largest == -float("inf"), 0.0, largest * LOG2_E)
    for first in range(0, words, BLOCK):
        z = tl.load(logits + first + lane, mask=first + lane < words, other=-float("inf"))
        total += tl.sum(_exponentials(z, base, BLOCK), 0)
    return base + tl.log2(total)


@triton.jit
def _cross_entropy(
    logits, stride, labels, weights, all_weights, losses, sums, factors, factor_step, words, ignored, smoothing, spread,
    BLOCK: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, KNOWN: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    """Walk a row forth for its sum, and back for its gradient, which begins with what was read last.

    Exponentials are taken of the distance to the largest number of the first block: no block waits for another's. Where
    the row's largest is so far from it that a float32 does not hold them, the row is walked anew.
    """
    row = tl.program_id(0)
    logits += row.to(tl.int64) * stride
    label = tl.load(labels + row)
    counted = label != ignored
    inside = (label >= 0) & (label < words)
    own = tl.load(weights + label, mask=inside, other=0.0) if WEIGHTED else 1.0
    chosen = (1.0 - smoothing) * own
    count = chosen + spread * tl.load(all_weights) if SMOOTH else chosen
    lane, blocks = tl.arange(0, BLOCK), tl.cdiv(words, BLOCK)
    if KNOWN:
        log_sum = tl.load(sums + row) * LOG2_E
        column = (blocks - 1) * BLOCK + lane
        z = tl.load(logits + column, mask=column < words, other=-float("inf"))
    else:
        at_label = tl.load(logits + label, mask=inside, other=float("nan")).to(tl.float32)
        z = tl.load(logits + lane, mask=lane < words, other=-float("inf"))
        base = tl.max(z, 0).to(tl.float32) * LOG2_E
        base = tl.where(base == -float("inf"), 0.0, base)
        total, smooth = tl.zeros((BLOCK // 8,), tl.float32), 0.0
        if SMOOTH:
            smooth += _smoothing(z, weights, lane, words, WEIGHTED)
        for first in range(BLOCK, words, BLOCK):
            total += _exponentials(z, base, BLOCK)
            z = tl.load(logits + first + lane, mask=first + lane < words, other=-float("inf"))
            if SMOOTH:
                smooth += _smoothing(z, weights, first + lane, words, WEIGHTED)
        whole = tl.sum(total + _exponentials(z, base, BLOCK), 0)
        log_sum = base + tl.log2(whole)
        if (whole < 0.5) | (whole == float("inf")):  # the number that it is taken from counts 1: it was hidden
            log_sum = _log_sum(logits, words, BLOCK)
        found = log_sum * LN_2
        tl.store(sums + row, found)
        tl.store(losses + row, tl.where(counted, count * found - chosen * at_label - spread * smooth, 0.0))
    if GRADIENT:
        factor = tl.load(factors + row * factor_step).to(tl.float32)
        for back in range(blocks):
            first = (blocks - 1 - back) * BLOCK
            column = first + lane
            gradient = count * tl.exp2(z.to(tl.float32) * LOG2_E - log_sum) - tl.where(column == label, chosen, 0.0)
            if SMOOTH:
                of_word = tl.load(weights + column, mask=column < words, other=0.0) if WEIGHTED else 1.0
                gradient -= spread * of_word
            gradient = tl.where(counted, gradient * factor, 0.0)
            tl.store(logits + column, gradient.to(logits.dtype.element_ty), mask=column < words)
            z = tl.load(logits + column - BLOCK, mask=column >= BLOCK, other=-float("inf"))


@triton.jit
def _divergence(
    logits, stride, wanted, wanted_stride, kept, losses, factors, words, sharper,
    BLOCK: tl.constexpr, GRADIENT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    logits += row.to(tl.int64) * stride
    wanted += row.to(tl.int64) * wanted_stride
    counted = tl.load(kept + row) != 0
    ours, our_sum, theirs, their_sum, apart = -1e30, 0.0, -1e30, 0.0, 0.0  # no infinity: it is taken off itself
    for first in range(0, words, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < words
        z = tl.load(logits + column, mask=inside, other=-float("inf")).to(tl.float32) * sharper
        w = tl.load(wanted + column, mask=inside, other=-float("inf")).to(tl.float32) * sharper
        higher = tl.maximum(ours, tl.max(z, 0))
        highest = tl.maximum(theirs, tl.max(w, 0))
        power, less = tl.exp(w - highest), tl.exp(theirs - highest)
        apart = less * (apart + their_sum * ((theirs - highest) - (ours - higher)))
        difference = tl.where(inside, w - highest, 0.0) - tl.where(inside, z - higher, 0.0)
        apart += tl.sum(power * difference, 0)
        our_sum = our_sum * tl.exp(ours - higher) + tl.sum(tl.exp(z - higher), 0)
        their_sum = their_sum * less + tl.sum(power, 0)
        ours, theirs = higher, highest
    apart = apart / their_sum - tl.log(their_sum) + tl.log(our_sum)
    ours += tl.log(our_sum)
    theirs += tl.log(their_sum)
    tl.store(losses + row, tl.where(counted, apart, 0.0))
    if GRADIENT:
        factor = tl.load(factors).to(tl.float32) * sharper
        for first in range(0, words, BLOCK):
            column = first + tl.arange(0, BLOCK)
            inside = column < words
            z = tl.load(logits + column, mask=inside, other=0.0).to(tl.float32) * sharper
            w = tl.load(wanted + column, mask=inside, other=0.0).to(tl.float32) * sharper
            gradient = tl.where(counted, (tl.exp(z - ours) - tl.exp(w - theirs)) * factor, 0.0)
            tl.store(logits + column, gradient.to(logits.dtype.element_ty), mask=inside)
