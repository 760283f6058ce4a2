"""One pass over lists in place of an optimizer's step or a loop over tensors: what it saves."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.causes.gradient_zeroing.estimate import estimate as left_out
from tracemine.causes.optimizer_unfused.facts import has_fused_step
from tracemine.causes.optimizer_unfused.passes import ListWork, step_share, step_work
from tracemine.causes.parameter_loop.passes import loop_work
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.findings.lists import Call
from tracemine.flow import Evidence
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, one_pass, share_of
from tracemine.rows.table import IntArray, category, number


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
    calls = _calls(context, members)
    work = _work(context, calls, optimizer, loop)
    if work is not None:
        traffic, alike = work.traffic, style == "lists"
        passed = one_pass(
            work.passes, traffic, measured_ns, context.curves, sure=work.sure, compiled=compiled, alike=alike
        )
        return on_gpu(context, matrix, passed, Evidence.PROVEN if work.sure else Evidence.CONSISTENT)
    if optimizer is None:
        return Abstained("bytes_unknown")
    after, before = step_share(calls, optimizer)
    share = share_of(measured_ns, after, before, context.curves, loop=matrix.shape[1] if style == "loop" else 0)
    return on_gpu(context, matrix, share, Evidence.CONSISTENT)


def _work(context: ScanContext, calls: Sequence[Call], optimizer: str | None, loop: str | None) -> ListWork | None:
    """Return what an optimizer's step, or a loop of this kind, must move."""
    if optimizer is not None:
        return step_work(context.lists, calls, optimizer)
    return None if loop is None else loop_work(context.lists, calls, loop)


def _calls(context: ScanContext, members: IntArray) -> list[Call]:
    names = [text_at(context.kernel_names, row) or "" for row in members]
    return context.lists.calls(context.facts["activities"].op_row[members], names)
