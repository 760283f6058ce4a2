"""A graph as terms: what each value holds, in operators and inputs alone, whatever was written in place on the way.

A term is one tensor. Equal terms are one, lists are taken apart (`_foreach_add_` of n members is n additions), and a
call in place gives a new term: so a pattern is matched against what is computed, not against how it was spelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Refs, Scalar, Scalars, mutated
from tracemine.ops import lookup
from tracemine.ops.facts import keeping_values
from tracemine.ops.infer import TensorSpec

INPUT = "input"
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# What keeps elements, their order and their values: another shape, or other memory.
RESHAPES = keeping_values("in_order", "copied")
_ORDERED = keeping_values("in_order")

Operand = int | tuple[int | None, ...] | Scalar | tuple[Scalar, ...] | LiteralArg | None


class Opaque(Exception):
    """A graph that is not said in terms; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Term:
    """One tensor. `operands`: a value for each argument of the schema, tensors by the numbers of their terms."""

    operator: str  # without namespace, list prefix and the mark of what writes in place; `input`: from outside
    overload: str
    operands: tuple[Operand, ...]
    output: int  # which of the call's results; of an input, its number
    spec: TensorSpec

    @property
    def tensors(self) -> tuple[int, ...]:
        """Return the terms that it reads."""
        found: list[int] = []
        for operand in self.operands:
            members = operand if isinstance(operand, tuple) else (operand,)
            found.extend(m for m in members if isinstance(m, int))
        return tuple(found)

    @property
    def is_cast(self) -> bool:
        """Return whether it is another term in another floating-point type."""
        return self.operator in ("_to_copy", "to") and self.spec.dtype in _FLOATS


class Terms:
    """All terms of a graph, each after what it reads; inputs first."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.terms: list[Term] = []
        self.live: tuple[int | None, ...] = ()  # the term of each live value; None: let go of
        self.written: dict[int, int] = {}  # input: the term that it holds in the end
        self.listed = False  # whether any call took lists
        self._known: dict[Term, int] = {}

    def add(self, term: Term) -> int:
        """Return the number of a term."""
        found = self._known.setdefault(term, len(self.terms))
        if found == len(self.terms):
            self.terms.append(term)
        return found

    def peeled(self, number: int, through: frozenset[str] = frozenset()) -> int:
        """Return the term below casts between floating-point types, and below operators in `through`."""
        term = self.terms[number]
        while (term.is_cast and (self.terms[term.tensors[0]].spec.dtype in _FLOATS)) or term.operator in through:
            number = term.tensors[0]
            term = self.terms[number]
        return number

    def casts(self, number: int) -> list[int]:
        """Return all terms that are this one, peeled of casts, in some type; itself first."""
        return [number, *(k for k, t in enumerate(self.terms) if t.is_cast and self.peeled(k) == number)]


def terms(graph: Graph) -> Terms:
    """Return the terms of a graph. Raises Opaque where what a value holds does not follow.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("in_place")
    >>> x, y = b.input("x", (4,), "float32"), b.input("y", (4,), "float32")
    >>> b.call("aten::mul_.Tensor", x, y)
    Ref(value=2)
    >>> found = terms(b.done())
    >>> found.terms[found.written[0]].operator
    'mul'
    """
    making = _Making(Terms(graph))
    for number, entry in enumerate(graph.inputs):
        making.give(making.all.add(Term(INPUT, "", (), number, entry.spec)))
    for call in graph.calls:
        making.call(call)
    making.all.live = tuple(making.now(v) for v in graph.live)
    making.all.written = {v: making.now(v) for v in graph.written}
    return making.all


def _check_followed(call: GraphCall) -> None:
    """Raise Opaque where what a call computes, or where it writes it, does not follow from its arguments."""
    schema = call.schema
    if schema.op_class == "random":
        raise Opaque(f"{call.label} draws random numbers")
    if schema.overwrites or (schema.mutates and not call.operator.endswith("_")):
        raise Opaque(f"{call.label} writes into what it was given")
    if schema.mutates and schema.mutates != (0,):
        raise Opaque(f"{call.label} writes several of its arguments")


class _Making:
    """Values hold cells; what is written in place changes its cell, and that of the tensor which it is a view of."""

    def __init__(self, all: Terms) -> None:
        self.all = all
        self.cells: list[int] = []  # of a value
        self.held: list[int | None] = []  # of a cell: its term; None where that does not follow
        self.bases: list[int] = []  # of a cell: the one whose memory it lies in
        self.whole: list[bool] = []  # of a cell: whether it is all of that memory, in its order

    def give(self, term: int, base: int | None = None, whole: bool = True) -> None:
        """Add a value with a cell of its own."""
        self.cells.append(len(self.held))
        self.bases.append(len(self.held) if base is None else base)
        self.whole.append(whole)
        self.held.append(term)

    def now(self, value: int) -> int:
        """Return what a value holds."""
        term = self.held[self.cells[value]]
        if term is None:
            raise Opaque("a tensor is written in place and read in another layout")
        return term

    def call(self, call: GraphCall) -> None:
        """Follow one call of the graph."""
        _check_followed(call)
        name = call.operator.removeprefix("aten::")
        if name.startswith("_foreach_"):
            self._list(call, name.removeprefix("_foreach_"))
            return
        operands = tuple(self._operand(v) for v in call.arguments)
        if call.schema.mutates:
            self._in_place(call, self._functional(call, name), operands)
            return
        for output, spec in enumerate(call.outputs):
            term = self.all.add(Term(name, call.overload, operands, output, spec))
            source = self._viewed(call, output)
            base = None if source is None else self.bases[source]
            self.give(term, base, source is None or (name in _ORDERED and self.whole[source]))

    def _operand(self, value: object, member: int | None = None) -> Operand:
        """Return an argument; of lists, one member where it is asked for."""
        if isinstance(value, Ref):
            return self.now(value.value)
        if isinstance(value, Refs):
            found = tuple(None if v is None else self.now(v) for v in value.values)
            return found if member is None else found[member]
        if isinstance(value, Scalars):
            return value.values if member is None else value.values[member]
        if isinstance(value, Scalar | LiteralArg):
            return value
        return None

    def _functional(self, call: GraphCall, name: str) -> str:
        """Return the operator that gives what another writes in place."""
        found = lookup("aten::" + name.rstrip("_"))
        same = [o for o in found.overloads if o.name == call.overload and not o.mutates] if found is not None else []
        if not same or [a.name for a in same[0].arguments] != [a.name for a in call.schema.arguments]:
            raise Opaque(f"{call.label} has no form that is not in place")
        return name.rstrip("_")

    def _in_place(self, call: GraphCall, name: str, operands: tuple[Operand, ...]) -> None:
        (value,) = mutated(call)
        spec = self.all.terms[self.now(value)].spec
        self._write(value, self.all.add(Term(name, call.overload, operands, 0, spec)))
        self.cells.extend([self.cells[value]] * len(call.outputs))  # what it returns is what it wrote

    def _write(self, value: int, term: int) -> None:
        cell = self.cells[value]
        base = self.bases[cell]
        before = self.held[base]
        if base != cell and base < len(self.all.graph.inputs):
            raise Opaque("an input is written through a view")
        for other, its in enumerate(self.bases):
            if its == base and other != cell:
                self.held[other] = None
        if base != cell and self.whole[cell] and before is not None:
            shape = self.all.terms[before].spec
            back = Term("view", "", (term, LiteralArg(shape.shape)), 0, shape)
            self.held[base] = self.all.add(back)
        self.held[cell] = term

    def _viewed(self, call: GraphCall, output: int) -> int | None:
        """Return the cell in whose memory a result may lie."""
        place = call.schema.aliases[output] if output < len(call.schema.aliases) else None
        given = call.arguments[place] if place is not None else None
        return self.cells[given.value] if isinstance(given, Ref) else None

    def _list(self, call: GraphCall, name: str) -> None:
        self.all.listed = True
        first = next(v for v in call.arguments if isinstance(v, Refs))
        plain = name.rstrip("_")
        for member, value in enumerate(first.values):
            if value is None:
                raise Opaque(f"{call.label} takes a list with gaps")
            operands = tuple(self._operand(v, member) for v in call.arguments)
            if call.schema.mutates:
                spec = self.all.terms[self.now(value)].spec
                self._write(value, self.all.add(Term(plain, call.overload, operands, 0, spec)))
            else:
                self.give(self.all.add(Term(plain, call.overload, operands, 0, call.outputs[member])))
        if call.schema.mutates and call.outputs:
            raise Opaque(f"{call.label} gives back what it writes")
