"""Operators that models have beside those of the catalogue are right: windows of images, places, powers, losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tracemine.codegen import Graph, GraphBuilder
from tracemine.validate import Interpreter

Shaped = tuple[str, tuple[int, ...], str]
X, Y, GRAD = ("x", (6, 40), "float32"), ("y", (6, 40), "float32"), ("grad", (6, 40), "bfloat16")
NARROW = ("x", (6, 40), "bfloat16")
IMAGE, NARROW_IMAGE = ("x", (2, 3, 8, 6), "float32"), ("x", (2, 3, 8, 6), "bfloat16")

# The operator, its tensors, and what it takes after them.
CASES: dict[str, tuple[str, list[Shaped], tuple[Any, ...]]] = {
    "maximum of windows": ("max_pool2d_with_indices", [NARROW_IMAGE], ([3, 3], [2, 2], [1, 1], [1, 1], False)),
    "mean of windows": ("avg_pool2d", [NARROW_IMAGE], ([2, 2], [2, 2])),
    "mean of what is inside": ("avg_pool2d", [IMAGE], ([3, 3], [2, 2], [1, 1], True, False)),
    "windows of several sizes": ("_adaptive_avg_pool2d", [("x", (2, 3, 13, 7), "float32")], ([6, 7],)),
    "enlarged, blended": ("upsample_bilinear2d", [("x", (2, 3, 5, 4), "bfloat16")], ([10, 12], False)),
    "enlarged, corners kept": ("upsample_bilinear2d", [("x", (2, 3, 5, 4), "float32")], ([9, 7], True)),
    "enlarged by no whole number": ("upsample_nearest2d", [("x", (2, 3, 5, 4), "float32")], ([7, 9],)),
    "enlarged, from middles": ("_upsample_nearest_exact2d", [("x", (2, 3, 5, 4), "float32")], ([7, 9],)),
    "mirrored edges": ("reflection_pad2d", [("x", (2, 3, 5, 6), "float32")], ([1, 2, 2, 1],)),
    "repeated edges": ("replication_pad2d", [("x", (2, 3, 5, 6), "float32")], ([1, 2, 2, 1],)),
    "remainder": ("remainder.Tensor", [X, Y], ()),
    "whole numbers divided": ("floor_divide.Scalar", [("x", (6, 40), "int64")], (7,)),
    "remainder of whole numbers": ("remainder.Scalar", [("x", (6, 40), "int64")], (7,)),
    "exponents that are tensors": ("pow.Tensor_Tensor", [X, Y], ()),
    "broken power": ("pow.Tensor_Scalar", [X], (1.5,)),
    "parametric rectifier": ("_prelu_kernel", [X, ("weight", (40,), "float32")], ()),
    "slopes of a parametric rectifier": ("_prelu_kernel_backward", [GRAD, NARROW, ("w", (40,), "bfloat16")], ()),
    "gated half": ("glu", [GRAD], (-1,)),
    "slope of mish": ("mish_backward", [("grad", (6, 40), "float32"), X], ()),
    "logarithm of a row's exponentials": ("logsumexp", [X], ([-1], True)),
    "shares of a column": ("_softmax", [("x", (33, 12), "bfloat16")], (0, False)),
    "logarithms of a row's shares": ("_log_softmax", [("x", (6, 40), "float16")], (-1, False)),
    "sum of exponentials": ("logaddexp", [X, Y], ()),
    "no numbers made zero": ("nan_to_num", [("x", (6, 40), "bfloat16")], (0.0,)),
    "first place of the maximum": ("argmax", [X], (-1, False)),
    "minimum and its place": ("min.dim", [X], (0, True)),
    "smooth distance": ("smooth_l1_loss", [X, Y], (1, 1.0)),
    "evenly apart": ("linspace", [], (-1.0, 2.0, 9)),
    "surprise at a share": ("binary_cross_entropy", [X, Y], (None, 1)),
    "slope of a surprise": ("binary_cross_entropy_backward", [("grad", (), "float32"), X, Y], (None, 1)),
    "slope of a clip": ("hardtanh_backward", [("grad", (6, 40), "float32"), X], (-1.0, 1.0)),
    "slope of a hard threshold": ("hardshrink_backward", [("grad", (6, 40), "float32"), X], (0.5,)),
    "slope of a soft threshold": ("softshrink_backward", [GRAD, ("x", (6, 40), "bfloat16")], (0.5,)),
    "angle of a point": ("atan2", [X, Y], ()),
    "logarithm of a factorial": ("lgamma", [X], ()),
    "numbers drawn evenly": ("rand", [], ([6, 40],)),
    "numbers drawn normally": ("randn", [], ([6, 40],)),
    "length of rows": ("norm.ScalarOpt_dim", [X], (2.0, [1])),  # the order is no number of a call
    "bent distance": ("huber_loss", [X, Y], (2, 1.0)),
}


def case(name: str) -> Graph:
    """The graph of one of CASES."""
    operator, tensors, rest = CASES[name]
    b = GraphBuilder("one")
    named = {} if tensors else {"dtype": "float32"}
    found = b.call(f"aten::{operator}", *[b.input(*each) for each in tensors], *rest, **named)
    return b.done(*(found if isinstance(found, tuple) else (found,)))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as process:
        yield process


@pytest.mark.parametrize("name", CASES)
def test_results_are_right(interpreter: Interpreter, name: str) -> None:
    proof = interpreter.validate(case(name), mutants=False)
    assert not proof.faults
    assert proof.trials >= 15


def power_of_a_number() -> Graph:
    """Slopes of a linear bias on attention."""
    b = GraphBuilder("slopes")
    places = b.call("aten::arange.start_step", 1, 17, 1, dtype="int32")
    return b.done(b.call("aten::pow.Tensor_Tensor", b.call("aten::full", [], 0.7, dtype="float32"), places))


def whole_numbers_filled_with_a_float() -> Graph:
    """As `torch.ones` of whole numbers is recorded: at another call the number may have a fraction."""
    b = GraphBuilder("filled")
    x = b.input("x", (6, 1), "float32")
    ones = b.call("aten::full", (6, 40), 1.0, dtype="int64")
    return b.done(b.call("aten::mul.Tensor", x, b.call("aten::_to_copy", ones, dtype="float32")))


def one_hot() -> Graph:
    b = GraphBuilder("one_hot")
    places = b.input("places", (6, 1), "int64", below=40)
    found = b.call("aten::full", (6, 40), 0, dtype="int64")
    b.call("aten::scatter_.value", found, 1, places, 1)
    return b.done(b.call("aten::_to_copy", found, dtype="float32"))


def added_at_one_place_a_row() -> Graph:
    b = GraphBuilder("added")
    x, places, y = (
        b.input("x", (6, 40), "float32"),
        b.input("p", (6, 1), "int64", below=40),
        b.input("y", (6, 1), "float32"),
    )
    return b.done(b.call("aten::scatter_add", x, 1, places, y))


def residual_branches_dropped() -> Graph:
    b = GraphBuilder("branches")
    noise, x, y = b.input("noise", (8, 1, 1), "float32"), *(b.input(n, (8, 5, 16), "float32") for n in ("x", "y"))
    b.call("aten::bernoulli_.float", noise, 0.8)
    b.call("aten::div_.Scalar", noise, 0.8)
    return b.done(b.call("aten::add.Tensor", y, b.call("aten::mul.Tensor", x, noise)))


def noise_scaled() -> Graph:
    """As diffusion models add it: memory that is given filled with normal numbers, and those of a distribution."""
    b = GraphBuilder("noise")
    x, sigma, noise, race = (b.input(n, (6, 40), "bfloat16") for n in ("x", "sigma", "noise", "race"))
    b.call("aten::normal_", noise, 0.5, 2.0)
    b.call("aten::exponential_", race, 3.0)
    noisy = b.call("aten::add.Tensor", x, b.call("aten::mul.Tensor", noise, sigma))
    even = b.call("aten::uniform_", b.call("aten::clone", sigma), -2.0, 3.0)
    return b.done(b.call("aten::div.Tensor", noisy, race), even)


def pooled_gradients() -> Graph:
    """A gradient of overlapping windows, read by another: nothing is added up in memory."""
    b = GraphBuilder("pooled")
    grad, x = b.input("grad", (2, 3, 4, 3), "bfloat16"), b.input("x", (2, 3, 8, 6), "bfloat16")
    back = b.call("aten::avg_pool2d_backward", grad, x, [3, 3], [2, 2], [1, 1], False, False, None)
    return b.done(b.call("aten::threshold_backward", back, x, 0))


def gates_gradient() -> Graph:
    b = GraphBuilder("gates")
    grad, x = b.input("grad", (6, 20), "bfloat16"), b.input("x", (6, 40), "bfloat16")
    return b.done(b.call("aten::glu_backward", grad, x, -1))


def numbers_in_tensors_places() -> Graph:
    """As `x % 1` and `where(x > 0, 2, x)` come out of a trace: the number was a tensor of the host."""
    b = GraphBuilder("numbers")
    x, y = b.input("x", (6, 40), "bfloat16"), b.input("y", (6, 40), "float32")
    part = b.call("aten::remainder.Tensor", y, 3.0)
    return b.done(b.call("aten::where.self", b.call("aten::gt.Scalar", x, 0), 2.0, part))


def dense_block() -> Graph:
    """As DenseNet goes on: pooled, joined, normalised, rectified."""
    b = GraphBuilder("dense_block")
    x, y = b.input("x", (2, 8, 8, 6), "float16"), b.input("y", (2, 4, 4, 3), "float16")
    rest = [b.input(n, (12,), "float32") for n in ("weight", "bias", "average", "spread")]
    pooled = b.call("aten::avg_pool2d", x, [2, 2], [2, 2])
    normal = b.call("aten::native_batch_norm", b.call("aten::cat", [pooled, y], 1), *rest, False, 0.1, 1e-5)[0]
    return b.done(b.call("aten::relu", normal))


def running_sum_of_one_number() -> Graph:
    b = GraphBuilder("ones")
    ones = b.call("aten::full", (8, 40), 1.0, dtype="float32")
    return b.done(b.call("aten::cumsum", ones, -1), b.call("aten::_to_copy", ones, dtype="bool"))


def four_bits_unpacked() -> Graph:
    b = GraphBuilder("four_bits")
    codes, scale = b.input("codes", (16, 24), "uint8"), b.input("scale", (16, 1), "bfloat16")
    low, high = (
        b.call("aten::bitwise_and.Scalar", codes, 15),
        b.call("aten::bitwise_right_shift.Tensor_Scalar", codes, 4),
    )
    both = b.call("aten::view", b.call("aten::stack", [low, high], -1), [16, 48])
    wide = b.call("aten::_to_copy", both, dtype="bfloat16")
    return b.done(wide, b.call("aten::mul.Tensor", b.call("aten::sub.Tensor", wide, 8), scale))


def seen_before() -> Graph:
    """A causal mask of places that meet themselves turned, and a number made a tensor."""
    b = GraphBuilder("seen_before")
    x = b.input("x", (2, 4, 8, 8), "bfloat16")
    places = b.call("aten::arange.start_step", 0, 8, 1, dtype="int64")
    mask = b.call("aten::le.Tensor", b.call("aten::unsqueeze", places, 0), b.call("aten::unsqueeze", places, 1))
    least = b.call("aten::scalar_tensor", -3e38, dtype="bfloat16")
    return b.done(b.call("aten::where.self", mask, x, least))


def gradients_unscaled() -> Graph:
    b = GraphBuilder("unscaled")
    grads = [b.input(f"grad_{k}", (7 + k, 12), "float32") for k in range(2)]
    found, scale = b.input("found", (1,), "float32"), b.input("scale", (1,), "float32")
    b.call("aten::_amp_foreach_non_finite_check_and_unscale_", grads, found, scale)
    return b.done()


def preferences() -> Graph:
    b = GraphBuilder("preferences")
    x, y = b.input("x", (5, 40), "float32"), b.input("y", (5, 40), "float32")
    loss, _ = b.call("aten::log_sigmoid_forward", b.call("aten::mul.Tensor", b.call("aten::sub.Tensor", x, y), 0.1))
    return b.done(b.call("aten::neg", loss))


def slopes_of_distances() -> Graph:
    b = GraphBuilder("slopes_of_distances")
    x, y, grad = (b.input(n, s, "float32") for n, s in (("x", (6, 40)), ("y", (6, 40)), ("grad", ())))
    smooth = b.call("aten::smooth_l1_loss_backward", grad, x, y, 1, 0.5)
    return b.done(smooth, b.call("aten::huber_loss_backward", grad, x, y, 1, 0.5))


def decay_between_each_two() -> Graph:
    """As state-space models have it: running sums, their differences, a triangle of −inf, exponentials."""
    b = GraphBuilder("decay")
    x = b.input("x", (2, 3, 8), "float32")
    total = b.call("aten::cumsum", x, -1)
    gaps = b.call("aten::sub.Tensor", b.call("aten::unsqueeze", total, -1), b.call("aten::unsqueeze", total, -2))
    ones = b.call("aten::full", (8, 8), 1, dtype="bool")
    above = b.call("aten::bitwise_not", b.call("aten::tril", ones))
    return b.done(b.call("aten::exp", b.call("aten::masked_fill.Scalar", gaps, above, float("-inf"))))


def first_places() -> Graph:
    """A table of as many places as there are: the slice that takes the first of them takes all."""
    b = GraphBuilder("first_places")
    x, table = b.input("x", (3, 10, 8), "float32"), b.input("table", (1, 10, 8), "float32")
    taken = b.call("aten::narrow", b.call("aten::slice.Tensor", table, 1, 0, 10, 1), 2, 0, 8)
    return b.done(b.call("aten::relu", b.call("aten::add.Tensor", x, taken)))


def _each(name: str, operators: Sequence[str], *tensors: Shaped, rest: tuple[Any, ...] = ()) -> Graph:
    """Several operators of the same tensors: a result of each."""
    b = GraphBuilder(name)
    given = [b.input(*each) for each in tensors]
    return b.done(*(b.call(f"aten::{operator}", *given, *rest) for operator in operators))


def exponentials_and_logarithms() -> Graph:
    names = ("exp2", "expm1", "log2", "log10", "log1p", "erf", "erfc", "erfinv")
    return _each("exponentials", names, X)


def functions_of_angles() -> Graph:
    names = ("acos", "asin", "atan", "tan", "sinh", "cosh", "acosh", "asinh", "atanh")
    return _each("angles", names, X)


def activations() -> Graph:
    names = ("leaky_relu", "elu", "hardsigmoid", "hardswish", "mish", "hardshrink", "softshrink")
    return _each("activations", names, X)


def numbers_cut_and_looked_at() -> Graph:
    names = ("floor", "ceil", "trunc", "frac", "sign", "isnan", "isinf", "isposinf", "isfinite", "logical_not")
    return _each("looked_at", names, X)


def two_compared() -> Graph:
    names = ("eq.Tensor", "ne.Tensor", "lt.Tensor", "ge.Tensor", "logical_and", "logical_or", "logical_xor")
    return _each("compared", names, X, Y)


def one_of_two() -> Graph:
    names = ("maximum", "minimum", "clamp_max.Tensor", "fmax", "fmin", "hypot", "xlogy.Tensor", "floor_divide")
    return _each("one_of_two", (*names, "rsub.Tensor"), X, Y)


def three_in_one() -> Graph:
    return _each("three", ("addcmul", "addcdiv", "lerp.Tensor"), X, Y, ("z", (6, 40), "float32"))


def roots_and_powers() -> Graph:
    b = GraphBuilder("powers")
    x = b.input(*X)
    powers = [b.call("aten::pow.Tensor_Scalar", x, exponent) for exponent in (3, 4, -2)]
    return b.done(b.call("aten::sqrt", x), *powers)


def bits_of_two() -> Graph:
    x, y = ("x", (6, 40), "int32"), ("y", (6, 40), "int32")
    return _each("bits", ("bitwise_or.Tensor", "bitwise_xor.Tensor"), x, y)


def bits_moved() -> Graph:
    return _each("moved", ("bitwise_left_shift.Tensor_Scalar",), ("x", (6, 40), "int32"), rest=(3,))


def slopes() -> Graph:
    """Gradients of activations, each with the numbers that its own call had."""
    b = GraphBuilder("slopes")
    grad, x = b.input("grad", (6, 40), "float32"), b.input(*X)
    rest: dict[str, tuple[Any, ...]] = {
        "silu_backward": (),
        "sigmoid_backward": (),
        "tanh_backward": (),
        "mish_backward": (),
        "hardsigmoid_backward": (),
        "hardswish_backward": (),
        "log_sigmoid_backward": (b.input("buffer", (6, 40), "float32"),),
        "leaky_relu_backward": (0.2, False),
        "softplus_backward": (2.0, 15.0),
    }
    found = [b.call(f"aten::{name}", grad, x, *more) for name, more in rest.items()]
    found += [b.call("aten::elu_backward", grad, 1.5, 1.0, 0.5, kept, x) for kept in (False, True)]
    return b.done(*found, b.call("aten::threshold", x, 0.5, -1.0))


def mask_scaled() -> Graph:
    return _each("scaled", ("native_dropout_backward",), X, ("chosen", (6, 40), "bool"), rest=(1.25,))


def lists_in_place() -> Graph:
    """Every row of [foreach] that no longer graph has, a few after another to a list."""
    b = GraphBuilder("lists")
    other = [b.input("other", (3, 8), "float32")]
    calls: tuple[dict[str, tuple[Any, ...]], ...] = (
        dict.fromkeys(("sin", "acos", "log1p", "reciprocal", "atan", "neg", "exp", "log2"), ()),
        dict.fromkeys(("tanh", "asin", "cosh", "log", "abs", "rsqrt", "erfc", "log10"), ()),
        dict.fromkeys(("sigmoid", "tan", "sinh", "expm1", "lgamma", "cos", "erf"), ()),
        {"sub_.List": (other,), "floor": ()},
        {"maximum_.List": (other,), "ceil": ()},
        {"minimum_.List": (other,), "round": ()},
        {"clamp_min_.Scalar": (0.5,), "trunc": ()},
        {"frac": (), "clamp_max_.Scalar": (0.5,)},
        {"copy_": (other,), "sign": ()},
    )
    lists = [[b.input(f"x{number}", (3, 8), "float32")] for number in range(len(calls))]
    for members, several in zip(lists, calls, strict=True):
        for name, rest in several.items():
            b.call(f"aten::_foreach_{name}" if "_" in name else f"aten::_foreach_{name}_", members, *rest)
    return b.done()


CHAINS = (
    exponentials_and_logarithms,
    functions_of_angles,
    activations,
    numbers_cut_and_looked_at,
    two_compared,
    one_of_two,
    three_in_one,
    roots_and_powers,
    bits_of_two,
    bits_moved,
    slopes,
    mask_scaled,
    lists_in_place,
    first_places,
    decay_between_each_two,
    four_bits_unpacked,
    seen_before,
    gradients_unscaled,
    preferences,
    slopes_of_distances,
    power_of_a_number,
    one_hot,
    whole_numbers_filled_with_a_float,
    added_at_one_place_a_row,
    residual_branches_dropped,
    noise_scaled,
    pooled_gradients,
    gates_gradient,
    dense_block,
    numbers_in_tensors_places,
    running_sum_of_one_number,
)


@pytest.mark.parametrize("make", CHAINS, ids=lambda make: make.__name__)
def test_chains_of_them_are_right(interpreter: Interpreter, make: Any) -> None:
    proof = interpreter.validate(make(), mutants=False)
    assert not proof.faults
    assert proof.trials >= 6
