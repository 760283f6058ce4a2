"""The product of 8 bits itself, its scales behind the sum."""

from __future__ import annotations

from typing import Final, NamedTuple

from tracemine.codegen.graph import Graph, Ref, Scalar, Value, reads
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import line, names_of, plain, producers, signature

# Left and right operand, what is added, and the axis of the right one that is not summed.
_PRODUCTS: Final = {
    "aten::mm": ("self", "mat2", "", 1),
    "aten::addmm": ("mat1", "mat2", "self", 1),
    "aten::linear": ("input", "weight", "bias", 0),
}
_TURNS: Final = frozenset({"aten::t", "aten::permute", "aten::transpose"})
_CASTS: Final = frozenset({"aten::_to_copy", "aten::to"})
_FLOAT8, _INT8 = "float8_e4m3fn", "int8"
_MULTIPLES: Final = {_FLOAT8: 16, _INT8: 8}  # of elements: rows that are summed, and columns, have so many
_MOST_FEW: Final = {_FLOAT8: 0, _INT8: 16}  # rows, of which the library takes more


class _Side(NamedTuple):
    """An operand as it was quantised: its axis that is not summed, its scale, and whether that is one for each line."""

    value: int
    axis: int
    scale: str
    by_line: bool


def narrow(graph: Graph, around: Around) -> Fixed:
    """Return the library's product of 8 bits. Raises NoFixedForm where scales or layouts are others than it takes."""
    number = next((n for n, call in enumerate(graph.calls) if call.operator in _PRODUCTS), None)
    if number is None:
        raise NoFixedForm("its product is no mm, addmm or linear")
    call, names = graph.calls[number], names_of(graph)
    given, (left, right, bias, axis) = call.given(), _PRODUCTS[call.operator]
    if any(plain(given[name]) != 1 for name in ("alpha", "beta") if given.get(name) is not None):
        raise NoFixedForm("its product, or what is added to it, is scaled by a number")
    x, w = _side(graph, given[left], 0), _side(graph, given[right], axis)
    made = _product(graph, x, w, str(call.outputs[0].dtype), _name(given.get(bias), names))
    names[graph.first_output(number)] = "found"
    lines = [line(graph, n, names) for n in range(number + 1, len(graph.calls))]
    if any(value not in names and value not in around.unread for value in graph.live):
        raise NoFixedForm("what was dequantised is read elsewhere too")
    body = [*made, *["    aten = torch.ops.aten"] * bool(lines), *lines]
    live = ", ".join("None" if value in around.unread else names[value] for value in graph.live)
    says = "torch._scaled_mm" if graph.specs[x.value].dtype == _FLOAT8 else "torch._int_mm"
    return Fixed(
        own={"8 bits": f'"{says} of what was quantised", call=fixed'},
        source="\n".join([signature(graph), *body, f"    return ({live},)"]),
    )


def _name(value: Value, names: dict[int, str]) -> str:
    """Return the name of an input or a number, empty for none. Raises NoFixedForm where it is made of other calls."""
    if isinstance(value, Scalar):
        return value.name
    if isinstance(value, Ref) and value.value not in names:
        raise NoFixedForm("a scale, or what is added, is made of other calls")
    return names[value.value] if isinstance(value, Ref) else ""


def _side(graph: Graph, operand: Value, axis: int) -> _Side:
    """Return what an operand was before it was dequantised. axis: the one that is not summed."""
    if not isinstance(operand, Ref):
        raise NoFixedForm("its product has no two operands")
    value, makers, names = operand.value, producers(graph), names_of(graph)
    scales, by_line = list[str](), False
    while value in makers:
        call = graph.calls[makers[value]]
        first, shape = reads(call)[0], graph.specs[value].shape
        if call.operator in _TURNS and graph.specs[first].shape == shape[::-1]:
            axis = 1 - axis
        elif call.operator == "aten::mul" and graph.specs[first].shape == shape:
            of = call.arguments[1]
            sizes = (1, 1, *(graph.specs[of.value].shape if isinstance(of, Ref) else ()))[-2:]
            if sizes[1 - axis] != 1:
                raise NoFixedForm("its scales change along what is summed")
            by_line |= sizes[axis] != 1
            scales.append(_name(of, names) + ".float().reshape(-1)" * isinstance(of, Ref))
        elif call.operator not in _CASTS:
            raise NoFixedForm(f"{call.label} stands between what was quantised and the product")
        value = first
    return _Side(value, axis, " * ".join(scales) or "1.0", by_line)


def _sizes(graph: Graph, x: _Side, w: _Side) -> tuple[str, int, int]:
    """Return of what the operands are, rows and columns. Raises NoFixedForm where the library takes none such."""
    of_x, of_w = graph.specs[x.value], graph.specs[w.value]
    kind = str(of_x.dtype)
    if kind not in _MULTIPLES or of_w.dtype != kind or (len(of_x.shape), len(of_w.shape)) != (2, 2):
        raise NoFixedForm("its operands are no matrices of int8, or of float8_e4m3fn, both")
    (rows, inner), columns = of_x.shape, of_w.shape[w.axis]
    if x.axis != 0 or {(of_x.strides or (0, 0))[1], (of_w.strides or (0, 0))[1 - w.axis]} != {1}:
        raise NoFixedForm("what is summed does not lie side by side in both operands")
    if inner % _MULTIPLES[kind] or columns % _MULTIPLES[kind] or rows <= _MOST_FEW[kind]:
        raise NoFixedForm(f"the library's product of {kind} takes no {rows} x {inner} x {columns}")
    return kind, rows, columns


def _product(graph: Graph, x: _Side, w: _Side, out: str, bias: str) -> list[str]:
    """Return the lines that make the product. Raises NoFixedForm where the library's takes no such operands."""
    kind, rows, columns = _sizes(graph, x, w)
    names = names_of(graph)
    pair = f"{names[x.value]}, {names[w.value]}{'.t()' * (w.axis == 0)}"
    if kind == _INT8:
        scaled = f"torch._int_mm({pair}).float() * ({x.scale}){'[:, None]' * x.by_line} * ({w.scale})"
        return [f"    found = ({scaled}{f' + {bias}' * bool(bias)}).to(torch.{out})"]
    if (by_line := x.by_line or w.by_line) and out != "bfloat16":
        raise NoFixedForm(f"a scale for each row gives bfloat16, and the product {out}")
    sides = ((x, rows, "[:, None]"), (w, columns, "[None]"))
    taken = [
        f"    of_{name} = torch.as_tensor({side.scale}, dtype=torch.float32, device={names[x.value]}.device)"
        + (f".expand({count}).contiguous(){turned}" if by_line else ".reshape(())")
        for name, (side, count, turned) in zip("xw", sides, strict=True)
    ]
    more = f", bias={bias}" * bool(bias)
    return [*taken, f"    found = torch._scaled_mm({pair}, of_x, of_w{more}, out_dtype=torch.{out})"]


FIX = Maker(narrow)
