# mypy: ignore-errors
"""Logits of a linear layer in strips of rows, which lie in the same memory one after another, and their gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

Tensor = torch.Tensor
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Words a row from which on so many strips' gradients of the weight are added up in its own type: each rounds once more.
# Beside eager's error that is 1.14 (two strips) and 1.20 (four) at 16 words a row as measured, but 1.38 (two) at 4.
_NARROW = ((12, 4), (8, 2))
_MOST_WORDS = 16384  # of a row at once: of twice as many registers would not hold two heads'
_PROGRAMS, _AT_A_TIME = 1024, 4096  # that multiply by a number which mostly is 1, and how many numbers each


def cast(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return them as a linear layer would take them: under autocast in its type."""
    if any(hasattr(t, "placements") for t in (hidden, weight, bias)):
        raise TypeError("a DTensor: give what `full_tensor()` returns")
    kind = hidden.device.type
    wanted = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    return hidden.to(wanted), weight.to(wanted), None if bias is None else bias.to(wanted)


def wide(tensor: Tensor) -> torch.dtype:
    """Return the type that sums are taken in: float32, or that of what is wider."""
    return torch.promote_types(tensor.dtype, torch.float32)


def strip_rows(weight: Tensor, rows: int = 0) -> int:
    """Return rows of a strip: its logits take as much memory as the weight, or a quarter of a gigabyte.

    rows: of all; where the weight has a gradient, as large a share of them as needs no sums in float32, if its logits
    take no more than these would.
    """
    words, width = weight.shape
    trained = weight.requires_grad and torch.is_grad_enabled()
    share = -(-rows // (128 * narrow_strips(words, rows))) * 128 if trained else 0
    most = max(width, (1 << 28) // (words * weight.element_size()), 256) // 128 * 128
    return share if most < share <= 2 * width else most


def narrow_strips(words: int, rows: int) -> int:
    """Return in how many strips at most the weight's gradient is as good where it is added up in its own type."""
    return next((strips for least, strips in _NARROW if words >= least * rows), 1)


def padded(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias with words of zeros up to a multiple of 64, where an odd number makes products slow."""
    more = -len(weight) % 64 if len(weight) % 8 else 0
    if not more:
        return weight, bias
    return F.pad(weight, (0, 0, 0, more)), None if bias is None else F.pad(bias, (0, more))


def linear_into(part: Tensor, weight: Tensor, bias: Tensor | None, buffer: Tensor) -> Tensor:
    """Write a strip's logits into memory that is there."""
    logits = buffer[: len(part)]
    if bias is None:
        return torch.mm(part, weight.t(), out=logits)
    return torch.addmm(bias, part, weight.t(), out=logits)


def strips(hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield of each strip its place, its rows and their logits, all in the same memory."""
    buffer = weight.new_empty(min(rows, max(len(hidden), 1)), len(weight))
    for first in range(0, len(hidden), rows):
        place = slice(first, min(first + rows, len(hidden)))
        yield place, hidden[place], linear_into(hidden[place], weight, bias, buffer)


class Gradients:
    """Gradients of hidden states, weight and bias, strip by strip: the latter two are added up in float32 or wider.

    Of few strips, of few rows for so many words, the weight's are added up in its own type.
    words: how many of the weight's rows are no padding; strips: how many are added.
    """

    def __init__(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: tuple[bool, ...], words: int, strips: int
    ) -> None:
        sums, self._weight, self._words, self._first = wide(weight), weight, words, True
        kept = weight.dtype if strips <= narrow_strips(words, len(hidden)) else sums
        self.hidden = torch.empty_like(hidden) if wanted[0] else None
        self.weight = torch.empty(weight.shape, dtype=kept, device=weight.device) if wanted[1] else None
        self.bias = torch.zeros(len(weight), dtype=sums, device=weight.device) if wanted[2] else None

    def add(self, place: slice, part: Tensor, gradient: Tensor) -> None:
        """Add those of a strip."""
        if self.hidden is not None:
            torch.mm(gradient, self._weight, out=self.hidden[place])
        if self.weight is not None:
            _add_product(self.weight, gradient.t(), part, beta=0 if self._first else 1)
        if self.bias is not None:
            self.bias += gradient.sum(0, dtype=self.bias.dtype)
        self._first = False

    def times(self, factor: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return them times a factor. What is in the weight's type already is multiplied where it is."""
        found = list[Tensor | None]()
        words = [None if each is None else each[: self._words] for each in (self.weight, self.bias)]
        for each in (self.hidden, *words):
            if each is not None and factor is not None:
                _multiply_by(each, factor)
            found.append(each if each is None else each.to(self._weight.dtype))
        return found[0], found[1], found[2]


def _multiply_by(tensor: Tensor, factor: Tensor) -> None:
    """Multiply by one number; of 1, as a loss that is a step's last has, a kernel does nothing."""
    if not by_kernel(tensor):
        tensor.mul_(factor)
    elif tensor.numel():
        programs = min(_PROGRAMS, triton.cdiv(tensor.numel(), _AT_A_TIME))
        _multiply_by_kernel[(programs,)](tensor, factor, tensor.numel(), BLOCK=_AT_A_TIME)


@triton.jit
def _multiply_by_kernel(tensor, factor, size, BLOCK: tl.constexpr):
    number = tl.load(factor).to(tl.float32)
    if number != 1.0:
        for block in range(tl.program_id(0), tl.cdiv(size, BLOCK), tl.num_programs(0)):
            at = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
            product = tl.load(tensor + at, mask=at < size).to(tl.float32) * number
            tl.store(tensor + at, product.to(tensor.dtype.element_ty), mask=at < size)


def _add_product(sums: Tensor, left: Tensor, right: Tensor, beta: int) -> None:
    """Add a product of narrow matrices to sums that are wider; with a beta of 0 they hold nothing yet."""
    if sums.is_cuda and left.dtype != sums.dtype and hasattr(torch.ops.aten.addmm, "dtype_out"):
        torch.ops.aten.addmm.dtype_out(sums, left, right, sums.dtype, beta=beta, out=sums)
    else:
        sums.addmm_(left.to(sums.dtype), right.to(sums.dtype), beta=beta)


def by_kernel(logits: Tensor) -> bool:
    """Return whether a kernel works on them."""
    return logits.dtype != torch.float64 and (logits.is_cuda or _INTERPRETED)


def row_block(words: int, most: int = _MOST_WORDS) -> dict[str, int]:
    """Return how a row is walked, `most` words at once."""
    block = min(max(triton.next_power_of_2(words), 128), most)
    return {"BLOCK": block, "num_warps": max(min(block // 512, 32), 4)}
