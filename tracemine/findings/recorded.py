"""Scope of a recording, and what its operators took: what a comparison of two traces must know."""

from __future__ import annotations

import numpy as np

from tracemine.findings.accounting import Accounts
from tracemine.findings.context import ScanContext
from tracemine.findings.facts import Facts
from tracemine.findings.record import Recorded, Spent
from tracemine.findings.recorder import slowdown_of
from tracemine.findings.work import made_by, work_of
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline
from tracemine.version import __version__

_MOST_NAMES = 1_000  # of operators, those that take most; programs have some hundreds
_NAME_LIMIT = 512  # characters, as of a finding's kernels


def recorded(timeline: Timeline, accounts: Accounts) -> Recorded:
    """Return what the recording has of each thing that a finding may depend on."""
    ops, meta = timeline.ops, timeline.meta
    owned = rows_of(timeline.activities["op_row"]) >= 0
    return Recorded(
        tracemine=__version__,
        torch=meta.versions.get("torch"),
        world_size=meta.world_size,
        devices=accounts.devices,
        shapes=ops["input_shapes"].null_count < ops.num_rows,
        stacks=timeline.stacks.num_rows > 0 or ops["module"].null_count < ops.num_rows,
        traced=ops["record_function_id"].null_count < ops.num_rows,
        tensors=meta.execution_trace is not None,
        operators=round(int(accounts.dur_ns[owned].sum()) / max(accounts.gpu_time_ns, 1), 4),
        cut_off=meta.ingest.truncated,
        doubts=meta.ingest.doubts,
        idle="measured" if timeline.light.num_rows else "recorded" if slowdown_of(timeline) is None else "estimated",
        unusable=meta.ingest.unusable,
    )


def spent(context: ScanContext) -> Spent:
    """Return the GPU time of each operator, and the idle time spent waiting for it: a step, or over the trace."""
    accounts, gaps = context.accounts, context.facts["gaps"]
    steps, kept = accounts.steps, accounts.in_step
    if not steps:
        kept = np.ones_like(kept)
    in_steps_ns = context.in_steps_ns
    return Spent(
        gpu_ns=_by_operator(context.facts["activities"], accounts.dur_ns, kept, max(steps, 1)),
        idle_ns=_by_operator(gaps, in_steps_ns, in_steps_ns > 0, max(steps, 1)),
        made_by=made_by(context),
        work=work_of(context),
    )


def _by_operator(facts: Facts, dur_ns: IntArray, kept: BoolArray, steps: int) -> dict[str, int]:
    """Return nanoseconds by name, most first, of equal ones by name; those without a name under ""."""
    names = [*facts.op.values, ""]
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, facts.op.codes[kept], dur_ns[kept])  # code −1: the last
    most = sorted(np.flatnonzero(sums > 0).tolist(), key=lambda code: (-int(sums[code]), names[code]))
    found: dict[str, int] = {}
    for code in most[:_MOST_NAMES]:
        if (ns := int(sums[code]) // steps) > 0:
            name = names[code][:_NAME_LIMIT]
            found[name] = found.get(name, 0) + ns
    return found
