"""Convolutions around which layouts are converted.

fix.py  the same convolution on channels-last tensors
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="channels_last", fix_at=f"{__name__}.fix:FIX")
