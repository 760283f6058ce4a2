"""What reports draw of a trace besides its findings: activities, the host, dataflow, a roofline, where the time goes.

picture(timeline, …)  → Picture
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tracemine.devices import Device
from tracemine.findings.context import Cause
from tracemine.findings.record import Scan, Source
from tracemine.flow.record import Flow
from tracemine.report.picture.activities import Activities, activities_of
from tracemine.report.picture.dataflow import DataflowPicture, dataflow_of
from tracemine.report.picture.host import HostLane, host_lanes
from tracemine.report.picture.roofline import Roofline, roofline_of
from tracemine.rows.table import IntArray, Rows
from tracemine.timeline import Timeline
from tracemine.top import Top, Tops

__all__ = ["Activities", "DataflowPicture", "HostLane", "Picture", "Roofline", "picture"]


class Picture(Struct, frozen=True, kw_only=True, eq=False):
    """What is drawn of a trace that its findings do not hold."""

    activities: Activities
    dataflow: Mapping[str, DataflowPicture]  # of a finding's first occurrence, by fingerprint; missing: not known
    roofline: Roofline | None  # None: the GPU is not known
    sources: Mapping[str, str] = field(default_factory=dict)  # generated code by fingerprint of a variant
    name: str = ""  # of the trace or the capture; "": what its path says
    host: tuple[HostLane, ...] = ()
    tops: Mapping[str, Top] = field(default_factory=dict)  # where the time goes, by what it is added up by
    asked: Tops | None = None  # other tables of the same trace, made when they are asked for
    frames: Mapping[str, Source] = field(default_factory=dict)  # the user's own, of findings that hold none


def picture(
    timeline: Timeline,
    dataflow: Flow,
    rows: Mapping[str, Rows],
    device: Device | None,
    scan: Scan,
    causes: Sequence[Cause] = (),
    step_of: IntArray | None = None,
) -> Picture:
    """Return what is drawn of a trace. device: the one of estimates. causes: of the scan. step_of: of each activity."""
    activities = activities_of(timeline, rows["activities"], scan, causes, step_of)
    return Picture(
        activities=activities,
        dataflow=dataflow_of(timeline, dataflow, scan.findings),
        roofline=None if device is None else roofline_of(timeline, rows["activities"], device, scan),
        host=host_lanes(timeline, activities.begin_ns),
    )
