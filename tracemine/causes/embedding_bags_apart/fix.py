"""One embedding table in place of many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tracemine.codegen.graph import Graph, GraphCall, Ref, reads
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import flag, plain

_OFFSETS_DIFFER = "its offsets are not all given, or all as far apart"


class _Bag(NamedTuple):
    """An embedding bag, by its inputs."""

    table: int
    indices: int
    offsets: int | None  # None: an `arange` counts them
    step: int | None = None  # then, the indices of each bag, where all have as many


def one_table(graph: Graph, around: Around) -> Fixed:
    """Return many embedding bags as one over a table of all rows, whose indices are shifted. Raises NoFixedForm."""
    counted, calls = dict[int, GraphCall](), dict[int, GraphCall]()
    for number, call in enumerate(graph.calls):
        if call.operator == "aten::arange":
            counted[graph.first_output(number)] = call
        else:
            calls[number] = call
    bags = [_bag(graph, call, counted) for call in calls.values()]
    step = _common_step(bags)
    if not all(_read_by_bags(graph, value, calls) for value in counted):
        raise NoFixedForm(_OFFSETS_DIFFER)
    mode = _common_mode(graph, bags, calls.values())
    results = {graph.first_output(n): f"parts[{k}]" for k, n in enumerate(calls)}
    if any(v not in around.unread and v not in _beside(graph) for v in graph.live if v not in results):
        raise NoFixedForm("more than the sums of its bags is read")
    sizes = [graph.specs[value].shape[0] for value in results]
    live = ", ".join(results.get(v, "None") for v in graph.live)
    return Fixed(
        holds=_holds(graph, bags),
        own={"one table": '"one call over a table of all rows", together, call=fixed'},
        source=_one_table_text(bags, step if counted else "given", mode, sizes, live),
        assumptions=("who loads the data hands out all indices as one tensor, shifted to their rows of the one table",),
    )


def _holds(graph: Graph, bags: Sequence[_Bag]) -> dict[int, object]:
    """Return what indices and offsets stay below, by input."""
    holds: dict[int, object] = {bag.indices: graph.inputs[bag.table].spec.shape[0] for bag in bags}
    given = [(bag.offsets, graph.inputs[bag.indices].spec.shape[0]) for bag in bags if bag.offsets is not None]
    return holds | {offsets: ("rising", count) for offsets, count in given}


def _common_step(bags: Sequence[_Bag]) -> int | None:
    """Return how far apart counted offsets are. Raises NoFixedForm where they differ, or only some are counted."""
    steps = {bag.step for bag in bags}
    if len(steps) != 1:
        raise NoFixedForm(_OFFSETS_DIFFER)
    return steps.pop()


def _common_mode(graph: Graph, bags: Sequence[_Bag], calls: Iterable[GraphCall]) -> object:
    """Return how all bags are reduced. Raises NoFixedForm where they differ, or leave padding out."""
    modes = {(plain(call.given()["mode"]), plain(call.given()["padding_idx"])) for call in calls}
    if len(modes) > 1 or len({graph.inputs[bag.table].spec.shape[1:] for bag in bags}) > 1:
        raise NoFixedForm("its bags differ in width or in how they are reduced")
    mode, padding = modes.pop()
    if padding not in (None, -1):
        raise NoFixedForm("its bags leave padding out")
    return mode


def _one_table_text(bags: Sequence[_Bag], step: int | str | None, mode: object, sizes: list[int], live: str) -> str:
    """Return the functions. step: indices of each bag where offsets are counted, else "given"."""
    given = step == "given"
    counted = f"torch.arange(0, indices.numel(), {step}, dtype=indices.dtype, device=indices.device)"
    offsets = "" if given else f"    offsets = {counted}\n"
    return f"""BAGS = {[bag[:3] for bag in bags]!r}  # table, indices, offsets


def together(inputs):
    tables = [inputs[table] for table, _, _ in BAGS]
    indices, offsets, rows, before = [], [], 0, 0
    for table, index, offset in BAGS:
        indices.append(inputs[index] + rows)
        offsets += [] if offset is None else [inputs[offset] + before]
        rows, before = rows + inputs[table].shape[0], before + inputs[index].numel()
    return [torch.cat(tables), torch.cat(indices), *([torch.cat(offsets)] if offsets else [])]


def fixed(table, indices{", offsets" if given else ""}):
{offsets}    made = torch.ops.aten._embedding_bag.default(table, indices, offsets, False, {mode!r})[0]
    parts = made.split({sizes!r})
    return ({live},)"""


def _bag(graph: Graph, call: GraphCall, counted: Mapping[int, GraphCall]) -> _Bag:
    """Return a call's bag. counted: by value the calls that count offsets. Raises NoFixedForm."""
    given = call.given()
    if call.operator not in ("aten::_embedding_bag", "aten::_embedding_bag_forward_only"):
        raise NoFixedForm("it does more than embedding bags")
    if given.get("per_sample_weights") is not None or flag(given, "include_last_offset"):
        raise NoFixedForm("its bags have weights of their own, or a last offset")
    values = [v.value for n in ("weight", "indices", "offsets") if isinstance(v := given[n], Ref)]
    if len(values) != 3:
        raise NoFixedForm("its tables, indices or offsets are not recorded")
    table, indices, offsets = values
    if max(table, indices, 0 if offsets in counted else offsets) >= len(graph.inputs):
        raise NoFixedForm("its tables, indices or offsets are computed within it")
    if offsets in counted:
        return _Bag(table, indices, None, _step(graph, indices, counted[offsets]))
    return _Bag(table, indices, offsets)


def _step(graph: Graph, index: int, call: GraphCall) -> int | None:
    """Return how many indices each bag has, where offsets that are counted say so of all indices; else None."""
    given, numel = call.given(), math.prod(graph.specs[index].shape)
    start, end, step = (plain(given.get(name)) for name in ("start", "end", "step"))
    regular = isinstance(step, int) and step > 0 and numel % step == 0
    return step if isinstance(step, int) and regular and start == 0 and end == numel else None


def _read_by_bags(graph: Graph, value: int, bags: Mapping[int, GraphCall]) -> bool:
    return value not in graph.live and not any(value in reads(c) for n, c in enumerate(graph.calls) if n not in bags)


def _beside(graph: Graph) -> set[int]:
    """Return what bags give besides their sums: the last call's are live where no consumer is known."""
    return {graph.first_output(n) + k for n, call in enumerate(graph.calls) for k in range(1, len(call.outputs))}


FIX = Maker(one_table)
