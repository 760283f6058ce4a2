"""What reports draw of a trace besides its findings: activities by stream, dataflow of findings, a roofline.

picture(timeline, …)  → Picture
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tracemine.devices import Device
from tracemine.findings.context import Cause
from tracemine.findings.record import Scan
from tracemine.flow.record import Flow
from tracemine.report.picture.activities import Activities, activities_of
from tracemine.report.picture.dataflow import DataflowPicture, dataflow_of
from tracemine.report.picture.roofline import Roofline, roofline_of
from tracemine.rows.table import Rows
from tracemine.timeline import Timeline

__all__ = ["Activities", "DataflowPicture", "Picture", "Roofline", "picture"]


class Picture(Struct, frozen=True, kw_only=True, eq=False):
    """What is drawn of a trace that its findings do not hold."""

    activities: Activities
    dataflow: Mapping[str, DataflowPicture]  # of a finding's first occurrence, by fingerprint; missing: not known
    roofline: Roofline | None  # None: the GPU is not known
    sources: Mapping[str, str] = field(default_factory=dict)  # generated code by fingerprint of a variant


def picture(
    timeline: Timeline,
    dataflow: Flow,
    rows: Mapping[str, Rows],
    device: Device | None,
    scan: Scan,
    sources: Mapping[str, str] | None = None,
    causes: Sequence[Cause] = (),
) -> Picture:
    """Return what is drawn of a trace. device: the one of estimates. sources: code that verdicts came with. causes: of
    the scan.
    """
    return Picture(
        activities=activities_of(timeline, rows["activities"], scan, causes),
        dataflow=dataflow_of(timeline, dataflow, scan.findings),
        roofline=None if device is None else roofline_of(timeline, rows["activities"], device, scan),
        sources=sources or {},
    )
