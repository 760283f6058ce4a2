"""Databases of rocprofv3 (rocpd), AMD's profiler of a whole process: kernels, copies, calls of HIP and roctx ranges.

schema.py    the tables and columns that are read
database.py  a database as the tables that `formats/nsys/assemble.py` makes a timeline of
timeline.py  its timeline
read.py      how a file begins
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.rocpd.timeline import read_recording

__all__ = ["read_recording"]

# Who reads another format needs none of it.
__getattr__ = on_demand(__name__, {"read_recording": f"{__name__}.timeline"})
