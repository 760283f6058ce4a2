"""Which results are wanted after their step."""

from __future__ import annotations

from tests.flow.programs import ADD_, COPY_, RELU, Program
from tracemine.fusion.liveness import lasting

SCALE = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor"


def test_an_intermediate_that_was_written_in_place_is_gone_when_its_successor_takes_the_memory() -> None:
    """As an optimizer's denominator: made, added to in place, read, and its block is next used in the step after."""
    program = Program()
    p, eps, out = (program.tensor(name, 64) for name in ("p", "eps", "out"))
    denominator = program.tensor("denominator", 64)
    for _ in range(3):
        program.step()
        program.allocate(denominator)
        program.call(SCALE, [p], [denominator])
        program.call(ADD_, [denominator, eps], [denominator])
        program.call(RELU, [denominator], [out])
    flow = program.flow()
    wanted = lasting(flow)
    buffers = {int(flow.writes.buffer[at]) for at in (~flow.writes.fresh).nonzero()[0]}
    in_place = [bool(wanted[at]) for at in range(len(wanted)) if not flow.writes.fresh[at]]
    assert len(buffers) == 3
    assert in_place == [False, False, False]


def test_what_is_written_in_place_into_a_tensor_from_before_the_recording_is_wanted() -> None:
    program = Program()
    weight, gradient, out = (program.tensor(name, 64) for name in ("weight", "gradient", "out"))
    for _ in range(3):
        program.step()
        program.call(ADD_, [weight, gradient], [weight])
        program.call(RELU, [weight], [out])
    flow = program.flow()
    assert lasting(flow)[~flow.writes.fresh].all()


def test_a_copy_that_the_last_operator_of_a_step_reads_is_not_wanted() -> None:
    """A cast or `contiguous` at a chain's end: a copy into room of its own, used again when the next step begins."""
    program = Program()
    x, out = (program.tensor(name, 64) for name in ("x", "out"))
    cast = program.tensor("cast", 64)
    for _ in range(3):
        program.step()
        program.allocate(cast)
        program.call(COPY_, [cast, x], [cast])
        program.call(RELU, [cast], [out])
    flow = program.flow()
    wanted = lasting(flow)
    assert [bool(wanted[at]) for at in range(len(wanted)) if not flow.writes.fresh[at]] == [False] * 3
