"""The engine: rule folders in, matches out.

>>> from tracemine.matching import load_rules, mine
>>> mine({}, [rule for rule in load_rules() if rule.rows == "nothing"])
[]
"""

from tracemine.matching.load import load_rule, load_rules
from tracemine.matching.match import find, mine
from tracemine.matching.rule import Match, Matches, Rule

__all__ = ["Match", "Matches", "Rule", "find", "load_rule", "load_rules", "mine"]
