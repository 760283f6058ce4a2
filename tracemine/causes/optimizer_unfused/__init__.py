"""An optimizer that updates tensor by tensor.

columns.py   how a step is done
facts.py     whether the class has a fused step
estimate.py  one pass over lists
passes.py    what it moves
"""

from tracemine.causes.cause import Cause
from tracemine.causes.optimizer_unfused.columns import COLUMNS
from tracemine.causes.optimizer_unfused.estimate import estimate
from tracemine.causes.optimizer_unfused.facts import FACTS

CAUSE = Cause(rule="optimizer_unfused", columns=COLUMNS, facts=FACTS, savings={"one_pass": estimate}, part="optimizer")
