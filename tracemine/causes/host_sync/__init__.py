"""Blocking sync: the host waits for the GPU, and the GPU then for the host.

estimate.py  what a loop saves whose rounds can be done at once, and what waits save elsewhere
written.py   what a wait is written as in a program
waits.py     gaps behind waits that the rule's pattern does not name
"""

from tracemine.causes.cause import Cause
from tracemine.causes.host_sync.estimate import FACTS, estimate
from tracemine.causes.host_sync.waits import of_waits

CAUSE = Cause(rule="host_sync", estimate=estimate, facts=FACTS, more=of_waits)
