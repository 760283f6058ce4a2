"""Can a recording be trusted, what is missing in it, and how to record it right: `tracemine doctor`.

check_up(timeline, scan)   a Checkup, from what reading and scanning found out already
render(checkup, width)     the same on one screen

`having` says what was recorded and what a missing thing costs, `doubts` what distorts it, `code` how to record it.
"""

from tracemine.doctor.checkup import check_up
from tracemine.doctor.record import CHECKUP_SCHEMA_VERSION, Checkup, Doubt, Holding
from tracemine.doctor.text import render

__all__ = ["CHECKUP_SCHEMA_VERSION", "Checkup", "Doubt", "Holding", "check_up", "render"]
