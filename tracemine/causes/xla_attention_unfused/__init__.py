"""What XLA could have compiled otherwise: attention in separate kernels, and all rules of compiled modules.

reading.py   the instructions of a module: what each computes, takes and gives
detect.py    patterns among them
columns.py   which activities are part of which, and what is left of them
estimate.py  what that saves
"""

from tracemine.causes.cause import Cause
from tracemine.causes.xla_attention_unfused.columns import COLUMNS
from tracemine.causes.xla_attention_unfused.estimate import FACTS, estimate

CAUSE = Cause(rule="xla_attention_unfused", columns=COLUMNS, savings={"rebuild": estimate}, facts=FACTS)
