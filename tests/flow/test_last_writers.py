"""Last-writer semantics against brute force: every byte remembers who wrote it last."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

from tests.examples import examples
from tests.flow.programs import COPY_, RELU, Program, T
from tracemine.flow import Source
from tracemine.flow.reads_writes import MOST_WRITERS, LastWriters

_STORAGES, _ELEMENTS = 2, 12


@dataclass
class _Bytes:
    """A storage as a list of elements: the last writer of each, None: nobody."""

    born: bool = False
    writer: list[int | None] = field(default_factory=lambda: [None] * _ELEMENTS)


def _view(draw: random.Random, strided: bool) -> tuple[int, int, int]:
    """Begin, count, stride, within a storage."""
    stride = draw.randint(1, 3) if strided else 1
    begin = draw.randint(0, _ELEMENTS - 1)
    count = draw.randint(1, (_ELEMENTS - 1 - begin) // stride + 1)
    return begin, count, stride if count > 1 else 1


def _program(draw: random.Random, strided: bool) -> list[tuple[Any, ...]]:
    steps: list[tuple[Any, ...]] = []
    for _ in range(draw.randint(0, 14)):
        target, source = (draw.randrange(_STORAGES) for _ in range(2))
        into, taken = (_view(draw, strided) for _ in range(2))
        allocated, copied = ("allocate", target), ("copy", target, into, source, taken)
        steps.append(draw.choice((allocated, copied, ("fresh", target, taken, source))))
    return steps


def _run(steps: list[tuple[Any, ...]]) -> tuple[Program, list[tuple[set[int], bool, bool]]]:
    """The program, and by brute force for each read its writers, whether all was written, and whether it was born."""
    program = Program()
    held = [_Bytes() for _ in range(_STORAGES)]
    reads, nodes = [], 0
    for kind, target, *rest in steps:
        whole = program.tensor(str(target), _ELEMENTS)
        if kind == "allocate":
            program.allocate(whole)
            held[target] = _Bytes(born=True)
            continue
        view, source = rest[:2]
        taken = rest[2] if kind == "copy" else view
        read = program.tensor(str(source), _ELEMENTS).part(*taken)
        if kind == "fresh" and source == target:
            continue
        here = [held[source].writer[i] for i in _elements(taken)]
        reads.append(({w for w in here if w is not None}, None not in here, held[source].born))
        if kind == "copy":
            into = whole.part(*view)
            program.call(COPY_, [into, read], [into])
            for i in _elements(view):
                held[target].writer[i] = nodes
        else:
            program.call(RELU, [read], [whole])
            held[target] = _Bytes(born=True, writer=[nodes] * _ELEMENTS)
        nodes += 1
    return program, reads


def _elements(view: tuple[int, int, int]) -> range:
    begin, count, stride = view
    return range(begin, begin + count * stride, stride)


def _found(program: Program) -> list[tuple[set[int], Source]]:
    flow = program.flow()
    writers: list[set[int]] = [set() for _ in flow.reads.node]
    for read, producer in zip(flow.edges.read.tolist(), flow.edges.producer.tolist(), strict=True):
        writers[read].add(producer)
    return [(given, Source(source)) for given, source in zip(writers, flow.reads.source.tolist(), strict=True)]


@examples(150)
def test_on_views_without_strides_the_writers_are_those_of_the_bytes(draw: random.Random) -> None:
    program, expected = _run(_program(draw, strided=False))
    found = _found(program)
    assert [writers for writers, _ in found] == [writers for writers, _, _ in expected]
    for (writers, source), (_, whole, born) in zip(found, expected, strict=True):
        if whole:
            assert source is Source.WRITTEN
        elif born:
            assert source is (Source.PARTLY_HOLE if writers else Source.HOLE)
        else:
            assert source is (Source.PARTLY_OUTSIDE if writers else Source.OUTSIDE)


@examples(150)
def test_on_views_with_strides_no_writer_is_missed(draw: random.Random) -> None:
    program, expected = _run(_program(draw, strided=True))
    for (writers, _), (exact, _, _) in zip(_found(program), expected, strict=True):
        assert exact <= writers


@examples(60)
def test_every_conflict_between_two_nodes_is_kept_in_order(draw: random.Random) -> None:
    """Along edges and orders, whatever overlaps a write is before or after it."""
    flow = _run(_program(draw, strided=True))[0].flow()
    count = len(flow.nodes)
    after = [{n} for n in range(count)]
    pairs = [*zip(flow.edges.producer.tolist(), flow.edges.consumer.tolist(), strict=True)]
    pairs += zip(flow.order_before.tolist(), flow.order_after.tolist(), strict=True)
    for before, later in sorted(pairs, reverse=True):
        assert before < later
        after[before] |= after[later]
    accesses = [
        (node, buffer, begin, end, writes)
        for table, writes in ((flow.reads, False), (flow.writes, True))
        for node, buffer, begin, end in zip(
            table.node.tolist(), table.buffer.tolist(), table.begin_byte.tolist(), table.end_byte.tolist(), strict=True
        )
    ]
    for node, buffer, begin, end, writes in accesses:
        for other, its_buffer, its_begin, its_end, it_writes in accesses:
            overlap = buffer == its_buffer and begin < its_end and its_begin < end
            if overlap and node < other and (writes or it_writes):
                assert other in after[node]


def test_many_strided_writes_to_one_buffer_are_bounded_and_what_is_forgotten_is_said() -> None:
    writers = LastWriters()
    writers.write(1, 0, 1000)
    for offset in range(MOST_WRITERS + 10):
        writers.write(1, offset, 100_000 + offset, layout=0)
    source, found = writers.read(1, 0, 200_000)
    assert source is Source.UNCERTAIN
    assert len(found) <= MOST_WRITERS + 1


def test_a_buffer_written_in_ten_thousand_slices_takes_no_quadratic_time() -> None:
    begun = time.process_time()
    writers = LastWriters()
    for place in range(10_000):
        writers.write(1, place * 7919 % 10_000, place * 7919 % 10_000 + 1)
    for place in range(10_000):
        assert len(writers.read(1, place, place + 1)[1]) == 1
    assert time.process_time() - begun < 5


def test_a_thousand_operators_inside_each_other_are_no_trouble() -> None:
    program = Program()
    x = T("x", (4,), (1,))
    managers = [program.inside("Outer", [], [], kernels=0) for _ in range(1000)]
    for manager in managers:
        manager.__enter__()
    program.call(RELU, [x], [T("y", (4,), (1,))])
    program.call(RELU, [T("y", (4,), (1,))], [T("z", (4,), (1,))])
    for manager in reversed(managers):
        manager.__exit__(None, None, None)
    assert program.edges() == {("relu", "relu#1", "y")}
