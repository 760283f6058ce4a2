"""Sources are short, stand alone, and are as few kernels as the chain allows."""

from __future__ import annotations

import ast

import pytest

from tests.verify.catalogue import CATALOGUE, LONGEST_ROW
from tracemine.verify import Builder, generate

# A row reduction and one over its results, a norm over several tensors and what it scales, what is
# read before it is overwritten: no one walk does both.
SEVERAL_KERNELS = {
    "cross_entropy": 2,
    "long_cross_entropy": 2,
    "kl_divergence": 2,
    "clip_grad_norm": 3,
    "residual_in_place_and_read_otherwise": 2,
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_chain_becomes_as_few_kernels_as_it_can(name: str) -> None:
    for rounds in (False, True):
        source = generate(CATALOGUE[name](), rounds=rounds)
        assert len(source.kernels) == SEVERAL_KERNELS.get(name, 1), source.text


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_source_is_python_that_needs_torch_and_triton_alone(name: str) -> None:
    tree = ast.parse(generate(CATALOGUE[name](), longest_row=LONGEST_ROW.get(name, 16_384)).text)
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported == {"torch", "triton", "triton.language"}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_the_same_chain_gives_the_same_source() -> None:
    for make in CATALOGUE.values():
        assert generate(make()).text == generate(make()).text


def test_every_line_that_computes_names_its_call() -> None:
    text = generate(CATALOGUE["add_rms_norm"]()).text
    for call in ("aten::add.Tensor", "aten::pow.Tensor_Scalar", "aten::mean.dim", "aten::rsqrt", "aten::mul.Tensor"):
        assert f"# {call}\n" in text


def test_only_the_rounding_build_rounds_on_the_way() -> None:
    chain = CATALOGUE["rms_norm"]()
    assert ".to(tl.bfloat16).to(tl.float32)" not in generate(chain).text
    assert ".to(tl.bfloat16).to(tl.float32)" in generate(chain, rounds=True).text


def test_equal_members_of_a_list_share_their_code() -> None:
    b = Builder("siblings")
    members = [b.input(f"x{k}", (k + 2, 40), "float32") for k in range(5)]
    text = generate(b.done(*b.call("aten::_foreach_mul.Scalar", members, 0.5))).text
    assert text.count("@triton.jit") == 2


def test_long_rows_are_walked_in_a_loop() -> None:
    b = Builder("long")
    chain = b.done(b.call("aten::_softmax", b.input("x", (500, 20_000), "bfloat16"), -1, False))
    assert "for start in range(0, columns, RBLOCK):" in generate(chain).text
    assert "for start in" not in generate(CATALOGUE["temperature_softmax"]()).text


def test_a_reduction_across_the_grain_keeps_neighbours_together() -> None:
    assert "rblock, xblock = 32, 64" in generate(CATALOGUE["column_sum"]()).text
