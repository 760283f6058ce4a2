# mypy: ignore-errors
"""The largest logits over a document's tokens, as sparse encoders have them: no logits are written, or strips of them.

vocabulary_max  log1p(relu(·)) of the logits of each document's tokens, the largest for each word: with gradients
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

from tracemine.verify.gpu.strips import Gradients, Tensor, by_kernel, cast, padded, strip_rows, strips, wide


def vocabulary_max(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor, *, documents: int | None = None
) -> Tensor:
    """Compute (log1p(relu(F.linear(hidden, weight, bias))) * mask[..., None]).max(1).values: [documents, words].

    hidden: [documents, tokens, width]; mask: [documents, tokens]. documents: of a strip. The maximum is taken first:
    what it is taken of rises with the logits. Half precision on a GPU with descriptors needs no logits: a kernel takes
    the maximum of what it multiplies.
    """
    hidden, weight, bias = cast(hidden, weight, bias)
    strip = documents or max(strip_rows(weight, hidden.shape[:2].numel()) // hidden.shape[1], 1)
    return _LargestOfTokens.apply(hidden, weight, bias, mask.bool(), strip)


class _LargestOfTokens(torch.autograd.Function):
    """Of each document's tokens that count the largest logit for each word. Its gradient goes to that token alone."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor, documents: int) -> Tensor:
        count, tokens, width = hidden.shape
        in_flight, trained = _in_flight(hidden, weight), any(ctx.needs_input_grad)
        done = in_flight and not trained
        kind = hidden.dtype if done else wide(hidden)
        largest = torch.empty(count, len(weight), dtype=kind, device=hidden.device)
        token = torch.empty(largest.shape, dtype=torch.int32, device=hidden.device) if trained else None
        mask, ctx.rows = mask.contiguous(), documents * tokens
        if in_flight:
            _multiply(hidden, weight, bias, mask, largest, token)
        else:
            for place, _, logits in strips(hidden.reshape(-1, width), *padded(weight, None), ctx.rows):
                own = slice(place.start // tokens, place.stop // tokens)
                _largest(logits, mask[own], largest[own], token if token is None else token[own])
            if bias is not None:
                largest += bias  # of every token the same
        if done:
            return largest
        ctx.save_for_backward(hidden, weight, bias, largest, token)
        positive = largest.clamp_min(0) if trained else largest.clamp_min_(0)
        return positive.log1p_().to(hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, _, largest, token = ctx.saved_tensors
        tokens, words, wanted = hidden.shape[1], len(weight), ctx.needs_input_grad[:3]
        gradient = torch.where(largest > 0, gradient / (1 + largest), 0).to(weight.dtype)
        flat, (filled, _) = hidden.reshape(-1, hidden.shape[2]), padded(weight, None)
        made = Gradients(flat, filled, None, (*wanted[:2], False), words, triton.cdiv(len(flat), ctx.rows))
        buffer = weight.new_zeros(min(ctx.rows, len(flat)), len(filled))
        for first in range(0, len(flat), ctx.rows):
            place = slice(first, min(first + ctx.rows, len(flat)))
            own, part = slice(place.start // tokens, place.stop // tokens), buffer[: place.stop - first]
            _spread_gradient(gradient[own], token[own], tokens, part[:, :words])
            made.add(place, flat[place], part)
        of_hidden, of_weight, _ = made.times(None)
        of_bias = gradient.sum(0, dtype=wide(weight)).to(weight.dtype) if wanted[2] else None
        return None if of_hidden is None else of_hidden.view(hidden.shape), of_weight, of_bias, None, None


def _in_flight(hidden: Tensor, weight: Tensor) -> bool:
    """Return whether a kernel multiplies and takes the maximum: operands in half precision that descriptors read."""
    lies = all(t.is_contiguous() and t.data_ptr() % 16 == 0 and t.element_size() == 2 for t in (hidden, weight))
    able = by_kernel(hidden) and hidden.dtype == torch.float16  # triton's interpreter multiplies bfloat16 wrongly
    able = torch.cuda.get_device_capability(hidden.device) >= (9, 0) if hidden.is_cuda else able
    return lies and able and weight.shape[1] % 8 == 0 and hidden.numel() > 0


def _multiply(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor, largest: Tensor, token: Tensor | None
) -> None:
    """Write the largest logit of each document's tokens that count, and which token has it; without `token` the result.

    A program walks all tokens of a document for some words: nothing else is written.
    """
    (documents, tokens, width), words = hidden.shape, len(weight)
    block = min(max(triton.next_power_of_2(tokens), 16), 256)
    high = 128 if token is None or block < 256 else 64  # of which token it is registers are needed too
    tiles = triton.cdiv(words, high) * documents
    most = torch.cuda.get_device_properties(hidden.device).multi_processor_count if hidden.is_cuda else 2
    _multiply_kernel[(min(tiles, most),)](
        TensorDescriptor(weight, [words, width], [width, 1], [high, 64]),
        TensorDescriptor(hidden, [documents, tokens, width], [tokens * width, width, 1], [1, block, 64]),
        bias, mask.view(torch.uint8), largest, token, documents, tokens, words,
        PARTS=triton.cdiv(tokens, block), WIDTH=width, WORDS=high, TOKENS=block, DEPTH=64, num_warps=8, num_stages=4,
    )  # fmt: skip


def _largest(logits: Tensor, mask: Tensor, largest: Tensor, token: Tensor | None) -> None:
    """Write the largest logit of each document's tokens that count, and which token has it."""
    (count, tokens), words = mask.shape, largest.shape[1]
    if not by_kernel(logits):
        z = logits[:, :words].reshape(count, tokens, words).to(largest.dtype)
        found = z.masked_fill(~mask.unsqueeze(2), -torch.inf).max(1)
        largest.copy_(found.values)
        if token is not None:
            token.copy_(found.indices)
        return
    _largest_kernel[(triton.cdiv(words, 256), count)](
        logits, logits.stride(0), mask.view(torch.uint8), largest, token, tokens, words,
        TOKENS=16, WORDS=256, WHICH=token is not None, num_warps=8,
    )  # fmt: skip


def _spread_gradient(gradient: Tensor, token: Tensor, tokens: int, out: Tensor) -> None:
    """Write a gradient to the token that it is of, and 0 to the others."""
    count, words = gradient.shape
    if not by_kernel(out):
        zeros = out.new_zeros(count, tokens, words)
        out.copy_(zeros.scatter_(1, token.long().unsqueeze(1), gradient.unsqueeze(1)).view(-1, words))
        return
    _spread_kernel[(triton.cdiv(words, 256), count)](
        gradient, token, out, out.stride(0), tokens, words, TOKENS=16, WORDS=256, num_warps=8
    )


@triton.jit
def _larger_logit(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _multiply_kernel(
    weight, hidden, bias, mask, largest, token, documents, tokens, words,
    PARTS: tl.constexpr, WIDTH: tl.constexpr, WORDS: tl.constexpr, TOKENS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    own = tl.cdiv(documents * tl.cdiv(words, WORDS) - tl.program_id(0), tl.num_programs(0))
    best = tl.full((WORDS,), -float("inf"), tl.float32)
    which = tl.zeros((WORDS,), tl.int32)
    for step in tl.range(own * PARTS, flatten=True):
        part = step % PARTS
        tile = tl.program_id(0) + step // PARTS * tl.num_programs(0)
        document, block = tile % documents, tile // documents  # documents in turn: they share the weight's rows
        z = tl.zeros((WORDS, TOKENS), tl.float32)
        for first in range(0, WIDTH, DEPTH):
            rows = weight.load([block * WORDS, first])
            z = tl.dot(rows, hidden.load([document, part * TOKENS, first]).reshape(TOKENS, DEPTH).T, z)
        at = part * TOKENS + tl.arange(0, TOKENS)
        kept = tl.load(mask + document.to(tl.int64) * tokens + at, mask=at < tokens, other=0) != 0
        z = tl.where(kept[None, :], z, -float("inf"))
        of_part = tl.reduce(z, 1, _larger_logit)
        before = tl.where(part == 0, -float("inf"), best)
        best = tl.maximum(before, of_part, propagate_nan=tl.PropagateNan.ALL)
        word = block * WORDS + tl.arange(0, WORDS)
        done = (word < words) & (part == PARTS - 1)
        place = document.to(tl.int64) * words + word
        found = best if bias is None else best + tl.load(bias + word, mask=done, other=0.0).to(tl.float32)
        if token is None:
            found = tl.maximum(found, 0.0, propagate_nan=tl.PropagateNan.ALL)
            found = tl.where(found < 2**-8, found - 0.5 * found * found, tl.log(1.0 + found))  # 1 + x rounds off x
        else:
            here = tl.min(tl.where(z == of_part[:, None], at[None, :], tokens - 1), 1)
            which = tl.where((part == 0) | (of_part > before), here, which)
            tl.store(token + place, which, mask=done)
        tl.store(largest + place, found.to(largest.dtype.element_ty), mask=done)


@triton.jit
def _largest_kernel(
    logits, stride, mask, largest, token, tokens, words,
    TOKENS: tl.constexpr, WORDS: tl.constexpr, WHICH: tl.constexpr,
):  # fmt: skip
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    document = tl.program_id(1).to(tl.int64)
    logits += document * tokens * stride
    best = tl.full((TOKENS, WORDS), -float("inf"), tl.float32)
    which = tl.zeros((TOKENS, WORDS), tl.int32)
    for first in range(0, tokens, TOKENS):
        at = first + tl.arange(0, TOKENS)
        kept = tl.load(mask + document * tokens + at, mask=at < tokens, other=0) != 0
        z = tl.load(
            logits + at.to(tl.int64)[:, None] * stride + word[None, :],
            mask=(at < tokens)[:, None] & (word < words)[None, :],
            other=-float("inf"),
        ).to(tl.float32)  # of masked tokens too: no load waits for another
        z = tl.where(kept[:, None], z, -float("inf"))
        if WHICH:
            which = tl.where(z > best, at[:, None], which)
        best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)
    found = tl.where(tl.max((best != best).to(tl.int32), 0) > 0, float("nan"), tl.max(best, 0))
    tl.store(largest + document * words + word, found, mask=word < words)
    if WHICH:
        first_one = tl.min(tl.where(best == found[None, :], which, tokens), 0)
        tl.store(token + document * words + word, tl.minimum(first_one, tokens - 1), mask=word < words)


@triton.jit
def _spread_kernel(gradient, token, out, stride, tokens, words, TOKENS: tl.constexpr, WORDS: tl.constexpr):
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    document = tl.program_id(1).to(tl.int64)
    value = tl.load(gradient + document * words + word, mask=word < words, other=0.0)
    which = tl.load(token + document * words + word, mask=word < words, other=0)
    out += document * tokens * stride
    for first in range(0, tokens, TOKENS):
        at = first + tl.arange(0, TOKENS)
        tl.store(
            out + at.to(tl.int64)[:, None] * stride + word[None, :],
            tl.where(at[:, None] == which[None, :], value[None, :], 0.0),
            mask=(at < tokens)[:, None] & (word < words)[None, :],
        )
