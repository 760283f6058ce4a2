"""The engine: rule folders in, matches out.

>>> from tracemine.engine import load_rules, mine
>>> mine({}, [rule for rule in load_rules() if rule.rows == "nothing"])
[]
"""

from tracemine.engine.load import load_rule, load_rules
from tracemine.engine.match import find, mine
from tracemine.engine.rule import Match, Matches, Rule

__all__ = ["Match", "Matches", "Rule", "find", "load_rule", "load_rules", "mine"]
