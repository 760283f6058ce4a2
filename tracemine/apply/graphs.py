"""A step that computes no gradients as one CUDA graph, else its modules: one graph for each shape of what they get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree

from tracemine.apply.step import Step

_WARM = 3


def graphed(step: Step) -> None:
    """Let CUDA graphs do a step. Raises RuntimeError, here or when the step first runs, where they cannot."""
    if not torch.cuda.is_available():
        raise RuntimeError("CUDA graphs need a GPU")
    if any(parameter.requires_grad for parameter in step.named_parameters().values()):
        if not step.modules:
            raise RuntimeError("it computes gradients, and names no modules that a graph could hold")
        for module in step.modules:
            module.forward = _ByShape(_of_module(module))
    else:
        step.run = _ByShape(_of_function(step.run))


class _ByShape:
    """A function that makes another of what it is first given of each shape."""

    def __init__(self, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._make, self._made = make, dict[Any, Callable[..., Any]]()

    def __call__(self, *given: Any) -> Any:
        leaves, tree = _pytree.tree_flatten(given)
        shapes = tuple((v.shape, v.dtype, v.stride()) if isinstance(v, torch.Tensor) else v for v in leaves)
        key = str(tree), shapes, torch.is_grad_enabled()
        if key not in self._made:
            self._made[key] = self._make(given)
        return self._made[key](*given)


def _of_function(function: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    def make(given: Any) -> Callable[..., Any]:
        leaves, tree = _pytree.tree_flatten(given)
        held = [value.clone() if isinstance(value, torch.Tensor) else value for value in leaves]
        inputs = _pytree.tree_unflatten(held, tree)
        state, side = torch.cuda.get_rng_state(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.set_rng_state(state)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = function(*inputs)

        def replay(*given: Any) -> Any:
            for mine, theirs in zip(held, _pytree.tree_leaves(given), strict=True):
                if isinstance(mine, torch.Tensor):
                    mine.copy_(theirs)
            graph.replay()
            return out

        return replay

    return make


def _of_module(module: Any) -> Callable[[Any], Callable[..., Any]]:
    forward = module.forward

    def make(given: Any) -> Callable[..., Any]:
        graphed_forward, module.forward = module.forward, forward
        kept, cached = [(buffer, buffer.clone()) for buffer in module.buffers()], torch.is_autocast_cache_enabled()
        samples = tuple(v.detach().clone().requires_grad_(v.requires_grad) for v in given)
        try:
            if not torch.is_grad_enabled():
                return _of_function(forward)(given)
            torch.set_autocast_cache_enabled(False)  # casts are captured, each where it is made
            torch.cuda.make_graphed_callables(module, samples)
            return OneCall(module.forward, module.parameters())
        finally:
            torch.set_autocast_cache_enabled(cached)
            module.forward = graphed_forward
            with torch.no_grad():
                for buffer, before in kept:
                    buffer.copy_(before)

    return make


class OneCall:
    """What `make_graphed_callables` made of a module: it holds what one call computed, and the gradients of that.

    It raises where these would be overwritten, which gives wrong gradients and no error: before they are there, and
    where they are added up, for what is added up is that memory itself.
    """

    def __init__(self, forward: Callable[..., Any], parameters: Iterable[Any]) -> None:
        self._forward, self._open, self._taken = forward, False, False
        self._parameter = next((p for p in parameters if p.requires_grad), None)

    def __call__(self, *given: Any) -> Any:
        if self._open:
            raise RuntimeError("a graph holds one call: the module is called again before its gradients are there")
        out = self._forward(*given)
        for each in _pytree.tree_leaves(out):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                self._open = True
                each.register_hook(self._gradient)
        return out

    def _gradient(self, _: Any) -> None:
        self._open = False
        held = self._parameter is not None and self._parameter.grad is not None
        if held and self._taken:
            raise RuntimeError("a graph holds the gradients of one call: here gradients are added up over calls")
        self._taken = self._taken or not held
