"""Convolutions around which layouts are converted.

columns.py  layouts converted, and undone
fix.py      the same convolution on channels-last tensors
"""

from tracemine.causes.cause import Cause
from tracemine.causes.channels_last.columns import COLUMNS

CAUSE = Cause(
    rule="channels_last",
    columns=COLUMNS,
    compiled_share=1.0,  # of two convolutional networks, on an H200 (benchmarks/programs/graphs.py)
    fix_at=f"{__name__}.fix:FIX",
)
