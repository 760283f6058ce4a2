"""A path that is not known counts as a path; one that is known not to be there does not."""

from __future__ import annotations

from itertools import pairwise

from tests.flow.programs import ADD, RELU, Program
from tests.flow.test_inferred import FLOAT, LIST, SCALAR, Eager
from tracemine.flow import Flow
from tracemine.fusion import REFUSALS, Refusal, groups

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
TOUCH = "mylib::touch(Tensor x) -> ()"
LONG, BFLOAT = "long int", "c10::BFloat16"


def fused(found: Flow) -> list[list[str]]:
    """The operators of each group, numbered as in the program."""
    names = found.timeline.ops["name"].to_pylist()
    label = [f"{names[row].removeprefix('aten::')}{at}" for at, row in enumerate(found.nodes.op_row.tolist())]
    made = groups(found)
    return [[label[node] for node in made.node[a:b].tolist()] for a, b in pairwise(made.begin.tolist())]


def reasons(found: Flow) -> set[Refusal]:
    return {REFUSALS[code] for code in groups(found).refusals.reason.tolist()}


def replay(program: Program) -> None:
    """A kernel that no operator owns: of a graph, or of a library that says nothing."""
    program.now += 10
    program.trace.kernel("replayed", program.now, 5, launch=(program.now, 2), launch_name="cudaGraphLaunch")


def chain(program: Program, *between: str) -> Flow:
    """y = relu(x), something, z = relu(y)."""
    x, y, z, other = (program.tensor(name, 64) for name in ("x", "y", "z", "other"))
    program.call(RELU, [x], [y])
    for what in between:
        if what == "replay":
            replay(program)
        elif what == "not joined":
            program.call(RELU, [], [], joined=False)
        elif what == "says nothing":
            program.call("fused_lt_where_log")
        elif what == "says what it takes":
            program.call("triton_poi_fused_log", [other], [program.tensor("made", 64)])
        else:
            program.call(TOUCH, [y if what == "touches it" else other])
    program.call(RELU, [y], [z])
    return program.flow()


def test_with_nothing_between_them_two_are_one() -> None:
    assert fused(chain(Program())) == [["relu0", "relu1"]]


def test_a_replay_between_them_may_need_the_one_and_be_needed_by_the_other() -> None:
    found = chain(Program(), "replay")
    assert fused(found) == []
    assert reasons(found) == {Refusal.BARRIER}


def test_an_operator_that_the_execution_trace_lacks_is_a_barrier() -> None:
    found = chain(Program(), "not joined")
    assert fused(found) == []
    assert Refusal.BARRIER in reasons(found)


def test_a_kernel_that_torchscript_generated_is_a_barrier_as_it_has_neither_a_schema_nor_a_tensor() -> None:
    found = chain(Program(), "says nothing")
    assert fused(found) == []
    assert Refusal.BARRIER in reasons(found)


def test_an_operator_without_a_schema_that_says_what_it_takes_and_gives_is_none() -> None:
    assert fused(chain(Program(), "says what it takes")) == [["relu0", "relu2"]]


def test_an_operator_in_no_table_that_marks_nothing_may_have_written_what_it_took() -> None:
    assert fused(chain(Program(), "touches it")) == []


def test_an_operator_in_no_table_writes_nothing_that_it_was_not_given() -> None:
    assert fused(chain(Program(), "touches another")) == [["relu0", "relu2"]]


def test_a_barrier_in_front_of_all_or_behind_all_is_in_nobodys_way() -> None:
    program = Program()
    replay(program)
    found = chain(program)
    replay(program)
    assert fused(found) == fused(program.flow()) == [["relu0", "relu1"]]


def test_what_was_surely_written_behind_a_barrier_owes_it_nothing() -> None:
    program = Program()
    x, y, z, w, v = (program.tensor(name, 64) for name in ("x", "y", "z", "w", "v"))
    program.call(RELU, [x], [y])
    replay(program)
    program.call(RELU, [y], [z])
    program.call(RELU, [z], [w])
    program.call(ADD, [w, y], [v])  # reads y, which the replay may have changed, behind it too
    assert fused(program.flow()) == [["relu1", "relu2", "add3"]]


def test_a_product_between_them_that_is_known_to_be_independent_stays_out_of_the_way() -> None:
    program = Program()
    x, y, z, w = (program.tensor(name, 8, 8) for name in ("x", "y", "z", "w"))
    program.call(RELU, [x], [y])
    program.call(MM, [x, x], [w])
    program.call(ADD, [y, w], [z])
    assert fused(program.flow()) == [["relu0", "add2"]]


def test_what_reads_memory_that_nobody_was_seen_writing_may_need_all_before_it() -> None:
    program = Program()
    x, y, z, hole = (program.tensor(name, 64) for name in ("x", "y", "z", "hole"))
    program.call(RELU, [x], [y])
    program.allocate(hole)
    program.call(MM, [hole, hole], [z])
    program.call(ADD, [y, z], [program.tensor("v", 64)])
    assert fused(program.flow()) == []


def test_another_librarys_operator_that_writes_in_place_is_seen_by_what_reads_that() -> None:
    eager = Eager()
    eager.call("aten::relu", ([32, 64], BFLOAT))
    eager.call("_C::fused_add_rms_norm", ([32, 64], BFLOAT), ([32, 64], BFLOAT), ([64], BFLOAT), ([], SCALAR))
    eager.call("aten::exp", ([32, 64], BFLOAT))
    assert eager.reads()["exp", 0][0] == {"_C::fused_add_rms_norm"}
    assert fused(eager.flow()) == []


def test_rotary_embedding_quantisation_and_the_cache_are_no_fusion_of_ours() -> None:
    eager = Eager()
    for _ in range(2):
        eager.call("_C::fused_add_rms_norm", ([32, 64], BFLOAT), ([32, 64], BFLOAT), ([64], BFLOAT), ([], SCALAR))
        eager.call("aten::addmm", ([192], BFLOAT), ([32, 64], BFLOAT), ([64, 192], BFLOAT), ([], SCALAR), ([], SCALAR))
        eager.call(
            *("_C::rotary_embedding", ([32], LONG), ([32, 64], BFLOAT), ([32, 64], BFLOAT), ([], SCALAR)),
            *(([4096, 64], BFLOAT), ([], SCALAR)),
        )
        eager.call("_C::static_scaled_fp8_quant", ([32, 64], "c10::Float8_e4m3fn"), ([32, 64], BFLOAT), ([1], FLOAT))
    found = eager.flow()
    assert found.nodes.known.all()
    assert fused(found) == []


def test_an_operator_of_which_no_table_says_what_it_does_is_a_barrier_without_an_execution_trace() -> None:
    for name, expected in (("mylib::mix", []), ("aten::mm", [["relu0", "add2"]])):
        eager = Eager()
        eager.call("aten::relu", ([32, 64], FLOAT))
        eager.call(name, ([48, 16], FLOAT), ([16, 8], FLOAT))
        eager.call("aten::add", ([32, 64], FLOAT), ([32, 64], FLOAT), ([], SCALAR))
        assert fused(eager.flow()) == expected


def test_a_bucket_that_all_ranks_reduce_is_not_read_before_that() -> None:
    eager = Eager()
    eager.call("aten::mul", ([4096], FLOAT), ([], "double"))
    eager.call("record_param_comms", ([[4096]], LIST), ([], SCALAR))
    eager.call("aten::copy_", ([4096], FLOAT), ([4096], FLOAT), ([], SCALAR))
    assert fused(eager.flow()) == []


def test_a_product_whose_input_is_a_guess_may_read_what_is_as_large() -> None:
    """Two results look alike; the product reads one of them, and which nobody says."""

    def program(rows: int) -> Flow:
        eager = Eager()
        eager.call("aten::sub", ([32, 1], FLOAT), ([1, 64], FLOAT), ([], SCALAR))
        eager.call("aten::mul", ([32, 1], FLOAT), ([1, 64], FLOAT))
        eager.call("aten::mm", ([rows, 64], FLOAT), ([64, 64 * 32 // rows], FLOAT))
        eager.call("aten::add", ([32, 64], FLOAT), ([32, 64], FLOAT), ([], SCALAR))
        return eager.flow()

    assert fused(program(rows=32)) == []
    assert fused(program(rows=16)) == [["sub0", "mul1", "add3"]]


def test_what_one_product_made_another_may_read_by_a_guess() -> None:
    """The first reads what sub gave, for sure; the second reads one of two that look alike, and the sum its result."""

    def program(columns: int) -> Flow:
        eager = Eager()
        eager.call("aten::sub", ([32, 1], FLOAT), ([1, 48], FLOAT), ([], SCALAR))
        eager.call("aten::mm", ([32, 48], FLOAT), ([48, 64], FLOAT))
        eager.call("aten::mul", ([32, 1], FLOAT), ([1, 64], FLOAT))
        eager.call("aten::mm", ([32, columns], FLOAT), ([columns, 48], FLOAT))
        eager.call("aten::add", ([32, 48], FLOAT), ([32, 48], FLOAT), ([], SCALAR))
        return eager.flow()

    assert [each for each in fused(program(columns=64)) if {"sub0", "add4"} <= set(each)] == []
    assert ["sub0", "add4"] in fused(program(columns=16))


def test_an_operator_with_a_schema_speaks_for_those_inside_it() -> None:
    eager = Eager()
    eager.call("aten::neg", ([32, 64], FLOAT))
    eager.call("aten::exp", ([32, 64], FLOAT), inside=[("aten::_exp_helper", ([32, 64], FLOAT))])
    found = eager.flow()
    assert fused(found) == [["neg0", "exp1"]]
    assert not {(0, 1), (1, 0)} & set(zip(found.order_before.tolist(), found.order_after.tolist(), strict=True))


def test_norms_and_gates_of_a_serving_engine_are_distinguished_by_the_products_between_them() -> None:
    eager = Eager()
    for _ in range(2):
        tensors = [([32, 64], BFLOAT)] * 4
        eager.call("aiter::rmsnorm2d_fwd_with_add", *tensors, ([64], BFLOAT), ([], SCALAR), ([], SCALAR))
        eager.call("aten::mm", ([32, 64], BFLOAT), ([64, 256], BFLOAT))
        eager.call("sgl_kernel::silu_and_mul", ([32, 128], BFLOAT), ([32, 256], BFLOAT))
        eager.call("aten::mm", ([32, 128], BFLOAT), ([128, 64], BFLOAT))
    found = eager.flow()
    assert found.nodes.known.all()
    assert fused(found) == []
    # The gate reads what the first product made, and the second product what the gate wrote into its argument.
    edges = set(zip(found.edges.producer.tolist(), found.edges.consumer.tolist(), strict=True))
    assert {(1, 2), (2, 3)} <= edges
