"""How large tensors are walked: short rows as one, the end of what was read first, and what is read a second time."""

import re

import pytest

from benchmarks.proofs.read_again import read_again
from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.graph import Graph
from tracemine.validate import validate_graphs
from tracemine.verify.repro.text import compulsory

_L2_BYTES = 60 << 20


def _images(strides: tuple[int, ...] | None = None, side: int = 14, trains: bool = False, channels: int = 256) -> Graph:
    b = GraphBuilder("images")
    x = b.input("x", (32, channels, side, side), "float16", strides=strides)
    weight, bias, mean, spread = (b.input(n, (channels,), "float32") for n in ("weight", "bias", "mean", "spread"))
    normed = b.call("aten::cudnn_batch_norm", x, weight, bias, mean, spread, trains, 0.1, 1e-5)[0]
    return b.done(b.call("aten::relu", normed))


def test_the_rows_of_an_image_are_walked_as_one_where_they_lie_behind_each_other() -> None:
    text = generate(_images()).text
    assert "n2_collapsed, n3_collapsed = (1, n2 * n3) if x.stride(2) == n3 * x.stride(3) else (n2, n3)" in text
    assert "n0 * n1 * n2_collapsed, n3_collapsed)" in text


@pytest.mark.parametrize("strides", [(256 * 14 * 16, 14 * 16, 16, 1), (256 * 196, 1, 14 * 256, 256)])
def test_rows_with_gaps_and_channels_side_by_side_are_walked_as_they_are(strides: tuple[int, ...]) -> None:
    assert "_walked" not in generate(_images(strides)).text


def test_a_place_that_says_more_than_an_address_keeps_its_axis() -> None:
    b = GraphBuilder("dropped")
    x, scale = b.input("x", (8, 4, 14, 14), "float32"), b.input("scale", (8, 4, 1, 1), "float32")
    dropped = b.call("aten::native_dropout", b.call("aten::mul.Tensor", x, scale), 0.1, True)
    assert "_walked" not in generate(b.done(*dropped)).text


def test_axes_that_another_kernel_of_the_launch_sums_apart_are_walked_apart() -> None:
    b = GraphBuilder("both")
    x = b.input("x", (6, 12), "float32")
    columns = b.call("aten::sub.Tensor", x, b.call("aten::sum.dim_IntList", x, [0], True))
    chain = b.done(columns, b.call("aten::add.Tensor", x, b.call("aten::mean", x, None)))
    assert "_walked" not in generate(chain).text
    (proof,) = validate_graphs([chain])
    assert proof.passed, proof.faults


def test_strides_that_only_the_compiler_can_use_are_known_to_it() -> None:
    kernel = generate(_images()).text.partition("def images_kernel(")[2].partition("):")[0]
    assert "x_s1: tl.constexpr" in kernel  # 196: four elements at once
    assert "x_s0: tl.constexpr" not in kernel  # a multiple of 16, as triton sees by itself
    odd = generate(_images(side=7)).text.partition("def images_kernel(")[2].partition("):")[0]
    assert "x_s1: tl.constexpr" not in odd  # 49: one at a time anyhow


def test_what_was_read_last_is_read_first_by_the_next_kernel() -> None:
    text = generate(_images(side=112, trains=True, channels=32)).text
    kernels = re.split(r"@triton\.jit\n", text)[1:]
    assert ["num_programs" in kernel for kernel in kernels if "def images_kernel" in kernel] == [False, False, True]


def test_short_rows_walked_as_one_give_what_eager_gives() -> None:
    b = GraphBuilder("images")
    x, y = (b.input(n, (3, 5, 6, 10), "float32") for n in "xy")
    weight = b.input("weight", (5,), "float32")
    scaled = b.call("aten::mul.Tensor", x, b.call("aten::view", weight, [1, 5, 1, 1]))
    mean = b.call("aten::mean.dim", scaled, [0, 2, 3], True)
    (proof,) = validate_graphs([b.done(b.call("aten::add.Tensor", b.call("aten::sub.Tensor", scaled, mean), y))])
    assert proof.passed, proof.faults


def test_rows_that_a_multiprocessor_holds_are_read_once() -> None:
    b = GraphBuilder("softmax")
    chain = b.done(b.call("aten::_softmax", b.input("x", (65536, 4096), "bfloat16"), -1, False))
    assert sum(compulsory(chain)) == 2 * 65536 * 4096 * 2
    assert read_again(chain, _L2_BYTES) == 0


def test_images_whose_statistics_are_their_own_are_read_twice_beyond_what_the_cache_holds() -> None:
    assert read_again(_images(side=14, trains=True), _L2_BYTES) == 0
    large = 32 * 256 * 112 * 112 * 2
    assert read_again(_images(side=112, trains=True), _L2_BYTES) == large - _L2_BYTES
    assert read_again(_images(side=112, trains=False), _L2_BYTES) == 0


def test_a_sum_alone_is_read_once() -> None:
    b = GraphBuilder("sums")
    x = b.input("x", (1 << 14, 1 << 14), "float32")
    assert read_again(b.done(b.call("aten::sum.dim_IntList", x, [0, 1], False)), 0) == 0
    assert read_again(CATALOGUE["full_mean"](), 0) == 0


def test_axes_are_walked_as_one_where_they_lie_so_in_every_part_of_a_launch() -> None:
    """The gradient of the weight walks them as columns, that of the input as rows, which reads one tensor more."""
    text = generate(CATALOGUE["layer_norm_backward"]()).text
    (told,) = set(re.findall(r"n12_collapsed, n13_collapsed = .*", text))
    assert "residual.stride(0) == n13 * residual.stride(1)" in told
