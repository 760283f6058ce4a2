"""A product in a recurrence's loop that needs nothing of the recurrence; recurrence_unfused has the columns of both.

estimate.py  one product for all iterations
"""

from tracemine.causes.cause import Cause
from tracemine.causes.input_projection_in_loop.estimate import estimate

CAUSE = Cause(rule="input_projection_in_loop", estimate=estimate)
