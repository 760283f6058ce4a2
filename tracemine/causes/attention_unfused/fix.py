"""Unfused attention as PyTorch's fused operator, forward, and backward by its own gradient.

Which calls are which follows from the graph; whether the fused operator computes the same, whoever runs it checks.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tracemine.codegen.graph import (
    Graph,
    GraphCall,
    GraphInput,
    LiteralArg,
    Ref,
    Scalar,
    mutated,
    reads,
    renumbered,
    settled,
)
from tracemine.ops.dtypes import HALF
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.flex import FUSED, FusedCall, fused
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import outputs_of, producers, signature
from tracemine.verify.library import find
from tracemine.verify.repro.eager import arguments_text, eager_text

BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "memory-efficient": "EFFICIENT_ATTENTION",
    "cuDNN": "CUDNN_ATTENTION",
    "math": "MATH",
}
_PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm"})
_LAID_OUT = frozenset(
    {"aten::view", "aten::_unsafe_view", "aten::reshape", "aten::clone", "aten::unsqueeze", "aten::squeeze"}
)
_SEEN = _LAID_OUT | {"aten::permute", "aten::transpose", "aten::expand", "aten::_to_copy"}
_COPIED = re.compile(r"aten\.clone\.default\((\w+), memory_format=torch\.contiguous_format\)")
_BEHIND = "aten::_softmax_backward_data"
_WIDE = frozenset({"float32", "float64"})
# What a number that scales scores is, by the root of the heads' width.
_SCALES: Mapping[str, Callable[[float], float]] = {
    "aten::mul": lambda root: 1 / root,
    "aten::mul_": lambda root: 1 / root,
    "aten::div": lambda root: root,
    "aten::div_": lambda root: root,
}
MASK_ONCE = "the mask is made once, before the layers that read it"
BLOCKS_ONCE = "so are the blocks that it hides: that took 0.2 ms of 2,048 keys and 0.9 of 8,192 on an H200"
SCALED = "the number that scales scores is not recorded: it is taken as the root of the heads' width has it"
_MASKS = "def masked("  # what makes the mask, where it stands in the source
_LEAVES = ("leaf_0", "leaf_1", "leaf_2")  # queries, keys and values whose gradients are asked for


def attended(graph: Graph, around: Around) -> Fixed:
    """Return the fused operator in place of a graph, by each of its backends. Raises NoFixedForm with the reason."""
    drawn = next((call.label for call in graph.calls if call.schema.op_class == "random"), None)
    if drawn is not None:
        raise NoFixedForm(f"{drawn} draws random numbers: the fused operator draws others, and nothing can be compared")
    if _cast_up(graph):
        raise NoFixedForm("it takes queries, keys and values as they were, in half precision, which rounds otherwise")
    numbers = _scales(graph)
    graph = settled(graph, numbers)
    backward = any(call.operator == _BEHIND for call in graph.calls)
    made = _trained(graph, around.unread) if backward else _inferred(graph, around.unread)
    delta = _delta_form(graph) if backward else None
    source = made.text if delta is None else f"{made.text}\n\n\n{delta}"
    own = _ways(made)
    return Fixed(
        own=own,
        source=source,
        uses=() if "flex" in own else ("backend",),
        rounds=None if delta is None else "delta_form",
        numbers=numbers,
        assumptions=(*made.assumptions, *([SCALED] if numbers else [])),
    )


def _cast_up(graph: Graph) -> bool:
    """Return whether queries, keys and values were cast up from half precision: the fused call takes them as they were.

    What half precision rounds is held against no float32.
    """
    casts = [call for call in graph.calls if call.operator == "aten::_to_copy" and call.outputs[0].dtype == "float32"]
    return sum(graph.specs[reads(call)[0]].dtype in HALF for call in casts) == len(_LEAVES)


def _ways(made: FusedCall) -> dict[str, str]:
    """Return the fused operator by each of its backends, or flex_attention."""
    masked = _MASKS in made.text
    if FUSED not in made.text:
        blocks = {"flex, blocks": f'"{made.says}, without blocks that are hidden", masked, call=fixed'}
        return {"flex": f'"{made.says}", call=fixed'} | (blocks if masked else {})
    prepare = "masked, " if masked else ""
    return {
        name: f'"{made.says}, {kind}", {prepare}within=backend("{kind}"), call=fixed' for name, kind in BACKENDS.items()
    }


def _scales(graph: Graph) -> dict[str, float]:
    """Return unrecorded numbers that scale scores or their gradient, by name, as attention is commonly scaled."""
    scores = next((n for n, call in enumerate(graph.calls) if call.operator in _PRODUCTS), None)
    softmax = any(call.operator == "aten::_softmax" for call in graph.calls)
    if scores is None or not softmax:
        return {}
    root = math.sqrt(graph.specs[_sides(graph, scores)[0]].shape[-1])
    behind = [n for n, call in enumerate(graph.calls) if call.operator == _BEHIND]
    scaled = set[int]().union(*(_from(graph, graph.first_output(n), _SEEN) for n in (scores, *behind)))
    found = {s.name: 1 / root for s in [graph.calls[scores].given().get("alpha")] if isinstance(s, Scalar)}
    for call in graph.calls:
        number = call.given().get("other")
        if call.operator in _SCALES and isinstance(number, Scalar) and reads(call)[0] in scaled:
            found[number.name] = _SCALES[call.operator](root)
    return {s.name: found[s.name] for s in graph.scalars if s.name in found and not s.recorded}


def _inferred(graph: Graph, unread: Collection[int]) -> FusedCall:
    found = fused(graph, find(graph, unread), unread, apart=True)
    text = _COPIED.sub(r"\1.contiguous()", found.text)  # no copy, where the fused result lies so
    text = text.replace("def library(", "def fixed(", 1)
    text = (_mask_apart(text) if FUSED in text else None) or text
    told = [MASK_ONCE, BLOCKS_ONCE][: 1 + (FUSED not in text)] if _MASKS in text else []
    return FusedCall(text, found.says, (*found.assumptions, *told))


def _mask_apart(text: str) -> str | None:
    """Return the function with a mask as input, and before it one that makes the mask of the same inputs; None
    where the mask is an input as it is, or rests on what is computed here.

    >>> print(_mask_apart("def fixed(q, k, v, m, *, n=1.0):\\n    return sdpa(q, k, v, attn_mask=m.add(n))"))
    def masked(inputs, n=1.0):
        q, k, v, m = inputs
        return [*inputs, m.add(n)]
    <BLANKLINE>
    <BLANKLINE>
    def fixed(q, k, v, m, mask, *, n=1.0):
        return sdpa(q, k, v, attn_mask=mask)
    """
    (function,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    keywords = [node for node in ast.walk(function) if isinstance(node, ast.keyword) and node.arg == "attn_mask"]
    inputs = [each.arg for each in function.args.args]
    numbers = {
        each.arg: ast.unparse(default)
        for each, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is not None
    }
    if len(keywords) != 1 or isinstance(keywords[0].value, ast.Name | ast.Constant):
        return None
    mask = ast.get_source_segment(text, keywords[0].value) or ""
    read = [node.id for node in ast.walk(keywords[0].value) if isinstance(node, ast.Name)]
    if not set(read) <= {*inputs, *numbers, "torch"} or "mask" in inputs:
        return None
    own = "".join(f", {name}={value}" for name, value in numbers.items() if name in read)
    given = ", ".join(inputs)
    head = f"def masked(inputs{own}):\n    {given} = inputs\n    return [*inputs, {mask}]"
    text = text.replace(f"attn_mask={mask}", "attn_mask=mask").replace(f"({given}", f"({given}, mask", 1)
    return f"{head}\n\n\n{text}"


# -- forward and backward ----------------------------------------------------------------------------------------------


def _trained(graph: Graph, unread: Collection[int]) -> FusedCall:
    """Return the fused operator, with its own gradient for the products of the backward pass."""
    parts, names = _parts(graph), _names(graph)
    leaves, (gradient, turned) = [_leaf(graph, v) for v in parts.operands], _leaf(graph, parts.gradient)
    values = [value for value, _ in leaves]
    if turned or gradient in values:
        raise NoFixedForm("the gradient of its result is not read as it was given")
    forward, inputs = _cut(graph, parts.result, values)
    found = fused(forward, find(forward, heads_apart=True))
    attend = found.text.replace("def library(", "def attend(", 1)
    before = sorted(_before(graph, [*values, gradient, *inputs]))
    spelled = dict(zip(values, _LEAVES, strict=True))
    arguments = [*(spelled.get(v, names[v]) for v in inputs), *(f"{s.name}={s.name}" for s in forward.scalars)]
    live = _live(graph, _results(parts, leaves), before, unread)
    body = [
        *(["aten = torch.ops.aten"] if before else []),
        *(f"{', '.join(names[v] for v in outputs_of(graph, n))} = {_text(graph.calls[n], names)}" for n in before),
        *(f"{name} = {names[v]}.detach().requires_grad_()" for v, name in zip(values, _LEAVES, strict=True)),
        "with torch.enable_grad():",
        f"    (out,) = attend({', '.join(arguments)})",
        f"grads = torch.autograd.grad(out, [{', '.join(_LEAVES)}], {names[gradient]}.reshape(out.shape))",
        f"return ({', '.join(live)},)",
    ]
    return FusedCall(
        "\n".join([f"{attend}\n\n", signature(graph), *(f"    {line}" for line in body)]),
        f"{found.says} and its gradient",
        found.assumptions,
    )


def _results(parts: _Products, leaves: Sequence[tuple[int, bool]]) -> dict[int, str]:
    """Return how the fused operator's result and gradients are written, by the values that they replace."""
    grads = [f"grads[{k}].mT" if turned else f"grads[{k}]" for k, (_, turned) in enumerate(leaves)]
    return {parts.result: "out.detach()", **dict(zip(parts.gradients, grads, strict=True))}


def _live(graph: Graph, results: Mapping[int, str], before: Sequence[int], unread: Collection[int]) -> list[str]:
    """Return how live values are written. Raises NoFixedForm where no call before the fused operator gives one."""
    names = _names(graph)
    known = {v: names[v] for number in before for v in outputs_of(graph, number)} | dict.fromkeys(unread, "None")
    known |= results
    if any(value not in known for value in graph.live):
        raise NoFixedForm("what stands between its products is read elsewhere")
    return [known[value] for value in graph.live]


def _names(graph: Graph) -> list[str]:
    """Return a name for each value."""
    return [*(i.name for i in graph.inputs), *(f"t{k}" for k in range(len(graph.inputs), len(graph.specs)))]


def _delta_form(graph: Graph) -> str | None:
    """Return the calls as fused kernels order them: the scores' gradient is P * (dP - rowsum(dO * O)), of O as rounded.

    Eager sums dP * P over the probabilities that it multiplies by, and where one of a row is nearly 1 that cancels; the
    row's result O was rounded apart from them. None where the graph does not show it.
    """
    parts = _parts(graph)
    number = next(n for n, call in enumerate(graph.calls) if call.operator == _BEHIND)
    grad, weights, axis, *_ = graph.calls[number].arguments
    names, place = _names(graph), graph.first_output(number)
    last = isinstance(axis, LiteralArg) and axis.value in (-1, len(graph.specs[place].shape) - 1)
    if not (isinstance(grad, Ref) and isinstance(weights, Ref) and last and parts.result < place):
        return None

    def wide(value: int) -> str:
        kind = graph.specs[value].dtype
        return names[value] if kind in _WIDE else f"{names[value]}.float()"

    of_row = (*graph.specs[place].shape[:-1], 1)
    made = f"{wide(weights.value)} * ({wide(grad.value)} - delta)"
    kind = graph.specs[place].dtype
    lines = [
        f"    delta = ({wide(parts.gradient)} * {wide(parts.result)}).sum(-1, keepdim=True).reshape({of_row!r})",
        f"    {names[place]} = {made if kind in _WIDE else f'({made}).to(torch.{kind})'}",
    ]
    text, line = eager_text(graph), f"    {names[place]} = {_text(graph.calls[number], names)}"
    if text.count(f"{line}\n") != 1:
        return None
    text = text.replace(f"{line}\n", "\n".join([*lines, ""]))
    return text.replace("def eager(", "def delta_form(", 1)


@dataclass(frozen=True, slots=True)
class _Products:
    """Values of a graph: what the forward products read, what they give, and the gradients of what they read."""

    operands: tuple[int, int, int]  # queries, keys, values, as the products read them
    result: int
    gradient: int  # of the result
    gradients: tuple[int, int, int]


def _parts(graph: Graph) -> _Products:
    """Tell the six products apart. Raises NoFixedForm where they are others."""
    products = [n for n, call in enumerate(graph.calls) if call.operator in _PRODUCTS]
    softmax, behind = _first(graph, "aten::_softmax"), _first(graph, _BEHIND)
    if len(products) != 6 or softmax is None or behind is None:
        raise NoFixedForm("not all six products of attention and its backward pass are there")
    weights, scored = _from(graph, graph.first_output(softmax), _SEEN), _from(graph, graph.first_output(behind), None)
    sides = {n: _sides(graph, n) for n in products}
    scores, *rest = products
    on_weights = [n for n in rest if n < behind and weights & {*sides[n]}]
    on_scores = [n for n in rest if scored & {*sides[n]}]
    others = {*rest} - {*on_weights, *on_scores}
    if [len(on_weights), len(on_scores), len(others)] != [2, 2, 1] or graph.calls[scores].operator != "aten::bmm":
        raise NoFixedForm("its products are not those of attention and its backward pass")
    results = [n for n in on_weights if _forward(graph, n, weights)]
    if not results:
        raise NoFixedForm("the product with the values is not there")
    result = results[0]
    (of_values,) = {*on_weights} - {result}
    if scored.isdisjoint(sides[n][0] for n in on_scores):
        raise NoFixedForm("the products of its backward pass take their operands in another order")
    of_query, of_key = sorted(on_scores, key=lambda n: sides[n][0] not in scored)
    return _Products(
        operands=(*sides[scores], sides[result][1]),
        result=graph.first_output(result),
        gradient=next(v for v in sides[of_values] if v not in weights),
        gradients=(graph.first_output(of_query), graph.first_output(of_key), graph.first_output(of_values)),
    )


def _first(graph: Graph, operator: str) -> int | None:
    return next((n for n, call in enumerate(graph.calls) if call.operator == operator), None)


def _forward(graph: Graph, number: int, weights: Collection[int]) -> bool:
    """Return whether a product takes the probabilities as they are, first: turned, it is the gradient of the values."""
    first = _sides(graph, number)[0]
    return first in weights and not _leaf(graph, first)[1]


def _sides(graph: Graph, number: int) -> tuple[int, int]:
    """Return what a product multiplies."""
    left, right = reads(graph.calls[number])[-2:]
    return left, right


def _from(graph: Graph, value: int, through: Collection[str] | None) -> set[int]:
    """Return a value and what operators in `through` make of it; through None: all operators but products."""
    found = {value}
    for number, call in enumerate(graph.calls):
        passes = call.operator not in _PRODUCTS if through is None else call.operator in through
        if passes and found & set(reads(call)):
            found.update(outputs_of(graph, number))
    return found


def _leaf(graph: Graph, value: int) -> tuple[int, bool]:
    """Return a value that a product reads as it was before views and copies, and whether its last two axes have been
    exchanged since."""
    by, turned = producers(graph), False
    while value in by:
        call = graph.calls[by[value]]
        source = call.arguments[0]
        swaps = _exchanges(call, len(graph.specs[value].shape))
        if not isinstance(source, Ref) or (call.operator not in _LAID_OUT and not swaps):
            break
        if graph.specs[source.value].dtype != graph.specs[value].dtype:
            break
        value, turned = source.value, turned != swaps
    return value, turned


def _exchanges(call: GraphCall, rank: int) -> bool:
    """Return whether a view exchanges the last two axes and nothing else."""
    if call.operator != "aten::permute":
        return False
    axes = getattr(call.arguments[1], "value", ())
    return [axis % rank for axis in axes] == [*range(rank - 2), rank - 1, rank - 2]


def _cut(graph: Graph, result: int, leaves: Sequence[int]) -> tuple[Graph, list[int]]:
    """Return what gives a result of the leaves as a graph of its own, and which values of the whole are its inputs."""
    wanted, inputs = _needed(graph, result, leaves)
    numbers = {v: k for k, v in enumerate(inputs)}
    calls = list[GraphCall]()
    for number in wanted:
        arguments = tuple(renumbered(value, numbers.__getitem__) for value in graph.calls[number].arguments)
        calls.append(msgspec.structs.replace(graph.calls[number], arguments=arguments))
        for value in outputs_of(graph, number):
            numbers[value] = len(numbers)
    known = dict(enumerate(graph.inputs))
    given = [GraphInput(f"a{k}", graph.specs[v], known[v].below if v in known else None) for k, v in enumerate(inputs)]
    return Graph(graph.name, tuple(given), tuple(calls), (numbers[result],)), inputs


def _needed(graph: Graph, result: int, leaves: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the calls that give a result of the leaves, and the values that they take from elsewhere."""
    wanted, by = set[int](), producers(graph)
    writes = {v: n for n, call in enumerate(graph.calls) for v in mutated(call)}  # in place: the last is what is read
    inputs, todo = list[int](), [result]
    while todo:
        value = todo.pop()
        if value in writes and writes[value] not in wanted:
            wanted.add(writes[value])
            todo += reads(graph.calls[writes[value]])
        if value in leaves or value not in by:
            inputs += [value] * (value not in inputs)
        elif by[value] not in wanted:
            wanted.add(by[value])
            todo += reads(graph.calls[by[value]])
    return sorted(wanted), sorted(inputs)


def _before(graph: Graph, values: Sequence[int]) -> set[int]:
    """Return the calls that give values, and what those read."""
    by = producers(graph)
    found, todo = set[int](), list(values)
    while todo:
        number = by.get(todo.pop())
        if number is not None and number not in found:
            found.add(number)
            todo += reads(graph.calls[number])
    return found


def _text(call: GraphCall, names: Sequence[str]) -> str:
    return f"aten.{call.operator.removeprefix('aten::')}.{call.overload or 'default'}({arguments_text(call, names)})"


FIX = Maker(attended, whole=True)
