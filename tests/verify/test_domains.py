"""What roots are taken of is drawn from 0 up; what they are not taken of is not."""

from __future__ import annotations

from tests.verify.catalogue import CATALOGUE
from tracemine.verify import Builder, Chain
from tracemine.verify.domains import not_negative


def names(chain: Chain) -> set[str]:
    return {chain.inputs[v].name for v in not_negative(chain)}


def test_second_moments_are_not_negative_whatever_numbers_the_step_has() -> None:
    assert names(CATALOGUE["adamw_foreach"]()) == {"v0", "v1", "v2"}


def test_a_mean_of_squares_from_outside_is_not_negative() -> None:
    b = Builder("scaled")
    x, variance = b.input("x", (4, 8), "bfloat16"), b.input("variance", (4, 1), "bfloat16")
    wide = b.call("aten::_to_copy", variance, dtype="float32")
    root = b.call("aten::rsqrt", b.call("aten::add.Tensor", wide, 1e-5))
    assert names(b.done(b.call("aten::mul.Tensor", x, root))) == {"variance"}


def test_a_square_of_the_chain_s_own_says_nothing_of_its_input() -> None:
    for name in ("rms_norm", "batch_norm_relu", "clip_grad_norm", "layer_norm_backward"):
        assert names(CATALOGUE[name]()) == set()


def test_what_has_its_sign_from_two_says_nothing_of_either() -> None:
    b = Builder("gap")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 8), "float32")
    shifted = b.call("aten::add.Tensor", x, -1.0)
    assert names(b.done(b.call("aten::sqrt", b.call("aten::sub.Tensor", x, y)), b.call("aten::sqrt", shifted))) == set()


def test_products_of_two_that_are_no_squares_are_no_second_moments() -> None:
    b = Builder("product")
    x, y, z = (b.input(n, (8,), "float32") for n in "xyz")
    b.call("aten::addcmul_", x, y, z)
    assert names(b.done()) == set()
