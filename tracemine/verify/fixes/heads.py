"""A head over a vocabulary and what is made of its logits, by the functions that compute it in strips of rows.

Which call is which follows from the graph: products of what comes from outside are heads, products of what is computed
take gradients. Whether the strips compute the same, whoever runs them checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracemine.codegen.graph import Graph, GraphCall, reads
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import line, names_of, plain, producers, signature

_PRODUCTS: Final = frozenset({"aten::mm", "aten::addmm"})
_SHAPED: Final = frozenset(
    f"aten::{name}"
    for name in ("view", "_unsafe_view", "reshape", "permute", "t", "transpose", "unsqueeze", "squeeze", "expand")
)
SAME: Final = _SHAPED | {"aten::_to_copy", "aten::detach", "aten::alias", "aten::clone"}
_MADE: Final = SAME | {"aten::full", "aten::zeros", "aten::new_zeros", "aten::ones_like", "aten::fill_", "aten::zero_"}


@dataclass(frozen=True, slots=True)
class Head:
    """A product over a vocabulary: what it multiplies, its bias, and the call."""

    number: int
    hidden: int
    weight: int  # as it is multiplied: transposed
    bias: int | None


class HeadGraph:
    """A graph's heads, and the products that take their gradients."""

    def __init__(self, graph: Graph, makers: Mapping[int, int]) -> None:
        self.graph, self.makers = graph, makers
        self.heads: list[Head] = []
        self.gradients: list[int] = []  # numbers of calls

    def call(self, value: int) -> GraphCall | None:
        """Return what makes a value; None: it comes from outside."""
        return self.graph.calls[self.makers[value]] if value in self.makers else None

    def root(self, value: int, through: Collection[str] = SAME) -> int:
        """Return what a value is a view or a copy of."""
        while (call := self.call(value)) is not None and call.operator in through and reads(call):
            value = reads(call)[0]
        return value

    def outside(self, value: int) -> bool:
        """Return whether a value comes from outside, as it is or in another shape or type."""
        return self.call(self.root(value)) is None

    def of(self, operator: str) -> list[tuple[int, GraphCall]]:
        """Return calls of an operator, with their numbers."""
        return [(n, call) for n, call in enumerate(self.graph.calls) if call.operator == f"aten::{operator}"]

    def one(self, operator: str) -> tuple[int, GraphCall]:
        """Return the only call of an operator. Raises NoFixedForm."""
        found = self.of(operator)
        if len(found) != 1:
            raise NoFixedForm(f"it has {len(found) or 'no'} calls of {operator}")
        return found[0]

    def head_of(self, value: int, through: Collection[str] = SAME) -> Head:
        """Return the head whose logits a value holds. Raises NoFixedForm where they are changed on the way."""
        logits = self.root(value, through)
        head = next((each for each in self.heads if self.graph.first_output(each.number) == logits), None)
        if head is None:
            call = self.call(logits)
            raise NoFixedForm(f"{'what is no product' if call is None else call.label} stands before the loss")
        return head

    def expect(self, operators: Collection[str]) -> None:
        """Raise NoFixedForm where there are other calls than products, views, zeros and these."""
        known = {f"aten::{name}" for name in operators} | _PRODUCTS | _MADE
        other = next((call.label for call in self.graph.calls if call.operator not in known), None)
        if other is not None:
            raise NoFixedForm(f"{other} is no part of it that is known")

    def moderate(self, head: Head) -> dict[int, object]:
        """Return what a head's operands hold: of large logits roundings choose which word has all the weight."""
        return self.bound(head.hidden, "moderate") | self.bound(head.weight, "moderate")

    def bound(self, value: int, holds: object) -> dict[int, object]:
        """Return what an input holds, where a value is that input in another shape."""
        root = self.root(value)
        return {root: holds} if self.call(root) is None else {}


def head_graph(graph: Graph) -> HeadGraph:
    """Return a graph with its heads, and its products of gradients. Raises NoFixedForm."""
    found = HeadGraph(graph, producers(graph))
    for number, call in enumerate(graph.calls):
        if call.operator not in _PRODUCTS:
            continue
        *bias, left, right = reads(call)
        factors = [call.given().get(name) for name in ("alpha", "beta")]
        if any(factor is not None and plain(factor) != 1 for factor in factors):
            raise NoFixedForm("its product is scaled")
        if all(found.outside(v) for v in (left, right)):
            found.heads.append(Head(number, left, right, bias[0] if bias else None))
        else:
            found.gradients.append(number)
    if not found.heads:
        raise NoFixedForm("no product of it is a head's: of a misaligned one that is the finding")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What a head's fixed form calls. Texts name values of the graph by `{v4}`."""

    head: Head
    function: str
    text: str  # of `hidden`, `weight` and `bias`
    results: Mapping[int, str]  # values of the graph, in terms of `made`
    upstream: int | None = None  # the value that is the gradient of what it gives
    shaped: str = ""  # how that becomes as large
    needs: Sequence[int] = ()  # values that the text names
    holds: Mapping[int, object] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()


def in_strips(graph: Graph, around: Around, core_of: Callable[[HeadGraph], Core]) -> Fixed:
    """Return a graph with one head's loss, or what else `core_of` makes of it, in strips. Raises NoFixedForm."""
    if graph.written:
        raise NoFixedForm("it writes in place")
    found = head_graph(graph)
    core = core_of(found)
    writing = _Writing(found, core)
    trained = bool(found.gradients)
    if trained and core.upstream is None:
        raise NoFixedForm("where its gradient comes from is not known")
    body = writing.body(trained, around.unread)
    return Fixed(
        own={"in strips": f'"{core.function}, of which a strip of the logits is in memory", call=fixed'},
        source="\n".join([signature(graph), "    aten = torch.ops.aten", *body]),
        uses=(core.function,),
        holds={**found.moderate(core.head), **core.holds},
        assumptions=core.assumptions,
    )


class _Writing:
    """The fixed form in the making: names of values that are there, and lines."""

    def __init__(self, found: HeadGraph, core: Core) -> None:
        self.found, self.core = found, core
        self.names: dict[int, str] = {}
        self.lines: list[str] = []

    def body(self, trained: bool, unread: Collection[int]) -> list[str]:
        """Return the function's lines."""
        graph, head, core = self.found.graph, self.core.head, self.core
        self.names = names_of(graph)
        upstream = core.upstream if trained else None
        optional = [value for value in (head.bias, upstream) if value is not None]
        self._need([head.hidden, head.weight, *optional, *core.needs])
        self._call(upstream)
        self.names |= {**core.results, **(self._gradients() if trained else {})}
        self._need([value for value in graph.live if value not in unread])
        results = ", ".join("None" if value in unread else self.names[value] for value in graph.live)
        return [*self.lines, f"    return ({results},)"]

    def _call(self, upstream: int | None) -> None:
        """Add the lines that call the function, and its gradient where what it is multiplied by is known."""
        head, core = self.core.head, self.core
        given = {"hidden": self.names[head.hidden], "weight": f"{self.names[head.weight]}.t()"}
        given |= {} if head.bias is None else {"bias": self.names[head.bias]}
        wants = "" if upstream is None else ".requires_grad_()"
        self.lines += [f"    {name} = {text}.detach(){wants}" for name, text in given.items()]
        call = core.text.format(**{f"v{value}": name for value, name in self.names.items()})
        self.lines.append(f"    made = {core.function}({call})")
        if upstream is not None:
            targets, leaves = ", ".join(f"of_{name}" for name in given), ", ".join(given)
            gradient = f"{self.names[upstream]}{core.shaped}.to(made.dtype)"
            self.lines.append(f"    {targets} = torch.autograd.grad(made, ({leaves}), {gradient})")
        self.lines.append("    made = made.detach()")

    def _need(self, values: Sequence[int]) -> None:
        """Add the lines that compute values of what is there. Raises NoFixedForm where that is not possible."""
        graph, makers = self.found.graph, self.found.makers
        todo, numbers = [v for v in values if v not in self.names], set[int]()
        while todo:
            value = todo.pop()
            call = self.found.call(value)
            if call is None or call.operator not in _MADE:
                what = "a tensor" if call is None else call.label
                raise NoFixedForm(f"what {what} gives is read apart from the loss and its gradients")
            if makers[value] not in numbers:
                numbers.add(makers[value])
                todo += [v for v in reads(call) if v not in self.names]
        self.lines += [line(graph, number, self.names) for number in sorted(numbers)]

    def _gradients(self) -> dict[int, str]:
        """Return which values are gradients of the head's operands."""
        found, head, names = self.found, self.core.head, dict[int, str]()
        graph = found.graph
        hidden, weight = found.root(head.hidden), found.root(head.weight)
        for number in found.gradients:
            left, right = reads(graph.calls[number])[-2:]
            value = graph.first_output(number)
            if found.root(right) == weight:
                names[value] = "of_hidden"
            elif found.root(right) == hidden:
                names[value] = "of_weight"
            elif found.root(left) == hidden:
                names[value] = "of_weight.t()"
            else:
                raise NoFixedForm("a product takes the gradient of something else")
        for number, call in found.of("sum"):
            value, of = graph.first_output(number), reads(call)[0]
            words = graph.specs[of].shape[-1]
            if head.bias is not None and value not in names and graph.specs[value].elements == words:
                names[value] = f"of_bias.reshape({graph.specs[value].shape!r})"
        return names
