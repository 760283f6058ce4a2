"""Values that are fetched in each iteration of a loop: kept on the device and fetched behind it, or logged less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from tracemine.fix.place import Changes, Place, Refused, positional

_LOGS = frozenset({"print", "info", "debug", "warning", "log", "add_scalar", "write", "set_postfix", "log_metrics"})
_LOOPS = (cst.For, cst.While)
_EVERY = 100  # iterations between two lines of a log


def number(place: Place, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a plain number, as far as the file tells: no tensor."""
    if isinstance(node, cst.UnaryOperation):
        return number(place, node.expression)
    if isinstance(node, cst.Name | cst.Attribute):
        try:
            return number(place, place.assigned(place.code(node), node).value)
        except (Refused, RecursionError):
            return False
    if isinstance(node, cst.BinaryOperation):
        root = isinstance(node.operator, cst.Power) and place.code(node.right).strip("()") in ("0.5", "-0.5")
        return root or (number(place, node.left) and number(place, node.right))
    is_root = isinstance(node, cst.Call) and place.full_name(node.func) in ("math.sqrt", "numpy.sqrt")
    return is_root or isinstance(node, cst.Integer | cst.Float)


def wrapped(condition: str) -> Callable[[Any], cst.If]:
    """Return what puts a statement under a condition, the comments above it too."""

    def around(line: Any) -> cst.If:
        body = cst.IndentedBlock([line.with_changes(leading_lines=[])])
        return cst.If(test=cst.parse_expression(condition), body=body, leading_lines=line.leading_lines)

    return around


def kept_values(place: Place) -> Changes:
    """Take `.item()` out of loops: sums and lists are fetched behind them, what is printed is printed less often."""
    changes: Changes = {}
    refused: list[str] = []
    for call in place.scoped(cst.Call):
        inner = _fetched(place, call)
        known = [place.full_name(n) for n in place.every(cst.Attribute, call)]
        if inner is None or any(name.startswith(("numpy.", "jax.")) for name in known):
            continue
        try:
            for node, new in _kept(place, call, inner).items():
                changes[node] = _both(changes[node], new) if node in changes and node is not call else new
        except Refused as why:
            refused.append(f"line {place.line(call)}: {why}")
    if not changes:
        raise Refused("; ".join(dict.fromkeys(refused)) or f"no .item() in {place.source.function}")
    return changes


def _both(first: Any, second: Any) -> Any:
    """Return what puts two lines behind one loop; of a line that is logged twice in one, what the first says."""
    if isinstance(first, _Behind) and isinstance(second, _Behind):
        return _Behind([*first.texts, *second.texts])
    return first


class _Behind:
    """Puts lines behind a loop."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __call__(self, loop: Any) -> cst.FlattenSentinel[Any]:
        return cst.FlattenSentinel([loop, *(cst.parse_statement(f"{text}\n") for text in self.texts)])


def _fetched(place: Place, call: cst.Call) -> str | None:
    """Return the tensor that a call fetches, kept on the device; None: it is no such call."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "item" and not call.args:
        return f"{place.code(call.func.value)}.detach()"
    if place.code(call.func) != "int" or len(call.args) != 1:
        return None
    summed = call.args[0].value  # a comparison's sum is whole: nothing is cut off
    if not isinstance(summed, cst.Call) or not isinstance(summed.func, cst.Attribute) or summed.args:
        return None
    compared = summed.func.attr.value == "sum" and isinstance(summed.func.value, cst.Comparison)
    return place.code(summed) if compared and summed.func.value.lpar else None


def _kept(place: Place, call: cst.Call, inner: str) -> Changes:
    line = place.statement(call)
    loop = next((n for n in place.around(line, *_LOOPS) if place.function_of(n) is place.function_of(line)), None)
    if loop is None:
        raise Refused("it stands in no loop of its function: fetch it a step later, or every hundredth step")
    statement = line.body[0]
    if (
        isinstance(statement, cst.AugAssign)
        and statement.value is call
        and isinstance(statement.operator, cst.AddAssign)
    ):
        return _summed(place, loop, statement, call, inner)
    said = statement.value if isinstance(statement, cst.Expr) else None
    if isinstance(said, cst.Call) and place.code(said.func).rpartition(".")[2] in _LOGS:
        return {line: wrapped(f"{_turn(place, loop)} % {_EVERY} == 0")}
    if isinstance(said, cst.Call) and isinstance(said.func, cst.Attribute) and [a.value for a in said.args] == [call]:
        return _listed(place, loop, said.func, call, inner)
    raise Refused("what is fetched is used at once")


def _listed(place: Place, loop: cst.CSTNode, method: cst.Attribute, call: cst.Call, inner: str) -> Changes:
    name, torch = place.code(method.value), place.imported("torch")
    if method.attr.value != "append":
        raise Refused("what is fetched is used at once")
    _alone(place, loop, name, ("[]",))
    behind = f"{name}[:] = [value.item() if {torch}.is_tensor(value) else value for value in {name}]"
    return {call: cst.parse_expression(f"{inner}.clone()"), loop: _Behind([behind])}


def _summed(place: Place, loop: cst.CSTNode, statement: cst.AugAssign, call: cst.Call, inner: str) -> Changes:
    name, whole = place.code(statement.target), place.code(call.func) == "int"
    _alone(place, loop, name, ("0",) if whole else ("0.0", "0.", "float(0)"))
    kept = inner if whole else f"{inner}.double()"
    behind = f"{name} = {'int' if whole else 'float'}({name})"
    return {call: cst.parse_expression(kept), loop: _Behind([behind])}


def _alone(place: Place, loop: cst.CSTNode, name: str, begins: tuple[str, ...]) -> None:
    """Raise Refused where a loop reads a name elsewhere, or it does not begin in its function as one of these."""
    function = place.function_of(loop)
    if not name.isidentifier() or function is None:
        raise Refused(f"{name} is no variable of a function")
    if sum(n.value == name for n in place.every(cst.Name, loop)) != 1:
        raise Refused(f"{name} is read in the loop too")
    every = [n for n in place.every(cst.Name, function) if n.value == name]
    if any(place.function_of(n) is not function for n in every):
        raise Refused(f"{name} is read by another function too")
    first = place.parent(place.parent(every[0]))
    if not isinstance(first, cst.Assign) or place.code(first.value) not in begins:
        raise Refused(f"{name} does not begin as {begins[0]} in its function")


def _turn(place: Place, loop: cst.CSTNode) -> str:
    """Return the variable that counts a loop's iterations. Raise Refused where it has none."""
    counted = loop.iter if isinstance(loop, cst.For) else None
    kind = place.code(counted.func) if isinstance(counted, cst.Call) else ""
    if isinstance(loop, cst.For) and isinstance(counted, cst.Call) and positional(counted):
        target = loop.target
        if kind == "range" and isinstance(target, cst.Name):
            return str(target.value)
        if kind == "enumerate" and isinstance(target, cst.Tuple) and isinstance(target.elements[0].value, cst.Name):
            return str(target.elements[0].value.value)
    raise Refused("the loop counts no iterations: neither range nor enumerate")
