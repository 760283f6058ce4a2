"""Guarded memory: new tensors are poisoned and fenced, copies keep what lies around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tracemine.ops.infer import TensorSpec
from tracemine.validate import trials


class Torch:
    """Replace `torch` inside a generated source: new tensors are poisoned, fenced and watched."""

    def __init__(self) -> None:
        self.made: list[torch.Tensor] = []
        self.watch: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, size: Any, *, device: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Make what a launcher without inputs asks for its device: here there is none. Meta tensors are as torch's."""
        return torch.empty(size, dtype=dtype, device="meta" if device == "meta" else "cpu")

    def empty_strided(
        self, shape: Sequence[int], strides: Sequence[int], *, dtype: torch.dtype, device: Any
    ) -> torch.Tensor:
        """Make a tensor as torch.empty_strided does."""
        tensor = trials.placed(TensorSpec(tuple(shape), str(dtype).removeprefix("torch."), tuple(strides)))
        self.made.append(tensor)
        self.watch.allow(tensor)
        return tensor


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor and the memory around it."""
    memory = trials.zones(tensor).clone()
    return memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def fenced(tensor: torch.Tensor) -> bool:
    """Return whether the zones on either side are as they were made."""
    bytes_ = trials.zones(tensor)
    poison = 1 if tensor.dtype == torch.bool else 255
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
    begin = tensor.storage_offset() * tensor.element_size()
    end = begin + reach * tensor.element_size()
    return bool((bytes_[:begin] == poison).all()) and bool((bytes_[end:] == poison).all())
