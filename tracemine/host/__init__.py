"""What the host does in each step: every nanosecond once, in the innermost call that was recorded around it.

nested.py    which event of a thread is the innermost at each moment
kinds.py     what kind of work an event is: an operator, a launch, a wait …
leading.py   which thread's events count at each moment of a step
paths.py     the Python function that leads to what is in no call
segments.py  the record: segments that add up to the steps exactly
waits.py     places where the host waits for the device: what it does there, and what that costs
made.py      tensors that the host makes before it copies them
uses.py      what the value that a wait fetches is used for
"""

from tracemine.host.kinds import KINDS, SOMETIMES, Kind, unseen
from tracemine.host.segments import HostTime, host_time, whole_span

__all__ = ["KINDS", "SOMETIMES", "HostTime", "Kind", "host_time", "unseen", "whole_span"]
