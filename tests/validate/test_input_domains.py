"""Roots are taken of numbers from 0 up, exponentials of none that are large; other uses say nothing."""

from __future__ import annotations

import torch

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import Graph, GraphBuilder
from tracemine.validate.input_domains import DEVIATION, MODERATE, POSITIVE, domains
from tracemine.verify.gpu.correctness import make_inputs


def names(chain: Graph) -> set[str]:
    return {chain.inputs[v].name for v, domain in domains(chain).items() if domain != MODERATE}


def test_second_moments_are_not_negative_whatever_numbers_the_step_has() -> None:
    assert names(CATALOGUE["adamw_foreach"]()) == {"v0", "v1", "v2"}


def test_a_mean_of_squares_from_outside_is_not_negative() -> None:
    b = GraphBuilder("scaled")
    x, variance = b.input("x", (4, 8), "bfloat16"), b.input("variance", (4, 1), "bfloat16")
    wide = b.call("aten::_to_copy", variance, dtype="float32")
    root = b.call("aten::rsqrt", b.call("aten::add.Tensor", wide, 1e-5))
    assert names(b.done(b.call("aten::mul.Tensor", x, root))) == {"variance"}


def test_a_square_of_the_chain_s_own_says_nothing_of_its_input() -> None:
    for name in ("rms_norm", "batch_norm_relu", "clip_grad_norm"):
        assert names(CATALOGUE[name]()) == set()


def test_what_has_its_sign_from_two_says_nothing_of_either() -> None:
    b = GraphBuilder("gap")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 8), "float32")
    shifted = b.call("aten::add.Tensor", x, -1.0)
    assert names(b.done(b.call("aten::sqrt", b.call("aten::sub.Tensor", x, y)), b.call("aten::sqrt", shifted))) == set()


def test_products_of_two_that_are_no_squares_are_no_second_moments() -> None:
    b = GraphBuilder("product")
    x, y, z = (b.input(n, (8,), "float32") for n in "xyz")
    b.call("aten::addcmul_", x, y, z)
    assert names(b.done()) == set()


def test_a_norm_s_gradient_takes_a_mean_that_is_not_large_and_a_deviation_that_is_positive() -> None:
    chain = CATALOGUE["layer_norm_backward"]()
    found = {chain.inputs[v].name: domain for v, domain in domains(chain).items()}
    assert found == {"mean": MODERATE, "scale": DEVIATION}


def test_what_an_exponential_is_taken_of_is_not_large_and_what_its_largest_is_taken_off_may_be() -> None:
    b = GraphBuilder("exponentials")
    x, y = b.input("x", (4, 8), "float32"), b.input("y", (4, 8), "float32")
    centred = b.call("aten::sub.Tensor", y, b.call("aten::amax", y, [-1], True))
    chain = b.done(b.call("aten::exp", x), b.call("aten::exp", centred))
    assert domains(chain) == {0: MODERATE}


def test_an_attention_s_scores_are_not_large_and_a_softmax_alone_may_have_any() -> None:
    b = GraphBuilder("attention")
    q, k, mask = (
        b.input("q", (2, 4, 8), "bfloat16"),
        b.input("k", (2, 8, 4), "bfloat16"),
        b.input("m", (4,), "bfloat16"),
    )
    scores = b.call("aten::add.Tensor", b.call("aten::bmm", q, k), mask)
    assert domains(b.done(b.call("aten::_softmax", scores, -1, False))) == dict.fromkeys(range(3), MODERATE)
    assert domains(CATALOGUE["temperature_softmax"]()) == {}


def test_numbers_are_drawn_as_their_domain_says_in_rows_of_all_magnitudes_too() -> None:
    rows = [(name, (64, 8), torch.float32, (8, 1), name) for name in (MODERATE, DEVIATION)]
    moderate, deviation = make_inputs([*rows], 1, "cpu")
    (other,) = make_inputs([("x", (64, 8), torch.float32, (8, 1), None)], 1, "cpu")
    assert float(moderate.abs().max()) < 8 < float(other.abs().max())
    assert 0.25 <= float(deviation.min()) <= float(deviation.max()) < 8


def test_squares_of_a_tensor_that_is_cast_twice_are_squares() -> None:
    def chain(other: bool) -> Graph:
        b = GraphBuilder("moments")
        v, g, h = b.input("v", (4, 8), "float32"), b.input("g", (4, 8), "bfloat16"), b.input("h", (4, 8), "bfloat16")
        one, two = (b.call("aten::_to_copy", x, dtype="float32") for x in (g, h if other else g))
        b.call("aten::addcmul_", b.call("aten::mul_.Tensor", v, 0.95), one, two, value=0.05)
        return b.done()

    assert domains(chain(False)) == {0: POSITIVE}
    assert domains(chain(True)) == {}, "a product of two tensors has either sign"
