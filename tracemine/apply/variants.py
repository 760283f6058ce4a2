"""What can be tried in a step: settings and modes, a row of variants.toml each, and source diffs.

A variant changes the process that it runs in, which has no other and ends with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import torch
from torch.utils import _pytree
from torch.utils._pytree import tree_map_only

from tracemine.apply.edits import patch
from tracemine.apply.step import Step
from tracemine.tables import table_beside

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


EDIT: Final = "edit:"


class StepVariant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change, as variants.toml has it."""

    line: str
    rules: tuple[str, ...] = ()
    group: str = ""
    usual: bool = False
    asked: bool = False
    instead: str = ""
    way: str = ""
    gpu: bool = False
    long: bool = False
    rounding: float = 0.0


VARIANTS: Final = msgspec.convert(table_beside(__file__, "variants.toml"), dict[str, StepVariant])

MODES: Final = tuple(name for name, variant in VARIANTS.items() if variant.usual and name.startswith("compile"))


def edit_name(diff: Path) -> str:
    """Return the name of the variant that is a source diff: by what it holds, so that a changed one is another."""
    return f"{EDIT}{crc32(diff.read_bytes()):08x}:{diff.absolute()}"


def diffs_of(names: Sequence[str]) -> list[Path]:
    """Return the files of those that are source diffs."""
    return [Path(name.split(":", 2)[2]) for name in names if name.startswith(EDIT)]


def kept(best: Sequence[str], source: Path) -> str:
    """Return what stays as a patch: lines of settings in front, which git passes over, and the diffs as one."""
    lines = [f"# {name}: {VARIANTS[name].line}\n" for name in best if name in VARIANTS]
    return "".join([*lines, patch(source, diffs_of(best))])


def excluded(name: str, others: tuple[str, ...]) -> bool:
    """Say whether a variant cannot be applied together with others."""
    group = VARIANTS[name].group if name in VARIANTS else ""
    return name in others or any(group and other in VARIANTS and VARIANTS[other].group == group for other in others)


def _compile(mode: str | None, step: Step) -> None:
    for module in step.modules:
        module.compile(mode=mode)
    if not step.modules:
        step.run = torch.compile(step.run, mode=mode)


def _compile_by_step(step: Step) -> None:
    """Compile with CUDA graphs, and tell them where a step begins: what they gave stays until then."""
    _compile("reduce-overhead", step)
    run = step.run

    def begun(batch: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return run(batch)

    step.run = begun


def _channels_last(step: Step) -> None:
    for module in step.modules:
        module.to(memory_format=torch.channels_last)
        module.register_forward_pre_hook(lambda module, given: tuple(map(_last, given)))


def _last(value: Any) -> Any:
    pictures = isinstance(value, torch.Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if pictures else value


def _optimizers(option: str) -> None:
    """Make every optimizer of torch take an option, where its class knows it."""
    for kind in vars(torch.optim).values():
        if inspect.isclass(kind) and option in inspect.signature(kind).parameters:
            _take(kind, option)


def _take(kind: Any, option: str) -> None:
    begin, signature = kind.__init__, inspect.signature(kind.__init__)

    def begun(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        bound.arguments.update({"foreach": None, option: True})
        begin(*bound.args, **bound.kwargs)

    begun.__signature__ = signature  # type: ignore[attr-defined]
    kind.__init__ = begun


def _gradients_to_none() -> None:
    zero = torch.optim.Optimizer.zero_grad
    torch.optim.Optimizer.zero_grad = lambda self, set_to_none=True: zero(self, set_to_none=True)


def _tf32() -> None:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True


def _autocast(step: Step) -> None:
    run, kind = step.run, "cuda" if torch.cuda.is_available() else "cpu"

    def lower(batch: Any) -> Any:
        with torch.autocast(kind, torch.bfloat16):
            return tree_map_only(
                torch.Tensor, lambda value: value.float() if value.dtype == torch.bfloat16 else value, run(batch)
            )

    step.run = lower


def _cudnn_benchmark() -> None:
    torch.backends.cudnn.benchmark = True


BEFORE: Final[Mapping[str, Callable[[], None]]] = {  # `build()` runs
    "optimizer_fused": partial(_optimizers, "fused"),
    "optimizer_foreach": partial(_optimizers, "foreach"),
    "gradients_to_none": _gradients_to_none,
    "cudnn_benchmark": _cudnn_benchmark,
    "tf32": _tf32,
}
AFTER: Final[Mapping[str, Callable[[Step], None]]] = {
    "compile": partial(_compile, None),
    "compile_reduce_overhead": partial(_compile, "reduce-overhead"),
    "compile_graphs_by_step": _compile_by_step,
    "compile_max_autotune": partial(_compile, "max-autotune"),
    "cuda_graph": graphed,
    "autocast_bfloat16": _autocast,
    "channels_last": _channels_last,
}
