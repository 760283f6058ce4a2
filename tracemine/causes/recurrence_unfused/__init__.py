"""A recurrence that a loop computes operator by operator, and one call of a library could.

cells.py     what an iteration computes: a cell that a library has, or a scan
columns.py   which activities are part of which, and as what
estimate.py  the library's call, or the scan, and which one
"""

from tracemine.causes.cause import Cause
from tracemine.causes.recurrence_unfused.columns import COLUMNS
from tracemine.causes.recurrence_unfused.estimate import FACTS, estimate

CAUSE = Cause(rule="recurrence_unfused", columns=COLUMNS, estimate=estimate, facts=FACTS)
