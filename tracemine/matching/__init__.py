"""The engine: rule folders in, matches out.

>>> from tracemine.matching import mine
>>> mine({}, ())  # row sets, and rules as `tracemine.causes.load_rules` gives them
[]
"""

from tracemine.matching.match import find, mine
from tracemine.matching.rule import Matches, Rule

__all__ = ["Matches", "Rule", "find", "mine"]
