"""Findings in a step: which of its calls each occurrence replaces, by which kernel, reading and writing where."""

from __future__ import annotations

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
from tracemine.verify.step.order import follows, schedule, touches
from tracemine.verify.step.program import Program, TensorRef

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
