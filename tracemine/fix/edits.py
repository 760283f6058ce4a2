"""Changes of the user's source, by name. Each gives what stands in a node's place, or refuses and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import libcst as cst

from tracemine.fix.attention import attention
from tracemine.fix.heads import loss_in_strips
from tracemine.fix.place import Changes, Place, Refused, followed, named, positional, with_arguments
from tracemine.fix.values import kept_values, number, wrapped

_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
_FOREACH = frozenset({"mul_", "add_", "sub_", "div_", "lerp_", "zero_", "copy_"})
_LOADER = {"num_workers": "8", "pin_memory": "True", "persistent_workers": "True"}


class _Optimizer(NamedTuple):
    """An optimizer that a place steps: its assignment, its constructor, what it is called, and its class."""

    assign: cst.Assign
    made: cst.Call
    target: str
    kind: str


def _optimizers(place: Place) -> list[_Optimizer]:
    found: dict[str, _Optimizer] = {}
    refused: list[str] = []
    for call in place.calls("step"):
        assert isinstance(call.func, cst.Attribute)  # noqa: S101  (`calls` gives no others)
        target = place.code(call.args[0].value if call.args else call.func.value)
        try:
            assign = place.assigned(target, call)
        except Refused as why:
            refused.append(str(why))
            continue
        made = assign.value
        kind = place.full_name(made.func) if isinstance(made, cst.Call) else ""
        if isinstance(made, cst.Call) and kind.startswith("torch.optim.") and kind.count(".") == 2:
            found[target] = _Optimizer(assign, made, target, kind.rpartition(".")[2])
    said = place.finding.title.rpartition(": ")[2]
    of_class = [optimizer for optimizer in found.values() if optimizer.kind == said or ": " not in place.finding.title]
    if not of_class:
        raise Refused(refused[0] if refused else "no optimizer of that class is stepped there")
    return of_class


def _fused(place: Place) -> Changes:
    changes: Changes = {}
    for optimizer in _optimizers(place):
        if optimizer.kind not in _FUSED or "differentiable" in named(optimizer.made):
            raise Refused(f"{optimizer.kind} has no fused step, or not a differentiable one")
        changes[optimizer.made] = with_arguments(optimizer.made, without=["foreach"], fused="True")
    return changes


def _compiled_step(place: Place) -> Changes:
    torch, found = place.imported("torch"), _optimizers(place)
    return {place.statement(o.assign): followed(f"{o.target}.step = {torch}.compile({o.target}.step)") for o in found}


def _to_none(place: Place) -> Changes:
    changes: Changes = {}
    for call in place.calls("zero_grad"):
        given = [*positional(call), *named(call).values()]
        if len(given) > 1 or (given and place.code(given[0].value) != "False"):
            continue
        bare = call.with_changes(args=[])
        changes[call] = with_arguments(bare, set_to_none="True")
    for line in place.scoped(cst.SimpleStatementLine):
        text = place.code(line).strip()
        if text.endswith(".grad.zero_()") and text.count("(") == 1 and "=" not in text:
            new = cst.parse_statement(f"{text.removesuffix('.zero_()')} = None\n")
            changes[line] = new.with_changes(leading_lines=line.leading_lines)
    return _some(changes, "zero_grad that fills, or grad.zero_()", place)


def _some(changes: Changes, what: str, place: Place) -> Changes:
    if not changes:
        raise Refused(f"{what}: there is none in {place.source.function}")
    return changes


def _to_device(place: Place, call: cst.Call) -> str | None:
    """Return the device that `.to()` or `.cuda()` names; None: none, or the host."""
    assert isinstance(call.func, cst.Attribute)  # noqa: S101
    given, names = positional(call), named(call)
    if call.func.attr.value == "cuda":
        return place.code(given[0].value) if given else '"cuda"'
    device = names["device"].value if "device" in names else given[0].value if given else None
    if device is None or len(given) > 1:
        return None
    text = place.code(device)
    is_one = text.strip("\"'").startswith("cuda") or text.rpartition(".")[2].endswith("device")
    return text if is_one else None


def _not_blocking(place: Place) -> Changes:
    if not all("HtoD" in kernel for kernel in place.finding.kernels) or not place.finding.kernels:
        raise Refused("not all copies go to the device: what is copied back must be waited for")
    moves = [call for call in place.calls("to", "cuda") if _to_device(place, call) is not None]
    waits = [
        c for c in moves if "non_blocking" not in named(c) or place.code(named(c)["non_blocking"].value) == "False"
    ]
    changes: Changes = {call: with_arguments(call, non_blocking="True") for call in waits}
    changes.update(_loaders(place, {"pin_memory": "True"}))
    return _some(changes, "a copy to the device without non_blocking", place)


def _loaders(place: Place, wanted: Mapping[str, str]) -> Changes:
    found = [c for c in place.every(cst.Call) if place.full_name(c.func) == "torch.utils.data.DataLoader"]
    if len(found) != 1:
        return {}
    lacks = {name: text for name, text in wanted.items() if name not in named(found[0])}
    return {found[0]: with_arguments(found[0], **lacks)} if lacks else {}


def _loader(place: Place) -> Changes:
    return _some(_loaders(place, _LOADER), "the only DataLoader of the file, without workers", place)


def _tensors(place: Place) -> Changes:
    """Make tensors of lists in pinned memory: the copy of others waits. A number needs no copy."""
    changes: Changes = {}
    torch = place.imported("torch")
    for call in place.scoped(cst.Call):
        made = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not isinstance(made, cst.Call) or place.full_name(made.func) != "torch.tensor":
            continue
        if call.func.attr.value not in ("to", "cuda") or set(named(made)) - {"dtype"} or len(positional(made)) != 1:
            continue
        device = _to_device(place, call)
        if device is None or set(named(call)) - {"device", "non_blocking"}:
            continue
        value, dtype = positional(made)[0].value, named(made)
        text = place.code(value)
        kind = f", dtype={place.code(dtype['dtype'].value)}" if dtype else ""
        pinned = f'{torch}.tensor({text}{kind}, device="cpu", pin_memory={torch}.cuda.is_available())'
        filled = f"{torch}.full((), {text}{kind}, device={device})"
        plain = isinstance(value, cst.Integer | cst.Float)
        changes[call] = cst.parse_expression(filled if plain else f"{pinned}.to({device}, non_blocking=True)")
    return _some(changes, "torch.tensor(…).to(device)", place)


def _autocast(place: Place) -> Changes:
    function, torch = place.function, place.imported("torch")
    if function is None:
        raise Refused("no function is named that could be decorated")
    text = place.code(function)
    if any(word in text for word in ("autocast", "yield", "async ", "backward(")):
        raise Refused("it has autocast, trains, or is no plain function")
    half = "float16" if "torch.float16" in place.finding.fix else "bfloat16"  # as it advises: not every GPU has both
    lines = [f'{torch}.autocast("cuda", dtype={torch}.{half})']
    lines = [*([] if "no_grad" in text or "inference_mode" in text else [f"{torch}.no_grad()"]), *lines]
    new = [cst.Decorator(cst.parse_expression(line)) for line in lines]
    return {function: lambda became: became.with_changes(decorators=[*new, *became.decorators])}


def _channels_last(place: Place) -> Changes:
    names = {place.code(call.func) for call in place.scoped(cst.Call)}
    changes: Changes = {}
    for assign in place.every(cst.Assign):
        made, target = assign.value, place.code(assign.targets[0].target)
        moved = (
            isinstance(made, cst.Call)
            and isinstance(made.func, cst.Attribute)
            and made.func.attr.value in ("to", "cuda")
        )
        if target in names and moved and isinstance(made, cst.Call) and "memory_format" not in named(made):
            place.assigned(target, assign)
            layout = f"{place.imported('torch')}.channels_last"
            bare = place.code(made.func).endswith(".cuda")
            changes[made] = (
                cst.parse_expression(f"{place.code(made)}.to(memory_format={layout})")
                if bare
                else with_arguments(made, memory_format=layout)
            )
    if len(changes) > 1:
        raise Refused("several models are called there")
    return _some(changes, "a model that is called there, and that this file moves to a device", place)


def _scaler_off(place: Place) -> Changes:
    found = [c for c in place.every(cst.Call) if place.full_name(c.func).endswith("GradScaler")]
    made = place.one(found, "a GradScaler")
    return {made: with_arguments(made, enabled="False")}


def _foreach(place: Place) -> Changes:
    found = [(loop, text) for loop in place.scoped(cst.For) if (text := _over_lists(place, loop)) is not None]
    if len(found) != 1:
        raise Refused(f"{len(found)} loops of one call in place for each tensor")
    loop, text = found[0]
    first, *rest = [cst.parse_statement(f"{part}\n") for part in text.split("; ")]
    return {loop: cst.FlattenSentinel([first.with_changes(leading_lines=loop.leading_lines), *rest])}


def _over_lists(place: Place, loop: cst.For) -> str | None:
    """Return the call over lists that says what a loop says; None: it does more, or something else."""
    call = _only_call(loop)
    lists, calls = _lists(place, loop), list[str]()
    while isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):  # a chain of them, the last one first
        text = _over_list(place, call, lists)
        if text is None:
            return None
        calls, call = [text, *calls], call.func.value
    own = lists.get(place.code(call)) if call is not None else None
    return None if own is None or not calls else "; ".join(text.replace("OWN", own, 1) for text in calls)


def _only_call(loop: cst.For) -> cst.BaseExpression | None:
    """Return the call that is all that a loop does; None: it does more."""
    body = loop.body.body
    line = body[0] if len(body) == 1 and isinstance(loop.body, cst.IndentedBlock) else None
    only = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    return only.value if isinstance(only, cst.Expr) and not loop.orelse and not loop.asynchronous else None


def _over_list(place: Place, call: cst.Call, lists: Mapping[str, str]) -> str | None:
    """Return one call over a list, `OWN`; None: its arguments are neither lists nor numbers."""
    assert isinstance(call.func, cst.Attribute)  # noqa: S101
    name, more = call.func.attr.value, named(call)
    if name not in _FOREACH or set(more) - ({"alpha"} if name in ("add_", "sub_") else set()):
        return None
    given = positional(call)
    others = [arg.value for arg in (*given, *more.values()) if place.code(arg.value) not in lists]
    if not all(number(place, value) for value in others) or (more and place.code(given[0].value) not in lists):
        return None
    texts = [
        *(lists.get(t := place.code(arg.value), t) for arg in given),
        *(f"alpha={place.code(a.value)}" for a in more.values()),
    ]
    return f"{place.imported('torch')}._foreach_{name}({', '.join(['OWN', *texts])})"


def _lists(place: Place, loop: cst.For) -> dict[str, str]:
    """Return by each variable of a loop the list that it goes through; nothing where that is not plain."""
    iterated, target = loop.iter, loop.target
    if isinstance(target, cst.Name):
        plain = isinstance(iterated, cst.Name | cst.Attribute) or place.code(iterated).endswith(".parameters()")
        return {target.value: f"list({place.code(iterated)})"} if plain else {}
    if not isinstance(target, cst.Tuple) or not isinstance(iterated, cst.Call) or place.code(iterated.func) != "zip":
        return {}
    names, given = [place.code(e.value) for e in target.elements], positional(iterated)
    plain = all(isinstance(arg.value, cst.Name | cst.Attribute) for arg in given) and len(names) == len(given)
    return {n: f"list({place.code(arg.value)})" for n, arg in zip(names, given, strict=True)} if plain else {}


def _unprinted(place: Place) -> Changes:
    prints = [call for call in place.scoped(cst.Call) if place.code(call.func) == "print"]
    line = place.statement(place.one(prints, "a print"))
    return {line: wrapped(f"not {place.imported('torch')}.compiler.is_compiling()")}


EDITS: Final[Mapping[str, Callable[[Place], Changes]]] = {
    "fused_optimizer": _fused,
    "compiled_step": _compiled_step,
    "gradients_to_none": _to_none,
    "values_kept": kept_values,
    "copies_not_blocking": _not_blocking,
    "tensors_pinned": _tensors,
    "loader_ahead": _loader,
    "attention_fused": attention,
    "autocast": _autocast,
    "channels_last": _channels_last,
    "scaler_off": _scaler_off,
    "over_lists": _foreach,
    "print_guarded": _unprinted,
    "loss_in_strips": loss_in_strips,
}


def edited(place: Place, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the file with those edits that know it, and why others do not. Raise Refused where none does."""
    changes: Changes = {}
    refused: list[str] = []
    for name in names:
        try:
            new = EDITS[name](place)
            changes.update({node: with_ for node, with_ in new.items() if node not in changes})
        except Refused as why:
            refused.append(f"{name}: {why}")
    if not changes:
        raise Refused("; ".join(refused))
    return place.changed(changes), refused
