"""A product in a recurrence's loop that needs nothing of the recurrence; recurrence_unfused has the columns of both."""

from tracemine.causes.cause import Cause
from tracemine.causes.small_products_apart import of_projection

CAUSE = Cause(rule="input_projection_in_loop", estimate=of_projection)
