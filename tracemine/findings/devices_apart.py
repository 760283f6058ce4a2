"""The devices of a trace one by one: what is a mean of them hides one that waits for another."""

from __future__ import annotations

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.findings.context import ScanContext
from tracemine.findings.summary import DeviceTime
from tracemine.rows.arrow import rows_of


def device_times(context: ScanContext) -> tuple[DeviceTime, ...]:
    """Return how long each device was at work; nothing where only one was.

    A step's time is the mean of those steps in which the device ran anything: processes of their own have their own.
    """
    accounts, step = context.accounts, context.accounts.per_step
    if accounts.devices < 2:
        return ()
    device = rows_of(context.timeline.activities["device"])
    counts = np.ones(len(device), np.bool_) if step is None else accounts.in_step
    whole_ns = accounts.span_ns if step is None else step.span_ns
    found = []
    for ordinal in sorted_unique(device).tolist():
        own = counts & (device == ordinal)
        steps = 1 if step is None else max(len(sorted_unique(accounts.step_of[own])), 1)
        busy_ns = int(accounts.exclusive_ns[own].sum()) // steps
        idle = 1 - busy_ns / max(whole_ns, busy_ns, 1)
        found.append(DeviceTime(ordinal=ordinal, busy_ns=busy_ns, idle_share=round(idle, 4)))
    return tuple(found)
