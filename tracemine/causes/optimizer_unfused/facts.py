"""Whether an optimizer's class has a fused step."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray

# The first release in which an optimizer takes `fused=True` on CUDA; the newest that is known not to is one before.
_FUSED_STEP_SINCE = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
_USUAL = (2, 3)  # where the release is not known


def has_fused_step(torch: tuple[int, int] | None, optimizer: str | None) -> bool:
    """Return whether this torch's optimizer of that class takes `fused=True` on a GPU."""
    since = _FUSED_STEP_SINCE.get(optimizer or "")
    return since is not None and (torch or _USUAL) >= since


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether the class of any of these optimizers takes `fused=True`."""
    torch = context.environment.torch
    return {"fused_step": any(has_fused_step(torch, one.label.optimizer) for one in classes)}


FACTS = AdviceFacts(
    docs={
        "fused_step": FactDoc("the optimizer's class takes `fused=True` in the torch that a capture names, else in 2.3")
    },
    find=_facts,
)
