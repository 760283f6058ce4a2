"""Run a reproduction without a GPU: its kernel in Triton's interpreter, eager's calls as a GPU computes them.

The interpreter is made exact and watches every access, as where tracemine validates kernels; TRITON_INTERPRET=1 must be
set before triton is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tracemine.validate import gpu_semantics, interpreter
from tracemine.validate.roundings import Mode, operator_of
from tracemine.verify.gpu.correctness import SEEDS, copies, make_inputs, right

_NARROW = (torch.bfloat16, torch.float16)
_SMALL, _LARGEST_BLOCK = 4096, 1 << 20  # elements; an interpreted program costs the same whatever its size
_PROGRAMS = 4
# Norms whose statistics a GPU keeps in float32 where the result has 16 bits.
_WIDE_STATISTICS = ("native_layer_norm", "native_batch_norm", "cudnn_batch_norm")


class LikeGpu(Mode):
    """Run calls on a CPU as a GPU computes them: in float32 on the way, and rounded to half precision once."""

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """Run one call."""
        names = [argument.name for argument in function._schema.arguments]
        arguments = dict(zip(names, given, strict=False)) | (named or {})
        if arguments.get("device") is not None:
            arguments["device"] = torch.device("cpu")
        if arguments.get("half_to_float") is True:  # a CPU's softmax does not
            arguments |= {"half_to_float": False, names[0]: arguments[names[0]].float()}
        name = operator_of(function)
        if name in gpu_semantics.STAND_INS:
            return _stood_in(name, arguments)
        base = name.removesuffix("_")
        rounds = name.startswith("_foreach_") or base in gpu_semantics.ROUNDED_ONCE
        if rounds and any(t.dtype in _NARROW for v in arguments.values() for t in _tensors(v)):
            return _rounded_once(function, arguments)
        return function(**arguments)


def _tensors(value: Any) -> list[torch.Tensor]:
    members = value if isinstance(value, list | tuple) else [value]
    return [t for t in members if isinstance(t, torch.Tensor)]


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, list | tuple):
        return [_each(member, change) for member in value]
    return change(value) if isinstance(value, torch.Tensor) else value


def _stood_in(name: str, arguments: Mapping[str, Any]) -> Any:
    given = {n: gpu_semantics.wide(v) for n, v in arguments.items()}
    found = gpu_semantics.STAND_INS[name](**given)
    for each, value in arguments.items():  # what it wrote in place
        if given[each] is not value and each.startswith("running_"):
            value.copy_(given[each])
    first, rest = _result_kinds(name, arguments)
    kinds = [first if k == 0 else rest for k in range(len(found))]
    results = [
        t.to(kind) if t is not None and kind in _NARROW and t.dtype == torch.float32 else t
        for t, kind in zip(found, kinds, strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results) if results else None


def _result_kinds(name: str, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the types that a GPU gives the first result of a call and the others; None: as they come."""
    first = next((t.dtype for v in arguments.values() for t in _tensors(v)), None)
    weight = arguments.get("weight")
    if name in _WIDE_STATISTICS:
        return first, None
    if name.endswith("_norm_backward") and isinstance(weight, torch.Tensor):
        return first, weight.dtype
    return first, first


def _rounded_once(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Run a call in float32; round its results, and what it writes, to what they are."""
    schema = function._schema
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    given = {n: _each(v, gpu_semantics.wide) for n, v in arguments.items()}
    if written:
        found = function(**given)
        for name in written:
            for old, new in zip(_tensors(arguments[name]), _tensors(given[name]), strict=True):
                if old is not new:
                    old.copy_(new)
        own = arguments[written[0]]
        return own if found is not None else None
    like = function(**{n: _each(v, lambda t: t.to("meta")) for n, v in arguments.items()})
    found = function(**given)
    if isinstance(found, torch.Tensor):
        return found.to(like.dtype)
    return [t.to(m.dtype) for t, m in zip(found, like, strict=True)]


def checked(
    eager: Callable[..., Any],
    kernels: Mapping[str, Callable[..., Any]],
    calls: Mapping[str, Callable[..., Any]],
    described: Sequence[tuple[Any, ...]],
    blocks: Mapping[str, list[tuple[int, int]]],
    ulp: float,
    draws: bool = False,
    seeds: Sequence[int] = range(SEEDS),
) -> dict[str, dict[str, Any]]:
    """Return what `right` says of each kernel and call. Of kernels it also says what they touch that they must not.

    kernels: launchers, which are interpreted; calls: of PyTorch's library. blocks: the launcher's; larger ones are
    taken for large inputs. draws: what it gives differs from run to run: it is run and watched, and not compared.
    """
    interpreter.install()  # type: ignore[no-untyped-call]
    _enlarge(blocks, described)
    seen: dict[str, dict[str, None]] = {name: {} for name in kernels}
    variants = {name: _watched(work, seen[name]) for name, work in kernels.items()}
    with LikeGpu():
        found: dict[str, dict[str, Any]] = {name: {"faults": []} for name in variants}
        with contextlib.suppress(_Raised):  # it is among the faults
            if draws:
                for work in variants.values():
                    work(*copies(make_inputs(described, device="cpu")))
            else:
                found |= right(eager, variants, described, ulp, "cpu", seeds)
        if not draws:
            for name, work in calls.items():
                try:
                    found |= right(eager, {name: work}, described, ulp, "cpu", seeds)
                except Exception as error:  # not for a CPU, or for these sizes
                    found[name] = {"faults": [], "not_tried": (str(error).splitlines() or [""])[0][:200]}
    for name, faults in seen.items():
        found[name]["faults"] = [*faults, *found[name]["faults"]]
    return found


def _enlarge(blocks: Mapping[str, list[tuple[int, int]]], described: Sequence[tuple[Any, ...]]) -> None:
    """Give a launcher larger blocks where its inputs are large, so that few programs are interpreted."""
    largest = max((t.numel() for t in make_inputs(described, device="cpu")), default=0)
    if largest > _SMALL:
        least = min(1 << (largest // _PROGRAMS).bit_length(), _LARGEST_BLOCK)
        for cuts in blocks.values():
            cuts[:] = [(max(elements, least), each) for elements, each in cuts]


class _Raised(Exception):
    """A launcher raised something."""


def _watched(work: Callable[..., Any], seen: dict[str, None]) -> Callable[..., Any]:
    """Return a launcher in the interpreter, which sees bounds, races and what is left unwritten."""

    def run(*given: torch.Tensor) -> Any:
        with _disable_current_modes(), interpreter.watching() as watch:
            watch.contracts = True
            for tensor in given:
                watch.allow(tensor)
            try:
                with _new_tensors(watch) as made:
                    found = work(*given)
            except Exception as error:
                seen.update(dict.fromkeys(f"{count} {fault}" for fault, count in watch.faults.items()))
                seen[f"it raised {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"] = None
                raise _Raised from error
            seen.update(dict.fromkeys(f"{count} {fault}" for fault, count in watch.faults.items()))
            seen.update(
                dict.fromkeys(
                    f"output {k} is not written everywhere"
                    for k, t in enumerate(found or ())
                    if any(t is new for new in made) and not watch.written(t)
                )
            )
        return found

    return run


@contextlib.contextmanager
def _new_tensors(watch: Any) -> Iterator[list[torch.Tensor]]:
    """Allocate a launcher's tensors on the CPU meanwhile, full of ones (NaN, −1, True), and watch them."""
    made: list[torch.Tensor] = []
    empty, empty_strided = torch.empty, torch.empty_strided

    def fresh(*given: Any, **named: Any) -> torch.Tensor:
        tensor = empty_strided(*given, **{**named, "device": "cpu"})
        tensor.untyped_storage().fill_(1 if tensor.dtype == torch.bool else 255)
        watch.allow(tensor)
        made.append(tensor)
        return tensor

    def on_cpu(*given: Any, **named: Any) -> torch.Tensor:
        device = named.get("device")
        return empty(*given, **{**named, "device": "cpu" if device == "cuda" else device})

    torch.empty, torch.empty_strided = on_cpu, fresh
    try:
        yield made
    finally:
        torch.empty, torch.empty_strided = empty, empty_strided
