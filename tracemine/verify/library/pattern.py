"""Patterns of the replacement table, and how they are found among a chain's terms.

A pattern is an expression: `normal * weight`, `mean(x * x, dims)`. A name that the table defines stands for what it is
defined as; any other binds a tensor, a number or a literal, the same wherever it stands. `either(a, b)` is the first
that fits. Sums and products commute. Casts between floating-point types are looked through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tracemine.codegen.graph import Literal, Scalar
from tracemine.verify.library.terms import RESHAPES, Operand, Term, Terms

_COMMUTE = frozenset({"add", "mul"})
_SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
_NO_RESHAPES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Binding:
    """What a pattern's names stand for, and which terms it took: the root and what lies between it and the names."""

    tensors: Mapping[str, int] = field(default_factory=dict)  # peeled of casts
    seen: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # terms as they stood in the pattern's places
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    literals: Mapping[str, Literal] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    assumed: Mapping[str, float] = field(default_factory=dict)  # numbers that are not recorded, taken to be these

    def has(self, name: str) -> bool:
        """Whether a name is bound."""
        return name in self.tensors or name in self.scalars or name in self.literals


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One pattern, parsed. through: whether views and copies between its operators are looked through too."""

    tree: ast.expr
    where: Mapping[str, ast.expr]
    scalars: frozenset[str]
    literals: frozenset[str]
    through: bool = False

    def at(self, terms: Terms, root: int, bound: Binding | None = None) -> Iterator[Binding]:
        """Every way in which the pattern fits a term, the first alternatives first."""
        reshapes = RESHAPES if self.through else _NO_RESHAPES
        return _Match(self, terms, reshapes).term(self.tree, root, bound or Binding())


def parse(text: str) -> ast.expr:
    """An expression of the table.

    >>> ast.dump(parse("a + b"))
    "BinOp(left=Name(id='a', ctx=Load()), op=Add(), right=Name(id='b', ctx=Load()))"
    """
    return ast.parse(text, mode="eval").body


def names(tree: ast.AST) -> frozenset[str]:
    """The names in an expression that are not called.

    >>> sorted(names(parse("mean(x * x, dims) + eps")))
    ['dims', 'eps', 'x']
    """
    called = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in called)


@dataclass(frozen=True, slots=True)
class _Match:
    pattern: Pattern
    terms: Terms
    reshapes: frozenset[str]

    def term(self, tree: ast.expr, number: int, bound: Binding) -> Iterator[Binding]:
        """A pattern at a term."""
        if isinstance(tree, ast.Name) and tree.id not in self.pattern.where:
            yield from self._bound(tree.id, number, bound)
            return
        if isinstance(tree, ast.Name):
            tree = self.pattern.where[tree.id]
        if isinstance(tree, ast.Call) and _called(tree) == "either":
            for one in tree.args:
                yield from self.term(one, number, bound)
            return
        operator, wanted = _operation(tree)
        inner = self.terms.peeled(number, self.reshapes)
        found = meaning(self.terms.terms[inner])
        if found is None or found[0] != operator or len(found[1]) != len(wanted):
            return
        taken = bound.taken | {number, inner, *self._between(number, inner)}
        grown = Binding(bound.tensors, bound.seen, bound.scalars, bound.literals, taken, bound.assumed)
        yield from self._operands(wanted, found[1], grown)
        if operator in _COMMUTE:
            yield from self._operands(wanted, (found[1][1], found[1][0], *found[1][2:]), grown)

    def _between(self, number: int, inner: int) -> Iterator[int]:
        while number != inner:
            yield number
            number = self.terms.terms[number].tensors[0]

    def _operands(self, wanted: Sequence[ast.expr], found: Sequence[Operand], bound: Binding) -> Iterator[Binding]:
        if not wanted:
            yield bound
            return
        for one in self._operand(wanted[0], found[0], bound):
            yield from self._operands(wanted[1:], found[1:], one)

    def _operand(self, tree: ast.expr, operand: Operand, bound: Binding) -> Iterator[Binding]:
        if isinstance(operand, int) and not isinstance(operand, bool):
            yield from self.term(tree, operand, bound)
        elif isinstance(tree, ast.Constant):
            yield from _constant(tree.value, operand, bound)
        elif isinstance(tree, ast.Name) and tree.id in self.pattern.scalars and isinstance(operand, Scalar):
            if bound.scalars.get(tree.id, operand) == operand:
                scalars = {**bound.scalars, tree.id: operand}
                yield Binding(bound.tensors, bound.seen, scalars, bound.literals, bound.taken, bound.assumed)
        elif (
            isinstance(tree, ast.Name)
            and tree.id in self.pattern.literals
            and isinstance(operand, Literal)
            and bound.literals.get(tree.id, operand) == operand
        ):
            literals = {**bound.literals, tree.id: operand}
            yield Binding(bound.tensors, bound.seen, bound.scalars, literals, bound.taken, bound.assumed)

    def _bound(self, name: str, number: int, bound: Binding) -> Iterator[Binding]:
        """A name for a tensor: the same one, in whatever type, wherever it stands."""
        if name in self.pattern.scalars or name in self.pattern.literals:
            return
        inner = self.terms.peeled(number)
        if bound.tensors.get(name, inner) != inner:
            return
        tensors = {**bound.tensors, name: inner}
        seen = {**bound.seen, name: (*bound.seen.get(name, ()), number)}
        yield Binding(tensors, seen, bound.scalars, bound.literals, bound.taken, bound.assumed)


def _called(tree: ast.Call) -> str:
    assert isinstance(tree.func, ast.Name)  # noqa: S101  (the table says so)
    return tree.func.id


def _operation(tree: ast.expr) -> tuple[str, Sequence[ast.expr]]:
    if isinstance(tree, ast.Call):
        return _called(tree), tree.args
    if isinstance(tree, ast.BinOp):
        return _SIGNS[type(tree.op)], (tree.left, tree.right)
    return "", ()  # a constant is no term


def _constant(value: object, operand: Operand, bound: Binding) -> Iterator[Binding]:
    """A number or a word of the pattern. A number that the trace does not tell is taken to be it, and said to be."""
    if isinstance(operand, Literal) and operand.value == value:
        yield bound
    elif isinstance(operand, Scalar) and isinstance(value, int | float):
        if operand.recorded and abs(operand.value - value) <= 1e-6 * abs(value):
            yield bound
        elif not operand.recorded:
            assumed = {**bound.assumed, operand.name: float(value)}
            yield Binding(bound.tensors, bound.seen, bound.scalars, bound.literals, bound.taken, assumed)


def meaning(term: Term) -> tuple[str, tuple[Operand, ...]] | None:
    """A term as patterns see it: an operator and its operands; None where it does what no pattern says.

    Squares are products, halves of powers are roots, and what a default says is left out.
    """
    name, given = term.operator, term.operands
    if name in ("add", "sub"):
        self, other, alpha = (*given, None)[:3]
        plain = alpha is None or (isinstance(alpha, Literal) and alpha.value == 1)
        return (name, (self, other)) if plain else (f"{name}_times", (self, other, alpha))
    if name == "pow" and len(given) == 2 and isinstance(given[1], Literal):
        return _power(given[0], given[1].value)
    if name == "square":
        return "mul", (given[0], given[0])
    if name in ("mean", "sum") and term.overload in ("dim", "dim_IntList"):
        self, dims, keeps, _ = given
        return (name, (self, dims)) if _is(keeps, True) else None
    if name == "var" and term.overload == "correction":
        self, dims, correction, keeps = given
        return (name, (self, dims, correction)) if _is(keeps, True) else None
    if name == "_softmax":
        return "softmax", given[:2]
    if name == "div" and len(given) == 3:
        return ("div", given[:2]) if given[2] is None else None
    if name == "baddbmm":
        self, left, right, beta, alpha = given
        plain = beta is None or (isinstance(beta, Scalar) and beta.recorded and beta.value == 1)
        return (name, (self, left, right, alpha)) if plain else None
    if name == "addmm":
        self, left, right, beta, alpha = given
        plain = all(v is None or (isinstance(v, Scalar) and v.recorded and v.value == 1) for v in (beta, alpha))
        return (name, (self, left, right)) if plain else None
    if term.output:
        return None
    kept = list(given)
    while kept and kept[-1] is None:
        kept.pop()
    return name, tuple(kept)


def _power(base: Operand, exponent: object) -> tuple[str, tuple[Operand, ...]]:
    if exponent == 2:
        return "mul", (base, base)
    if exponent in (0.5, -0.5):
        return ("sqrt" if exponent == 0.5 else "rsqrt"), (base,)
    return "pow", (base, Literal(exponent))  # type: ignore[arg-type]


def _is(operand: Operand, value: bool) -> bool:
    return isinstance(operand, Literal) and operand.value is value
