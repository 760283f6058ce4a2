"""Launch-bound steps: the GPU waits for the host to launch the next kernel.

estimate.py   what fewer launches save
recurrent.py  recurrent cells called once a position
"""

from tracemine.causes.cause import Cause
from tracemine.causes.launch_gap.estimate import FACTS, estimate

CAUSE = Cause(rule="launch_gap", savings={"launch_less": estimate}, facts=FACTS, closed_by_graph=True)
