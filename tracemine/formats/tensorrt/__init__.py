"""What TensorRT's trtexec exports of an engine: its layers, and how long each takes.

files.py      which file is what, and which lie next to it
layers.py     layers: tensors with formats, tactics, precisions
times.py      times of layers, and of whole runs
assemble.py   a timeline of both
timeline.py   its reading, from the first to the last of these
read.py       how one begins
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.tensorrt.timeline import read_recording

__all__ = ["read_recording"]

# Who reads another format needs none of it.
__getattr__ = on_demand(__name__, {"read_recording": f"{__name__}.timeline"})
