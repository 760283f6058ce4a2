"""What can be tried in a step: settings and modes, a row of variants.toml each, and source diffs.

A variant changes the process that it runs in, which has no other and ends with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import torch
from torch.utils._pytree import tree_map_only

from tracemine.apply.edits import patch
from tracemine.apply.graphs import graphed
from tracemine.apply.step import Step
from tracemine.tables import table_beside

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
