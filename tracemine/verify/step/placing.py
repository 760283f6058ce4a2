"""Findings in a step: which of its calls each occurrence replaces, by which kernel, reading and writing where.

A fused kernel stands where the first of its calls stood, or as soon after as all that it needs is there. What must keep
its order: who reads after who wrote, who writes after who read, who writes after who wrote, wherever two touch the same
bytes. Groups that would have to be both before and after another call stay apart.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tracemine.codegen.graph import Graph, Scalar, Unsupported
from tracemine.codegen.triton.source import SourceText, generate
from tracemine.columns import numbers
from tracemine.findings.record import Finding
from tracemine.verify.rebuild.memory import Lies
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import Recorded
from tracemine.verify.step.build import Built, build, step_of
from tracemine.verify.step.calls import INTEGER, NUMBER
from tracemine.verify.step.program import Buffer, Program, StepCall, TensorRef

_GENERATOR = -1  # random numbers are drawn in the recorded order: a buffer that all who draw write


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes of a buffer that something reads or writes."""

    buffer: int
    begin: int
    end: int
    writes: bool


def touches(call: StepCall, buffers: Sequence[Buffer]) -> list[Touch]:
    """Return what a call reads and writes. A view reads nothing, but memory that it looks at must have been made."""

    def one(place: TensorRef, writes: bool) -> Touch:
        begin, end = place.layout.reach
        size = buffers[place.buffer].itemsize
        if call.is_view:
            return Touch(place.buffer, -1, 0, writes=False)
        return Touch(place.buffer, begin * size, max(end, begin + 1) * size, writes)

    found = [one(place, False) for place in call.reads]
    found += [one(place, True) for place in call.writes]
    # What a call makes is written whole, with a byte before its first, which everybody who looks at it touches.
    found += [Touch(b, -1, max(buffers[b].elements, 1) * buffers[b].itemsize, writes=True) for b in call.makes]
    if call.draws:
        found.append(Touch(_GENERATOR, 0, 1, writes=True))
    return found


def follows(touched: Sequence[Sequence[Touch]]) -> list[set[int]]:
    """Return for each item the earlier ones that must run before it.

    >>> write, read = Touch(0, 0, 8, writes=True), Touch(0, 4, 8, writes=False)
    >>> follows([[write], [read], [read], [write]])
    [set(), {0}, {0}, {0, 1, 2}]
    """
    readers: dict[int, list[tuple[int, Touch]]] = {}
    writers: dict[int, list[tuple[int, Touch]]] = {}
    found: list[set[int]] = []
    for item, mine in enumerate(touched):
        before: set[int] = set()
        for touch in mine:
            earlier = [*writers.get(touch.buffer, ()), *(readers.get(touch.buffer, ()) if touch.writes else ())]
            before.update(i for i, t in earlier if t.begin < touch.end and touch.begin < t.end)
        for touch in mine:
            if touch.writes:  # what it covers need not be looked at again: whoever touches it comes after this item
                for known in (readers, writers):
                    known[touch.buffer] = [
                        (i, t)
                        for i, t in known.get(touch.buffer, ())
                        if not (touch.begin <= t.begin and t.end <= touch.end)
                    ]
            (writers if touch.writes else readers).setdefault(touch.buffer, []).append((item, touch))
        before.discard(item)
        found.append(before)
    return found


def schedule(before: Sequence[set[int]], groups: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return an order that keeps all that `before` asks for, with as many groups in one piece as it allows: numbers of
    calls, and of groups as −1 − group; and which groups are placed, as the others' calls stay as they are.

    before: of each call the earlier ones that it must come after. groups: of each, its calls; no call is in two.
    """
    left = {number: tuple(sorted(members)) for number, members in groups.items() if members}
    while True:
        found = _sorted(before, left)
        if isinstance(found, tuple):
            return found, frozenset(left)
        del left[found]


def _needs(before: Sequence[set[int]], name: Mapping[int, int]) -> dict[int, set[int]]:
    """Return what each call or group comes after. name: of a group, by its members."""
    needs: dict[int, set[int]] = {name.get(call, call): set() for call in range(len(before))}
    for call, earlier in enumerate(before):
        mine = name.get(call, call)
        needs[mine].update(other for e in earlier if (other := name.get(e, e)) != mine)
    return needs


def _sorted(before: Sequence[set[int]], groups: Mapping[int, tuple[int, ...]]) -> tuple[int, ...] | int:
    """Return the order, or a group that is in its way."""
    name = {member: -1 - number for number, members in groups.items() for member in members}
    place = {-1 - number: members[0] for number, members in groups.items()}
    needs = _needs(before, name)
    gives: dict[int, list[int]] = {}
    for item, earlier in needs.items():
        for other in earlier:
            gives.setdefault(other, []).append(item)
    missing = {item: len(earlier) for item, earlier in needs.items()}
    ready = [(place.get(item, item), item) for item, count in missing.items() if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        order.append(item)
        for other in gives.get(item, ()):
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (place.get(other, other), other))
    if len(order) == len(needs):
        return tuple(order)
    return _in_the_way({item for item, count in missing.items() if count}, needs)


def _in_the_way(stuck: set[int], needs: Mapping[int, set[int]]) -> int:
    """Return a group on a circle. Without groups there is none, for calls follow earlier ones only."""
    for item in sorted(stuck):  # groups have negative numbers: the last one first
        if item >= 0:
            break
        todo, seen = [n for n in needs[item] if n in stuck], set[int]()
        while todo:
            at = todo.pop()
            if at == item:
                return -1 - item
            if at not in seen:
                seen.add(at)
                todo += [n for n in needs[at] if n in stuck]
    raise AssertionError("calls that follow each other")


_MOST_KERNELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One occurrence of a finding in the step: numbers of findings, kernels and calls; what the kernel takes, gives."""

    finding: int
    kernel: int
    calls: tuple[int, ...]
    takes: tuple[TensorRef, ...]
    gives: tuple[TensorRef | None, ...]  # None: what no other call of the step reads
    scalars: tuple[tuple[str, float | int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A step with findings in place. `refused`: occurrences that stay as they are, by reason."""

    program: Program
    findings: tuple[Finding, ...]
    kernels: tuple[tuple[Graph, SourceText], ...]  # of each graph that is replaced
    fused: tuple[Fused, ...]
    order: tuple[int, ...]  # numbers of calls, and of what is fused as −1 − its position, as they run
    placed: frozenset[int]  # positions in `fused`; the others' calls stay as they are
    refused: Mapping[str, int]

    def occurrences(self, finding: int) -> int:
        """Return how often a finding's kernel stands in the step."""
        return sum(self.fused[group].finding == finding for group in self.placed)


def place(findings: Sequence[Finding], rebuilder: Rebuilder) -> Placed:
    """Return one step of a trace with findings in place. Raises NoStep where none can be replayed.

    Where two findings claim a node, the first has it.
    """
    flow, recorded = rebuilder.flow, rebuilder.recorded
    refused: Counter[str] = Counter()
    kernels: dict[bytes, tuple[Graph, SourceText]] = {}
    found: list[tuple[int, Rebuilt, int]] = []  # finding, its calls, kernel
    together: dict[int, int] = {}
    for number, finding in enumerate(findings):
        for rows in _in_step(rebuilder, finding):
            try:
                rebuilt = rebuilder.rebuild(rows, f"{finding.rule}_{len(kernels)}")
                if any(node in together for node in rebuilt.nodes):
                    refused["another finding has its kernels"] += 1
                    continue
                kernel = _kernel(rebuilt.graph, kernels)
            except (NotRebuilt, Unsupported) as reason:
                refused[reason.message] += 1
                continue
            except RecursionError:
                refused["the graph is too deep"] += 1
                continue
            together.update(dict.fromkeys(rebuilt.nodes, len(found)))
            found.append((number, rebuilt, kernel))
    built = build(flow, recorded, together)
    fused: list[Fused] = []
    for each in found:
        made = _fused(*each, built, recorded)
        if isinstance(made, Fused):
            fused.append(made)
        else:
            refused[made] += 1
    before = follows([touches(call, built.program.buffers) for call in built.program.calls])
    order, placed = schedule(before, {k: each.calls for k, each in enumerate(fused)})
    if apart := len(fused) - len(placed):
        refused["something in between needs a part of it and is needed by another"] += apart
    return Placed(
        program=built.program,
        findings=tuple(findings),
        kernels=tuple(kernels.values()),
        fused=tuple(fused),
        order=order,
        placed=placed,
        refused=dict(refused),
    )


def _kernel(graph: Graph, kernels: dict[bytes, tuple[Graph, SourceText]]) -> int:
    """Return the number of the kernel for a graph, whatever that is called. Raises Unsupported."""
    key = msgspec.json.encode(msgspec.structs.replace(graph, name=""))
    if key not in kernels:
        if len(kernels) >= _MOST_KERNELS:
            raise Unsupported(f"there are more than {_MOST_KERNELS} kernels")
        kernels[key] = graph, generate(graph)
    return list(kernels).index(key)


def _in_step(rebuilder: Rebuilder, finding: Finding) -> Iterable[tuple[int, ...]]:
    """Return the occurrences whose operators began in the step."""
    flow = rebuilder.flow
    _, begin, end = step_of(flow)
    start = numbers(flow.timeline.ops.column("start_ns"))[flow.nodes.op_row]
    owner = np.append(flow.activity_node, -1)
    for rows in finding.activities:
        nodes = owner[np.asarray([r for r in rows if 0 <= r < len(owner) - 1], np.int64)]
        if len(nodes) == len(rows) and (nodes >= 0).all() and ((start[nodes] >= begin) & (start[nodes] < end)).all():
            yield rows


def _fused(finding: int, rebuilt: Rebuilt, kernel: int, built: Built, recorded: Recorded) -> Fused | str:
    """Return an occurrence by what it takes and gives in the program; else why it stays as it is."""
    nodes = set(rebuilt.nodes)
    if not nodes <= built.call_of_node.keys():
        return "one of its calls is not replayed"
    calls = tuple(sorted({built.call_of_node[node] for node in nodes}))
    if any(not nodes.issuperset(built.program.calls[c].nodes) for c in calls):
        return "one of its calls does more than the finding says"
    graph, where = rebuilt.graph, _buffers(nodes, built, recorded)
    places = [_place(lies, where) for lies in rebuilt.lies]
    known = [p for p in places[: len(graph.inputs)] if p is not None]
    takes, gives = tuple(known), tuple(places[len(graph.inputs) :])
    other = any(p is not None and (p.shape, p.dtype) != spec for p, spec in zip(places, _specs(graph), strict=True))
    if other or len(takes) < len(graph.inputs):
        return "where one of its tensors lies is not known"
    reason = _unmade(takes, gives, {b for c in calls for b in built.program.calls[c].makes}, built)
    if reason is not None:
        return reason
    return Fused(
        finding=finding,
        kernel=kernel,
        calls=calls,
        takes=takes,
        gives=gives,
        scalars=tuple((s.name, _number(s)) for s in graph.scalars),
    )


def _unmade(takes: Sequence[TensorRef], gives: Sequence[TensorRef | None], made: set[int], built: Built) -> str | None:
    """Return why a kernel cannot make results where its calls made them; None where it can."""
    for place in (*gives, *(p for p in takes if p.buffer in made)):
        if place is None:
            continue
        if place.buffer not in made:
            return "it gives what it did not make"
        if place.strides != _dense(place) or place.layout.reach != (0, built.program.buffers[place.buffer].elements):
            return "one of its results has gaps, or is a part of another"
    return None


def _number(scalar: Scalar) -> float | int:
    """Return the value as in the program's calls."""
    if scalar.recorded:
        return scalar.value
    return INTEGER if isinstance(scalar.value, int) else NUMBER


def _specs(graph: Graph) -> list[tuple[tuple[int, ...], str | None]]:
    specs = graph.specs
    return [(specs[v].shape, specs[v].dtype) for v in (*range(len(graph.inputs)), *graph.live)]


def _buffers(nodes: Iterable[int], built: Built, recorded: Recorded) -> dict[tuple[str, int], int]:
    """Return the program's value for a buffer of the graph."""
    found: dict[tuple[str, int], int] = {}
    for node in sorted(nodes):
        storages = built.storages[built.call_of_node[node]]
        facts = recorded.facts(node)
        for seen in (*facts.inputs, *facts.outputs):
            storage = recorded.storage(seen.row)
            if storage in storages:
                found.setdefault(seen.buffer, storages[storage])
                found.setdefault(("storage", storage), storages[storage])
    return found


def _place(lies: Lies | None, where: Mapping[tuple[str, int], int]) -> TensorRef | None:
    buffer = where.get(lies.buffer) if lies is not None else None
    if lies is None or buffer is None:
        return None
    return TensorRef(buffer, lies.layout.offset, lies.layout.shape, lies.layout.strides, lies.dtype)


def _dense(place: TensorRef) -> tuple[int, ...]:
    """Return strides without gaps in the order that the tensor's axes have."""
    order = sorted(range(len(place.shape)), key=lambda d: (place.strides[d], -d))
    found = [0] * len(place.shape)
    step = 1
    for d in order:
        found[d] = place.strides[d] if place.shape[d] == 1 else step
        step *= place.shape[d]
    return tuple(found)
