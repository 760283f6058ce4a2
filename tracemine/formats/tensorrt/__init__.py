"""What TensorRT's trtexec exports of an engine: its layers, and how long each takes.

files.py      which file is what, and which lie next to it
timeline.py   layers, times of whole runs, and a timeline of both
"""

from __future__ import annotations

from tracemine.formats.format import Format, reader
from tracemine.formats.tensorrt.files import export_of

FORMAT = Format("tensorrt", lambda head: export_of(head) is not None, reader(f"{__name__}.timeline"), has_parts=True)
