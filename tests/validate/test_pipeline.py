"""Generated kernels are right in Triton's interpreter, and wrong ones beside them are found out.

A few of the catalogue, one for each way of walking; `benchmarks/proofs/verify_catalogue.py` proves them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.codegen.catalogue import CATALOGUE, LONGEST_ROW

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tracemine.codegen import GraphBuilder
from tracemine.validate import Interpreter


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as process:
        yield process


@pytest.mark.parametrize("name", ["relu_squared", "rms_norm"])
def test_kernels_pass_and_all_wrong_ones_are_caught(interpreter: Interpreter, name: str) -> None:
    proof = interpreter.validate(CATALOGUE[name]())
    assert not proof.faults
    assert [m for m in proof.mutants if m.killed_by is None and m.equivalent is None] == []
    assert proof.killed[1] >= 8
    assert proof.trials >= 20
    assert proof.equal_share == 1.0  # the build that rounds as eager does has eager's bits
    assert proof.error <= 1.25 * proof.eager_error


@pytest.mark.parametrize(
    "name",
    [
        *("qk_norm_rope", "adamw_foreach", "long_layer_norm", "cross_entropy", "token_quant_int8", "residual_in_place"),
        *("layer_norm_backward", "softmax_backward", "norms_gradient_added_in_place"),
    ],
)
def test_kernels_pass(interpreter: Interpreter, name: str) -> None:
    proof = interpreter.validate(CATALOGUE[name](), mutants=False, longest_row=LONGEST_ROW.get(name, 16_384))
    assert not proof.faults
    assert proof.trials >= 15


def test_bytes_are_those_of_the_tensors(interpreter: Interpreter) -> None:
    """Three loads and a store of 2 × 7 × 64 bfloat16 elements: what is broadcast is asked for by each row."""
    proof = interpreter.validate(CATALOGUE["gated_residual"](), mutants=False)
    assert proof.bytes_written == 2 * 7 * 64 * 2
    assert proof.bytes_read == 3 * proof.bytes_written


def test_a_size_that_eager_refuses_is_no_trial_of_a_chain_that_draws_either(interpreter: Interpreter) -> None:
    b = GraphBuilder("positions")
    table = b.input("table", (8, 4), "float32")
    rows = b.call("aten::index_select", table, 0, b.call("aten::arange.start_step", 0, 6, 1, dtype="int64"))
    proof = interpreter.validate(b.done(b.call("aten::native_dropout", rows, 0.25, True)[0]), mutants=False)
    assert not proof.faults
    assert any("index out of range" in text for text in proof.skipped)


def test_a_norm_s_gradient_takes_infinities_across_its_rows_as_a_gpu_s_does(interpreter: Interpreter) -> None:
    """A row of -inf of what is permuted is one number in each of many rows; a CPU's own kernel makes NaN of them."""
    b = GraphBuilder("gradient")
    grad, x = b.input("grad", (2, 5, 3, 7), "float32"), b.input("x", (2, 3, 7, 5), "float32")
    mean, rstd = b.input("mean", (2, 3, 7, 1), "float32"), b.input("rstd", (2, 3, 7, 1), "float32")
    weight, bias = b.input("weight", (5,), "float32"), b.input("bias", (5,), "float32")
    channels_last = b.call("aten::permute", grad, (0, 2, 3, 1))
    given = (channels_last, x, (5,), mean, rstd, weight, bias, (True, False, False))
    proof = interpreter.validate(b.done(b.call("aten::native_layer_norm_backward", *given)), mutants=False)
    assert not proof.faults


def test_a_group_norm_s_weight_may_be_infinite(interpreter: Interpreter) -> None:
    """Folded into the statistics, as a CPU does, it makes NaN of every number with the mean's sign."""
    b = GraphBuilder("groups")
    x, weight, bias = (
        b.input("x", (3, 6, 9), "float16"),
        b.input("weight", (6,), "float16"),
        b.input("bias", (6,), "float16"),
    )
    normed, _, _ = b.call("aten::native_group_norm", x, weight, bias, 3, 6, 9, 6, 1e-5)
    proof = interpreter.validate(b.done(b.call("aten::gelu", normed, approximate="none")), mutants=False)
    assert not proof.faults


def test_windows_that_become_a_grid_are_read_where_their_elements_are(interpreter: Interpreter) -> None:
    """Of 2 × 3 rows and of 3 × 2: no axis of one is a part of the other's."""
    b = GraphBuilder("to_a_grid")
    windows = b.call("aten::relu", b.input("x", (2, 2, 3, 5), "float32"))
    grid = b.call("aten::permute", b.call("aten::view", windows, (2, 3, 2, 1, 5)), (0, 2, 1, 3, 4))
    mean = b.call("aten::mean.dim", grid, (-1,), True)
    proof = interpreter.validate(b.done(b.call("aten::clone", grid), b.call("aten::sub.Tensor", grid, mean)))
    assert not proof.faults
    assert [m for m in proof.mutants if m.killed_by is None and m.equivalent is None] == []
    assert proof.killed[1] >= 20


def test_a_sum_of_many_numbers_to_one_is_no_worse_than_eager_s_luck(interpreter: Interpreter) -> None:
    b = GraphBuilder("total")
    total = b.call("aten::sum", b.input("x", (1024,), "float32"))
    assert interpreter.validate(b.done(b.call("aten::mul.Tensor", total, 0.5)), mutants=False).faults == ()


def test_a_whole_number_that_fills_16_bits_is_stored_by_its_value(interpreter: Interpreter) -> None:
    b = GraphBuilder("filled")
    x = b.input("x", (5, 7), "bfloat16")
    proof = interpreter.validate(b.done(b.call("aten::full_like", x, 3), b.call("aten::neg", x)), mutants=False)
    assert not proof.faults


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_larger_of_two_tensors_has_the_name_of_a_row_s_largest(interpreter: Interpreter, dtype: str) -> None:
    b = GraphBuilder("clipped")
    x, y = b.input("x", (4, 40), dtype), b.input("y", (40,), dtype)
    chain = b.done(b.call("aten::max.other", x, y), b.call("aten::min.other", x, y))
    proof = interpreter.validate(chain, mutants=False)
    assert not proof.faults
    assert proof.trials >= 20


def test_places_are_computed_with_as_whole_numbers_of_64_bits(interpreter: Interpreter) -> None:
    """Indices have 32 where tensors are small: a product of a place went round, and a row's largest had no least."""
    b = GraphBuilder("places")
    place = b.call("aten::arange.start_step", 0, 70_000, 1, dtype="int64")
    whole = b.call("aten::mul.Tensor", place, 100_003)
    largest = b.call("aten::max", b.call("aten::arange.start_step", 0, 128, 1, dtype="int64"))
    proof = interpreter.validate(b.done(whole, largest), mutants=False)
    assert not proof.faults


def test_a_row_that_is_its_own_mean_is_nothing_but_the_bias_however_small_epsilon_is(interpreter: Interpreter) -> None:
    """BERT's head: gelu's product contracted with the mean left its rounding, and 1e-12 made a million times of it."""
    b = GraphBuilder("bert_head")
    x, weight, bias = b.input("x", (8, 64), "float32"), b.input("w", (64,), "float32"), b.input("c", (64,), "float32")
    normed = b.call("aten::native_layer_norm", b.call("aten::gelu", x), [64], weight, bias, 1e-12)
    proof = interpreter.validate(b.done(normed[0]), mutants=False)
    assert not proof.faults
