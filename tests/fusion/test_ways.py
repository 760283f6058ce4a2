"""What lies between two operators that share data: the host, a guess, a scatter."""

from __future__ import annotations

from tests.flow.programs import ADD, RELU, Program
from tests.flow.test_inferred import FLOAT, Eager
from tracemine.flow import Flow
from tracemine.fusion import REFUSALS, Refusal, groups

ITEM = "aten::_local_scalar_dense(Tensor self) -> Scalar"
EXP = "aten::exp(Tensor self) -> Tensor"
MUL = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
INDEX_ADD_ = "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)"


def grouped(found: Flow) -> list[list[int]]:
    made = groups(found)
    return [made.node[a:b].tolist() for a, b in zip(made.begin[:-1].tolist(), made.begin[1:].tolist(), strict=True)]


def reasons(found: Flow) -> set[tuple[int, int, Refusal]]:
    refused = groups(found).refusals
    pairs = zip(refused.first.tolist(), refused.second.tolist(), refused.reason.tolist(), strict=True)
    return {(first, second, REFUSALS[code]) for first, second, code in pairs}


def read_back(program: Program) -> None:
    """The last activity is a copy to the host."""
    program.trace.rows["activities"][-1] |= {"kind": "memcpy", "copy_kind": "DtoH"}


def test_what_the_host_reads_parts_what_it_launches_later_from_what_was_read() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 1024) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(ITEM, [y])
    read_back(program)
    program.call(ADD, [y, y], [z])
    found = program.flow()
    assert grouped(found) == []
    assert (0, 2, Refusal.HOST) in reasons(found)


def test_what_the_host_reads_of_another_tensor_parts_nothing() -> None:
    program = Program()
    x, y, z, other = (program.tensor(name, 1024) for name in ("x", "y", "z", "other"))
    program.call(RELU, [x], [y])
    program.call(ITEM, [other])
    read_back(program)
    program.call(ADD, [y, y], [z])
    assert grouped(program.flow()) == [[0, 2]]


def test_a_scatter_runs_over_its_source_however_small_what_it_scatters_into_is() -> None:
    program = Program()
    edges, weights, messages = (program.tensor(name, 4096) for name in ("edges", "weights", "messages"))
    program.call(MUL, [edges, weights], [messages])
    program.call(INDEX_ADD_, [program.tensor("nodes", 64), None, program.tensor("index", 4096), messages], [])
    assert grouped(program.flow()) == [[0, 1]]


def test_what_reads_a_scatters_target_stays_apart() -> None:
    program = Program()
    edges, weights, messages = (program.tensor(name, 4096) for name in ("edges", "weights", "messages"))
    nodes, out = program.tensor("nodes", 4096), program.tensor("out", 4096)
    program.call(MUL, [edges, weights], [messages])
    program.call(INDEX_ADD_, [nodes, None, program.tensor("index", 4096), messages], [nodes])
    program.call(EXP, [nodes], [out])
    assert grouped(program.flow()) == [[0, 1]]


def two_sums(product: bool) -> Flow:
    """Two tensors of one look, perhaps a product of one of them, and what is made of the first and something else."""
    eager = Eager()
    square = ([64, 64], FLOAT)
    for length in (2, 3):
        shape = ([64, 64, length], FLOAT)
        eager.call("aten::sum", shape, ([], "ScalarList"), ([], "Scalar"), ([], ""), values=["", "[2]", "False", ""])
    if product:
        eager.call("aten::linear", square, square)
    eager.call("aten::mul", square, square)
    return eager.flow()


def test_a_way_that_may_be_there_counts_as_one_and_the_reason_says_so() -> None:
    found = two_sums(product=True)
    assert not any({0, 3} <= set(group) for group in grouped(found))
    assert {(0, 3, Refusal.UNSURE), (0, 3, Refusal.BARRIER)} & reasons(found)
    assert any({0, 2} <= set(group) for group in grouped(two_sums(product=False)))


def test_reductions_of_one_tensor_along_different_axes_stay_apart() -> None:
    eager = Eager()
    square = ([64, 64], FLOAT)
    eager.call("aten::relu", square)
    for axis in ("[0]", "[1]"):
        eager.call("aten::sum", square, ([], "ScalarList"), ([], "Scalar"), ([], ""), values=["", axis, "False", ""])
    for group in grouped(eager.flow()):
        assert not {1, 2} <= set(group)
