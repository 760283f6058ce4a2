"""An optimizer that updates tensor by tensor.

passes.py    what it moves
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.causes.gradient_zeroing import estimate as left_out
from tracemine.causes.optimizer_unfused.passes import ListWork, step_share, step_work
from tracemine.causes.parameter_loop.passes import loop_work
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.findings.lists import ListedCall
from tracemine.flow import Evidence
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate, one_pass, share_of
from tracemine.rows.activities import written_out
from tracemine.rows.arrow import coded
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, IntArray, Rows, Sources, category, flags, number

STYLES: Final = ("fused", "compiled", "other", "lists", "loop", "own")
_FUSED, _COMPILED, _OTHER, _LISTS, _LOOP, _OWN = range(len(STYLES))
# What an update is made of that one kernel a list of parameters can do. Norms of whole layers need a pass of their own.
_POINTWISE: Final = ("pointwise", "foreach", "copy", "fill")
_HOST_BYTES = 4096  # copied between host and device in a step: more is a state that lies on the host


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    own = written_out(sources.timeline)
    return {"update_style": coded(STYLES, _styles(activities, number(activities, "update", -1), own))}


def _styles(activities: Rows, update: IntArray, own: BoolArray) -> IntArray:
    """Return how the step that each activity belongs to is done; −1: it belongs to none. own: those that code of the
    program's own launched.
    """
    inside = np.flatnonzero(update >= 0)
    _, of = np.unique(update[inside], return_inverse=True)
    if not len(inside):
        return np.full(len(update), -1, np.int64)
    op_class, moved = category(activities, "op_class"), number(activities, "bytes_moved", -1)
    copies = category(activities, "copy_kind").among("HtoD", "DtoH") & (moved > _HOST_BYTES)
    fused = op_class.among("optimizer") | flags(activities, "handwritten")
    compiled = flags(activities, "compiled") | flags(activities, "generated") | flags(activities, "graph")
    other = copies | ~(op_class.among(*_POINTWISE) | fused | compiled)
    lists = np.where(op_class.among("foreach"), 2, -2) * number(activities, "dur_ns", -1) + 1

    def any_of(flags: BoolArray) -> BoolArray:
        return np.bincount(of, flags[inside]) > 0

    style = np.where(np.bincount(of, lists[inside]) > 0, _LISTS, np.where(any_of(~own), _LOOP, _OWN))
    for has, name in ((other, _OTHER), (compiled, _COMPILED), (fused, _FUSED)):
        style[any_of(has)] = name
    found = np.full(len(update), -1, np.int64)
    found[inside] = style[of]
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("update_style", "categories", "how that step is done: `fused` (a fused optimizer's kernels, or another library's), `compiled` (by torch.compile, or replayed from a CUDA graph), `other` (something else than pointwise operators, copies and fills is part of it: products, norms, collectives, sparse rows, a state on the host), `lists` (most of its time in `_foreach_*`), `loop` (a parameter at a time), `own` (likewise, by code of the program's own)", "in no optimizer's step, or no operators were recorded"),
    ),
    derive=_columns,
)  # fmt: skip

# The first release in which an optimizer takes `fused=True` on CUDA; the newest that is known not to is one before.
_FUSED_STEP_SINCE = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
_USUAL = (2, 3)  # where the release is not known
_MANY: Final = 8  # optimizers in one step: parts of a model have a few


def has_fused_step(torch: tuple[int, int] | None, optimizer: str | None) -> bool:
    """Return whether this torch's optimizer of that class takes `fused=True` on a GPU."""
    since = _FUSED_STEP_SINCE.get(optimizer or "")
    return since is not None and (torch or _USUAL) >= since


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether the class of any of these optimizers takes `fused=True`, and whether many step in one step."""
    torch = context.environment.torch
    return {
        "fused_step": any(has_fused_step(torch, one.label.optimizer) for one in classes),
        "many_optimizers": any(len(_at_once(context, rule, one.matrix)) > 1 for one in classes),
    }


def _at_once(context: ScanContext, rule: Rule, matrix: IntArray) -> IntArray:
    """Return the matches that one optimizer would do together: of a step where many have one of their own, else one."""
    if rule.id != "optimizer_unfused":
        return matrix[:1]
    step = number(context.rows[rule.rows], "segment", -1)[matrix[:, 0]]
    alike = matrix[(step == step[-1]) & (step > 0)]
    return alike if len(alike) >= _MANY else matrix[:1]


FACTS = AdviceFacts(
    docs={
        "fused_step": FactDoc(
            "the optimizer's class takes `fused=True` in the torch that a capture names, else in 2.3"
        ),
        "many_optimizers": FactDoc(
            f"{_MANY} optimizers or more of one kind step in one step, as where each tensor has its own"
        ),
    },
    find=_facts,
)


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one pass over lists in place of an optimizer's step or a loop over tensors."""
    rows, members = context.rows["activities"], matrix[0]
    measured_ns = float(context.facts["activities"].dur_ns[matrix].sum(axis=1).mean())
    loop = text_at(category(rows, "sweep_kind"), members[0])
    optimizer = text_at(context.facts["activities"].optimizer, members[0]) if loop is None else None
    style = text_at(category(rows, "update_style"), members[0])
    compiled = optimizer is not None and not has_fused_step(context.environment.torch, optimizer)
    if compiled and style == "lists" and rule.call == "operator":  # lists are what PyTorch has for this class
        return Abstained("no_fused_step")
    if number(rows, "zeroing", null=-1)[members[0]] >= 0:
        return left_out(context, rule, matrix)
    if matrix.shape[1] < 2:
        return Abstained("nothing_to_win")
    together = _at_once(context, rule, matrix)
    calls = _calls(context, together.reshape(-1))
    work = _work(context, calls, optimizer, loop)
    if work is not None:
        traffic, alike = work.traffic, style == "lists"
        spent = measured_ns * len(together)
        passed = one_pass(work.passes, traffic, spent, context.curves, sure=work.sure, compiled=compiled, alike=alike)
        if not isinstance(passed, Abstained) and len(together) > 1:
            passed = Estimate(after_ns=passed.after_ns // len(together), assumptions=passed.assumptions)
        return on_gpu(context, matrix, passed, Evidence.PROVEN if work.sure else Evidence.CONSISTENT)
    if optimizer is None:
        return Abstained("bytes_unknown")
    after, before = step_share(calls, optimizer)
    share = share_of(measured_ns, after, before, context.curves, loop=matrix.shape[1] if style == "loop" else 0)
    return on_gpu(context, matrix, share, Evidence.CONSISTENT)


def _work(
    context: ScanContext, calls: Sequence[ListedCall], optimizer: str | None, loop: str | None
) -> ListWork | None:
    """Return what an optimizer's step, or a loop of this kind, must move."""
    if optimizer is not None:
        return step_work(context.lists, calls, optimizer)
    return None if loop is None else loop_work(context.lists, calls, loop)


def _calls(context: ScanContext, members: IntArray) -> list[ListedCall]:
    names = [text_at(context.kernel_names, row) or "" for row in members]
    return context.lists.calls(context.facts["activities"].op_row[members], names)


CAUSE = Cause(rule="optimizer_unfused", columns=COLUMNS, facts=FACTS, savings={"one_pass": estimate}, part="optimizer")
