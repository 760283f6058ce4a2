"""What a rule says and what it matched: frozen records, arrays inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from tracemine.errors import Location, UsageError
from tracemine.matching.advice import Advice
from tracemine.matching.graph_pattern import GraphPattern
from tracemine.matching.nearest import RULE_NAMES, nearest
from tracemine.matching.pattern import Pattern, variables
from tracemine.rows.table import BoolArray, ColumnDoc, IntArray

STATUSES = ("experimental", "stable", "deprecated")
SAVINGS = (
    *("fuse", "attention", "one_pass", "close_gap", "launch_less", "close_break"),
    *("pin_memory", "hide", "overlap", "remove", "reach_rate", "batch", "norm", "rebuild"),
)
IDLE_SAVINGS = frozenset({"close_gap", "launch_less"})  # of the device's idle time, wherever it lies
# What is called once a fix is made, and what that leaves of the host's work.
CALLS: Final = {
    "compiled": "a compiled function, or a kernel of one's own: the host spends more on it than on an operator",
    "operator": "one operator of a library",
    "iteration": "a compiled function once an iteration of a loop: no launch is known to go, and each call costs",
    "each": "as many operators as before: no launch goes",
    "loop": "one operator for all iterations of a loop, which the host does not go through any more",
    "step": "one operator for all matches of a step, such as a fused optimizer",
    "module": "one compiled module for all of a match: nothing of what the host did between its launches is done",
    "nothing": "nothing: what was matched is not launched any more",
}
GROUP_BY = ("ops", "shapes", "dtype", "module", "source", "line")
SKIP_PAST_LAST_ROW = "skip past last row"
SKIP_TO_NEXT_ROW = "skip to next row"
AFTER_MATCH = (SKIP_PAST_LAST_ROW, SKIP_TO_NEXT_ROW)
MEASURE_FUNCTIONS = ("count", "sum", "min", "max", "first", "last")

Value = str | int | float | bool
Measured = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class ColumnTest(Struct, frozen=True):
    """One test on one column. `is` and `contains` hold where any of `values` does; the others have one value.

    A test on a null never holds.
    """

    column: str
    relation: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        relation = {"lt": "<", "lte": "≤", "gt": ">", "gte": "≥", "re": "matches"}.get(self.relation, self.relation)
        return f"{self.column} {relation} {' or '.join(_text(value) for value in self.values)}"


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Measure(Struct, frozen=True):
    """One number a match: a function over the rows bound to variables; `column` is None for count."""

    name: str
    function: str
    variables: tuple[str, ...]
    column: str | None


class Rule(Struct, frozen=True, kw_only=True):
    """One folder of rules/, read and checked."""

    id: str
    title: str
    task: str | None = None  # what to do about it, as a ticket's title begins; None: its title does
    status: str
    what: str
    why: str
    fix: str
    limits: tuple[str, ...] = ()
    false_positives: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    producers: tuple[str, ...] = ("torch",)  # of PRODUCERS: whose recordings it is looked for in
    rows: str
    priority: int
    saving: str
    group_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...]
    pattern: Pattern | None  # over rows in order; None: there is only `match`
    after_match: str
    define: dict[str, tuple[ColumnTest, ...]]
    measures: tuple[Measure, ...]
    where: Location  # of rule.toml
    call: str = "compiled"  # one of CALLS, where an advice does not say otherwise
    # Low, mid, high share of its time that "remove" leaves, and "fuse" where one kernel saves less than that.
    left: tuple[float, float, float] | None = None
    # Over dataflow, an earlier one first; `pattern` is used where dataflow is not known
    match: tuple[GraphPattern, ...] = ()
    # Of a graph's match what has one of these labels or variables stays as it is: it is not what is found
    stays: tuple[str, ...] = ()
    docs: tuple[ColumnDoc, ...] = ()  # columns that its rows have
    advice: tuple[Advice, ...] = ()  # in place of `fix`: the first whose conditions hold
    unprofiled_gte_ns: int = 0  # of gaps: the least that a match lasts once nothing records it

    @property
    def folder(self) -> Path:
        """The folder that holds rule.toml and cases.md."""
        return Path(self.where.path).parent

    @property
    def evidence(self) -> str | None:
        """The column that tells how sure the matches are; None: nothing but what was recorded makes them."""
        return next((doc.evidence for doc in self.docs if doc.evidence and doc.name in self.partition_by), None)

    @property
    def overlapping_matches(self) -> bool:
        """Whether the search goes on at the row after a match's first, not after its last."""
        return self.after_match == SKIP_TO_NEXT_ROW

    @property
    def row_define(self) -> dict[str, tuple[ColumnTest, ...]]:
        """The variables of the row pattern, in define's order."""
        used = () if self.pattern is None else variables(self.pattern.tree)
        return {name: tests for name, tests in self.define.items() if name in used}

    @property
    def variables(self) -> tuple[str, ...]:
        """What can bind a row: the row pattern's variables, then those of the graph pattern."""
        return tuple(dict.fromkeys([*self.row_define, *(name for each in self.match for name in each.variables)]))

    @property
    def found(self) -> tuple[str, ...]:
        """The variables that a case of cases.md can expect: those of which not every label stays."""
        vertices = (vertex for each in self.match for vertex in each.vertices.items())
        staying = {*self.stays, *(name for name, labels in vertices if set(labels) <= set(self.stays))}
        return tuple(name for name in self.variables if name not in staying)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every row-set column that the rule reads."""
        tested = [test.column for tests in self.define.values() for test in tests]
        measured = [measure.column for measure in self.measures if measure.column is not None]
        return tuple(dict.fromkeys([*self.partition_by, *self.order_by, *tested, *measured]))


class Match(Struct, frozen=True):
    """One match, for reading: row-set rows in match order and the variable that bound each."""

    rows: tuple[int, ...]
    variables: tuple[str, ...]


class Matches(Struct, frozen=True, eq=False):
    """All matches of one rule, in order of partition and then of order_by.

    Match i covers row-set rows rows[offsets[i]:offsets[i + 1]] in match order; `variables` has, for each row, the
    position in `rule.variables` of the variable that bound it. `measures` has one number a match; where `unknown` names
    the measure, it also says for which matches the number is null (a value was not recorded, or no row was bound); the
    measure is 0 there.
    """

    rule: Rule
    rows: IntArray  # [offsets[n]]
    offsets: IntArray  # [n + 1]
    variables: npt.NDArray[np.uint8]  # [offsets[n]]
    measures: dict[str, Measured] = field(default_factory=dict)
    unknown: dict[str, BoolArray] = field(default_factory=dict)
    left_out: int = 0  # rows that were not looked at: a partition_by or order_by column is null, too many ways lead on
    # flow.Evidence of the weakest edge that each match rests on, −1 where it rests on none; None: no match does
    evidence: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> Match:
        if not -len(self) <= number < len(self):
            raise IndexError(f"match {number} of {len(self)}")
        number %= len(self)
        span = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        names = self.rule.variables
        return Match(
            tuple(self.rows[span].tolist()), tuple(names[variable] for variable in self.variables[span].tolist())
        )

    def only(self, kept: BoolArray) -> Matches:
        """Return these matches without those that are not kept; the latter count as no one's."""
        rows = np.repeat(kept, np.diff(self.offsets))
        return replace(
            self,
            rows=self.rows[rows],
            offsets=np.r_[0, np.cumsum(np.diff(self.offsets)[kept])],
            variables=self.variables[rows],
            measures={name: values[kept] for name, values in self.measures.items()},
            unknown={name: values[kept] for name, values in self.unknown.items()},
            evidence=None if self.evidence is None else self.evidence[kept],
        )

    def __iter__(self) -> Iterator[Match]:
        """Return one record a match: for reports and tests. Work on the arrays where there are many."""
        return (self[number] for number in range(len(self)))


def selected(rules: Sequence[Rule], only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Rule, ...]:
    """Return the rules that `only` names, all where it is empty, without those that `skip` names; names or patterns.

    Raises UsageError for a name that is no rule's, a pattern that fits none, and where nothing is left.

    >>> from tracemine.causes import load_rules
    >>> [rule.id for rule in selected(load_rules(), ["host_*", "launch_gap"], ["host_stall"])]
    ['host_sync', 'launch_gap']
    """
    wanted = _fitting(rules, only, "--rule") if only else {rule.id for rule in rules}
    left = wanted - _fitting(rules, skip, "--skip")
    if not left:
        raise UsageError("--skip: no rule is left to look for", hint=RULE_NAMES)
    return tuple(rule for rule in rules if rule.id in left)


def of_producer(rules: Sequence[Rule], producer: str) -> tuple[Rule, ...]:
    """Return the rules that hold for recordings of a producer, one of PRODUCERS.

    >>> from tracemine.causes import load_rules
    >>> any(rule.id == "optimizer_unfused" for rule in of_producer(load_rules(), "xla"))
    False
    """
    return tuple(rule for rule in rules if producer in rule.producers)


def _fitting(rules: Sequence[Rule], patterns: Sequence[str], option: str) -> set[str]:
    ids = [rule.id for rule in rules]
    fitting: set[str] = set()
    for pattern in patterns:
        named = {name for name in ids if fnmatchcase(name, pattern)}
        if not named:
            raise UsageError(f"{option}: there is no rule {pattern[:100]!a}", hint=nearest(pattern, ids, RULE_NAMES))
        fitting |= named
    return fitting
