"""Products of a loop's iterations as one product of all.

What iterations read side by side is joined: rows of left factors, columns of right ones, or all of both on an axis of
its own. Right factors and biases are joined before the step, as weights are; left factors within it, unless they lie in
one tensor already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Scalar, Value
from tracemine.ops.infer import TensorSpec
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.lanes import steps_of
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import signature
from tracemine.verify.rebuild.memory import Lies
from tracemine.verify.repro.eager import number_text

_ROWS, _COLUMNS, _APART = "rows", "columns", "apart"  # joined on the first axis, on the last, on one before both
_JOINS = {_ROWS: "torch.cat([{}])", _COLUMNS: "torch.cat([{}], -1)", _APART: "torch.stack([{}])"}
_PRODUCTS = frozenset({"aten::mm", "aten::addmm"})
WEIGHTS = "right factors and biases of the iterations lie in one tensor, which is made before the step"
SLICES = "left factors of the iterations are slices of one tensor, as recorded"


@dataclass(frozen=True, slots=True)
class _Factor:
    """What iterations give for an argument: text of what all share, inputs that differ, or an earlier step's result."""

    text: str = ""
    given: tuple[int, ...] = ()
    joined: str = ""  # how what a step made lies

    @property
    def shared(self) -> bool:
        return not self.given and not self.joined


@dataclass(slots=True)
class _Batch:
    """The fixed form in the making."""

    graph: Graph
    around: Around
    before: list[str] = field(default_factory=list)  # what is joined before the step
    lines: list[str] = field(default_factory=list)
    made: dict[int, tuple[str, str]] = field(default_factory=dict)  # by value its step's name, and how that lies
    assumptions: dict[str, None] = field(default_factory=dict)


def batched(graph: Graph, around: Around) -> Fixed:
    """Return one product of all iterations. Raises NoFixedForm."""
    batch, steps = _Batch(graph, around), steps_of(graph)
    if not any(step[0][1].operator in _PRODUCTS for step in steps):
        raise NoFixedForm("its products are not matrices of their own")
    results = dict[int, str]()
    for at, step in enumerate(steps):
        _check_results(step)
        text, joined = _product(batch, step) if step[0][1].operator in _PRODUCTS else _pointwise(batch, step)
        batch.lines.append(f"    made_{at} = {text}")
        values = [graph.first_output(number) for number, _ in step]
        batch.made |= dict.fromkeys(values, (f"made_{at}", joined))
        if set(values) & set(graph.live):
            shape = step[0][1].outputs[0].shape
            parts = {_ROWS: f"split({shape[0]})", _COLUMNS: f"split({shape[-1]}, -1)", _APART: "unbind(0)"}[joined]
            batch.lines.append(f"    parts_{at} = made_{at}.{parts}")
            results |= {value: f"parts_{at}[{k}]" for k, value in enumerate(values)}
    joined_names = [f"joined_{k}" for k in range(len(batch.before))]
    before = ", ".join(["*inputs", *batch.before])
    body = [signature(graph, *joined_names), *batch.lines]
    body.append(f"    return ({', '.join(results[v] for v in graph.live)},)")
    return Fixed(
        own={"one product": '"all iterations in one product", together, call=fixed'},
        source=f"def together(inputs):\n    return [{before}]\n\n\n" + "\n".join(body),
        assumptions=tuple(batch.assumptions),
    )


def _check_results(step: Sequence[tuple[int, GraphCall]]) -> None:
    """Raise NoFixedForm where iterations give other than one new tensor each, all of one shape."""
    first = step[0][1]
    if first.schema.mutates or any(len(call.outputs) != 1 for _, call in step):
        raise NoFixedForm(f"{first.label} writes in place, or gives several tensors")
    if len({call.outputs[0].shape for _, call in step}) != 1:
        raise NoFixedForm("its iterations have several shapes")


def _factor(batch: _Batch, values: Sequence[Value]) -> _Factor:
    """Return what the iterations give for one argument. Raises NoFixedForm."""
    first = values[0]
    if not isinstance(first, Ref):
        return _Factor(_plain_text(first))
    places = [v.value for v in values if isinstance(v, Ref)]
    if places[0] in batch.made:
        name, joined = batch.made[places[0]]
        if [batch.made.get(p) for p in places] != [(name, joined)] * len(places):
            raise NoFixedForm("its iterations take what others made")
        return _Factor(name, joined=joined)
    if len(set(places)) == 1:
        return _Factor(batch.graph.inputs[places[0]].name)
    if len({(batch.graph.specs[p].shape, batch.graph.specs[p].dtype) for p in places}) != 1:
        raise NoFixedForm("its iterations have several shapes")
    return _Factor(given=tuple(places))


def _plain_text(value: Value) -> str:
    if isinstance(value, Scalar):
        return value.name
    known = value.value if isinstance(value, LiteralArg) else None
    if value is None or isinstance(known, str):
        return repr(known)
    if isinstance(known, int | float):
        return number_text(known)
    raise NoFixedForm("a call of the loop takes a list")


def _arguments(batch: _Batch, step: Sequence[tuple[int, GraphCall]]) -> dict[str, _Factor]:
    """Return the arguments by the schema's names."""
    call = step[0][1]
    return {
        argument.name: _factor(batch, [each.arguments[place] for _, each in step])
        for place, argument in enumerate(call.schema.arguments)
    }


def _product(batch: _Batch, step: Sequence[tuple[int, GraphCall]]) -> tuple[str, str]:
    """Return a product of all iterations, and how its result lies. Raises NoFixedForm."""
    given, added = _arguments(batch, step), step[0][1].operator == "aten::addmm"
    left, right = (given["mat1"], given["mat2"]) if added else (given["self"], given["mat2"])
    bias = given["self"] if added else None
    _check_bias(batch, step, bias)
    joined = _joined_on(left, right, bias)
    if joined == _ROWS:
        factors = f"{_joined(batch, left, _ROWS, early=False)}, {right.text}"
    elif joined == _COLUMNS:
        factors = f"{left.text}, {_joined(batch, right, _COLUMNS, early=True)}"
    else:
        factors = ", ".join(_alone(batch, each, len(step), early=each is right) for each in (left, right))
    if bias is None:
        return f"torch.{'bmm' if joined == _APART else 'mm'}({factors})", joined
    scale = "".join(f", {name}={given[name].text}" for name in ("beta", "alpha") if given[name].text != "None")
    operator = "baddbmm" if joined == _APART else "addmm"
    return f"torch.{operator}({_added(batch, bias, joined, len(step))}, {factors}{scale})", joined


def _joined_on(left: _Factor, right: _Factor, bias: _Factor | None) -> str:
    """Return how factors are joined: on rows or columns where one side and its bias are shared, else on an axis before.

    Joined on one of their own axes they stay one large product.
    """
    if _APART in (left.joined, right.joined):
        return _APART
    if right.shared and (left.given or left.joined == _ROWS) and (bias is None or bias.shared):
        return _ROWS
    return _COLUMNS if left.shared and (right.given or right.joined == _COLUMNS) else _APART


def _check_bias(batch: _Batch, step: Sequence[tuple[int, GraphCall]], bias: _Factor | None) -> None:
    """Raise NoFixedForm where what is added is no bias, or computed by the iterations."""
    if bias is not None and not bias.shared and not bias.given:
        raise NoFixedForm("what is added to its products is computed within it")
    if bias is not None and len(batch.graph.specs[_place(step, "self")].shape) != 1:
        raise NoFixedForm("what is added to its products is no bias")


def _added(batch: _Batch, bias: _Factor, joined: str, count: int) -> str:
    """Return a bias as the joined product takes it."""
    if bias.shared:
        return f"{bias.text}.repeat({count})" if joined == _COLUMNS else bias.text
    return _joined(batch, bias, joined, early=True) + ("[:, None]" if joined == _APART else "")


def _place(step: Sequence[tuple[int, GraphCall]], argument: str) -> int:
    value = step[0][1].given()[argument]
    if not isinstance(value, Ref):
        raise NoFixedForm("what is added to its products is not recorded")
    return value.value


def _joined(batch: _Batch, factor: _Factor, how: str, *, early: bool) -> str:
    """Return what iterations give, joined as it lies: before the step where it is early, or lies so already."""
    if not factor.given:
        return factor.text
    inputs = batch.graph.inputs
    spec = inputs[factor.given[0]].spec
    slices = how != _COLUMNS and _lie_together(batch.around.lies, factor.given, spec)
    if not early and not slices:
        return _JOINS[how].format(", ".join(inputs[place].name for place in factor.given))
    batch.assumptions[WEIGHTS if early else SLICES] = None
    turned = len(spec.shape) == 2 and (spec.strides or ())[:1] == (1,) and how != _ROWS
    text = _JOINS[_ROWS if turned and how == _COLUMNS else how]
    parts = [f"inputs[{place}]{'.mT' if turned else ''}" for place in factor.given]
    batch.before.append(f"{text.format(', '.join(parts))}{'.mT' if turned else ''}")
    return f"joined_{len(batch.before) - 1}"


def _alone(batch: _Batch, factor: _Factor, count: int, *, early: bool) -> str:
    """Return what iterations give, on an axis of its own."""
    if factor.shared:
        return f"{factor.text}.expand({count}, -1, -1)"
    if factor.joined == _ROWS:
        return f"{factor.text}.unflatten(0, ({count}, -1))"
    if factor.joined == _COLUMNS:
        return f"{factor.text}.unflatten(-1, ({count}, -1)).transpose(0, 1)"
    return _joined(batch, factor, _APART, early=early)


def _lie_together(lies: Sequence[Lies | None], places: Sequence[int], spec: TensorSpec) -> bool:
    """Return whether tensors are consecutive rows of one tensor in memory, in this order."""
    found = [lies[place] for place in places if place < len(lies)]
    known = [each for each in found if each is not None]
    if len(known) < len(places) or len({each.buffer for each in known}) != 1:
        return False
    step = spec.shape[0] * known[0].layout.strides[0] if known[0].layout.strides else 0
    begin = known[0].layout.offset
    return step > 0 and all(
        each.layout.strides == known[0].layout.strides and each.layout.offset == begin + k * step
        for k, each in enumerate(known)
    )


def _pointwise(batch: _Batch, step: Sequence[tuple[int, GraphCall]]) -> tuple[str, str]:
    """Return a call on each element of what one step made; how its result lies. Raises NoFixedForm."""
    call, given = step[0][1], _arguments(batch, step)
    tensors = [name for name, value in call.given().items() if isinstance(value, Ref)]
    made = {given[name].joined for name in tensors}
    others = [name for name in tensors if given[name].shared]
    flat = all(len(batch.graph.specs[_place(step, name)].shape) <= 1 for name in others)
    fits = len(made - {""}) == 1 and not any(given[name].given for name in tensors)
    if call.schema.op_class != "pointwise" or not fits or (others and (made & {_COLUMNS} or not flat)):
        raise NoFixedForm(f"{call.label} is not known for all iterations at once")
    words = [
        given[argument.name].text if place < call.schema.positional else f"{argument.name}={given[argument.name].text}"
        for place, argument in enumerate(call.schema.arguments)
        if call.arguments[place] is not None
    ]
    name = f"{call.operator.removeprefix('aten::')}.{call.overload or 'default'}"
    return f"torch.ops.aten.{name}({', '.join(words)})", (made - {""}).pop()


FIX = Maker(batched)
