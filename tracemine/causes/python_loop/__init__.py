"""A loop in Python whose iterations one call could do.

kinds.py     what a loop goes over, by what its body calls and what its iterations have to do with each other
columns.py   the kind of each loop
estimate.py  one call of each operator for all iterations, or one of a library's for the whole
facts.py     what advice asks of a loop
"""

from tracemine.causes.cause import Cause
from tracemine.causes.python_loop.columns import COLUMNS
from tracemine.causes.python_loop.estimate import estimate
from tracemine.causes.python_loop.facts import FACTS

CAUSE = Cause(rule="python_loop", columns=COLUMNS, estimate=estimate, facts=FACTS)
