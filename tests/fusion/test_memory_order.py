"""A group goes across the grain where one call has elements side by side in one tensor and not in another."""

from __future__ import annotations

from dataclasses import replace

from tests.flow.programs import ADD, COPY_, RELU, Program, T
from tracemine.fusion import FusedKernel, groups

ROWS, LENGTH = 64, 96


def kernel_strided(program: Program) -> bool:
    found = groups(program.flow())
    assert len(found) == 1
    kernel: FusedKernel = found.kernels[found.kernel[0]]
    return kernel.strided


def transposed(program: Program, storage: str) -> T:
    """ROWS x LENGTH, whose rows do not lie in a row."""
    return replace(program.tensor(storage, ROWS, LENGTH), strides=(1, ROWS))


def test_a_sum_with_a_transpose_reads_across_the_grain() -> None:
    program = Program()
    x, y, total, out = (program.tensor(name, ROWS, LENGTH) for name in "xyto")
    program.call(ADD, [x, transposed(program, "y")], [total])
    program.call(RELU, [total], [out])
    assert kernel_strided(program)
    assert y.shape == out.shape


def test_a_copy_that_transposes_what_the_group_made_writes_across_the_grain() -> None:
    program = Program()
    x, total, out = (program.tensor(name, ROWS, LENGTH) for name in "xto")
    program.call(RELU, [x], [total])
    program.call(COPY_, [replace(out, strides=(1, ROWS)), total], [replace(out, strides=(1, ROWS))])
    assert kernel_strided(program)


def test_tensors_that_all_lie_the_same_way_are_read_along_the_grain_whatever_their_axes_are_called() -> None:
    program = Program()
    x, total, out = (transposed(program, name) for name in "xto")
    program.call(RELU, [x], [total])
    flat = replace(total, shape=(LENGTH, ROWS), strides=(ROWS, 1))  # the same elements, the other axis first
    program.call(RELU, [flat], [replace(out, shape=(LENGTH, ROWS), strides=(ROWS, 1))])
    assert not kernel_strided(program)


def test_what_is_repeated_along_an_axis_has_no_grain() -> None:
    program = Program()
    x, total, out = (program.tensor(name, ROWS, LENGTH) for name in "xto")
    program.call(ADD, [x, T("bias", (ROWS, LENGTH), (1, 0))], [total])
    program.call(RELU, [total], [out])
    assert not kernel_strided(program)
