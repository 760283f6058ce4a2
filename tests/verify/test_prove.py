"""Generated kernels are right in Triton's interpreter, and wrong ones beside them are found out.

A few of the catalogue, one for each way of walking; `benchmarks/verify_catalogue.py` proves them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.verify.catalogue import CATALOGUE, LONGEST_ROW

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed: pip install 'tracemine[verify]'")

from tracemine.verify import Builder, Interpreter


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as process:
        yield process


@pytest.mark.parametrize("name", ["relu_squared", "rms_norm"])
def test_kernels_pass_and_all_wrong_ones_are_caught(interpreter: Interpreter, name: str) -> None:
    proof = interpreter.prove(CATALOGUE[name]())
    assert not proof.faults
    assert [m for m in proof.mutants if m.killed_by is None and m.equivalent is None] == []
    assert proof.killed[1] >= 8
    assert proof.trials >= 20
    assert proof.equal_share == 1.0  # the build that rounds as eager does has eager's bits
    assert proof.error <= 1.25 * proof.eager_error


@pytest.mark.parametrize(
    "name",
    ["qk_norm_rope", "adamw_foreach", "long_layer_norm", "cross_entropy", "token_quant_int8", "residual_in_place"],
)
def test_kernels_pass(interpreter: Interpreter, name: str) -> None:
    proof = interpreter.prove(CATALOGUE[name](), mutants=False, longest_row=LONGEST_ROW.get(name, 16_384))
    assert not proof.faults
    assert proof.trials >= 15


def test_bytes_are_those_of_the_tensors(interpreter: Interpreter) -> None:
    """Three loads and a store of 2 × 7 × 64 bfloat16 elements: what is broadcast is asked for by each row."""
    proof = interpreter.prove(CATALOGUE["gated_residual"](), mutants=False)
    assert proof.bytes_written == 2 * 7 * 64 * 2
    assert proof.bytes_read == 3 * proof.bytes_written


def test_a_size_that_eager_refuses_is_no_trial_of_a_chain_that_draws_either(interpreter: Interpreter) -> None:
    b = Builder("positions")
    table = b.input("table", (8, 4), "float32")
    rows = b.call("aten::index_select", table, 0, b.call("aten::arange.start_step", 0, 6, 1, dtype="int64"))
    proof = interpreter.prove(b.done(b.call("aten::native_dropout", rows, 0.25, True)[0]), mutants=False)
    assert not proof.faults
    assert any("index out of range" in text for text in proof.skipped)
