"""Chains over long lists with fewer members: equal members share their code, so a few of each kind stand for all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from tracemine.codegen.graph import Call, Graph, Refs, Scalars, Value, check, renumbered, tensors
from tracemine.codegen.triton.source import generate
from tracemine.ops.infer.tensor import is_contiguous

MOST_MEMBERS = 16  # of a list: as many tensors are tried as they are
_OF_A_KIND = 3


def shorter(chain: Graph) -> Graph:
    """The chain with a few members of each kind of its lists; itself where it has other calls, or its lists are short.

    Kinds are told by rank, dtype, axes of one element and layout, and by which results are wanted. Raises Unsupported
    where no kernel can be generated.
    """
    count = _length(chain)
    if count is None or count <= MOST_MEMBERS:
        return chain
    kept = _kept(chain, count)
    short = _of_members(chain, kept)
    return short if _codes(generate(chain).text) <= _codes(generate(short).text) else chain


def _lists(call: Call) -> list[Refs | Scalars]:
    return [v for v in call.arguments if isinstance(v, Refs | Scalars)]


def _length(chain: Graph) -> int | None:
    """How many members all lists have; None where a call takes none, or others do not have as many."""
    lengths = {len(each.values) for call in chain.calls for each in _lists(call)}
    lengths |= {len(call.outputs) for call in chain.calls if call.outputs}
    alone = any(not call.operator.startswith("aten::_foreach_") for call in chain.calls)
    return lengths.pop() if len(lengths) == 1 and not alone else None


def _kept(chain: Graph, count: int) -> list[int]:
    specs, live = chain.specs, {*chain.live}
    gives = [chain.first_output(number) for number, call in enumerate(chain.calls) if call.outputs]
    seen: Counter[tuple[object, ...]] = Counter()
    found: list[int] = []
    for at in range(count):
        members = [each.values[at] for call in chain.calls for each in _lists(call) if isinstance(each, Refs)]
        kinds: list[object] = [first + at in live for first in gives]
        for spec in (specs[v] for v in members if v is not None):
            plain = is_contiguous(spec.shape, spec.strides or ())
            kinds.append((spec.dtype, tuple(n == 1 for n in spec.shape), plain, None if plain else spec.strides))
        if seen[tuple(kinds)] < _OF_A_KIND:
            found.append(at)
        seen[tuple(kinds)] += 1
    return found


def _of_members(chain: Graph, kept: Sequence[int]) -> Graph:
    taken = [_taken(call, kept) for call in chain.calls]
    first = len(chain.inputs)
    used = {v for arguments in taken for value in arguments for v in tensors(value) if v < first}
    order = {v: k for k, v in enumerate(sorted(used))}
    calls: list[Call] = []
    for number, (call, arguments) in enumerate(zip(chain.calls, taken, strict=True)):
        values = tuple(renumbered(v, order.__getitem__) for v in arguments)
        outputs = [chain.first_output(number) + at for at in kept] if call.outputs else []
        order |= {v: len(order) + k for k, v in enumerate(outputs)}
        specs = tuple(call.outputs[at] for at in kept) if call.outputs else ()
        calls.append(Call(call.operator, call.overload, values, specs))
    inputs = tuple(chain.inputs[v] for v in sorted(used))
    live = tuple(order[v] for v in chain.live if v in order)
    return check(Graph(chain.name, inputs, tuple(calls), live))


def _taken(call: Call, kept: Sequence[int]) -> list[Value]:
    return [
        msgspec.structs.replace(v, values=tuple(v.values[at] for at in kept)) if isinstance(v, Refs | Scalars) else v
        for v in call.arguments
    ]


def _codes(text: str) -> set[str]:
    """What the kernels of a source do, one text for each walk: how its parts are chosen is no part of that."""
    functions = text.split("\n\n\n")
    bodies = [f.partition("):\n")[2] for f in functions if f.startswith("@triton.jit") and "block < end_" not in f]
    return set(map(_unnamed, bodies))


def _unnamed(body: str) -> str:
    """With names of tensors, sizes and values by the order in which they come.

    >>> _unnamed("x_7_1 = tl.load(x_7_ptr + column * x_7_s0).to(tl.float32)")
    't0 = tl.load(t1 + column * t2).to(tl.float32)'
    """
    names: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"t{len(names)}")

    body = body.replace("tl.program_id(0)", "block")  # where a kernel has one part alone
    return re.sub(r"(?<![.\w])[a-z]\w*(?:_ptr|\d)\b", numbered, body)
