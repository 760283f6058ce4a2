"""Kernels of command buffers, and the instructions of a module that they compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.formats.xla.make_hlo import Made, Op, array, blas, both, element, fused, parameter, simple
from tracemine.formats.xla.hlo import module_of
from tracemine.formats.xla.host import EqualRuns
from tracemine.formats.xla.join import HloProgram, Joined, joined, programs_of, repeated
from tracemine.formats.xla.recording import Columns
from tracemine.formats.xla.storages import Storages, depends, tensor_rows
from tracemine.formats.xla.values import ArrayPart

X = array("f32", 64, 64)
PROGRAM = 7


def program_of(proto: bytes) -> HloProgram:
    return programs_of({PROGRAM: module_of(memoryview(proto), (0, len(proto)))})[0][PROGRAM]


def layers(count: int = 3) -> Made:
    """Equal layers, so that the second and third have kernels of the first one's name; written out of order."""
    computations: dict[str, list[Op]] = {"main": []}
    ops, order, given = [parameter("x", X, 0), parameter("w", X, 1)], ["x", "w"], "x"
    for at in range(count):
        computations |= {f"scale{at}": simple(f"scale{at}", X, "multiply"), f"bend{at}": simple(f"bend{at}", X, "tanh")}
        names = [f"fusion.{at}", f"product.{at}", f"result.{at}", f"bend_fusion.{at}"]
        new = [
            fused(names[0], X, given, body=f"scale{at}", kernel="fusion.0" if at else ""),
            blas(names[1], X, names[0], "w"),
            element(names[2], X, names[1], 0),
            fused(names[3], X, names[2], body=f"bend{at}"),
        ]
        ops, order, given = [*ops, *new], [*order, *names], names[3]
    root = [Op("root", "tuple", both(X), (given,))]
    computations["main"] = [
        *ops[:2],
        *ops[2:][::-1],
        *root,
    ]  # operands behind what takes them: only the schedule counts
    return Made("jit_step", PROGRAM, computations, schedule={"main": [*order, "root"]})


def launched(
    nodes: dict[int, str], commands: int, launch: int = 0, buffer: str = "command_buffer_1"
) -> list[tuple[Any, ...]]:
    return [(buffer, name, launch, number, commands) for number, name in nodes.items()]


def kernels(rows: list[tuple[Any, ...]], device: int = 0) -> tuple[Columns, list[str]]:
    count = len(rows)
    columns = [*zip(*rows, strict=True)]
    strings = [*dict.fromkeys((*columns[0], *columns[1]))]
    made = {
        "program": np.full(count, PROGRAM),
        "hlo_op": np.array([strings.index(text) for text in columns[0]]),
        "name": np.array([strings.index(text) for text in columns[1]]),
        "device": np.full(count, device),
        "launch": np.array(columns[2]),
        "node": np.array(columns[3]),
        "commands": np.array(columns[4]),
        "execution": np.full(count, -1),
    }
    return made, strings


def names(program: HloProgram, found: Joined) -> list[str]:
    return [program.items[found.item[at]].instruction.name if at >= 0 else "" for at in found.owner.tolist()]


# Nine commands; products are graphs of their own, whose nodes come behind.
THREE = {0: "fusion_0", 2: "bend_fusion_0", 3: "fusion_0", 5: "bend_fusion_0", 6: "fusion_0", 8: "bend_fusion_0"}
CALLS = {9: "Memset 0", 10: "nvjet_a", 11: "nvjet_a", 12: "Memset 0", 13: "nvjet_b"}


def test_equal_layers_are_told_apart_by_the_number_of_the_node() -> None:
    program = program_of(layers().proto())
    found = joined({PROGRAM: program}, *kernels(launched(THREE | CALLS, 9)))
    assert names(program, found) == [
        *("fusion.0", "bend_fusion.0", "fusion.1", "bend_fusion.1", "fusion.2", "bend_fusion.2"),
        *("product.0", "product.0", "product.1", "product.2", "product.2"),
    ]
    assert len(found.item) == 9  # a set and a kernel of one call share its run


def test_a_kernel_of_another_body_is_given_to_nothing() -> None:
    wrong = THREE | CALLS | {3: "bend_fusion_0"}
    program = program_of(layers().proto())
    found = joined({PROGRAM: program}, *kernels(launched(wrong, 9)))
    assert found.apart == 1
    assert set(found.owner.tolist()) == {-1}


def test_more_calls_of_libraries_than_instructions_are_not_told_apart() -> None:
    found = joined(
        {PROGRAM: program_of(layers().proto())}, *kernels(launched(THREE | CALLS | {14: "nvjet_b", 15: "nvjet_b"}, 9))
    )
    assert found.apart == 1


def test_buffers_follow_each_other_and_are_found_again_in_the_next_step() -> None:
    program = program_of(layers().proto())
    first, second = {0: "fusion_0", 2: "bend_fusion_0", 3: "nvjet_a"}, {0: "fusion_0", 2: "bend_fusion_0", 3: "nvjet_a"}
    rows = [
        row
        for step in range(2)
        for at, nodes in enumerate((first, second))
        for row in launched(nodes, 3, launch=2 * step + at, buffer=f"command_buffer_{at}")
    ]
    found = joined({PROGRAM: program}, *kernels(rows))
    assert names(program, found)[:6] == [
        "fusion.0",
        "bend_fusion.0",
        "product.0",
        "fusion.1",
        "bend_fusion.1",
        "product.1",
    ]
    assert names(program, found)[6:] == names(program, found)[:6]
    assert found.execution.tolist() == [0] * 6 + [1] * 6


def test_outside_of_buffers_the_instruction_is_named_and_its_kernels_share_a_run() -> None:
    program = program_of(layers(1).proto())
    rows = [("fusion.0", "fusion_0", 0, -1, 0), ("product.0", "Memset 0", 1, -1, 0), ("product.0", "nvjet_a", 2, -1, 0)]
    again = [(op, name, launch + 3, node, count) for op, name, launch, node, count in rows]
    found = joined({PROGRAM: program}, *kernels([*rows, *again, ("while.9", "other", 9, -1, 0)]))
    assert found.owner.tolist() == [0, 1, 1, 2, 3, 3, -1]
    assert found.execution.tolist() == [0, 0, 1, 1]


def loop() -> Made:
    """256 iterations: a slice of the inputs, a product with a weight, an addition to the state, and its update."""
    one, all_, count = array("f32", 4, 64), array("f32", 256, 4, 64), array("s32")
    carried = both(count, one, all_, all_)
    body = [
        parameter("carried", carried, 0),
        *(element(f"carried.{at}", shape, "carried", at) for at, shape in enumerate(carried.members)),
        fused("slice_fusion", one, "carried.2", "carried.0", body="sliced"),
        fused("product_fusion", one, "slice_fusion", "w", body="product", kind="kCustom"),
        fused("add_fusion", one, "product_fusion", "carried.1", body="added"),
        fused("write_fusion", all_, "carried.3", "add_fusion", "carried.0", body="written"),
        fused("count_fusion", count, "carried.0", body="counted"),
        Op("next", "tuple", carried, ("count_fusion", "add_fusion", "carried.2", "write_fusion")),
    ]
    known = '{"known_trip_count":{"n":"256"},"known_induction_variable":{"tuple_index":"0"}}'
    return Made(
        "jit_scan",
        PROGRAM,
        {
            "main": [
                *(parameter(f"p{at}", shape, at) for at, shape in enumerate(carried.members)),
                Op("start", "tuple", carried, ("p0", "p1", "p2", "p3")),
                Op("while.1", "while", carried, ("start",), ("body",), config=known),
                element("states", all_, "while.1", 3),
                fused("last_fusion", all_, "states", body="bent"),
            ],
            "body": [Op("w", "constant", array("f32", 64, 64)), *body],
            "sliced": [
                parameter("sliced.0", all_, 0),
                parameter("sliced.1", count, 1),
                Op("sliced.cut", "dynamic-slice", array("f32", 1, 4, 64), ("sliced.0", "sliced.1")),
                Op("sliced.root", "bitcast", one, ("sliced.cut",)),
            ],
            "product": [
                parameter("product.0", one, 0),
                parameter("product.1", array("f32", 64, 64), 1),
                Op("product.dot", "dot", one, ("product.0", "product.1"), contracting=(1,), precision=2),
            ],
            "added": [
                parameter("added.0", one, 0),
                parameter("added.1", one, 1),
                Op("added.sum", "add", one, ("added.0", "added.1")),
            ],
            "written": [
                parameter("written.0", all_, 0),
                parameter("written.1", one, 1),
                parameter("written.2", count, 2),
                Op("written.wide", "bitcast", array("f32", 1, 4, 64), ("written.1",)),
                Op("written.update", "dynamic-update-slice", all_, ("written.0", "written.wide", "written.2")),
            ],
            "counted": simple("counted", count, "add"),
            "bent": simple("bent", all_, "tanh"),
        },
    )


def turns(program: HloProgram, count: int) -> Joined:
    inside = ("slice_fusion", "product_fusion", "add_fusion", "write_fusion", "count_fusion")
    ops = [*inside * count, "last_fusion"]
    return joined({PROGRAM: program}, *kernels([(op, op, at, -1, 0) for at, op in enumerate(ops)]))


def examples(program: HloProgram, found: Joined) -> tuple[EqualRuns, Storages]:
    runs, storages = repeated(found), Storages(program.items)
    for run in runs.examples.tolist():
        storages.add(run, found)
    return runs, storages


def test_a_loop_hands_on_its_state_and_updates_a_part_of_its_results() -> None:
    program = program_of(loop().proto())
    found = turns(program, 3)
    storages = Storages(program.items)
    for run in range(len(found.item)):
        storages.add(run, found)
    assert found.turn.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [0]
    by_run = {run: [t for t in storages.tensors if t.run == run] for run in range(len(found.item))}
    (sum_taken, state) = (t.storage for t in by_run[7] if not t.given)
    assert state == next(t.storage for t in by_run[2] if t.given)  # of the iteration before
    assert sum_taken == next(t.storage for t in by_run[6] if t.given)
    written = [t for run in (3, 8, 13) for t in by_run[run] if t.given]
    assert len({t.storage for t in written}) == 1
    assert [t.part for t in written] == [ArrayPart(256 * at, (256,), (1,)) for at in range(3)]
    assert by_run[15][0].storage == written[0].storage


def test_what_a_loop_does_without_its_state_is_known() -> None:
    program = program_of(loop().proto())
    needs = depends(program.items)
    named = {item.instruction.name: needed for item, needed in zip(program.items, needs, strict=True)}
    assert [name for name, needed in named.items() if not needed] == [
        *("slice_fusion", "product_fusion", "count_fusion", "last_fusion")
    ]
    assert program.items[1].body.precision == "HIGHEST"
    assert program.items[1].body.flops == 2 * 4 * 64 * 64


def test_memory_is_used_again_once_nothing_reads_it_but_not_a_result() -> None:
    program = program_of(layers().proto())
    rows = [row for step in range(2) for row in launched(THREE | CALLS, 9, launch=step)]
    found = joined({PROGRAM: program}, *kernels(rows))
    runs, storages = examples(program, found)
    assert len(runs.examples) < len(found.item)  # the second is the same
    tensors, count, storage = tensor_rows(storages, runs)
    given = np.array([tensor.given for tensor in tensors])[runs.rows(count)[1]]
    results = storage[given].tolist()
    assert len(set(results)) < len(results)
    assert results[8] not in results[9:]  # the module gives it to its caller
