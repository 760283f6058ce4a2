"""Sources are short, stand alone, and are as few kernels as the chain allows."""

from __future__ import annotations

import ast
import re

import pytest
from msgspec.structs import replace

from tests.codegen.catalogue import CATALOGUE, LONGEST_ROW
from tracemine.codegen import Graph, GraphBuilder, generate
from tracemine.codegen.graph import Scalar
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.options import CodegenOptions
from tracemine.validate.resize import free_axes

# A row reduction and one over its results, a norm over several tensors and what it scales, what is
# read before it is overwritten: no one walk does both.
SEVERAL_KERNELS = {
    "cross_entropy": 2,
    "long_cross_entropy": 2,
    "cross_entropy_trained": 2,
    "norm_gradients_in_turn": 2,
    "kl_divergence": 2,
    "clip_grad_norm": 3,
    "residual_in_place_and_read_otherwise": 2,
    "norms_gradient_added_in_place": 2,
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_chain_becomes_as_few_kernels_as_it_can(name: str) -> None:
    for rounds in (False, True):
        source = generate(CATALOGUE[name](), CodegenOptions(rounds=rounds))
        assert len(source.kernels) == SEVERAL_KERNELS.get(name, 1), source.text


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_source_is_python_that_needs_torch_and_triton_alone(name: str) -> None:
    tree = ast.parse(generate(CATALOGUE[name](), CodegenOptions(longest_row=LONGEST_ROW.get(name, 16_384))).text)
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert imported == {"torch", "triton", "triton.language"}
    other = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert other <= {"triton.language.extra"}


def test_the_same_chain_gives_the_same_source() -> None:
    for make in CATALOGUE.values():
        assert generate(make()).text == generate(make()).text


@pytest.mark.parametrize(
    "name", ["3d_conv", "²x", "日本", "_", "", 'x"""; import os  # \\', "a\nb", "x" * 999, "class"]
)
def test_a_chain_may_have_any_name(name: str) -> None:
    b = GraphBuilder(name)
    source = generate(b.done(b.call("aten::relu", b.input("x", (8, 8), "float32"))))
    ast.parse(source.text)
    (kernel,) = source.kernels
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,55}", kernel)


def test_every_line_that_computes_names_its_call() -> None:
    text = generate(CATALOGUE["add_rms_norm"]()).text
    for call in ("aten::add.Tensor", "aten::pow.Tensor_Scalar", "aten::mean.dim", "aten::rsqrt", "aten::mul.Tensor"):
        assert f"# {call}\n" in text


def test_a_number_whose_value_was_not_recorded_is_no_default_to_rely_on() -> None:
    chain = CATALOGUE["add_rms_norm"]()
    unknown = [
        tuple(Scalar(a.name, a.value, False) if isinstance(a, Scalar) else a for a in c.arguments) for c in chain.calls
    ]
    calls = tuple(replace(c, arguments=given) for c, given in zip(chain.calls, unknown, strict=True))
    text = generate(replace(chain, calls=calls)).text
    (name,) = (s.name for s in chain.scalars)
    assert f"    # Not recorded, so the default is not the model's value: pass {name}.\n" in text
    assert "# Not recorded" not in generate(chain).text


def test_only_the_rounding_build_rounds_on_the_way() -> None:
    chain = CATALOGUE["rms_norm"]()
    assert ".to(tl.bfloat16).to(tl.float32)" not in generate(chain).text
    assert ".to(tl.bfloat16).to(tl.float32)" in generate(chain, CodegenOptions(rounds=True)).text


def test_equal_members_of_a_list_share_their_code() -> None:
    b = GraphBuilder("siblings")
    members = [b.input(f"x{k}", (k + 2, 40), "float32") for k in range(5)]
    text = generate(b.done(*b.call("aten::_foreach_mul.Scalar", members, 0.5))).text
    assert text.count("@triton.jit") == 2


def test_long_rows_are_walked_in_a_loop() -> None:
    b = GraphBuilder("long")
    chain = b.done(b.call("aten::_softmax", b.input("x", (500, 20_000), "bfloat16"), -1, False))
    assert "for start in range(full if tail else 0, columns if tail else full, RBLOCK):" in generate(chain).text
    assert "for start in" not in generate(CATALOGUE["temperature_softmax"]()).text


def test_a_reduction_across_the_grain_keeps_neighbours_together() -> None:
    assert "min_rows=min(64, triton.next_power_of_2(max(n1, 1)))" in generate(CATALOGUE["column_sum"]()).text


@pytest.mark.parametrize(("width", "known"), [(392, True), (400, False), (391, False)])
def test_rows_beside_each_other_are_known_to_the_compiler_where_else_it_reads_single_elements(
    width: int, known: bool
) -> None:
    b = GraphBuilder("column_sum")
    x = b.input("x", (4096, width), "bfloat16")
    text = generate(b.done(b.call("aten::sum.dim_IntList", x, (0,)))).text
    assert ("rows: tl.constexpr" in text) == known


def test_what_eager_rounds_to_16_bits_takes_fewer_instructions() -> None:
    def text(dtype: str, rounds: bool = False) -> str:
        b = GraphBuilder("brief")
        x = b.input("x", (4, 32), dtype)
        slopes = [b.call("aten::gelu_backward", x, x, approximate=how) for how in ("none", "tanh")]
        chain = b.done(b.call("aten::log", b.call("aten::exp", b.call("aten::tanh", x))), *slopes)
        return generate(chain, CodegenOptions(rounds=rounds)).text

    brief = ("= libdevice.fast_logf(", "= _exp(", "= _tanh_16(", "* _gelu_slope_16(", "* _gelu_tanh_slope_16(")
    assert all(name in text("bfloat16") for name in brief)
    assert not any(name in text(*how) for name in brief for how in (("float32",), ("bfloat16", True)))


def test_codes_are_divided_by_a_rows_number_as_correctly_as_eager_divides() -> None:
    text = generate(CATALOGUE["token_quant"]()).text
    assert "= _bounded_quotient(x_1, div_1, amax_1)" in text
    assert "enable_fp_fusion=False" in text


@pytest.mark.parametrize("scale", ["sum", "max of another", "max and 1"])
def test_what_no_element_is_known_to_stay_below_divides_like_any_number(scale: str) -> None:
    b = GraphBuilder("codes")
    x, other = (b.input(name, (8, 256), "bfloat16") for name in ("x", "other"))
    size = b.call("aten::abs", other if scale == "max of another" else x)
    top = b.call("aten::sum.dim_IntList" if scale == "sum" else "aten::amax", size, (-1,), True)
    if scale == "max and 1":
        top = b.call("aten::add.Tensor", top, 1)
    codes = b.call("aten::_to_copy", b.call("aten::div.Tensor", x, top), dtype="float8_e4m3fn")
    text = generate(b.done(codes)).text
    assert ("= _quotient(" in text or "= tl.div_rn(" in text) and "_bounded_quotient" not in text


def test_tensors_without_gaps_are_one_long_row() -> None:
    b = GraphBuilder("dense")
    chain = b.done(b.call("aten::mul.Tensor", b.input("x", (4, 3, 32), "float32"), b.input("y", (4, 3, 32), "float32")))
    text = generate(chain).text
    (cut,) = (line for line in text.splitlines() if " = _tiles(" in line)
    assert "x.is_contiguous()" in cut
    assert "y.is_contiguous()" in cut
    assert "rows, columns = (1, rows * columns) if dense else" in text
    assert "2**31 - 1" in text


def _divergence(rows: int, columns: int) -> Graph:
    """The sum of all that a softmax of each row gives, squared."""
    b = GraphBuilder("divergence")
    raised = b.call("aten::_softmax", b.input("x", (rows, columns), "float32"), -1, False)
    return b.done(b.call("aten::sum", b.call("aten::mul.Tensor", raised, raised)))


def test_a_sum_over_all_of_what_waits_for_its_row_is_summed_in_the_same_walk() -> None:
    source = generate(_divergence(512, 32_000))
    assert len(source.kernels) == 2
    assert source.text.partition("_kernel_1(")[0].count("tl.load(") == 2  # a row is walked twice, in one kernel


def test_of_few_long_rows_each_kernel_keeps_its_own_parts() -> None:
    few, many = (generate(_divergence(rows, 400_000)).text for rows in (4, 4096))
    assert "_num_splits(" in few
    assert "_num_splits(" not in many


def test_what_is_cast_to_what_is_stored_is_cast_once() -> None:
    text = generate(CATALOGUE["token_quant"]()).text
    assert text.count(".to(tl.float8e4nv)") == 1
    assert "# aten::_to_copy" in text


def test_how_many_groups_a_group_norm_has_is_part_of_its_kernel() -> None:
    chain = CATALOGUE["group_norm_silu"]()
    assert sorted(free_axes(lower(chain)).values()) == [2, 5, 7]  # of (2, 6, 5, 7) in 3 groups


def test_what_is_taken_off_its_own_extreme_or_running_sum_is_rounded_apart() -> None:
    """A product and a difference made one operation leave what rounding left, where eager has 0."""
    b = GraphBuilder("rests")
    x, y = b.input("x", (4, 40), "float32"), b.input("y", (4, 40), "float32")
    product = b.call("aten::mul.Tensor", x, y)
    total, most = b.call("aten::cumsum", product, 1), b.call("aten::amax", product, [1], True)
    rests = [b.call("aten::sub.Tensor", total, product), b.call("aten::sub.Tensor", product, most)]
    text = generate(b.done(*rests, b.call("aten::sub.Tensor", total, x))).text
    assert len(re.findall(r"= libdevice\.sub_rn\(", text)) == 2
    assert re.search(r"= cumsum_1 - x_1  #", text)
