"""Databases of rocprofv3 (rocpd), AMD's profiler of a whole process: kernels, copies, calls of HIP and roctx ranges."""

from __future__ import annotations

from tracemine.formats.format import Format, reader
from tracemine.formats.nsys.read import is_database

FORMAT = Format("rocpd", lambda head: is_database(head) and b"rocpd_" in head, reader(f"{__name__}.database"))
