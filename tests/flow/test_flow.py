"""Who reads what which other wrote: one test for each way to get it wrong."""

from __future__ import annotations

import numpy as np

from benchmarks.dataflow.steps import compare_steps
from tests.flow.programs import ADD, ADD_, COPY_, EMPTY, RELU, Program
from tracemine.flow import Source, activity_edges

FILL_ = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
MM_OUT = "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
FOREACH_ADD_ = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
ITEM = "aten::_local_scalar_dense(Tensor self) -> Scalar"
BATCH_NORM = (
    "aten::cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool training, float exponential_average_factor, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)"
)


def test_a_reader_gets_an_edge_from_the_writer_of_its_storage() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(ADD, [y, x], [z])
    assert program.edges() == {("relu", "add", "y")}
    assert program.sources()[("add", "x")] is Source.OUTSIDE


def test_the_edge_says_how_many_bytes_go_over_it() -> None:
    program = Program()
    x, y, z = program.tensor("x", 8), program.tensor("y", 8), program.tensor("z", 3)
    program.call(RELU, [x], [y])
    program.call(RELU, [y.part(2, 3)], [z])
    assert program.flow().edges.bytes.tolist() == [12]


def test_without_an_execution_trace_there_are_no_nodes() -> None:
    program = Program()
    program.call(RELU, [], [], joined=False)
    found = program.flow()
    assert len(found.nodes) == 0
    assert found.activity_node.tolist() == [-1]


def test_what_an_operator_allocates_inside_does_not_wipe_what_it_wrote() -> None:
    """Its `empty` is a child with a larger id, and an output of both."""
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    with program.inside(RELU, [x], [y]):
        program.allocate(y)
    program.call(RELU, [y], [z])
    assert program.edges() == {("relu", "relu#1", "y")}


def test_a_storage_id_that_is_used_again_has_no_old_writer() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    program.allocate(y)
    program.call(RELU, [y], [z])
    assert program.edges() == set()
    assert program.sources()[("relu#1", "y")] is Source.HOLE


def test_a_fresh_output_is_a_new_buffer_though_no_allocation_was_recorded() -> None:
    program = Program()
    x, big, small, z = program.tensor("x", 8), program.tensor("y", 8), program.tensor("y", 4), program.tensor("z", 8)
    program.call(RELU, [x], [big])
    program.call(RELU, [x], [small])
    program.call(RELU, [big], [z])
    assert program.edges() == {("relu#1", "relu#2", "y")}
    found = program.flow()
    assert len(set(found.writes.buffer.tolist())) == 3
    assert not found.reads.resolved.all()  # half of it is nobody's


def test_copy_fill_and_out_write_their_target_and_do_not_read_it() -> None:
    program = Program()
    a, b, c, d = (program.tensor(name, 4, 4) for name in "abcd")
    program.call(FILL_, [a], [a])
    program.call(COPY_, [a, b], [a])
    program.call(MM_OUT, [a, b, c], [c])
    program.call(RELU, [c], [d])
    assert program.edges() == {("copy_", "mm", "a"), ("mm", "relu", "c")}
    assert ("copy_", "a") not in program.sources()
    assert ("mm", "c") not in program.sources()


def test_an_in_place_operator_reads_and_writes_its_input() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(ADD_, [y, x], [y])
    program.call(RELU, [y], [z])
    assert program.edges() == {("relu", "add_", "y"), ("add_", "relu#1", "y")}


def test_an_operator_without_results_is_a_sink() -> None:
    program = Program()
    x, y = program.tensor("x", 1), program.tensor("y", 1)
    program.call(RELU, [x], [y])
    program.call(ITEM, [y])
    assert program.edges() == {("relu", "_local_scalar_dense", "y")}
    assert len(program.flow().writes) == 1


def test_an_operator_that_launches_inside_another_that_does_counts_as_part_of_it() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    with program.inside("aten::cumsum(Tensor self, int dim) -> Tensor", [x], [y]):
        program.allocate(y)
        program.call(FILL_, [y], [y])
    program.call(RELU, [y], [z])
    found = program.flow()
    assert len(found.nodes) == 2
    assert np.diff(found.nodes.activity_begin).tolist() == [2, 1]
    assert program.edges() == {("cumsum", "relu", "y")}
    assert len(found.writes) == 2  # what fill_ wrote is the outer operator's own matter


def test_a_function_without_a_schema_does_not_swallow_the_operators_inside_it() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    with program.inside("MyFunction", [x], []):
        program.call(RELU, [x], [y])
        program.call(RELU, [y], [z])
    assert ("relu", "relu#1", "y") in program.edges()


def test_views_share_what_was_written() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 4, 4) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(VIEW, [y], [program.tensor("y", 16)], kernels=0)
    program.call(RELU, [program.tensor("y", 16)], [z])
    assert program.edges() == {("relu", "relu#1", "y")}


def test_slices_that_do_not_overlap_have_nothing_to_do_with_each_other() -> None:
    program = Program()
    x, y, z = program.tensor("x", 4), program.tensor("y", 8), program.tensor("z", 4)
    program.allocate(y)
    program.call(COPY_, [y.part(0, 4), x], [y.part(0, 4)])
    program.call(COPY_, [y.part(4, 4), x], [y.part(4, 4)])
    program.call(RELU, [y.part(4, 4)], [z])
    program.call(RELU, [y], [z])
    assert program.edges() == {("copy_#1", "relu", "y"), ("copy_", "relu#1", "y"), ("copy_#1", "relu#1", "y")}
    assert program.sources()[("relu#1", "y")] is Source.WRITTEN


def test_a_strided_write_hides_nothing_until_the_same_elements_are_written_again() -> None:
    program = Program()
    x, y, z = program.tensor("x", 4), program.tensor("y", 8), program.tensor("z", 8)
    even = y.part(0, 4, 2)
    program.call(RELU, [program.tensor("w", 8)], [y])
    program.call(COPY_, [even, x], [even])
    program.call(COPY_, [even, x], [even])
    program.call(RELU, [y], [z])
    assert program.edges() == {("relu", "relu#1", "y"), ("copy_#1", "relu#1", "y")}


def test_what_was_only_partly_written_says_so() -> None:
    program = Program()
    x, cache, y, z = program.tensor("x", 4), program.tensor("c", 8), program.tensor("y", 8), program.tensor("z", 8)
    program.call(COPY_, [cache.part(0, 4), x], [cache.part(0, 4)])
    program.call(RELU, [cache], [z])
    program.allocate(y)
    program.call(COPY_, [y.part(0, 4), x], [y.part(0, 4)])
    program.call(RELU, [y], [z])
    assert program.sources()[("relu", "c")] is Source.PARTLY_OUTSIDE
    assert program.sources()[("relu#1", "y")] is Source.PARTLY_HOLE
    assert program.flow().reads.resolved.sum() == len(program.flow().reads.node) - 1


def test_lists_are_read_and_written_tensor_by_tensor() -> None:
    program = Program()
    a, b, g, h = (program.tensor(name, 8) for name in "abgh")
    program.call(RELU, [a], [g])
    program.call(RELU, [b], [h])
    program.call(FOREACH_ADD_, [[a, b], [g, h]], [])
    program.call(RELU, [b], [program.tensor("z", 8)])
    assert program.edges() == {
        ("relu", "_foreach_add_", "g"),
        ("relu#1", "_foreach_add_", "h"),
        ("_foreach_add_", "relu#2", "b"),
    }


def test_a_collective_writes_what_it_gives_back() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    with program.inside("c10d::allreduce_(Tensor[] tensors) -> (Tensor[], Work)", [[y]], [[y]], kernels=0):
        program.call("record_param_comms", [[y]], [[y]])
    program.call(RELU, [y], [z])
    assert program.edges() == {("relu", "record_param_comms", "y"), ("record_param_comms", "relu#1", "y")}


def test_a_collective_that_fills_a_buffer_part_by_part_does_not_empty_it_first() -> None:
    program = Program()
    x, y, z = program.tensor("x", 4), program.tensor("y", 8), program.tensor("z", 8)
    program.allocate(y)
    program.call("record_param_comms", [[x]], [[y.part(0, 4)]])
    program.call("record_param_comms", [[x]], [[y.part(4, 4)]])
    program.call(RELU, [y], [z])
    assert program.edges() == {("record_param_comms", "relu", "y"), ("record_param_comms#1", "relu", "y")}


def test_running_statistics_are_written_in_training_only() -> None:
    x, y, mean = (Program().tensor(name, 8) for name in ("x", "y", "mean"))
    for training, written in (("True", True), ("False", False)):
        program = Program()
        concrete = ["", "", "", "", "", training, "0.1", "1e-05"]
        program.call(BATCH_NORM, [x, x, None, mean, None], [y], concrete=concrete)
        program.call(RELU, [mean], [program.tensor("z", 8)])
        assert (("cudnn_batch_norm", "relu", "mean") in program.edges()) is written


def test_an_operator_that_says_nothing_leaves_what_it_took_uncertain_and_fills_what_was_empty() -> None:
    program = Program()
    x, y, z, out = (program.tensor(name, 8) for name in ("x", "y", "z", "out"))
    program.call(RELU, [x], [y])
    program.allocate(out)
    program.call("triton_poi_fused_add_0", [y, out])
    program.call(ADD, [y, out], [z])
    assert program.sources()[("add", "y")] is Source.UNCERTAIN
    assert program.sources()[("add", "out")] is Source.WRITTEN
    assert ("triton_poi_fused_add_0", "add", "out") in program.edges()


def test_a_node_that_the_execution_trace_lacks_is_not_known() -> None:
    program = Program()
    x, y = program.tensor("x", 8), program.tensor("y", 8)
    program.call(RELU, [x], [y])
    program.call(RELU, joined=False)
    assert program.flow().nodes.known.tolist() == [True, False]


def test_threads_are_distinguished_and_take_turns_by_the_trace_s_own_order() -> None:
    """The backward pass runs on another thread while an operator of the first one is under way."""
    program = Program()
    x, y, z, w = (program.tensor(name, 8) for name in "xyzw")
    with program.inside("Outer", [], [], kernels=0):
        program.call(RELU, [x], [y])
        program.call(RELU, [y], [z], tid=2)
        program.call(RELU, [z], [w])
    assert program.edges() == {("relu", "relu#1", "y"), ("relu#1", "relu#2", "z")}


def test_what_is_on_the_host_is_no_part_of_it() -> None:
    program = Program()
    host, x, y = program.tensor("host", 8, device="cpu"), program.tensor("x", 8), program.tensor("y", 8)
    program.call(ADD, [x, host], [y])
    program.call(COPY_, [host, y], [host])
    program.call(COPY_, [x, host], [x])
    found = program.flow()
    assert len(found.reads.node) == 2
    assert program.edges() == {("add", "copy_", "y")}


def test_what_stride_0_repeats_counts_once() -> None:
    program = Program()
    row = program.tensor("x", 8)
    program.call(RELU, [row.__class__("x", (100, 8), (0, 1))], [program.tensor("y", 100, 8)])
    found = program.flow()
    assert (found.reads.bytes.tolist(), found.writes.bytes.tolist()) == ([32], [3200])


def test_a_write_lives_on_if_its_memory_is_not_used_again_before_its_step_ends() -> None:
    program = Program()
    x, kept, gone = (program.tensor(name, 8) for name in ("x", "kept", "gone"))
    for _ in range(2):
        program.step()
        program.call(RELU, [x], [gone])
        program.call(RELU, [gone], [kept])
        program.allocate(gone)
        program.call(RELU, [x], [gone])
    found = program.flow()
    assert found.writes.live_out.tolist() == [False, True, True, False, True, True]
    assert found.writes.gone_node.tolist() == [2, 5, 4, 5, -1, -1]


def test_what_overwrites_comes_after_those_that_read_or_wrote_what_was_there() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(RELU, [y], [z])
    program.call(COPY_, [y, x], [y])
    found = program.flow()
    assert set(zip(found.order_before.tolist(), found.order_after.tolist(), strict=True)) == {(0, 2), (1, 2)}


def test_slices_may_change_places_where_they_do_not_overlap() -> None:
    program = Program()
    x, y = program.tensor("x", 4), program.tensor("y", 8)
    program.call(COPY_, [y.part(0, 4), x], [y.part(0, 4)])
    program.call(COPY_, [y.part(4, 4), x], [y.part(4, 4)])
    assert len(program.flow().order_before) == 0


def test_two_steps_are_equal_but_for_what_the_first_leaves_to_the_second() -> None:
    program = Program()
    weight, x, y = (program.tensor(name, 8) for name in ("w", "x", "y"))
    for _ in range(3):
        program.step()
        program.call(ADD, [x, weight], [y])
        program.call(ADD_, [weight, y], [weight])
    first, second = compare_steps(program.timeline(), program.flow())
    assert (first.aligned, first.reads, first.equal, first.carried, first.different) == (True, 4, 2, 2, ())
    assert (second.aligned, second.reads, second.equal) == (True, 4, 4)


def test_steps_of_other_operators_are_not_compared() -> None:
    program = Program()
    x = program.tensor("x", 8)
    program.step()
    program.call(RELU, [x], [x])
    program.step()
    program.call(ADD, [x, x], [x])
    assert [pair.aligned for pair in compare_steps(program.timeline(), program.flow())] == [False]


def test_edges_between_activities_go_from_the_last_of_one_operator_to_the_first_of_the_other() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y], kernels=2)
    program.call(RELU, [y], [z], kernels=2)
    assert activity_edges(program.flow()).to_pylist() == [
        {
            "producer_row": 1,
            "consumer_row": 2,
            "bytes": 32,
            "evidence": "proven",
            "buffer": program.flow().writes.buffer[0],
            "written_row": 1,
            "read_row": 2,
        }
    ]


def test_numbers_that_no_tensor_has_are_left_out() -> None:
    program = Program()
    x, y = program.tensor("x", 8), program.tensor("y", 8)
    huge = x.__class__("x", (2**62, 2**62), (2**62, 1))
    for wrong in (huge, x.part(-4, 8), x.part(2**61, 8), x.part(0, -8), x.part(0, 8, -1)):
        program.call(RELU, [wrong], [y])
    found = program.flow()
    assert (len(found.reads.node), len(found.writes)) == (0, 5)


def test_an_allocation_of_nothing_and_an_empty_tensor_are_no_reads() -> None:
    program = Program()
    program.call(EMPTY, [], [program.tensor("e", 0)], kernels=0)
    program.call(RELU, [program.tensor("e", 0)], [program.tensor("y", 0)])
    found = program.flow()
    assert (len(found.reads.node), len(found.writes)) == (0, 0)


def test_tensors_of_no_operator_are_nobody_s() -> None:
    program = Program()
    x = program.tensor("x", 8)
    program.call(RELU, [x], [x])
    for op in program.trace.rows["ops"]:
        op["kind"] = "annotation"
    assert len(program.flow().nodes) == 0
