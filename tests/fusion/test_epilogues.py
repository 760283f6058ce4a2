"""Which groups could ride on a product: those that alone read its result, element by element."""

from __future__ import annotations

from tests.flow.programs import ADD, RELU, Program
from tests.fusion.test_legality import MM, SUM
from tracemine.fusion import groups

SIZE = 64


def product_bytes(program: Program) -> list[int]:
    sizes: list[int] = groups(program.flow()).product_bytes.tolist()
    return sizes


def after_a_product(*, read_again: bool = False, reduced: bool = False) -> Program:
    program = Program()
    x, w, bias, y, z, out = (program.tensor(name, SIZE) for name in ("x", "w", "bias", "y", "z", "out"))
    program.step()
    program.call(MM, [x, w], [y])
    program.call(ADD, [y, bias], [z])
    program.call(SUM if reduced else RELU, [z], [program.tensor("out", 1) if reduced else out])
    if read_again:
        program.call(MM, [y, w], [program.tensor("other", SIZE)])
    program.allocate(y)  # its memory is used again, so it is not wanted afterwards
    program.call(MM, [x, w], [y])
    return program


def test_a_bias_and_an_activation_behind_a_product_could_ride_on_it() -> None:
    assert product_bytes(after_a_product()) == [4 * SIZE]


def test_a_product_that_somebody_else_reads_too_carries_nobody() -> None:
    assert product_bytes(after_a_product(read_again=True)) == [0]


def test_what_reduces_rows_is_no_epilogue() -> None:
    assert product_bytes(after_a_product(reduced=True)) == [0]
