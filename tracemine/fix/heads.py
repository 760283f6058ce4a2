"""The edit that computes a head and its cross-entropy in strips of rows."""

from __future__ import annotations

from typing import Final

import libcst as cst

from tracemine.fix.place import Changes, Place, Refused, followed, named, positional

_LOSS: Final = "torch.nn.functional.cross_entropy"
_RESHAPED: Final = frozenset({"view", "reshape", "flatten", "float", "contiguous"})
_NAMES: Final = {"weight": "class_weights", "ignore_index": "ignore_index", "reduction": "reduction"}
_TAKEN: Final = {**_NAMES, "label_smoothing": "label_smoothing"}


def loss_in_strips(place: Place) -> Changes:
    """Put linear_cross_entropy in the place of a head's cross-entropy. Raise Refused."""
    calls = [c for c in place.scoped(cst.Call) if place.full_name(c.func) == _LOSS]
    losses = list[tuple[cst.Call, Changes]]()
    refused = list[str]()
    for call in calls:
        try:
            losses.append((call, _changed(place, call)))
        except Refused as why:
            refused.append(str(why))
    if len(losses) != 1:
        raise Refused(refused[0] if refused else f"{len(losses)} cross-entropies of a head's logits")
    changes = losses[0][1]
    imports = [line for line in place.module.body if _imports(line)]
    if not imports:
        raise Refused("the file imports nothing")
    changes[imports[-1]] = followed("from linear_losses import linear_cross_entropy")
    return changes


def _imports(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Import | cst.ImportFrom)


def _changed(place: Place, call: cst.Call) -> Changes:
    given, names = positional(call), named(call)
    if len(given) != 2 or set(names) - set(_TAKEN):
        raise Refused("its loss has other arguments than logits and labels")
    changes: Changes = {}
    logits = _peeled(place, given[0].value)
    if isinstance(logits, cst.Name):
        assign = place.assigned(logits.value, call)
        readers = [n for n in place.every(cst.Name) if n.value == logits.value and n not in (logits, _target(assign))]
        if readers or place.function_of(assign) is not place.function_of(call):
            raise Refused(f"{logits.value} is read elsewhere too")
        changes[place.statement(assign)] = cst.RemoveFromParent()
        logits = _peeled(place, assign.value)
    if not isinstance(logits, cst.Call) or len(logits.args) != 1 or len(positional(logits)) != 1:
        raise Refused("what its logits are is not one call of a head")
    head = place.code(logits.func)
    bias = f", bias={head}.bias" if _has_bias(place, head, call) else ""
    more = "".join(f", {_TAKEN[name]}={place.code(arg.value)}" for name, arg in names.items())
    hidden, labels = place.code(logits.args[0].value), place.code(given[1].value)
    changes[call] = cst.parse_expression(f"linear_cross_entropy({hidden}, {head}.weight, {labels}{bias}{more})")
    return changes


def _target(assign: cst.Assign) -> cst.CSTNode:
    return assign.targets[0].target


def _peeled(place: Place, node: cst.BaseExpression) -> cst.BaseExpression:
    """Return logits without what lays them out in rows, or makes them wide."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        wide = node.func.attr.value == "to" and [place.code(a.value) for a in node.args] == ["torch.float32"]
        if node.func.attr.value not in _RESHAPED and not wide:
            break
        node = node.func.value
    return node


def _has_bias(place: Place, head: str, at: cst.CSTNode) -> bool:
    """Return whether a head has a bias. Raise Refused where it is not known to be a linear layer of this file."""
    made = _made(place, head, at)
    while (
        isinstance(made, cst.Call) and isinstance(made.func, cst.Attribute) and made.func.attr.value in ("to", "cuda")
    ):
        made = made.func.value
    if not isinstance(made, cst.Call) or place.full_name(made.func) != "torch.nn.Linear":
        raise Refused(f"whether {head} is a Linear is not known")
    given, names = positional(made), named(made)
    bias = given[2].value if len(given) > 2 else names["bias"].value if "bias" in names else None
    if bias is not None and place.code(bias) not in ("True", "False"):
        raise Refused(f"whether {head} has a bias is not known")
    return bias is None or place.code(bias) == "True"


def _made(place: Place, head: str, at: cst.CSTNode) -> cst.BaseExpression:
    """Return what a head is assigned; one of several that a line assigns too."""
    for assign in place.every(cst.Assign):
        targets, values = _target(assign), assign.value
        if isinstance(targets, cst.Tuple) and isinstance(values, cst.Tuple):
            pairs = zip(targets.elements, values.elements, strict=False)
            found = [value.value for target, value in pairs if place.code(target.value) == head]
            if len(found) == 1 and len(targets.elements) == len(values.elements):
                return found[0]
    return place.assigned(head, at).value
