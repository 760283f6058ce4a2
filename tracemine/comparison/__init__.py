"""Before and after: what became of each finding from one scan of a program to the next.

difference = diff(before, after)        # two scans: fixed, improved, same, worse, new, moved, unknown
"""

from tracemine.comparison.compare import compared, diff
from tracemine.comparison.record import STATUSES, Difference, FindingChange
from tracemine.comparison.sides import side_of

__all__ = ["STATUSES", "Difference", "FindingChange", "compared", "diff", "side_of"]
