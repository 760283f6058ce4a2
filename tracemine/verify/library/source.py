"""The function `library`: calls of the library, eager ones around them, in an order that computes before it reads."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Refs, Scalar, Scalars, Value
from tracemine.ops import itemsize
from tracemine.verify.library.checks import axes, heads, together
from tracemine.verify.library.pattern import Binding, names, parse
from tracemine.verify.library.table import Row
from tracemine.verify.library.terms import INPUT, RESHAPES, Operand, Term, Terms
from tracemine.verify.repro.eager import arguments_text, number_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A row of the table that fits at a term. call: its text, with the pattern's names."""

    row: Row
    call: str
    bound: Binding
    root: int
    dtype: str  # that the call computes in
    reads: Mapping[str, int]  # the term that each name is bound to in the call
    # of attention: what has its last two axes exchanged, besides what the call takes
    turned: frozenset[str] = frozenset()


def pick(row: Row, call: str, bound: Binding, root: int, terms: Terms) -> Pick | None:
    """Return a match made ready to be written; None where its tensors' dtypes have no widest."""
    tree = parse(call)
    summed = {n for node in ast.walk(tree) if isinstance(node, ast.BinOp) for n in names(node)}
    kinds = {str(terms.terms[root].spec.dtype)}
    for name, number in bound.tensors.items():
        stood = bound.seen[name][0] if name in summed else number  # a sum keeps the type that the graph has for it
        kinds.add(str(terms.terms[stood].spec.dtype))
    widest = max(itemsize(kind) or 0 for kind in kinds)
    found = [kind for kind in kinds if itemsize(kind) == widest]
    if len(found) > 1:
        return None
    reads = {
        name: next((k for k in terms.casts(number) if terms.terms[k].spec.dtype == found[0]), number)
        for name, number in bound.tensors.items()
    }
    reads, turned = _of_attention(terms, bound, reads)
    return Pick(row=row, call=call, bound=bound, root=root, dtype=found[0], reads=reads, turned=turned)


def _of_attention(terms: Terms, bound: Binding, reads: dict[str, int]) -> tuple[dict[str, int], frozenset[str]]:
    """Return what a call reads, of attention by head, and which of it with its last axes exchanged."""
    lead = heads(terms, bound) if "query" in reads else None
    if lead is None:
        return reads, frozenset()
    lies = {name: laid_out(terms, reads[name], lead, turned=name == "key") for name in ("query", "key", "value")}
    turned = frozenset(name for name, (_, exchanged) in lies.items() if exchanged)
    return reads | {name: number for name, (number, _) in lies.items()}, turned


def laid_out(terms: Terms, number: int, lead: tuple[int, ...], *, turned: bool) -> tuple[int, bool]:
    """Return what a product of attention reads, before views and copies, and whether its last two axes are exchanged.

    With batch and heads apart, and a head's elements side by side: that is what the fused call takes as it lies.
    """
    found = (number, turned)
    while True:
        term = terms.terms[number]
        spec = term.spec
        if len(spec.shape) == 4 and spec.shape[:2] == lead and (spec.strides or (1,) * 4)[2 if turned else 3] == 1:
            found = (number, turned)
        exchanges = _exchanges(term)
        if term.operator not in RESHAPES and not exchanges:
            return found
        number, turned = term.tensors[0], turned != exchanges


def _exchanges(term: Term) -> bool:
    """Return whether a view exchanges the last two axes and nothing else."""
    axes = term.operands[1] if term.operator == "permute" else None
    rank = len(term.spec.shape)
    wanted = [*range(rank - 2), rank - 1, rank - 2]
    return isinstance(axes, LiteralArg) and isinstance(axes.value, tuple) and [n % rank for n in axes.value] == wanted


def reads(terms: Terms, picks: Sequence[Pick]) -> set[int]:
    """Return the terms that the live ones are made of, where picks represent theirs."""
    instead = {p.root: tuple(p.reads.values()) for p in picks}
    found: set[int] = set()
    todo = [k for k in terms.live if k is not None]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo.extend(instead.get(at, terms.terms[at].tensors))
    return found


def function(terms: Terms, picks: Sequence[Pick], *, heads_apart: bool = False) -> str:
    """Return the function's text. heads_apart: what it gives of attention has batch and heads as axes of their own."""
    return _Body(terms, picks, heads_apart).text()


def shown(terms: Terms, one: Pick) -> str:
    """Return the call as one would write it: tensors by what they are to it, sizes and numbers as they are known."""
    found: dict[str, str] = {}
    for name in names(parse(one.call)):
        if name in one.bound.scalars:
            scalar = one.bound.scalars[name]
            found[name] = number_text(scalar.value) if scalar.recorded else name
        elif name == "shape":
            found[name] = repr(terms.terms[one.bound.tensors["x"]].spec.shape[-len(axes(terms, one.bound) or ()) :])
    for name, number in one.bound.tensors.items():
        if terms.terms[number].spec.dtype != one.dtype:
            found[name] = f"{name}.to({one.dtype})"
    root = terms.terms[one.root].spec.dtype
    return substituted(one.call, found) + ("" if root == one.dtype else f".to({root})")


def substituted(call: str, found: Mapping[str, str]) -> str:
    """Return a call with its names replaced by expressions.

    >>> substituted("F.rms_norm(x, shape, None, eps)", {"x": "t4", "shape": "(8,)"})
    'F.rms_norm(t4, (8,), None, eps)'
    """

    class Change(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parse(found[node.id]) if node.id in found else node

    return ast.unparse(Change().visit(parse(call)))


class _Body:
    def __init__(self, terms: Terms, picks: Sequence[Pick], heads_apart: bool = False) -> None:
        self.terms, self.picks, self.heads_apart = terms, picks, heads_apart

    def text(self) -> str:
        """Return `def library(…)` with all its lines."""
        graph, wanted = self.terms.graph, reads(self.terms, self.picks)
        roots = {p.root: p for p in self.picks}
        names_: dict[int, str] = {}
        lines: list[str] = []
        calls: dict[tuple[str, str, tuple[Operand, ...]], str] = {}
        for number in sorted(wanted):
            term = self.terms.terms[number]
            if term.operator == INPUT:
                names_[number] = graph.inputs[term.output].name
                continue
            names_[number] = f"t{number}"
            if number in roots:
                lines.append(f"t{number} = {self._library(roots[number], names_)}")
                continue
            made = calls.get((term.operator, term.overload, term.operands))
            if made is None:
                made, text = f"t{number}", self._eager(term, names_)
                calls[term.operator, term.overload, term.operands] = made
                if _gives_several(term):
                    calls[term.operator, term.overload, term.operands] = made = f"s{number}"
                lines.append(f"{made} = {text}")
            if _gives_several(term):
                lines.append(f"t{number} = {made}[{term.output}]")
        live = ", ".join("None" if k is None else names_[k] for k in self.terms.live)
        lines.append(f"return ({live}{',' if len(self.terms.live) == 1 else ''})")
        return "\n".join([head(graph), "    aten, F = torch.ops.aten, torch.nn.functional", *_indented(lines)])

    def _eager(self, term: Term, names_: Mapping[int, str]) -> str:
        call = GraphCall("aten::" + term.operator, term.overload, tuple(map(_value, term.operands)), (term.spec,))
        listed = [names_.get(k, "") for k in range(len(self.terms.terms))]
        return f"aten.{term.operator}.{term.overload or 'default'}({arguments_text(call, listed)})"

    def _library(self, one: Pick, names_: Mapping[int, str]) -> str:
        found = {name: self._tensor(one, name, names_) for name in one.reads}
        found |= {name: scalar.name for name, scalar in one.bound.scalars.items()}
        if "x" in one.reads and "dims" in one.bound.literals:
            found["shape"] = f"{names_[one.reads['x']]}.shape[-{len(axes(self.terms, one.bound) or ())}:]"
        text = substituted(one.call, found)
        root = self.terms.terms[one.root].spec
        apart = self.heads_apart and "query" in one.reads and one.root in self.terms.live
        if one.row.through and not apart:
            text += f".{'reshape' if 'query' in one.reads else 'view'}({', '.join(map(str, root.shape))})"
        return text if str(root.dtype) == one.dtype else f"{text}.to(torch.{root.dtype})"

    def _tensor(self, one: Pick, name: str, names_: Mapping[int, str]) -> str:
        number = one.reads[name]
        spec, text = self.terms.terms[number].spec, names_[number]
        if str(spec.dtype) not in (one.dtype, "bool"):
            text += f".to(torch.{one.dtype})"
        if "query" not in one.reads:
            return text
        lead = heads(self.terms, one.bound)
        if name in one.turned:
            text += f".transpose({len(spec.shape) - 2}, {len(spec.shape) - 1})"
        if name in copied(self.terms, one):
            text += ".contiguous()"
        return f"{text}.unflatten(0, {lead})" if lead is not None and together(spec.shape, lead) else text


def copied(terms: Terms, one: Pick) -> tuple[str, ...]:
    """Return what attention copies first: a head's elements must lie side by side, else no fast kernel takes it."""
    if "query" not in one.reads:
        return ()
    specs = {name: terms.terms[one.reads[name]].spec for name in ("query", "key", "value")}
    along = {name: len(spec.shape) - (2 if name in one.turned else 1) for name, spec in specs.items()}
    return tuple(n for n, s in specs.items() if s.shape[along[n]] > 1 and (s.strides or (1,) * 4)[along[n]] != 1)


def head(graph: Graph, numbers: Mapping[str, float] | None = None) -> str:
    """Return the line that begins the function: the graph's inputs and scalars, or other numbers instead."""
    given = {s.name: s.value for s in graph.scalars} if numbers is None else dict(numbers)
    scalars = [f"{name}={number_text(value)}" for name, value in given.items()]
    return f"def library({', '.join([*(i.name for i in graph.inputs), *(['*'] if scalars else []), *scalars])}):"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _gives_several(term: Term) -> bool:
    schema = GraphCall("aten::" + term.operator, term.overload, (), ()).schema
    return len(schema.outputs) > 1 or bool(schema.outputs and schema.outputs[0].endswith("[]"))


def _value(operand: Operand) -> Value:
    if isinstance(operand, tuple):
        if any(isinstance(o, Scalar) for o in operand):
            return Scalars(tuple(o for o in operand if isinstance(o, Scalar)))
        return Refs(tuple(o if isinstance(o, int) else None for o in operand))
    if isinstance(operand, int):
        return Ref(operand)
    return operand if isinstance(operand, Scalar | LiteralArg) else None
