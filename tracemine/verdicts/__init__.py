"""Verdicts of verifying: their record, their levels, and stored ones read again as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.verdicts.evidence import Evidence, read_evidence

__all__ = ["Evidence", "read_evidence"]

# A scan without evidence needs none of it.
__getattr__ = on_demand(__name__, dict.fromkeys(__all__, f"{__name__}.evidence"))
