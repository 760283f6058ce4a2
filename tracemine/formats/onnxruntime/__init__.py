"""What ONNX Runtime's profiler writes: nodes of a model, timed on the host, and kernels where a GPU was recorded.

model.py      the optimised model: which node reads what another writes, and which nodes one node could be
runs.py       events, what of a damaged file is left, and runs of the model with the nodes and kernels of each
notes.py      what is to be said of a recording of host times
timeline.py   a timeline of all that
"""

from __future__ import annotations

import re

from tracemine.formats.format import Format, reader

_BEGINS = re.compile(rb'\A\s*\[\s*\{[^{}]*"cat"\s*:\s*"(?:Session|Node)"')
_READ = reader(f"{__name__}.timeline")
FORMAT = Format("onnxruntime", lambda head: _BEGINS.match(head) is not None, _READ, has_parts=True)
