"""Attention whose scores go through a function that the fused operator does not take, as a call of flex_attention.

The calls between the first product and the softmax become the score function: what is computed of a score stays, what
else they read is looked up by the score's place. Blocks of scores that a mask hides whole are left out: which they are
is found of the mask, before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from tracemine.codegen.graph import Graph, GraphCall, Ref, Value, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.record import NoFixedForm
from tracemine.verify.fixes.written import line, numbers, outputs_of, plain, producers, signature
from tracemine.verify.library import Found
from tracemine.verify.repro.eager import number_text

FUSED: Final = "F.scaled_dot_product_attention("
SAYS: Final = "flex_attention with its score function, compiled"
HEAD: Final = """from torch.nn.attention.flex_attention import BlockMask, flex_attention

attention = torch.compile(flex_attention, dynamic=False) if torch.cuda.is_available() else flex_attention"""
_PRODUCTS: Final = frozenset({"aten::bmm", "aten::baddbmm"})
_VIEWS: Final = frozenset(f"aten::{n}" for n in ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"))
_SAME: Final = _VIEWS | {"aten::_to_copy", "aten::clone", "aten::detach", "aten::alias", "aten::expand"}
_LAID_OUT: Final = _VIEWS | {"aten::clone", "aten::permute", "aten::transpose"}
_TEXTS = table_beside(__file__, "texts.toml")
# What an operator is of a score, by its arguments in order.
_OF_A_SCORE: Final = _TEXTS["of_a_score"]
_PLACES: Final = ("batch", "head", "query", "key")
_FAR: Final = -3e4  # a score below which no probability is left
# When what an operator reads beside scores hides them. Scores that it hides stay hidden under those named here.
_HIDES: Final = {"add": "({0} <= torch.finfo({0}.dtype).min / 2)", "masked_fill": "{0}", "where": "~{0}"}
_TEXTS = table_beside(__file__, "texts.toml")
_MASKED: str = _TEXTS["masked"]


class _Attention:
    """A forward graph: its two products, the softmax between them, and the lines of the function in its place."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.makers = graph, producers(graph)
        products = [n for n, call in enumerate(graph.calls) if call.operator in _PRODUCTS]
        softmax = [n for n, call in enumerate(graph.calls) if call.operator == "aten::_softmax"]
        if len(products) != 2 or len(softmax) != 1 or not products[0] < softmax[0] < products[1]:
            raise NoFixedForm("it is no softmax between two products")
        self.scores, self.values = (graph.first_output(n) for n in products)
        self.softmax = softmax[0]
        axis, shape = plain(graph.calls[self.softmax].given()["dim"]), self._shape(graph.first_output(self.softmax))
        if axis not in (-1, len(shape) - 1) or self._root(reads(graph.calls[products[1]])[-2], _SAME) != (
            graph.first_output(self.softmax)
        ):
            raise NoFixedForm("its softmax is not over keys, or something stands behind it")
        lines = self._shape(self.scores)
        self.heads = (shape[0], shape[1]) if len(shape) == 4 else (1, lines[0])
        self.names = {k: i.name for k, i in enumerate(graph.inputs)}
        self.of_scores = self._following(self.scores)

    def _shape(self, value: int) -> tuple[int, ...]:
        return tuple(self.graph.specs[value].shape)

    def _root(self, value: int, through: Collection[str]) -> int:
        while value in self.makers and self.graph.calls[self.makers[value]].operator in through:
            value = reads(self.graph.calls[self.makers[value]])[0]
        return value

    def _following(self, value: int) -> set[int]:
        """Return a value and all that is computed of it."""
        found = {value}
        for number, call in enumerate(self.graph.calls):
            if found & {*reads(call)}:
                found.update(outputs_of(self.graph, number))
        return found

    def text(self, unread: Collection[int], *, apart: bool) -> str:
        """Return the function's source; apart: behind `masked`, where a mask hides scores. Raises NoFixedForm."""
        graph, masked = self.graph, self._masked() if apart else ""
        blocks, more = ("block_mask=mask, ", ["mask=None"]) if masked else ("", [])
        score, needs = self._score(reads(graph.calls[self.softmax])[0])
        (query, key), value = self._sides(self.scores), self._sides(self.values)[1]
        needs = [*needs, *(v for v, _ in (query, key, value))]
        lines = self._lines(needs)
        shapes = [self._shape(self.scores)[-2:], self._shape(self.values)[-2:]]
        (rows, columns), width = shapes[0], shapes[1][-1]
        inner = self._shape(reads(graph.calls[self.makers[self.scores]])[-2])[-1]
        q = self._operand(query, turned=query[1], shape=(*self.heads, rows, inner))
        k = self._operand(key, turned=not key[1], shape=(*self.heads, columns, inner))
        v = self._operand(value, turned=value[1], shape=(*self.heads, columns, width))
        lines += [
            "    def score_function(score, batch, head, query, key):",
            f"        return {score.format(**{f'v{value}': name for value, name in self.names.items()})}",
            "",
            f"    out = attention({q}, {k}, {v}, score_mod=score_function, {blocks}scale=1.0)",
            f"    out = out.reshape({self._shape(self.values)!r})",
        ]
        self.names[self.values] = "out"
        lines += self._lines([each for each in graph.live if each not in unread])
        live = ", ".join("None" if each in unread else self.names[each] for each in graph.live)
        head = signature(graph, *more).replace("def fixed(", "def library(", 1)
        return "\n".join([HEAD, "", "", masked + head, "    aten = torch.ops.aten", *lines, f"    return ({live},)"])

    def _masked(self) -> str:
        """Return `masked`, which adds which blocks of scores are seen to the inputs; nothing where none is hidden."""
        scores, names = reads(self.graph.calls[self.softmax])[0], dict(self.names)
        hidden = self._hidden(scores)
        if not hidden or "mask" in names.values():
            return ""
        lines = self._lines([value for value, _ in hidden])
        shapes = [self._shape(value)[::-1] for value, _ in hidden]
        index = self._index([max(sizes) for sizes in zip_longest(*shapes, fillvalue=1)][::-1], scores)
        text = _MASKED.format(
            given=", ".join(["inputs", *numbers(self.graph)] if lines else ["inputs"]),
            inputs=", ".join(i.name for i in self.graph.inputs),
            lines="".join(f"{each}\n" for each in ["    aten = torch.ops.aten", *lines] if lines),
            hidden=" | ".join(form.format(self.names[value]) for value, form in hidden),
            index=index,
            lengths=self._shape(self.scores)[-2:],
        )
        self.names = names
        return text

    def _hidden(self, value: int) -> list[tuple[int, str]]:
        """Return what hides scores, and when it does, as a format."""
        hiding, shape = list[tuple[int, str]](), self._shape(value)
        while value != self.scores and len(self._shape(value)) == len(shape):
            call = self.graph.calls[self.makers[value]]
            form = _HIDES.get(call.operator.removeprefix("aten::").removesuffix("_"))
            number = plain(call.arguments[-1])
            if form and (form == _HIDES["add"] or (isinstance(number, int | float) and number < _FAR)):
                beside = [v for v in reads(call) if v not in self.of_scores and self._shape(v)[-1:] == shape[-1:]]
                hiding += [
                    (v, form) for v in beside if "float" in str(self.graph.specs[v].dtype) or form != _HIDES["add"]
                ]
            elif call.operator not in _SAME:
                break
            value = next(v for v in reads(call) if v in self.of_scores)
        return hiding

    def _sides(self, product: int) -> tuple[tuple[int, bool], tuple[int, bool]]:
        """Return what a product multiplies before it was laid out, and whether its last two axes are exchanged."""
        left, right = reads(self.graph.calls[self.makers[product]])[-2:]
        return (left, False) if product == self.values else self._leaf(left), self._leaf(right)

    def _leaf(self, value: int) -> tuple[int, bool]:
        turned = False
        while value in self.makers and (call := self.graph.calls[self.makers[value]]).operator in _LAID_OUT:
            source, rank = reads(call)[0], len(self._shape(value))
            if call.operator not in _VIEWS | {"aten::clone"}:
                axes = plain(call.given()["dims"]) if call.operator == "aten::permute" else None
                if axes is None or [a % rank for a in axes] != [*range(rank - 2), rank - 1, rank - 2]:  # type: ignore[attr-defined]
                    break
                turned = not turned
            elif turned and self._shape(source)[-2:] != self._shape(value)[-2:]:
                break
            value = source
        return value, turned

    def _operand(self, leaf: tuple[int, bool], *, turned: bool, shape: tuple[int, ...]) -> str:
        name = f"{self.names[leaf[0]]}.mT" if turned else self.names[leaf[0]]
        return f"{name}.reshape{shape!r}"

    def _lines(self, values: Collection[int]) -> list[str]:
        """Return the calls that compute values of what is there. Raises NoFixedForm where they read scores."""
        todo, numbers = [v for v in values if v not in self.names], set[int]()
        while todo:
            value = todo.pop()
            if value in self.of_scores and self.values not in self.names:
                raise NoFixedForm("its scores are read elsewhere too")
            if value in self.names:
                continue
            if value in (self.scores, self.graph.first_output(self.softmax)):
                raise NoFixedForm("its scores or probabilities are read elsewhere too")
            numbers.add(self.makers[value])
            todo += reads(self.graph.calls[self.makers[value]])
        return [line(self.graph, number, self.names) for number in sorted(numbers)]

    # The score function.

    def _score(self, value: int) -> tuple[str, list[int]]:
        """Return an expression of a score, and the values that it looks up, named by their numbers."""
        if value not in self.of_scores:
            raise NoFixedForm("its softmax reads no scores")
        call = self.graph.calls[self.makers[value]]
        if value == self.scores:
            return self._product(call)
        if call.operator in _SAME:
            return self._score(reads(call)[0])
        form = _OF_A_SCORE.get(call.operator.removeprefix("aten::").removesuffix("_"))
        factor = call.given().get("alpha")
        if form is None or (factor is not None and plain(factor) != 1):
            raise NoFixedForm(f"{call.label} is done to its scores")
        count = form.count("{")
        parts = [self._part(each, value) for each in call.arguments[:count]]
        return form.format(*(text for text, _ in parts)), [v for _, read in parts for v in read]

    def _part(self, argument: Value, at: int) -> tuple[str, list[int]]:
        """Return an argument of what is computed of a score."""
        if not isinstance(argument, Ref):
            return _number(argument), []
        if argument.value in self.of_scores:
            return self._score(argument.value)
        return f"{{v{argument.value}}}{self._index(self._shape(argument.value), at)}", [argument.value]

    def _index(self, shape: Sequence[int], at: int) -> str:
        """Return how an element of a tensor is read, by the score that it is of."""
        places = _PLACES[4 - len(shape) :] if len(self._shape(at)) == 4 else _PLACES[1:][3 - len(shape) :]
        index = [("0" if size == 1 else place) for size, place in zip(shape, places, strict=True)]
        return f"[{', '.join(index)}]" if index else ""

    def _product(self, call: GraphCall) -> tuple[str, list[int]]:
        """Return a score with what its product adds."""
        if call.operator == "aten::bmm":
            return "score", []
        given = call.given()
        added, needs = self._part(call.arguments[0], self.scores)
        factors = [_number(given[name]) if given.get(name) is not None else "1" for name in ("beta", "alpha")]
        return f"({factors[0]} * {added} + {factors[1]} * score)", needs


def _number(value: Value) -> str:
    """Return a number as it is written, or by the name that the function takes it by."""
    name = getattr(value, "name", None)
    found = plain(value)
    if name is not None:
        return str(name)
    if not isinstance(found, bool | int | float):
        raise NoFixedForm("a number of its score function is not recorded")
    return number_text(found)


class FusedCall(NamedTuple):
    """A function `library` in a graph's place, by one call."""

    text: str
    says: str
    assumptions: tuple[str, ...] = ()


def fused(graph: Graph, found: Found, unread: Collection[int] = (), *, apart: bool = False) -> FusedCall:
    """Return the graph by the fused operator, else by flex_attention. Raises NoFixedForm where neither does.

    unread: live values that nothing reads; apart: with `masked` before, which makes a mask of blocks.
    """
    if found.replacement is not None and FUSED in found.replacement.text:
        return FusedCall(found.replacement.text, FUSED.rstrip("("), found.replacement.assumptions)
    try:
        return FusedCall(_Attention(graph).text(unread, apart=apart), SAYS)
    except NoFixedForm as reason:
        why = "; ".join(found.refused) or "no form of attention that the fused operator is known for"
        raise NoFixedForm(f"{why}; flex_attention: {reason}") from None
