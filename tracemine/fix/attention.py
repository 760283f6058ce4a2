"""Attention written in lines of one block, as the fused operator that says the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import libcst as cst

from tracemine.fix.place import Changes, Place, Refused, named, positional
from tracemine.fix.values import number

_PRODUCTS = ("torch.matmul", "torch.bmm")
_SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")
_LAST_TWO = {"-2, -1", "-1, -2", "2, 3", "3, 2"}
_INFINITE = ('float("-inf")', "-torch.inf", "-math.inf", '-float("inf")')
_WIDENS = ("float", "to", "type_as", "type")


class _Block(NamedTuple):
    """The assignments in front of a statement, that bind names in it: those that are used."""

    before: list[tuple[str, cst.BaseExpression]]
    used: list[int]


def attention(place: Place) -> Changes:
    """Put `scaled_dot_product_attention` in the place of both products and all in between."""
    found = [c for c in place.scoped(cst.Call) if _softmax(place, c) is not None]
    softmax = place.one(found, "a softmax over the last axis")
    first = place.statement(softmax)
    block = place.parent(first)
    if not isinstance(block, cst.IndentedBlock):
        raise Refused("it stands in no block of its own")
    rows = list(block.body)
    start = rows.index(first)
    for at in range(start, min(start + 4, len(rows))):
        for node in _products(place, rows[at]):
            lines = _Block(_assignments(place, rows[:at]), [])
            probabilities, value = _operands(place, node)
            if _stripped(place, _inlined(lines, probabilities, at)[0]) is softmax:
                return _changed(place, rows, at, node, value, softmax)
    raise Refused("what multiplies the probabilities is not in the next lines")


def _changed(
    place: Place,
    rows: list[cst.BaseStatement],
    at: int,
    node: cst.CSTNode,
    value: cst.BaseExpression,
    softmax: cst.Call,
) -> Changes:
    lines = _Block(_assignments(place, rows[:at]), [])
    probabilities, _ = _operands(place, node)
    _, upto = _inlined(lines, probabilities, at)
    scores = _softmax(place, softmax)
    assert scores is not None  # noqa: S101  (it was found by that)
    text = _call(place, lines, scores, upto, value)
    gone = sorted(set(lines.used))
    for k in range(gone[0] if gone else at, at):
        if k not in gone and not _stands_apart(place, lines, rows, gone, k):
            raise Refused("other lines stand between those of the attention")
    _unread(place, rows, gone, at)
    changes: Changes = {rows[k]: cst.RemoveFromParent() for k in gone}
    changes[node] = cst.parse_expression(text)
    return changes


def _stands_apart(place: Place, lines: _Block, rows: list[cst.BaseStatement], gone: list[int], k: int) -> bool:
    """Return whether a line between makes a name that the lines before do not read, and reads none of theirs."""
    name = lines.before[k][0]
    reads = {n.value for n in place.every(cst.Name, lines.before[k][1])}
    writes = any(
        c.func.attr.value.endswith("_") for c in place.every(cst.Call, rows[k]) if isinstance(c.func, cst.Attribute)
    )
    others = {n.value for at in gone if at < k for n in place.every(cst.Name, lines.before[at][1])}
    return bool(name) and not writes and name not in others and not reads & {lines.before[at][0] for at in gone}


def _assignments(place: Place, rows: list[cst.BaseStatement]) -> list[tuple[str, cst.BaseExpression]]:
    """Return of each statement the name that it assigns and what; "" where it is no such."""
    found: list[tuple[str, cst.BaseExpression]] = []
    for row in rows:
        only: Any = row.body[0] if isinstance(row, cst.SimpleStatementLine) and len(row.body) == 1 else None
        plain = isinstance(only, cst.Assign) and len(only.targets) == 1 and isinstance(only.targets[0].target, cst.Name)
        found.append((place.code(only.targets[0].target), only.value) if plain else ("", cst.Name("_")))
    return found


def _inlined(lines: _Block, node: cst.BaseExpression, upto: int) -> tuple[cst.BaseExpression, int]:
    """Return what a name is bound to, and the statement that binds it."""
    while isinstance(node, cst.Name):
        at = next((k for k in range(upto - 1, max(upto - 6, -1), -1) if lines.before[k][0] == node.value), None)
        if at is None:
            break
        lines.used.append(at)
        node, upto = lines.before[at][1], at
    return node, upto


def _products(place: Place, row: cst.CSTNode) -> list[cst.BaseExpression]:
    calls = [c for c in place.every(cst.Call, row) if place.full_name(c.func) in _PRODUCTS]
    return [*calls, *(b for b in place.every(cst.BinaryOperation, row) if isinstance(b.operator, cst.MatrixMultiply))]


def _operands(place: Place, node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        return node.left, node.right
    if isinstance(node, cst.Call) and place.full_name(node.func) in _PRODUCTS and len(positional(node)) == 2:
        left, right = positional(node)
        return left.value, right.value
    raise Refused("the scores are no product alone")


def _stripped(place: Place, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return a value without casts around it."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _WIDENS:
        node = node.func.value
    return node


def _softmax(place: Place, call: cst.Call) -> cst.BaseExpression | None:
    """Return what a softmax over the last axis is taken of; None: it is no such."""
    try:
        given, names = positional(call), named(call)
    except Refused:
        return None
    method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "softmax"
    if place.full_name(call.func) in _SOFTMAX and given:
        of, given = given[0].value, given[1:]
    elif method and not place.full_name(call.func).startswith("torch."):
        of = call.func.value
    else:
        return None
    dims = [*(arg.value for arg in given), *(arg.value for name, arg in names.items() if name == "dim")]
    plain = set(names) <= {"dim", "dtype"} and [place.code(dim) for dim in dims] == ["-1"]
    return of if plain else None


def _call(place: Place, lines: _Block, scores: cst.BaseExpression, upto: int, value: cst.BaseExpression) -> str:
    """Return the call of the fused operator."""
    node, upto = _inlined(lines, _stripped(place, scores), upto)
    node, mask, scale = _stripped(place, node), "", "1.0"
    hidden = _hidden(place, node)
    if hidden is not None:
        mask = f", attn_mask=~({place.code(hidden[1])})"
        node, upto = _inlined(lines, hidden[0], upto)
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        added = node.right
        mask = f", attn_mask=({place.code(added)}).to(QUERY.dtype)"
        node, upto = _inlined(lines, node.left, upto)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide | cst.Multiply):
        by = node.right
        if not number(place, by):
            raise Refused(f"whether {place.code(by)[:40]} is a number is not known")
        scale = f"1 / ({place.code(by)})" if isinstance(node.operator, cst.Divide) else place.code(by)
        node, upto = _inlined(lines, node.left, upto)
    query, key = _operands(place, node)
    key, upto = _inlined(lines, key, upto)
    q = place.code(query)
    whole = q if isinstance(query, cst.Name | cst.Attribute | cst.Call | cst.Subscript) else f"({q})"
    given = f"{q}, {place.code(_turned(place, key))}, {place.code(value)}{mask.replace('QUERY', whole)}, scale={scale}"
    return f"{place.imported('torch')}.nn.functional.scaled_dot_product_attention({given})"


def _hidden(place: Place, node: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return scores and the mask of those that are hidden, of `scores.masked_fill(mask, float("-inf"))`."""
    if (
        not isinstance(node, cst.Call)
        or not isinstance(node.func, cst.Attribute)
        or node.func.attr.value != "masked_fill"
    ):
        return None
    given = [arg.value for arg in positional(node)]
    infinite = len(given) == 2 and place.code(given[1]).replace("'", '"') in _INFINITE
    return (node.func.value, given[0]) if infinite else None


def _turned(place: Place, key: cst.BaseExpression) -> cst.BaseExpression:
    """Return the keys of keys whose last two axes are exchanged. Raise Refused for others."""
    if isinstance(key, cst.Attribute) and key.attr.value == "mT":
        return key.value
    plain = isinstance(key, cst.Call) and isinstance(key.func, cst.Attribute) and key.func.attr.value == "transpose"
    if plain and ", ".join(place.code(arg.value) for arg in positional(key)) in _LAST_TWO:
        return key.func.value
    raise Refused("the keys are not transposed in their last two axes")


def _unread(place: Place, rows: list[cst.BaseStatement], gone: list[int], at: int) -> None:
    """Raise Refused where what the lines name is read elsewhere in the function."""
    function = place.function_of(rows[at])
    inside = {id(n) for k in (*gone, at) for n in place.every(cst.Name, rows[k])}
    for k in gone:
        name = place.code(rows[k].body[0].targets[0].target)
        others = [n for n in place.every(cst.Name, function) if n.value == name and id(n) not in inside]
        if any(place.line(n) > place.line(rows[at]) for n in others) or any(
            place.function_of(n) is not function for n in others
        ):
            raise Refused(f"{name} is read elsewhere too")
