"""Blocking sync: the host waits for the GPU, and the GPU then for the host.

estimate.py  what a loop saves whose rounds can be done at once, and what waits save elsewhere
written.py   what a wait is written as in a program
waits.py     gaps behind waits that the rule's pattern does not name
"""

from collections.abc import Iterable
from itertools import chain

from tracemine.causes.cause import Cause
from tracemine.causes.host_sync.estimate import FACTS, estimate, in_rounds, of_rounds
from tracemine.causes.host_sync.waits import of_waits
from tracemine.findings.context import ScanContext
from tracemine.flow import Evidence
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, IntArray


def more(context: ScanContext, rule: Rule, named: BoolArray) -> Iterable[tuple[IntArray, Evidence]]:
    """Yield classes of gaps that go with waits and that no pattern names."""
    rounds = in_rounds(context, named)
    return chain(of_waits(context, rule, named, rounds), of_rounds(context, rounds))


CAUSE = Cause(rule="host_sync", estimate=estimate, facts=FACTS, more=more, operators_wait=True)
