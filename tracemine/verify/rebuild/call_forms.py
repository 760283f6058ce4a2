"""The call that represents a node in a graph: its own, or the call around it that allocated what it fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tracemine.ops import Overload, lookup, overload_of
from tracemine.ops.infer.tensor import channels_last, contiguous, like
from tracemine.verify.rebuild.arguments import Plain
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor
from tracemine.verify.rebuild.view_recovery import Layout

# Operators that make a new tensor and have another fill it: what is filled held no values before.
_ALLOCATE = frozenset(
    f"aten::{name}"
    for name in (
        "_to_copy", "clone", "contiguous", "to", "reshape", "flatten", "zeros", "zeros_like", "ones",
        "ones_like", "full", "full_like", "new_zeros", "new_ones", "new_full", "scalar_tensor", "lift_fresh_copy",
    )
)  # fmt: skip
FILLS = ("aten::zero_", "aten::fill_")
# Operators that make a new tensor of random numbers, by what fills it, and the one that says so by sizes alone.
_DRAWS = {
    "aten::uniform_": ("aten::rand", ("aten::rand", "aten::rand_like")),
    "aten::normal_": ("aten::randn", ("aten::randn", "aten::randn_like")),
}
_PRESERVE, _CONTIGUOUS, _CHANNELS_LAST = None, 0, 2  # numbers of torch.memory_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An overload, and where its arguments come from among those of the recorded one."""

    operator: str
    overload: Overload
    recorded: Overload
    renamed: Mapping[str, str] = field(default_factory=dict)  # argument: the recorded one that is given for it
    fixed: Mapping[str, Plain] = field(default_factory=dict)  # arguments with values of their own
    dropped: frozenset[int] = frozenset()  # recorded positions that are not taken
    shape: tuple[int, ...] | None = None  # what the tensor that is copied is repeated to
    assumptions: tuple[str, ...] = ()

    @property
    def gives_new(self) -> bool:
        """Return whether its results are new tensors, and not those that it writes in place."""
        return not self.overload.mutates or None in self.overload.aliases

    def place(self, argument: str) -> int | None:
        """Return the recorded position of an argument; None where nothing was given for it."""
        name = self.renamed.get(argument, argument)
        places = {a.name: at for at, a in enumerate(self.recorded.arguments)}
        at = places.get(name)
        return None if at in self.dropped else at


def form_of(facts: CallFacts, recorded: Overload) -> Form | str:
    """Return the form of a call; where there is none, the reason."""
    name, around = facts.operator, _around(facts)
    if name == "aten::copy_" and around in _ALLOCATE:
        return _copied(facts, recorded)
    if fills_new(facts) and recorded.name in ("", "Scalar"):
        return _filled(facts, recorded)
    if around in _DRAWS.get(name, ("", ()))[1]:
        return _new(facts, recorded, _DRAWS[name][0], {})
    if recorded.overwrites and "out" in recorded.name:
        return _without_out(facts, recorded)
    form = Form(operator=name, overload=recorded, recorded=recorded)
    if name == "aten::fill_" and any(s.position == 1 and s.on_host and not s.layout.shape for s in facts.inputs):
        return replace(form, overload=_named(name, "Scalar"))
    told = facts.reduced
    if told is not None and {"dim", "keepdim"} <= {a.name for a in recorded.arguments}:
        return replace(form, fixed={"dim": told.axes, "keepdim": told.keeps}, assumptions=(told.says,))
    return form


def _around(facts: CallFacts) -> str:
    """Return the innermost operator around a call that is no fill itself; "" where there is none."""
    return next((p for p in facts.parents if p not in FILLS), "")


def fills_new(facts: CallFacts) -> bool:
    """Return whether a call fills memory that the call around it allocated, and gives it with that."""
    return facts.operator in FILLS and _around(facts) in _ALLOCATE


def in_memory_order(facts: CallFacts) -> CallFacts:
    """Return a call that fills new memory with its axes in memory order: any other order of them is a view of that."""
    makes = fills_new(facts) or any(p in _DRAWS.get(facts.operator, ("", ()))[1] for p in facts.parents)
    if not makes or not all(seen.layout.is_known for seen in facts.outputs):
        return facts
    return replace(facts, outputs=tuple(replace(seen, layout=_ordered(seen.layout)) for seen in facts.outputs))


def _ordered(layout: Layout) -> Layout:
    """Return axes from the widest stride to the narrowest; where those of one element stand says nothing."""
    axes = sorted(
        zip(layout.shape, layout.strides, strict=True), key=lambda axis: -axis[1] if axis[0] > 1 else -(1 << 62)
    )
    return replace(layout, shape=tuple(n for n, _ in axes), strides=tuple(s for _, s in axes))


def _copied(facts: CallFacts, recorded: Overload) -> Form | str:
    """Return a copy into new memory: `clone`, or `_to_copy` where the dtype changes."""
    source = next((s for s in facts.inputs if s.position == 1), None)
    target = facts.outputs[0] if facts.outputs else None
    if source is None or target is None:
        return "what a copy read or wrote is not recorded"
    if source.on_host != target.on_host:
        return "it copies between host and device"
    if not source.layout.is_known or not target.layout.is_known:
        return "the strides of what a copy read or wrote are not recorded"
    shape = target.layout.shape
    strides = _repeated(source, shape)
    kinds = {_PRESERVE: like(shape, strides), _CONTIGUOUS: contiguous(shape)}
    if len(shape) == 4:
        kinds[_CHANNELS_LAST] = channels_last(shape)
    layout = next((k for k, made in kinds.items() if _same(shape, made, target.layout.strides)), -1)
    if layout == -1:
        return "it copies into a layout that no memory format makes"
    same = source.dtype == target.dtype
    operator = "aten::clone" if same else "aten::_to_copy"
    fixed: dict[str, Plain] = {"memory_format": layout}
    if not same:
        fixed["dtype"] = target.dtype
    return Form(
        operator=operator,
        overload=_only(operator),
        recorded=recorded,
        renamed={"self": "src"},
        fixed=fixed,
        dropped=frozenset({0, 2}),
        shape=shape,
    )


def _repeated(source: RecordedTensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    own = source.layout.shape
    lead = len(shape) - len(own)
    rest = zip(own, source.layout.strides, shape[lead:], strict=False)
    return (0,) * lead + tuple(0 if n == 1 and wide != 1 else s for n, s, wide in rest)


def _same(shape: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b for n, a, b in zip(shape, one, other, strict=True) if n > 1)


def _filled(facts: CallFacts, recorded: Overload) -> Form | str:
    """Return new memory filled with a number: `full`."""
    fixed: dict[str, Plain] = {"fill_value": 0} if facts.operator == "aten::zero_" else {}
    return _new(facts, recorded, "aten::full", fixed, renamed={"fill_value": "value"})


def _new(
    facts: CallFacts,
    recorded: Overload,
    operator: str,
    fixed: Mapping[str, Plain],
    renamed: Mapping[str, str] | None = None,
) -> Form | str:
    """Return a new tensor that an operator makes of its sizes alone, for memory that the call filled."""
    target = facts.outputs[0] if facts.outputs else None
    if target is None or target.dtype is None or not target.layout.is_known:
        return "what was filled is not recorded"
    if not _same(target.layout.shape, contiguous(target.layout.shape), target.layout.strides):
        return "it fills a layout with gaps"
    return Form(
        operator=operator,
        overload=_only(operator),
        recorded=recorded,
        renamed=renamed or {},
        fixed={"size": target.layout.shape, "dtype": target.dtype, **fixed},
        dropped=frozenset({0}),
    )


def _is_contiguous(tensor: RecordedTensor) -> bool:
    return _same(tensor.layout.shape, contiguous(tensor.layout.shape), tensor.layout.strides)


def _without_out(facts: CallFacts, recorded: Overload) -> Form | str:
    """Return the call that makes its result itself, where the tensor given as out= was made for it."""
    given = [s for s in facts.inputs if s.position in recorded.overwrites and 0 not in s.layout.shape]
    if not facts.parents and not all(map(_is_contiguous, given)):
        return f"{facts.operator} writes into a tensor with gaps that was given as out="
    operator = lookup(facts.operator)
    overload = next((o for o in operator.overloads if _is_functional(o, recorded)), None) if operator else None
    if overload is None:
        return f"{facts.operator} has no form without out="
    dtype = facts.outputs[0].dtype if facts.outputs else None
    takes_dtype, gives_dtype = ("dtype" in {a.name for a in each.arguments} for each in (overload, recorded))
    return Form(
        operator=facts.operator,
        overload=overload,
        recorded=recorded,
        fixed={"dtype": dtype} if takes_dtype and not gives_dtype and dtype is not None else {},
        dropped=frozenset(recorded.mutates),
        assumptions=(OUT,) if given and not facts.parents else (),
    )


def _is_functional(overload: Overload, recorded: Overload) -> bool:
    """Return whether an overload takes what another takes without out=, and besides only how results are made."""
    taken = [a for at, a in enumerate(recorded.arguments) if at not in recorded.mutates]
    first, others = overload.arguments[: len(taken)], overload.arguments[len(taken) :]
    same = [(a.name, a.is_tensor) for a in first] == [(a.name, a.is_tensor) for a in taken]
    return not overload.mutates and same and {a.name for a in others} <= _NEW


OUT = "what was written into a tensor given as out= is given as a new tensor, which takes as much traffic"
_NEW = frozenset({"dtype", "layout", "device", "pin_memory"})


def _only(operator: str) -> Overload:
    return _named(operator, "")


def _named(operator: str, name: str) -> Overload:
    found = overload_of(operator, name)
    assert found is not None  # noqa: S101  (it is in the table)
    return found
