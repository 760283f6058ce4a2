"""Fixed forms of a finding's calls, by its rule: the rebuilt chain in, Python source out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracemine.codegen.graph import Call, Graph, Literal, Ref, Refs, Scalar, Value, mutated, reads
from tracemine.verify.fixes.attention import attended
from tracemine.verify.fixes.folding import BEFORE_NORM, folded
from tracemine.verify.fixes.lanes import steps_of
from tracemine.verify.fixes.record import NOTHING_KNOWN, Around, Fixed, NoFixedForm
from tracemine.verify.fixes.sorting import BEFORE_SORT, ordered
from tracemine.verify.fixes.turns import batched
from tracemine.verify.fixes.written import flag, line, names_of, plain, signature
from tracemine.verify.repro.text import number_text

TO_ONE = "what is kept of a mean and the weight of what is added, which are not recorded, are 1 together"
ONE_NUMBER = "numbers that are not recorded are the same for all tensors of the loop"


@dataclass(frozen=True, slots=True)
class Maker:
    """How a rule's fixed form is made of a chain. whole: of all of a fusion group; else of the finding's own calls
    alone, with those before them that `before` names (`Rebuilder.alone`).
    """

    made: Callable[[Graph, Around], Fixed]
    whole: bool = False
    before: Mapping[str, Collection[str]] = field(default_factory=dict)


# -- lists -------------------------------------------------------------------------------------------------------------

# By what a loop calls for each tensor, the same for the list. {names} are the schema's: of a tensor the list of them.
_LISTS: Mapping[str, str] = {
    "aten::mul_.Tensor": "torch._foreach_mul_({self}, {other})",
    "aten::mul_.Scalar": "torch._foreach_mul_({self}, {other})",
    "aten::div_.Tensor": "torch._foreach_div_({self}, {other})",
    "aten::div_.Scalar": "torch._foreach_div_({self}, {other})",
    "aten::add_.Tensor": "torch._foreach_add_({self}, {other}, alpha={alpha})",
    "aten::sub_.Tensor": "torch._foreach_sub_({self}, {other}, alpha={alpha})",
    "aten::lerp_.Scalar": "torch._foreach_lerp_({self}, {end}, {weight})",
    "aten::addcmul_": "torch._foreach_addcmul_({self}, {tensor1}, {tensor2}, {value})",
    "aten::addcdiv_": "torch._foreach_addcdiv_({self}, {tensor1}, {tensor2}, {value})",
    "aten::clamp_": "torch._foreach_clamp_min_({self}, {min}); torch._foreach_clamp_max_({self}, {max})",
    "aten::clamp_min_": "torch._foreach_clamp_min_({self}, {min})",
    "aten::clamp_max_": "torch._foreach_clamp_max_({self}, {max})",
    "aten::zero_": "torch._foreach_zero_({self})",
    "aten::fill_.Scalar": "torch._foreach_zero_({self})",
    "aten::copy_": "torch._foreach_copy_({self}, {src})",
    "aten::neg_": "torch._foreach_neg_({self})",
    "aten::sqrt_": "torch._foreach_sqrt_({self})",
    "aten::linalg_vector_norm": "torch._foreach_norm({self}, {ord})",
}
_USUAL = {"alpha": "1", "value": "1", "ord": "2"}
_ZEROS = frozenset({"aten::fill_.Scalar"})


def listed(chain: Graph, around: Around) -> Fixed:
    """A loop over tensors as operators over lists. Raises NoFixedForm."""
    steps = steps_of(chain)
    lines, results = list[str](), dict[int, str]()
    for number, calls in enumerate(steps):
        lines += [f"    {line}" for line in _list_call(chain, number, calls, results).split("; ")]
    if any(v not in results for v in chain.live):
        raise NoFixedForm("what a call of the loop gives is read elsewhere")
    live = ", ".join(results[v] for v in chain.live)
    lines.append(f"    return ({live}{',' if len(chain.live) == 1 else ''})")
    assumed = any(not s.recorded for s in chain.scalars)
    own, source = {"one list": '"operators over lists of tensors", call=fixed'}, "\n".join([signature(chain), *lines])
    averaged = None if live else _averaged(chain, steps)
    if averaged is not None:
        own["one pass"] = '"a weighted mean over lists of tensors", call=averaged'
        head = signature(chain).replace("def fixed(", "def averaged(", 1)
        source = f"{source}\n\n\n{head}\n    {averaged.text}\n    return ()"
    return Fixed(
        own=own,
        source=source,
        numbers={} if averaged is None else averaged.numbers,
        assumptions=(ONE_NUMBER, *([TO_ONE] if averaged else [])) if assumed else (),
    )


@dataclass(frozen=True, slots=True)
class _Averaged:
    text: str
    numbers: dict[str, float]  # those that are not recorded, by name


def _averaged(chain: Graph, steps: Sequence[Sequence[tuple[int, Call]]]) -> _Averaged | None:
    """One pass in place of two, where each tensor is scaled and what is added makes it a weighted mean."""
    if [calls[0][1].label for calls in steps] != ["aten::mul_.Tensor", "aten::add_.Tensor"]:
        return None
    kept, weight = (
        [call.given()[name] for _, call in calls] for calls, name in zip(steps, ("other", "alpha"), strict=True)
    )
    share, unknown = _number(weight[0]), [each for each in kept if isinstance(each, Scalar) and not each.recorded]
    if share is None or (not unknown and not math.isclose(_number(kept[0]) or 0.0, 1.0 - share, rel_tol=1e-6)):
        return None
    names = names_of(chain)
    own, added = ([reads(call)[at] for _, call in steps[1]] for at in (0, 1))
    lists = (f"[{', '.join(names[v] for v in values)}]" for values in (own, added))
    given = weight[0].name if isinstance(weight[0], Scalar) else number_text(share)
    return _Averaged(f"torch._foreach_lerp_({', '.join(lists)}, {given})", {each.name: 1.0 - share for each in unknown})


def _number(value: Value) -> float | None:
    known = value.value if isinstance(value, Scalar | Literal) else None
    return float(known) if isinstance(known, int | float) else None


def _list_call(chain: Graph, number: int, calls: Sequence[tuple[int, Call]], results: dict[int, str]) -> str:
    """One operator over lists, in place of calls that are alike."""
    _, first = calls[0]
    text = _LISTS.get(first.label)
    if text is None or (first.label in _ZEROS and plain(first.given()["value"]) != 0):
        raise NoFixedForm(f"no operator over lists is known for {first.label}")
    names = names_of(chain)
    words = dict[str, str](_USUAL)
    for place, argument in enumerate(first.schema.arguments):
        values = [call.arguments[place] for _, call in calls]
        one = values[0]
        if isinstance(one, Ref):
            words[argument.name] = f"[{', '.join(names[v.value] for v in values if isinstance(v, Ref))}]"
        elif isinstance(one, Scalar):
            words[argument.name] = one.name
        elif isinstance(one, Literal) and isinstance(one.value, int | float):
            words[argument.name] = number_text(one.value)
        elif one is None and f"{{{argument.name}}}" in text and argument.name not in _USUAL:
            raise NoFixedForm(f"{first.label} is called without {argument.name}")
    if first.schema.mutates:
        return text.format_map(words)
    results |= {chain.first_output(at): f"made_{number}[{k}]" for k, (at, _) in enumerate(calls)}
    return f"made_{number} = {text.format_map(words)}"


# -- work that is taken out of the step --------------------------------------------------------------------------------


def once(chain: Graph, around: Around) -> Fixed:
    """What is computed of nothing but weights, before the step; where it remains, what is trained is copied at once."""
    if chain.written:
        raise NoFixedForm("it writes in place")
    if not around.remains:
        return Fixed(
            own={"once, before the step": '"nothing is left in the step", lambda inputs: eager(*inputs), call=given'},
            source="def given(*made):\n    return made",
            assumptions=("what it reads does not change between steps",),
        )
    if any(len(call.outputs) != 1 or call.operator != "aten::_to_copy" for call in chain.calls):
        raise NoFixedForm("it does more than cast")
    by = {chain.first_output(n): (reads(call)[0], call.outputs[0].dtype) for n, call in enumerate(chain.calls)}
    if any(place >= len(chain.inputs) for place, _ in by.values()) or set(chain.live) != set(by):
        raise NoFixedForm("what it casts is computed within it, or nobody reads it")
    casts = list(dict.fromkeys(by[v] for v in chain.live))  # one that several passes of a step repeat is made once
    firsts = [[by[v] for v in chain.live].index(cast) for cast in casts]
    taken = [casts.index(by[v]) for v in chain.live]
    return Fixed(
        own={"copied as one list": '"weights of half width, copied from the optimizer\'s at once", halves, call=fixed'},
        source=_HALVES.format(sources=[place for place, _ in casts], firsts=firsts, taken=taken).strip(),
        assumptions=("the optimizer keeps weights of full width beside those that the model computes with",),
    )


_HALVES = """
SOURCES, FIRSTS = {sources}, {firsts}  # weights, and which result is the first cast of each
TAKEN = {taken}  # of which cast each result is


def halves(inputs):
    made = eager(*inputs)
    return [*(made[k] for k in FIRSTS), *(inputs[k] for k in SOURCES)]


def fixed(*given):
    count = len(given) // 2
    torch._foreach_copy_(given[:count], given[count:])
    return [given[k] for k in TAKEN]
"""


def let_go(chain: Graph, around: Around) -> Fixed:
    """Gradients that are None in place of zeros: the next ones are taken as they are, where they were added.

    Both sides are asked for what is there after the next gradient: eager's calls, with an addition behind them where
    they have none themselves. Raises NoFixedForm.
    """
    zeroed, added = dict[int, None](), dict[int, int]()
    for call in chain.calls:
        if call.operator.removeprefix("aten::") in _ZEROING:
            if plain(call.given().get("value", Literal(0))) != 0:
                raise NoFixedForm("it fills with other numbers than zero")
            zeroed |= dict.fromkeys(reads(call))
        elif call.label != "aten::add_.Tensor" or reads(call)[0] not in zeroed:
            raise NoFixedForm("it does more than fill tensors with zeros, and add gradients to them")
        else:
            _take(chain, call, added)
    pairs = ", ".join(f"({place}, {added.get(place)})" for place in zeroed)
    return Fixed(
        own={"None in place of zeros": '"nothing is left in the step", call=fixed, behind=(after, taken)'},
        source=f"ZEROED = [{pairs}]  # a tensor, and the gradient that is added to it; None: in no call\n{_LET_GO}",
        assumptions=("the next gradient is the first that a backward pass gives: zero and it are the same",),
    )


_ZEROING = ("zero_", "_foreach_zero_", "fill_")


def _take(chain: Graph, call: Call, added: dict[int, int]) -> None:
    """Notes an addition to a zeroed tensor whose gradient can be taken as it is. Raises NoFixedForm."""
    given = call.given()
    place, gradient = reads(call)[0], given["other"]
    if not isinstance(gradient, Ref) or gradient.value >= len(chain.inputs) or place in added:
        raise NoFixedForm("more than one gradient is added to a tensor, or one that is computed within it")
    if (given["alpha"] is not None and plain(given["alpha"]) != 1) or gradient.value in (*added, *added.values()):
        raise NoFixedForm("what is added is no gradient of its own")
    if chain.specs[place] != chain.specs[gradient.value]:
        raise NoFixedForm("a gradient that lies otherwise than what it is added to is copied")
    added[place] = gradient.value


_LET_GO = """

def after(*inputs):  # the next gradient is added to what is there
    mine = [t.clone() for t in inputs]
    eager(*mine)
    return [mine[at] + 0.5 * inputs[at] if new is None else mine[at] for at, new in ZEROED]


def taken(*inputs):  # it is taken as it is
    return [0.5 * inputs[at] if new is None else inputs[new].clone() for at, new in ZEROED]


def fixed(*inputs):
    return ()
"""


def unscaled(chain: Graph, around: Around) -> Fixed:
    """Gradients that are never scaled. Raises NoFixedForm.

    Both sides are asked for the gradients, and for whether one was infinite, at a scale of 1.
    """
    passes = [call for call in chain.calls if call.operator == _UNSCALE]
    others = [call for call in chain.calls if call.operator not in (_UNSCALE, *_OF_SCALES)]
    if not passes or others:
        raise NoFixedForm(
            "it does more than take a scale off gradients: the scale's next value is not one that is read"
        )
    gradients = [v for call in passes for v in reads(call)[:-2]]
    scales = [k for k, i in enumerate(chain.inputs) if k not in gradients]
    single = [i for k in scales for i in [chain.inputs[k]] if i.spec.shape or i.spec.dtype != "float32"]
    found = {chain.memory[reads(call)[-2]] for call in passes}
    if len(scales) != 1 or single or any(v >= len(chain.inputs) for v in gradients):
        raise NoFixedForm("it is not one scale that is taken off gradients")
    if any(v not in around.unread and chain.memory[v] not in found for v in chain.live):
        raise NoFixedForm("more is read than whether a gradient was infinite")
    return Fixed(
        own={"no scaler": '"nothing is left in the step", call=fixed, behind=(by_one, as_they_are)'},
        source=f"SCALE, GRADIENTS = {scales[0]}, {gradients}  # inputs\n{_NOT_SCALED.format(count=len(chain.live))}",
        assumptions=("no gradient is infinite: a step that a scaler would leave out is made",),
    )


_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_OF_SCALES = frozenset(
    {"aten::_to_copy", "aten::reciprocal", "aten::full", "aten::clone", "aten::fill_", "aten::zero_"}
)
_NOT_SCALED = """

def by_one(*inputs):  # eager, at a scale of 1
    mine = [t.clone() for t in inputs]
    mine[SCALE].fill_(1.0)
    infinite = eager(*mine)
    return [*(mine[k] for k in GRADIENTS), *(found.clone() for found in infinite)]


def as_they_are(*inputs):
    infinite = torch.zeros({count}, dtype=inputs[SCALE].dtype, device=inputs[SCALE].device)
    return [*(inputs[k].clone() for k in GRADIENTS), *infinite]


def fixed(*inputs):
    return ()
"""


# -- copies ------------------------------------------------------------------------------------------------------------


def without_copies(chain: Graph, around: Around) -> Fixed:
    """The chain without its conversions: what computes in between takes tensors as they lie. Raises NoFixedForm."""
    names = names_of(chain)
    lines = list[str]()
    dropped = 0
    for number, call in enumerate(chain.calls):
        first = chain.first_output(number)
        source = call.arguments[0]
        if call.operator in _CONVERSIONS and isinstance(source, Ref) and _only_converts(chain, number, source.value):
            names[first] = names[source.value]
            dropped += 1
            continue
        lines.append(line(chain, number, names))
    if not dropped:
        raise NoFixedForm("none of its calls only converts")
    live = ", ".join(names[v] for v in chain.live)
    lines.append(f"    return ({live}{',' if len(chain.live) == 1 else ''})")
    return Fixed(
        own={"without conversions": '"what computes takes tensors as they lie", call=fixed'},
        source="\n".join([signature(chain), "    aten = torch.ops.aten", *lines]),
        assumptions=("what reads the result takes it in any layout, and of the wider type",),
    )


_CONVERSIONS = frozenset({"aten::clone", "aten::contiguous", "aten::_to_copy"})


def _only_converts(chain: Graph, number: int, source: int) -> bool:
    """Whether a call changes no more than layout or floating-point type, of what nothing writes in place behind it."""
    before, after, memory = chain.specs[source].dtype, chain.calls[number].outputs[0].dtype, chain.memory
    floats = "float" in str(before) and "float" in str(after)
    written = {memory[v] for later in chain.calls[number + 1 :] for v in mutated(later)}
    return (before == after or floats) and not written & {memory[source], memory[chain.first_output(number)]}


def contiguous(chain: Graph, around: Around) -> Fixed:
    """The same calls on tensors that lie in the order of their axes: what makes them writes them so."""
    if not any(not _in_order(i.spec.shape, i.spec.strides or ()) for i in chain.inputs):
        raise NoFixedForm("all that it reads is contiguous already")
    return Fixed(ways=("contiguous",), assumptions=("what makes its inputs can write them contiguous as fast",))


def _in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


# -- tables and caches -------------------------------------------------------------------------------------------------


def in_place_cache(chain: Graph, around: Around) -> Fixed:
    """Caches at their largest length, into which the new rows are written. Raises NoFixedForm."""
    pairs, results = list[str](), dict[int, str]()
    for number, call in enumerate(chain.calls):
        tensors, axis = call.arguments[0], call.arguments[1]
        if call.operator != "aten::cat" or not isinstance(tensors, Refs) or not isinstance(axis, Literal):
            raise NoFixedForm("it does more than join")
        places = [v for v in tensors.values if v is not None]
        if len(places) != 2 or max(places) >= len(chain.inputs):
            raise NoFixedForm("it joins other than a cache and new rows")
        pairs.append(f"({places[0]}, {places[1]}, {axis.value})")
        results[chain.first_output(number)] = f"caches[{number}]"
    if set(chain.live) != set(results):
        raise NoFixedForm("what it joins is not what is read")
    source = f"""
JOINED = [{", ".join(pairs)}]  # the cache, its new rows, the axis


def longest(inputs):
    caches = []
    for kept, new, axis in JOINED:
        shape = [*inputs[kept].shape]
        shape[axis] += inputs[new].shape[axis]
        cache = inputs[kept].new_empty(shape)
        cache.narrow(axis, 0, inputs[kept].shape[axis]).copy_(inputs[kept])
        caches.append(cache)
    places = [torch.arange(inputs[k].shape[a], inputs[k].shape[a] + inputs[n].shape[a], device=inputs[n].device)
              for k, n, a in JOINED]
    return [*caches, *places, *(inputs[new] for _, new, _ in JOINED)]


def fixed(*given):
    count = len(JOINED)
    caches, places, rows = given[:count], given[count : 2 * count], given[2 * count :]
    for cache, place, new, (_, _, axis) in zip(caches, places, rows, JOINED):
        cache.index_copy_(axis, place, new)
    return ({", ".join(results[v] for v in chain.live)},)
"""
    return Fixed(
        own={"index_copy_": '"new rows written into a cache of the largest length", longest, call=fixed'},
        source=source.strip(),
        assumptions=("the largest length is known, and attention masks what is behind the last token",),
    )


def one_table(chain: Graph, around: Around) -> Fixed:
    """Many embedding bags as one over a table of all rows, whose indices are shifted. Raises NoFixedForm."""
    counted = {chain.first_output(n): c for n, c in enumerate(chain.calls) if c.operator == "aten::arange"}
    bags = {n: call for n, call in enumerate(chain.calls) if call.operator != "aten::arange"}
    rows, steps = list[tuple[int, int, int | None]](), list[int | None]()
    for call in bags.values():
        table, index, offset = _bag(chain, call)
        steps.append(_step(chain, index, counted[offset]) if offset in counted else None)
        if max(table, index, *([] if offset in counted else [offset])) >= len(chain.inputs):
            raise NoFixedForm("its tables, indices or offsets are computed within it")
        rows.append((table, index, None if offset in counted else offset))
    if len(set(steps)) != 1 or {_read_by_bags(chain, value, bags) for value in counted} - {True}:
        raise NoFixedForm("its offsets are not all given, or all as far apart")
    modes = {(plain(c.given()["mode"]), plain(c.given()["padding_idx"])) for c in bags.values()}
    if len(modes) > 1 or len({chain.inputs[table].spec.shape[1:] for table, _, _ in rows}) > 1:
        raise NoFixedForm("its bags differ in width or in how they are reduced")
    mode, padding = modes.pop()
    if padding not in (None, -1):
        raise NoFixedForm("its bags leave padding out")
    results = {chain.first_output(n): f"parts[{k}]" for k, n in enumerate(bags)}
    if any(v not in around.unread and v not in _beside(chain) for v in chain.live if v not in results):
        raise NoFixedForm("more than the sums of its bags is read")
    counts = [chain.specs[value].shape[0] for value in results]
    made = (
        f"    offsets = torch.arange(0, indices.numel(), {steps[0]}, dtype=indices.dtype, device=indices.device)\n"
        if counted
        else ""
    )
    source = f"""
BAGS = {rows!r}  # table, indices, offsets


def together(inputs):
    tables = [inputs[table] for table, _, _ in BAGS]
    indices, offsets, rows, before = [], [], 0, 0
    for table, index, offset in BAGS:
        indices.append(inputs[index] + rows)
        offsets += [] if offset is None else [inputs[offset] + before]
        rows, before = rows + inputs[table].shape[0], before + inputs[index].numel()
    return [torch.cat(tables), torch.cat(indices), *([torch.cat(offsets)] if offsets else [])]


def fixed(table, indices{"" if counted else ", offsets"}):
{made}    made = torch.ops.aten._embedding_bag.default(table, indices, offsets, False, {mode!r})[0]
    parts = made.split({counts!r})
    return ({", ".join(results.get(v, "None") for v in chain.live)},)
"""
    holds: dict[int, object] = {index: chain.inputs[table].spec.shape[0] for table, index, _ in rows}
    holds |= {at: ("rising", chain.inputs[index].spec.shape[0]) for _, index, at in rows if at is not None}
    return Fixed(
        holds=holds,
        own={"one table": '"one call over a table of all rows", together, call=fixed'},
        source=source.strip(),
        assumptions=("who loads the data hands out all indices as one tensor, shifted to their rows of the one table",),
    )


def _bag(chain: Graph, call: Call) -> tuple[int, int, int]:
    """Table, indices and offsets of a bag. Raises NoFixedForm."""
    given = call.given()
    if call.operator not in ("aten::_embedding_bag", "aten::_embedding_bag_forward_only"):
        raise NoFixedForm("it does more than embedding bags")
    if given.get("per_sample_weights") is not None or flag(given, "include_last_offset"):
        raise NoFixedForm("its bags have weights of their own, or a last offset")
    places = [v.value for n in ("weight", "indices", "offsets") if isinstance(v := given[n], Ref)]
    if len(places) != 3:
        raise NoFixedForm("its tables, indices or offsets are not recorded")
    return places[0], places[1], places[2]


def _step(chain: Graph, index: int, call: Call) -> int | None:
    """How many indices each bag has, where offsets that are counted say so of all indices; else None."""
    given, numel = call.given(), math.prod(chain.specs[index].shape)
    start, end, step = (plain(given.get(name)) for name in ("start", "end", "step"))
    regular = isinstance(step, int) and step > 0 and numel % step == 0
    return step if isinstance(step, int) and regular and start == 0 and end == numel else None


def _read_by_bags(chain: Graph, value: int, bags: Mapping[int, Call]) -> bool:
    return value not in chain.live and not any(value in reads(c) for n, c in enumerate(chain.calls) if n not in bags)


def _beside(chain: Graph) -> set[int]:
    """What bags give beside their sums: the last call's are live where nobody is known to read them."""
    return {chain.first_output(n) + k for n, call in enumerate(chain.calls) for k in range(1, len(call.outputs))}


# -- the table ---------------------------------------------------------------------------------------------------------


MAKERS: Mapping[str, Maker] = {
    "attention_unfused": Maker(attended, whole=True),
    "batch_norm_evaluated": Maker(folded, before=BEFORE_NORM),
    "cache_grown": Maker(in_place_cache),
    "conversion_pair": Maker(without_copies, whole=True),
    "embedding_bags_apart": Maker(one_table),
    "expert_sort": Maker(ordered, before=BEFORE_SORT),
    "gradient_zeroing": Maker(let_go),
    "layout_leak": Maker(contiguous, whole=True),
    "loop_invariant": Maker(lambda chain, around: once(chain, replace(around, remains=False))),
    "parameter_loop": Maker(listed),
    "scaler_needless": Maker(unscaled),
    "small_products_apart": Maker(batched),
    "weight_cast": Maker(once),
}


def fixed_chain(rule: str, chain: Graph, around: Around = NOTHING_KNOWN) -> Fixed:
    """The fixed form of a rule's finding. Raises NoFixedForm with the reason."""
    return MAKERS[rule].made(chain, around)
