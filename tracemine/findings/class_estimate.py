"""The estimate of a class of matches that share everything it depends on."""

from __future__ import annotations

from msgspec import Struct

from tracemine.findings.labels import Label
from tracemine.perfmodel import NOTHING, Range, Traffic
from tracemine.rows.table import IntArray


class ClassEstimate(Struct, frozen=True, kw_only=True):
    """A class of matches that share everything an estimate depends on. Totals over them, nanoseconds."""

    matrix: IntArray  # [matches, rows of each]
    measured_ns: int
    fused_ns: Range | None = None
    gpu_saving_ns: Range
    step_saving_ns: Range  # of idle time; of GPU time it is not known yet
    traffic_bytes: Traffic | None = None
    intermediate_bytes: int | None = None
    flops: int | None = None
    assumptions: tuple[str, ...]
    evidence: str
    label: Label
    call_ns: Range = NOTHING  # what the host spends on what is called for each match, beyond an operator
