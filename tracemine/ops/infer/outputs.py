"""Output rules: which rule tells the outputs of which operator is data (outputs.toml), a rule is a small function.

A rule gets the call and its row's parameters and returns one entry a tensor output, in the schema's order; lists of
tensors lie flat among them. None is an output that is not made (a gradient not asked for) or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tracemine.ops.infer.arguments import Arguments, Unknown, refuse_if
from tracemine.ops.infer.tensor import TensorSpec, contiguous
from tracemine.tables import table_beside

Outputs = Sequence[TensorSpec | None]
Rule = Callable[..., Outputs]

RULES: dict[str, Rule] = {}
_MODULES = ("arithmetic", "placement", "views", "networks")  # where the rules are


def rule(function: Rule) -> Rule:
    """Enter a function as the rule of its name."""
    RULES[function.__name__] = function
    return function


@cache
def table() -> dict[str, tuple[Rule, dict[str, Any]]]:
    """Return operator name without namespace → its rule and the parameters of its row."""
    for module in _MODULES:
        import_module(f"{__package__}.{module}")
    rows = table_beside(__file__, "outputs.toml")["outputs"]
    found: dict[str, tuple[Rule, dict[str, Any]]] = {}
    for row in rows:
        function, parameters = RULES[row["rule"]], {k: v for k, v in row.items() if k not in ("rule", "operators")}
        for name in row["operators"].split():
            assert name not in found, name  # noqa: S101  (our own data)
            found[name] = (function, parameters)
    return found


def outputs(call: Arguments) -> tuple[TensorSpec | None, ...]:
    """Return what the call makes or writes into. Raises Unknown, or what arithmetic on hostile sizes raises."""
    overload = call.overload
    wanted = [place for place, kind in enumerate(overload.outputs) if kind.startswith("Tensor")]
    if not wanted:
        return ()
    row = table().get(call.name) or table().get(call.name.removesuffix("_"))
    written = [target for place in wanted if (target := overload.aliases[place]) in overload.mutates]
    if len(written) == len(wanted) and _writes_all(call, written):
        return _into(call, written, row)
    if any(like is not None for like in overload.likes):
        return tuple(_like(call, like) for like in overload.likes)
    if row is None:
        raise Unknown("the operator has no output rule")
    function, parameters = row
    return tuple(function(call, **parameters))


def _writes_all(call: Arguments, written: Sequence[int]) -> bool:
    """Return whether what is written is the result: `t_` and the like write no element, unless as out=."""
    reshapes = call.overload.op_class == "view" or call.name == "resize_"
    return min(written) >= call.overload.positional or not reshapes


def _like(call: Arguments, argument: int | None) -> TensorSpec | None:
    """Return a new tensor of an argument's shape and dtype; None where it has no such argument."""
    given = None if argument is None else call.at(argument)
    return TensorSpec(given.shape, given.dtype, contiguous(given.shape)) if isinstance(given, TensorSpec) else None


def _into(
    call: Arguments, targets: Sequence[int], row: tuple[Rule, dict[str, Any]] | None
) -> tuple[TensorSpec | None, ...]:
    """Return the inputs that were written, in place or as out=. An empty out= is resized to the result."""
    found: list[TensorSpec | None] = []
    for target in targets:
        given = call.at(target)
        if isinstance(given, tuple):
            refuse_if(not given, "the members of a list were not recorded")
            found.extend(given)
        else:
            found.append(given)
    fresh = [place for place in targets if place in call.overload.overwrites and place >= call.overload.positional]
    if row is None or not fresh or len(found) != len(fresh) or not all(t is not None and not t.elements for t in found):
        return tuple(found)
    function, parameters = row
    made = tuple(function(call, **parameters))
    return tuple(
        None if result is None else TensorSpec(result.shape, target.dtype, _certain(result))
        for result, target in zip(made, found, strict=True)
        if target is not None
    )


def _certain(result: TensorSpec) -> tuple[int, ...] | None:
    """Return strides of a result in a resized out=: row-major ones; whether others are kept differs by operator."""
    return result.strides if result.strides == contiguous(result.shape) else None
