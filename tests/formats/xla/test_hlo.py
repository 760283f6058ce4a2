"""Modules as protobuf holds them."""

from __future__ import annotations

import gc
import random

import pytest

from tests.formats.xla.make_hlo import Made, Op, array, both, fused, parameter, simple
from tests.formats.xla.test_join import examples, layers, loop, program_of, turns
from tracemine.collector import paused
from tracemine.errors import InputError
from tracemine.formats.xla.executions import tensor_columns
from tracemine.formats.xla.hlo import HloModule, module_of
from tracemine.formats.xla.instructions import body_of, items_of
from tracemine.formats.xla.storages import depends
from tracemine.formats.xla.values import Values


def read(made: Made) -> HloModule:
    proto = made.proto()
    return module_of(memoryview(proto), (0, len(proto)))


def test_a_layout_gives_strides_and_a_tuple_its_arrays() -> None:
    shape = both(array("bf16", 2, 3, 4, minor_to_major=(1, 0, 2)), both(array("pred"), array("f32", 5)))
    module = read(Made("m", 1, {"main": [parameter("p", shape, 0)]}))
    leaves = module.in_order(module.entry)[0].shape.leaves
    assert [(index, leaf.dtype, leaf.bits, leaf.elements) for index, leaf in leaves] == [
        *(((0,), "bf16", 16, 24), ((1, 0), "pred", 8, 1), ((1, 1), "f32", 32, 5))
    ]
    assert leaves[0][1].strides == (3, 1, 6)


def test_instructions_stand_as_scheduled() -> None:
    module = read(layers(2))
    assert [item.instruction.name for item in items_of(module)][:3] == ["fusion.0", "product.0", "bend_fusion.0"]


def test_the_line_comes_from_the_stack_frame_index() -> None:
    op = Op("p", "parameter", array("f32", 2), frame=2)
    module = read(Made("m", 1, {"main": [op]}, frames=[("a.py", "main", 3, 0), ("b.py", "step", 9, 1)]))
    stack = module.stack(module.in_order(module.entry)[0])
    assert [(frame.file, frame.function, frame.line) for frame in stack] == [("a.py", "main", 3), ("b.py", "step", 9)]


@pytest.mark.parametrize(
    ("opcodes", "kind"),
    [
        (("transpose", "convert"), "movement"),
        (("multiply", "broadcast"), "elementwise"),
        (("transpose", "reduce"), "reduction"),
        (("dot", "multiply"), "product"),
        (("scatter",), "reduction"),
        (("all-reduce",), "collective"),
    ],
)
def test_a_class_comes_from_the_body_and_not_from_the_name(opcodes: tuple[str, ...], kind: str) -> None:
    x = array("f32", 8, 8)
    ops = [parameter("x", x, 0), fused("loop_transpose_fusion", x, "x", body="body")]
    module = read(Made("m", 1, {"main": ops, "body": simple("body", x, *opcodes)}))
    assert body_of(module, module.in_order(module.entry)[1]).kind == kind


def test_an_update_where_it_lies_writes_what_it_updates_and_a_copy_all() -> None:
    whole, few = array("f32", 1000, 8), array("f32", 4, 8)
    body = [parameter("b.0", whole, 0), parameter("b.1", few, 1), Op("b.up", "scatter", whole, ("b.0", "b.1", "b.1"))]
    ops = [parameter("x", whole, 0), parameter("y", few, 1), fused("scatter_fusion", whole, "x", "y", body="body")]
    for places, written in (([("x", 5), ("scatter_fusion", 5)], 32), ([("x", 5), ("scatter_fusion", 6)], 8000)):
        values = Values(read(Made("m", 1, {"main": ops, "body": body}, places=places)))
        (result,) = values.results(values.module.in_order(1)[2])
        assert (result.updates, result.into) == (written, 0 if written == 32 else -1)


def test_a_slice_reads_what_it_takes_where_it_lies() -> None:
    whole, part = array("f32", 8, 96), array("f32", 8, 32)
    cut = Op("b.cut", "slice", part, ("b.0",), slices=((0, 8, 1), (32, 64, 1)))
    ops = [parameter("x", whole, 0), fused("slice_fusion", part, "x", body="body")]
    values = Values(read(Made("m", 1, {"main": ops, "body": [parameter("b.0", whole, 0), cut]})))
    (taken,) = values.reads(values.module.in_order(1)[1])
    assert taken.part is not None
    assert (taken.part.offset, taken.part.dims, taken.part.strides) == (32, (8, 32), (96, 1))


def test_literals_are_stepped_over() -> None:
    constant = Op("c", "constant", array("f32", 2), literal=b"\xff" * 64)  # no message at all
    assert read(Made("m", 1, {"main": [constant]})).in_order(1)[0].opcode == "constant"


def test_changed_bytes_are_an_error_or_a_module() -> None:
    proto, chosen, read_whole = loop().proto(), random.Random(3), 0
    for _ in range(400):
        changed = bytearray(proto)
        for _ in range(chosen.randint(1, 4)):
            changed[chosen.randrange(len(changed))] = chosen.randrange(256)
        try:
            program = program_of(bytes(changed))
            found = turns(program, 3)
            runs, storages = examples(program, found)
            depends(program.items)
        except InputError:  # what few ask for is decoded when they do
            continue
        assert tensor_columns(storages, found, runs)[1].sum() == len(storages.tensors)
        read_whole += 1
    assert read_whole > 100


def test_a_computation_that_calls_itself_twice_ends() -> None:
    x = array("f32", 2)
    calls = [Op(f"c{at}", "call", x, (), ("main",)) for at in range(2)]
    around = [fused(f"f{at}", x, body="main") for at in range(2)]
    module = read(Made("m", 1, {"main": [*calls, *around, Op("last", "call", x, (), ("main",))]}))
    assert [item.instruction.name for item in items_of(module)] == ["f0", "f1"]
    assert body_of(module, items_of(module)[0].instruction).kind == "elementwise"
    assert Values(module).origin(module.in_order(1)[-1].id, ()) is not None


def alive() -> int:
    return sum(isinstance(each, HloModule) for each in gc.get_objects())


def test_no_cycle_keeps_a_module_in_memory() -> None:
    gc.collect()
    with paused():
        before, program = alive(), program_of(layers().proto())
        assert (program.items[0].body.kind, alive()) == ("elementwise", before + 1)
        del program
        assert alive() == before
