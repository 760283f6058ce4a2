"""Gradients as large as a table of which few rows were looked up, and the optimizer's way over all rows.

columns.py   such tables' gradients and updates
estimate.py  gradients of the rows that were looked up
"""

from tracemine.causes.cause import Cause
from tracemine.causes.embedding_gradient_dense.columns import COLUMNS
from tracemine.causes.embedding_gradient_dense.estimate import FACTS, estimate

CAUSE = Cause(rule="embedding_gradient_dense", columns=COLUMNS, estimate=estimate, facts=FACTS, part="optimizer")
