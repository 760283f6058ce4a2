"""What ONNX Runtime's profiler writes: nodes of a model, timed on the host, and kernels where a GPU was recorded.

events.py     events, and what of a damaged file is left
model.py      the optimised model: which node reads what another writes
runs.py       runs of the model, and the nodes and kernels of each
patterns.py   nodes that one node could be
notes.py      what is to be said of a recording of host times
assemble.py   a timeline of all that
timeline.py   its reading, from the first to the last of these
read.py       how one begins
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.onnxruntime.timeline import read_recording

__all__ = ["read_recording"]

# Who reads another format needs none of it.
__getattr__ = on_demand(__name__, {"read_recording": f"{__name__}.timeline"})
