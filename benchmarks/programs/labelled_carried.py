"""Labelled programs that carry a result from step to step or from call to call, each beside one that keeps its memory.

A CUDA graph writes into the same memory each time. What a later step reads is stale if it was made anew, and right if
it is written where the graph reads it. None of them is slow for another reason.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
LAYERS = 6


def weights(width: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(width, width, dtype=dtype) / width**0.5 for _ in range(LAYERS)]


def state_returned(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    """A filter that goes on from what its last step gave."""
    layers, state = weights(width, dtype), torch.randn(rows, width, dtype=dtype)

    def onwards(state: Tensor) -> Tensor:
        for weight in layers:  # near: python_loop
            state = torch.tanh(state @ weight)
        return state

    function = wrap(onwards)

    def step() -> Tensor:
        nonlocal state
        state = function(state)
        return state

    return Built(step)


class Kept(nn.Module):
    """The same, in a buffer that is written in place."""

    def __init__(self, rows: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in weights(width, dtype))
        self.register_buffer("state", torch.randn(rows, width, dtype=dtype))

    def forward(self) -> Tensor:
        state = self.state
        for weight in self.layers:  # near: python_loop
            state = torch.tanh(state @ weight)
        self.state.copy_(state)
        return state + 1


def state_in_buffer(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    return Built(wrap(Kept(rows, width, dtype)))


def errors_watched(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    """The mean of the last errors beside each step's own; the input of each step is another one."""
    layers, given = weights(width, dtype), torch.randn(rows, width, dtype=dtype)
    errors = [torch.zeros(()) for _ in range(4)]

    def one(x: Tensor) -> Tensor:
        for weight in layers:  # near: python_loop
            x = F.silu(x @ weight)
        return x.float().square().mean()

    function = wrap(one)

    def step() -> Tensor:
        nonlocal errors
        given.mul_(1.25)
        errors = [*errors[1:], function(given)]
        return torch.stack(errors).mean()  # near: host_sync

    return Built(step)


def hidden_between(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    """Each call goes on from the last one's result, and each step from the start."""
    layers, start = weights(width, dtype), torch.randn(rows, width, dtype=dtype)

    def one(state: Tensor) -> Tensor:
        for weight in layers:  # near: python_loop
            state = torch.tanh(state @ weight)
        return state

    function = wrap(one)

    def step() -> Tensor:
        state = start
        for _ in range(4):  # near: recurrence_unfused
            state = function(state)
        return state + 1

    return Built(step)


class Room(nn.Module):
    """Rows of a cache of fixed size, each written in its turn."""

    def __init__(self, rows: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in weights(width, dtype))
        self.register_buffer("cache", torch.zeros(8, rows, width, dtype=dtype))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        for weight in self.layers:  # near: python_loop
            x = torch.tanh(x @ weight)
        self.cache.index_copy_(0, at, x[None])
        return self.cache.mean(0)


def cache_fixed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    given, places = torch.randn(8, rows, width, dtype=dtype), [torch.full((1,), at) for at in range(8)]
    module = wrap(Room(rows, width, dtype))

    def step() -> Tensor:
        for x, at in zip(given, places, strict=True):  # near: cache_grown
            said = module(x, at).mean()
        return said + 1

    return Built(step)


def given_back(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, rows: int = 256, width: int = 512
) -> Built:
    """A step whose result nobody reads later."""
    layers, x = weights(width, dtype), torch.randn(rows, width, dtype=dtype)

    def one(x: Tensor) -> Tensor:
        for weight in layers:  # near: python_loop
            x = torch.tanh(x @ weight)
        return x

    function = wrap(one)
    return Built(lambda: function(x) + 1)


SMALL = {"rows": 4, "width": 16}
_READ = "a later step reads a result"
CARRIED = (
    Labelled(state_returned, "carried", SMALL, Expected(capture=_READ, graphs=_READ), tolerance=5e-2),
    Labelled(state_in_buffer, "carried", SMALL, tolerance=5e-2),
    Labelled(errors_watched, "carried", SMALL, Expected(capture=_READ, graphs=_READ), tolerance=5e-2),
    Labelled(hidden_between, "carried", SMALL, Expected(graphs="the next call reads a result"), tolerance=5e-2),
    Labelled(cache_fixed, "carried", SMALL, tolerance=5e-2),
    Labelled(given_back, "carried", SMALL, tolerance=5e-2),
)
