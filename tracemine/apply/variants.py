"""What can be tried in a step: settings and modes, a row of variants.toml each, and source diffs.

A variant changes the process that it runs in, which has no other and ends with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec
import torch
from torch.utils._pytree import tree_map_only

from tracemine.apply.edits import patch
from tracemine.apply.graphs import graphed
from tracemine.apply.step import Step
from tracemine.tables import table_beside

if TYPE_CHECKING:
    from tracemine.findings.record import Finding

EDIT: Final = "edit:"
_MOST: Final = 0.98  # of a step: something stays, however much findings add up to

Shares = tuple[float, float, float]
"""Of the step: least, likely, most."""
Wanted = dict[str, Mapping[str, Shares | None]]
"""Variants to try; by the fingerprint of each finding that asks for one, the share of the step that it is to save."""


class StepVariant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change, as variants.toml has it."""

    line: str
    rules: tuple[str, ...] = ()
    group: str = ""
    usual: bool = False
    asked: bool = False
    instead: str = ""
    gpu: bool = False
    long: bool = False
    rounding: float = 0.0


VARIANTS: Final = msgspec.convert(table_beside(__file__, "variants.toml"), dict[str, StepVariant])


MODES: Final = tuple(name for name, variant in VARIANTS.items() if variant.usual and name.startswith("compile"))


def asked_for(findings: Sequence[Finding], named: Sequence[str] = ()) -> Wanted:
    """Return what is to be tried: what is named; else torch.compile's modes and what findings ask for."""
    wanted: Wanted = {}
    for name, variant in VARIANTS.items():
        asking = shares_of(findings, variant.rules)
        unasked = not named and not variant.asked and not variant.instead and (variant.usual or asking)
        if name in named or unasked:
            wanted[name] = asking
    return wanted


def shares_of(findings: Sequence[Finding], rules: Sequence[str]) -> dict[str, Shares | None]:
    """Return, of findings of some rules or fingerprints, the share of the step that each is to save."""
    from tracemine.findings.grouping import variants_of  # children that apply a variant need none of it

    asking = [f for f in findings if f.rule in rules or any(len(r) >= 4 and f.fingerprint.startswith(r) for r in rules)]
    return {variants_of(finding)[0].fingerprint: _shares(finding) for finding in asking}  # what verdicts name


def _shares(finding: Finding) -> Shares | None:
    step = finding.per_step
    if step is None or not step.step_saving_ns.mid:
        return None
    scale = step.share_of_unprofiled / step.step_saving_ns.mid
    low, middle, high = (
        value * scale for value in (step.step_saving_ns.low, step.step_saving_ns.mid, step.step_saving_ns.high)
    )
    return low, middle, high


def predicted(wanted: Wanted, names: Sequence[str]) -> dict[str, Any]:
    """Return what findings say that variants save together, as fields of `Tried`: each finding once."""
    asking = {print_: shares for name in names for print_, shares in wanted.get(name, {}).items()}
    known = [shares for shares in asking.values() if shares]
    sums = [round(min(sum(values), _MOST), 4) for values in zip(*known, strict=True)] or [None] * 3
    low, middle, high = sums
    return {"findings": tuple(asking), "predicted": middle, "predicted_low": low, "predicted_high": high}


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
