"""Patterns of the replacement table, and how they are found among a graph's terms.

A pattern is an expression: `normal * weight`, `mean(x * x, dims)`. A name that the table defines means what it is
defined as; any other binds a tensor, a number or a literal, the same wherever it stands. `either(a, b)` is the first
that fits. Sums and products commute. Casts between floating-point types are looked through.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tracemine.codegen.graph import LiteralArg, Scalar
from tracemine.verify.library.terms import RESHAPES, Operand, Term, Terms

_COMMUTE = frozenset({"add", "mul"})
_SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
_NO_RESHAPES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Binding:
    """What a pattern's names are bound to, and which terms it took: the root and what lies between it and the names."""

    tensors: Mapping[str, int] = field(default_factory=dict)  # peeled of casts
    seen: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # terms as they stood in the pattern's places
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    literals: Mapping[str, LiteralArg] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    assumed: Mapping[str, float] = field(default_factory=dict)  # numbers that are not recorded, taken to be these

    def has(self, name: str) -> bool:
        """Return whether a name is bound."""
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
        """Generate every way in which the pattern fits a term, the first alternatives first."""
        reshapes = RESHAPES if self.through else _NO_RESHAPES
        return _Match(self, terms, reshapes).term(self.tree, root, bound or Binding())


def parse(text: str) -> ast.expr:
    """Return an expression of the table.

    >>> ast.dump(parse("a + b"))
    "BinOp(left=Name(id='a', ctx=Load()), op=Add(), right=Name(id='b', ctx=Load()))"
    """
    return ast.parse(text, mode="eval").body


def names(tree: ast.AST) -> frozenset[str]:
    """Return the names in an expression that are not called.

    >>> sorted(names(parse("mean(x * x, dims) + eps")))
    ['dims', 'eps', 'x']
    """
    called = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in called)


class _Match:
    def __init__(self, pattern: Pattern, terms: Terms, reshapes: frozenset[str]) -> None:
        self.pattern, self.terms, self.reshapes = pattern, terms, reshapes

    def term(self, tree: ast.expr, number: int, bound: Binding) -> Iterator[Binding]:
        """Generate a pattern at a term."""
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
            and isinstance(operand, LiteralArg)
            and bound.literals.get(tree.id, operand) == operand
        ):
            literals = {**bound.literals, tree.id: operand}
            yield Binding(bound.tensors, bound.seen, bound.scalars, literals, bound.taken, bound.assumed)

    def _bound(self, name: str, number: int, bound: Binding) -> Iterator[Binding]:
        """Generate a name for a tensor: the same one, in whatever type, wherever it stands."""
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
    """Match a number or word of the pattern. A number that is not recorded is assumed to be it."""
    if isinstance(operand, LiteralArg) and operand.value == value:
        yield bound
    elif isinstance(operand, Scalar) and isinstance(value, int | float):
        if operand.recorded and abs(operand.value - value) <= 1e-6 * abs(value):
            yield bound
        elif not operand.recorded:
            assumed = {**bound.assumed, operand.name: float(value)}
            yield Binding(bound.tensors, bound.seen, bound.scalars, bound.literals, bound.taken, assumed)


Meaning = tuple[str, tuple[Operand, ...]]  # an operator and its operands


def meaning(term: Term) -> Meaning | None:
    """Return a term as patterns see it; None where it does what no pattern says.

    Squares are products, halves of powers are roots, and what a default says is left out.
    """
    return _MEANINGS.get(term.operator, _as_called)(term)


def _as_called(term: Term) -> Meaning | None:
    if term.output:
        return None
    kept = list(term.operands)
    while kept and kept[-1] is None:
        kept.pop()
    return term.operator, tuple(kept)


def _sum(term: Term) -> Meaning:
    self, other, alpha = (*term.operands, None)[:3]
    plain = alpha is None or (isinstance(alpha, LiteralArg) and alpha.value == 1)
    return (term.operator, (self, other)) if plain else (f"{term.operator}_times", (self, other, alpha))


def _power(term: Term) -> Meaning | None:
    base, exponent = term.operands[0], term.operands[-1]
    if len(term.operands) != 2 or not isinstance(exponent, LiteralArg):
        return _as_called(term)
    if exponent.value == 2:
        return "mul", (base, base)
    if exponent.value in (0.5, -0.5):
        return ("sqrt" if exponent.value == 0.5 else "rsqrt"), (base,)
    return "pow", (base, exponent)


def _reduced(term: Term) -> Meaning | None:
    overloads, count, keeps = _REDUCTIONS[term.operator]
    if term.overload not in overloads:
        return _as_called(term)
    keeps_axes = term.operands[keeps]
    kept = isinstance(keeps_axes, LiteralArg) and keeps_axes.value is True
    return (term.operator, term.operands[:count]) if kept else None


# Overloads over some axes; how many operands patterns see; which operand says that axes are kept.
_REDUCTIONS = {
    "mean": (("dim", "dim_IntList"), 2, 2),
    "sum": (("dim", "dim_IntList"), 2, 2),
    "var": (("correction",), 3, 3),
}


def _quotient(term: Term) -> Meaning | None:
    if len(term.operands) != 3:
        return _as_called(term)
    return ("div", term.operands[:2]) if term.operands[2] is None else None


def _product(term: Term) -> Meaning | None:
    """Match `baddbmm` with any alpha, and `addmm` without; their beta is 1."""
    *operands, beta, alpha = term.operands
    if term.operator == "baddbmm":
        return (term.operator, (*operands, alpha)) if _is_one(beta) else None
    return (term.operator, tuple(operands)) if _is_one(beta) and _is_one(alpha) else None


def _is_one(operand: Operand) -> bool:
    return operand is None or (isinstance(operand, Scalar) and operand.recorded and operand.value == 1)


_MEANINGS: Mapping[str, Callable[[Term], Meaning | None]] = {
    "add": _sum,
    "sub": _sum,
    "pow": _power,
    "square": lambda term: ("mul", (term.operands[0], term.operands[0])),
    "mean": _reduced,
    "sum": _reduced,
    "var": _reduced,
    "_softmax": lambda term: ("softmax", term.operands[:2]),
    "div": _quotient,
    "baddbmm": _product,
    "addmm": _product,
}
