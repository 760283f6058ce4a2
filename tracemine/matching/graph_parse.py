"""Parse a graph pattern."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from tracemine.matching.graph_pattern import (
    COLUMNS,
    MOST_WAYS,
    Comparison,
    GraphPattern,
    Group,
    Operand,
    SameInput,
    Segment,
    Test,
)
from tracemine.matching.pattern import PatternError
from tracemine.patterns import deferred

MOST_NODES: Final = 32  # nodes that one match can have


def connected(segments: Sequence[Segment], start: str) -> set[str]:
    """Return the vertices that paths lead to from one.

    >>> connected([Segment("a", (), True, "b"), Segment("c", (), True, "d")], "b") == {"a", "b"}
    True
    """
    reached, grew = {start}, True
    while grew:
        grew = False
        for segment in segments:
            ends = {end for end in (segment.first, segment.last) if end is not None}
            if ends & reached and not ends <= reached:
                reached |= ends
                grew = True
    return reached


MOST_REPEATED: Final = 8  # the largest m in {n,m}
KEYWORDS: Final = ("IS", "WHERE", "AND", "ONLY", "READER", "SAME", "INPUT")
_TOKEN = deferred(
    r"\s*(?:(?P<edge>-\[\s*\w*\s*\]->|<-\[\s*\w*\s*\]-)|(?P<count>\{[^}]*\}?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>-?\d{1,18})|(?P<text>'[^']*'?)|(?P<compare><>|<=|>=|=|<|>)|(?P<mark>[(),:|.\[\]]))"
)
_COUNT = deferred(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}")
_HINTS: Final = {
    "OR": "tests are joined by AND; what may be either is two labels, (a IS x|y)",
    "NOT": "tests are joined by AND and say what holds: use <>",
    "EXISTS": "a path that need not be there has a count, {0,1}",
    "OPTIONAL": "a path that need not be there has a count, {0,1}",
    "MATCH": "the key says so already",
}
_WRITE = "write (a IS label)-[reads]->(b IS label), … WHERE … ONLY READER (a)"


def _check(pattern: GraphPattern) -> None:
    if not pattern.segments:
        raise PatternError("one node alone is no graph pattern", "name operators by a row pattern: the key `pattern`")
    for segment in pattern.segments:
        ways = sum(1 for _ in segment.ways())
        if ways > MOST_WAYS:
            raise PatternError(
                f"the counts behind {segment.first!r} make {ways:,} ways; at most {MOST_WAYS} are offered",
                "lower the bounds, or give a node in between a name",
            )
    nodes = len(pattern.vertices) + sum(group.high for group in pattern.groups)
    if nodes > MOST_NODES:
        raise PatternError(f"a match could have {nodes} nodes; at most {MOST_NODES} are offered", "lower the bounds")
    first, *others = pattern.vertices
    reached = connected(pattern.segments, first)
    for name in others:
        if name not in reached:
            raise PatternError(
                f"no path leads from {first!r} to {name!r}: each could be anywhere",
                "paths are joined by a variable that both name",
            )


def parse_graph(text: str, labels: Collection[str]) -> GraphPattern:
    """Return the checked pattern of a text. Raises PatternError naming line and column.

    labels: those that can be asked for; `(a)` alone means `(a IS a)` where there is a label of that name.

    >>> found = parse_graph("(gelu)-[reads]->{0,2}(:cast)-[reads]->(mm IS gemm)", ["gelu", "cast", "gemm"])
    >>> found.variables, found.segments[0].groups[0].high
    (('gelu', 'mm', 'cast'), 2)
    """
    pattern = _Parser(text, labels).parse()
    _check(pattern)
    return pattern


class _Parser:
    def __init__(self, text: str, labels: Collection[str]) -> None:
        self.text = text
        self.labels = labels
        self.vertices: dict[str, tuple[str, ...]] = {}
        self.group_names: set[str] = set()
        self.tokens = list(self._tokens())
        self.at = 0

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        at, end = 0, len(self.text.rstrip())
        while at < end:
            found = _TOKEN.match(self.text, at)
            if found is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                raise PatternError(f"{self._place(at)}: {self.text[at]!r} means nothing in a graph pattern", _WRITE)
            kind = str(found.lastgroup)
            yield kind, found[kind], found.start(kind)
            at = found.end()
        yield "end", "", end

    def _place(self, at: int) -> str:
        line, column = self.text.count("\n", 0, at) + 1, at - (self.text.rfind("\n", 0, at) + 1) + 1
        return f"line {line}, column {column}" if "\n" in self.text.strip() else f"column {column}"

    def _wrong(self, message: str, hint: str | None = None, at: int | None = None) -> PatternError:
        return PatternError(f"{self._place(self.tokens[self.at][2] if at is None else at)}: {message}", hint)

    @property
    def _next(self) -> str:
        return self.tokens[self.at][1]

    def _take(self, *wanted: str) -> bool:
        """Return steps over these tokens where they come next."""
        if [text for _, text, _ in self.tokens[self.at : self.at + len(wanted)]] != list(wanted):
            return False
        self.at += len(wanted)
        return True

    def _need(self, wanted: str, what: str) -> None:
        if not self._take(wanted):
            raise self._unexpected(f"{wanted!r} {what}")

    def _unexpected(self, wanted: str) -> PatternError:
        found = repr(self._next) if self._next else "the end"
        return self._wrong(f"{found} stands where {wanted} is expected", _HINTS.get(self._next.upper(), _WRITE))

    def _name(self, what: str) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind != "name" or text in KEYWORDS:
            raise self._unexpected(what)
        self.at += 1
        return text

    # --- the grammar -------------------------------------------------------------------------------------------------

    def parse(self) -> GraphPattern:
        segments = self._path()
        while self._take(","):
            segments += self._path()
        where: list[Test] = []
        if self._take("WHERE"):
            where.append(self._test())
            while self._take("AND"):
                where.append(self._test())
        only_reader = self._names() if self._take("ONLY", "READER") else ()
        if self._next:
            raise self._unexpected("',', WHERE, AND, ONLY READER or the end")
        return GraphPattern(self.text, self.vertices, tuple(segments), tuple(where), only_reader)

    def _path(self) -> list[Segment]:
        first = self._vertex()
        groups: list[Group] = []
        segments: list[Segment] = []
        while self.tokens[self.at][0] == "edge":
            reads = self._edge()
            if self.tokens[self.at][0] == "count":
                low, high = self._count()
                groups.append(self._group(reads, low, high))
                continue
            last = self._vertex()
            segments.append(Segment(first, tuple(groups), reads, last))
            first, groups = last, []
        if groups:
            segments.append(Segment(first, tuple(groups), True, None))
        return segments

    def _edge(self) -> bool:
        _, text, _ = self.tokens[self.at]
        label = re.sub(r"\W", "", text)
        if label != "reads":
            raise self._wrong(
                f"there is no edge {label!r}" if label else "this edge has no label", "the edge is [reads]"
            )
        self.at += 1
        return text.startswith("-")

    def _count(self) -> tuple[int, int]:
        _, text, _ = self.tokens[self.at]
        found = _COUNT.fullmatch(text)
        if found is None:
            raise self._wrong(f"{text!r} is not a count", "write {n} or {n,m} with integers")
        if found[2] and not found[3]:
            raise self._wrong(f"{text!r} has no bound", f"write {{n,m}} with m of at most {MOST_REPEATED}")
        low, high = int(found[1]), int(found[3] or found[1])
        if high < max(low, 1):
            raise self._wrong(f"{text!r} allows no node", "write {n,m} with n ≤ m and m ≥ 1")
        if high > MOST_REPEATED:
            raise self._wrong(f"{text!r} counts beyond {MOST_REPEATED}", "what lies further apart is no one's match")
        self.at += 1
        return low, high

    def _vertex(self) -> str:
        self._need("(", "of a node")
        at = self.tokens[self.at][2]
        name = self._name("a variable")
        labels = self._labels()
        self._need(")", "of a node")
        if name in self.group_names:
            raise self._wrong(f"{name!r} is bound to several nodes already", "give this node a name of its own", at)
        if name in self.vertices:
            if labels:
                raise self._wrong(
                    f"the labels of {name!r} are said twice", f"write ({name}) from the second time on", at
                )
            return name
        self.vertices[name] = labels or self._own_label(name, at)
        return name

    def _group(self, reads: bool, low: int, high: int) -> Group:
        self._need("(", "of the nodes that are counted")
        at = self.tokens[self.at][2]
        name = None if self._next == ":" else self._name("a variable or ':'")
        labels = self._labels()
        self._need(")", "of the nodes that are counted")
        if name is None:
            return Group(None, labels, reads, low, high)
        if name in self.vertices or name in self.group_names:
            raise self._wrong(
                f"{name!r} is another node already", "nodes that are counted have a name of their own", at
            )
        self.group_names.add(name)
        return Group(name, labels or self._own_label(name, at), reads, low, high)

    def _labels(self) -> tuple[str, ...]:
        if not (self._take("IS") or self._take(":")):
            return ()
        found = [self._label()]
        while self._take("|"):
            found.append(self._label())
        return tuple(found)

    def _label(self) -> str:
        at = self.tokens[self.at][2]
        label = self._name("a label")
        if label not in self.labels:
            hint = f"define names: {', '.join(self.labels)}" if self.labels else "add a [define] table"
            raise self._wrong(f"define does not name {label!r}", hint, at)
        return label

    def _own_label(self, name: str, at: int) -> tuple[str, ...]:
        if name not in self.labels:
            hint = f"write ({name} IS label); define names: {', '.join(self.labels)}"
            raise self._wrong(f"what {name!r} is, is not said", hint, at)
        return (name,)

    def _names(self) -> tuple[str, ...]:
        self._need("(", "before variables")
        found = [self._variable(groups=True)]
        while self._take(","):
            found.append(self._variable(groups=True))
        self._need(")", "behind variables")
        return tuple(dict.fromkeys(found))

    def _variable(self, *, groups: bool = False) -> str:
        at = self.tokens[self.at][2]
        name = self._name("a variable")
        if name in self.group_names and not groups:
            raise self._wrong(f"{name!r} may be several nodes, or none: a test asks of one", None, at)
        if name not in self.vertices and name not in self.group_names:
            raise self._wrong(f"no node is called {name!r}", f"there are: {', '.join(self.vertices)}", at)
        return name

    def _test(self) -> Test:
        if self._take("SAME", "INPUT"):
            self._need("(", "before two variables")
            one = self._variable()
            self._need(",", "between two variables")
            other = self._variable()
            self._need(")", "behind two variables")
            return SameInput(one, other)
        at = self.tokens[self.at][2]
        left = self._operand()
        kind, sign, _ = self.tokens[self.at]
        if kind != "compare":
            raise self._unexpected("a comparison")
        self.at += 1
        right = self._operand()
        if left.kind != right.kind:
            raise self._wrong(f"{left} is a {left.kind} and {right} a {right.kind}", None, at)
        if left.kind != "number" and sign not in ("=", "<>"):
            raise self._wrong(f"{left} has no order: {sign!r} does not compare it", "use = or <>", at)
        if left.name is None and right.name is None:
            raise self._wrong("this test asks nothing of a node", None, at)
        return Comparison(left, sign, right)

    def _operand(self) -> Operand:
        kind, text, at = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return Operand(None, "", None, int(text))
        if kind == "text":
            if len(text) < 2 or not text.endswith("'"):
                raise self._wrong("this text does not end", "write 'text'")
            self.at += 1
            return Operand(None, "", None, text[1:-1])
        name = self._variable()
        self._need(".", "before a column")
        column = self._name("a column")
        if column not in COLUMNS:
            raise self._wrong(f"a node has no column {column!r}", f"there are: {', '.join(COLUMNS)}", at)
        index = None
        if self._take("["):
            kind, digits, _ = self.tokens[self.at]
            if kind != "number" or abs(int(digits)) > MOST_WAYS:
                raise self._unexpected("an index")
            if COLUMNS[column] != "shape":
                raise self._wrong(f"{column} is one value, without an index", None, at)
            self.at += 1
            self._need("]", "behind an index")
            index = int(digits)
        return Operand(name, column, index, None)
