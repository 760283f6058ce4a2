"""Copies between host and device that nothing overlaps.

columns.py   copies that nothing waited for
estimate.py  what of them can hide behind other work
"""

from tracemine.causes.cause import Cause
from tracemine.causes.transfer_exposed.columns import COLUMNS
from tracemine.causes.transfer_exposed.estimate import estimate

CAUSE = Cause(rule="transfer_exposed", columns=COLUMNS, savings={"hide": estimate})
