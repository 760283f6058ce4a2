"""What is as good as eager passes; what is wrong somewhere does not, however small the somewhere."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tracemine.codegen import GraphBuilder
from tracemine.validate import reference
from tracemine.validate.numerics import as_near, compare, wiring
from tracemine.validate.rounding_noise import Spread, spread
from tracemine.validate.roundings import rounded_off, widely


@pytest.fixture
def truth() -> torch.Tensor:
    return torch.randn(64, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_eager_itself_passes(truth: torch.Tensor, dtype: torch.dtype) -> None:
    assert compare(truth.to(dtype), truth.to(dtype), truth, 0).faults == ()


def test_better_than_eager_passes(truth: torch.Tensor) -> None:
    eager = (truth.bfloat16() * 1.004).bfloat16()
    found = compare(truth.bfloat16(), eager, truth, 0)
    assert found.faults == ()
    assert found.error < found.eager_error
    assert found.equal_share < 1


def test_one_wrong_element_in_thousands_is_found(truth: torch.Tensor) -> None:
    fused = truth.bfloat16()
    fused[63, 99] += 0.25
    assert compare(fused, truth.bfloat16(), truth, 0).faults


def test_one_coarse_row_is_found(truth: torch.Tensor) -> None:
    fused = truth.bfloat16()
    fused[63] = (fused[63] * 1.03).bfloat16()
    assert any("row 63" in fault for fault in compare(fused, truth.bfloat16(), truth, 0).faults)


def test_nan_and_infinities_must_be_where_eager_has_them(truth: torch.Tensor) -> None:
    truth[3, 4] = torch.nan
    eager = truth.float()
    for wrong in (0.0, torch.inf):
        fused = eager.clone()
        fused[3, 4] = wrong
        assert any("NaN" in fault for fault in compare(fused, eager, truth, 0).faults)
    assert compare(eager.clone(), eager, truth, 0).faults == ()


def test_whole_numbers_must_be_equal() -> None:
    eager = torch.arange(5000)
    fused = eager.clone()
    assert compare(fused, eager, eager, 0).faults == ()
    fused[::100] += 1
    assert compare(fused, eager, eager, 0).faults


def test_wiring_is_a_matter_of_bits_where_nothing_rounds_otherwise(truth: torch.Tensor) -> None:
    eager = truth.bfloat16()
    fused = eager.clone()
    assert wiring(fused, eager, exact=True, ulp=0) is None
    fused[0, 0] = torch.nextafter(fused[0, 0].float(), torch.tensor(9.0)).bfloat16() + 0.01
    assert wiring(fused, eager, exact=True, ulp=0) is not None
    assert wiring(fused, eager, exact=False, ulp=0) is None
    assert wiring((truth * 1.01).bfloat16(), eager, exact=False, ulp=0) is not None


def test_a_row_may_err_as_roundings_could_and_not_more(truth: torch.Tensor) -> None:
    """Eager happens to be without error in a row where others could be off: what it could be off by counts."""
    eager, fused = truth.float(), truth.float()
    fused[3] = (truth[3] + 4e-7).float()
    lucky = torch.full_like(truth, 1e-7)
    lucky[4:] = 0
    assert any("row 3" in fault for fault in compare(fused, eager, truth, 0).faults)
    assert compare(fused, eager, truth, 0, noise=lucky).faults == ()
    fused[3] = (truth[3] + 1e-6).float()
    assert any("row 3" in fault for fault in compare(fused, eager, truth, 0, noise=lucky).faults)


def test_codes_of_the_build_that_rounds_are_eager_s_but_for_a_few() -> None:
    eager = torch.randn(40, 100, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    fused = eager.clone()
    fused.view(torch.uint8)[0, :3] += 1
    assert wiring(fused, eager, exact=False, ulp=0) is None
    fused.view(torch.uint8)[:, :3] += 1
    assert wiring(fused, eager, exact=False, ulp=0) is not None


def test_a_mean_may_be_rounded_as_the_numbers_that_it_is_of_and_no_coarser() -> None:
    x = torch.randn(512, 768, generator=torch.Generator().manual_seed(0))

    def mean(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.native_layer_norm(x, [768], None, None, 1e-5)[1],)

    eager, truth = mean(x)[0], mean(x.double())[0]
    noise = spread(mean, lambda: [x.clone()], lambda: [x.double()], [truth, x.double()])
    assert noise is not None
    moved = (x + 1).mean(1, keepdim=True) - 1
    off = (moved.double() - truth).square().mean().sqrt()
    assert off > 5 * (eager.double() - truth).square().mean().sqrt(), "eager's mean is luckier than any need be"
    assert compare(moved, eager, truth, 0, noise=noise[0]).faults == ()
    assert compare(moved + 4e-7, eager, truth, 0, noise=noise[0]).faults


def test_codes_that_other_roundings_would_turn_may_be_turned_and_no_others() -> None:
    eager = torch.randn(40, 100, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    turned = eager.clone()
    turned.view(torch.uint8)[:, ::10] += 1
    noise = torch.zeros(eager.shape, dtype=torch.float64)
    assert compare(turned, eager, eager, 0, noise=noise).faults
    noise[:, ::10] = 1e-3
    assert compare(turned, eager, eager, 0, noise=noise).faults == ()
    turned.view(torch.uint8)[:, ::10] += 2
    assert compare(turned, eager, eager, 0, noise=noise).faults, "more than the next code"


def test_a_logarithm_s_last_bits_may_move_whole_rows_and_more_than_those_may_not() -> None:
    scores = torch.randn(4, 32_000, generator=torch.Generator().manual_seed(0))

    def chain(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.log_softmax(x, 1).sum(),)

    eager, truth = chain(scores)[0], chain(scores.double())[0]
    found = spread(chain, lambda: [scores.clone()], lambda: [scores.double()], [truth, scores.double()])
    assert found is not None
    last_bits = 2 * 2.0**-23 * torch.logsumexp(scores.double(), 1) * 32_000
    assert compare((truth + last_bits.abs().max()).float(), eager, truth, 0, noise=found[0]).faults == ()
    assert compare((truth + 40 * last_bits.abs().max()).float(), eager, truth, 0, noise=found[0]).faults


@pytest.mark.parametrize(("last_bits", "right"), [(0.5, True), (1.0, True), (500.0, False)])
def test_the_sums_within_a_norm_s_gradient_may_be_rounded_and_no_coarser(last_bits: float, right: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    grad, x = (torch.randn((8, 4, 32, 32), generator=generator) + 8.0 for _ in "12")
    weight, mean, inverse = (torch.rand(4, generator=generator) + shift for shift in (0.5, 7.5, 0.5))

    def chain(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        g, x, weight, mean, inverse = given
        arguments = (g, x, weight, None, None, mean, inverse, True, 1e-5, [True, True, True])
        return (torch.ops.aten.native_batch_norm_backward.default(*arguments)[0],)

    inputs = [grad, x, weight, mean, inverse]
    wide = [t.double() for t in inputs]
    [truth] = chain(*wide)
    moved = 2.0**-24 * last_bits * wide[0].mean((0, 2, 3)) * wide[4] * wide[2]
    fused = (truth - moved[:, None, None]).float()
    found = spread(chain, lambda: [t.clone() for t in inputs], lambda: [t.clone() for t in wide], [truth, *wide])
    assert found is not None
    eager = truth.float()  # whose sums had no error by chance
    assert (compare(fused, eager, truth, 0, noise=found[0]).faults == ()) is right
    assert compare(fused, eager, truth, 0).faults  # by eager's own error alone


def test_in_the_interpreter_too_a_function_s_last_bits_are_nobody_s_and_may_have_one_cause() -> None:
    b = GraphBuilder("sums")
    x = b.input("x", (4, 64), "float32")
    powers = b.call("aten::exp", x)
    chain = b.done(powers, b.call("aten::sum.dim_IntList", powers, [1], False))
    _, truth, noise = reference.judged(chain, [torch.zeros(4, 64)], {}, {})  # eager's are without any error
    last_bits = 2 * 2.0**-23
    of_outputs = noise().live
    assert of_outputs[0].allclose(last_bits * truth.live[0], rtol=1e-3)
    assert bool((of_outputs[1] > 0.4 * last_bits * 64).all()), "drawn apart, they come to an eighth of it"


def test_rows_of_uneven_magnitudes_are_judged_alone(truth: torch.Tensor) -> None:
    truth[::2] *= 1000
    eager, fused = truth.bfloat16(), truth.bfloat16()
    fused[0] = (truth[0] * (1 + 2.0**-8)).bfloat16()  # as much as one rounding, in one row
    eager[:] = (truth + (eager.double() - truth) / 3).bfloat16()
    assert compare(fused, eager, truth, 0, even=False).faults == ()
    fused[1] = (truth[1] * 1.2).bfloat16()  # a row of small numbers
    assert any("row 1" in fault or "element" in fault for fault in compare(fused, eager, truth, 0, even=False).faults)


def test_where_a_few_elements_err_more_than_all_others_luck_is_a_part_and_elsewhere_it_is_not() -> None:
    truth = torch.ones(64, 100, dtype=torch.float64)
    truth[5, 5:8] = 1000.0
    few = torch.full_like(truth, 3e-8)
    few[5, 5:8] = 3e-5
    off = few * torch.tensor([1.0, -1.0]).repeat(50)
    for factor, passes in ((2.5, True), (40.0, False)):
        assert (compare((truth + factor * off).float(), truth.float(), truth, 0, noise=few).faults == ()) is passes
    even = torch.full_like(truth, 3e-6)
    off = even * torch.tensor([1.0, -1.0]).repeat(50)
    assert compare((truth + 2.5 * off).float(), truth.float(), truth, 0, noise=even).faults


def test_a_sum_may_be_off_by_what_pairs_of_pairs_round_off_and_by_no_more() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    truth = x.double().sum()

    def total(t: torch.Tensor) -> list[torch.Tensor]:
        return [t.sum()]

    noise = spread(total, lambda: [x.clone()], lambda: [x.double()], [truth, x.double()])
    assert noise is not None
    off = 2.0**-24 * (x.double().square().sum().item() * 12 / 3) ** 0.5
    assert noise[0].item() == pytest.approx(off, rel=1e-3)
    for factor, passes in ((2, True), (16, False)):
        assert (compare((truth + factor * off).float(), truth.float(), truth, 0, noise=noise[0]).faults == ()) is passes


def test_the_build_that_rounds_may_differ_by_what_eager_may_err_by() -> None:
    truth = torch.ones(8, 4, dtype=torch.float64)
    eager, fused = truth.float(), truth.float()
    fused[2, 1] += 1e-5
    assert wiring(fused, eager, exact=False, ulp=0, truth=truth) is not None
    noise = torch.zeros_like(truth)
    noise[2] = 4e-6
    assert wiring(fused, eager, exact=False, ulp=0, truth=truth, noise=noise) is None


@pytest.mark.parametrize(("moved", "right"), [(60, True), (400, False)])
def test_where_sums_cancel_more_elements_may_fall_to_the_other_side_of_a_rounding_and_not_most(
    truth: torch.Tensor, moved: int, right: bool
) -> None:
    eager = truth[:20].bfloat16()
    fused = eager.clone()
    fused.view(-1)[:moved] = (fused.view(-1)[:moved].float() * (1 + 2.0**-7)).bfloat16()
    assert wiring(fused, eager, False, 0) is not None
    assert (wiring(fused, eager, False, 0, cancels=True) is None) is right


def test_a_mean_is_a_quotient_whose_last_bits_are_nobody_s() -> None:
    """Of few numbers far from 0, from which it is taken off: eager's own sum may have been lucky."""
    exact = torch.tensor([16.3], dtype=torch.float64)
    off = rounded_off(exact.float(), exact.float().double(), name="mean")
    assert off is not None
    assert float(off) >= 16.3 * 2.0**-23


def test_an_exponential_within_a_gradient_has_last_bits_whatever_dtype_is_asked_for() -> None:
    """Of a share next to 1 the gradient is what they leave."""
    grad, output = torch.tensor([[0.0, 1e6, 0.0]]), torch.tensor([[-20.0, -1e-6, -20.0]])

    def chain(*given: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten._log_softmax_backward_data(*given, 1, torch.float32)]

    wide = [grad.double(), output.double()]
    truth = [torch.ops.aten._log_softmax_backward_data(*wide, 1, torch.float64), *wide]
    found = spread(chain, lambda: [grad.clone(), output.clone()], lambda: [t.clone() for t in wide], truth)
    assert found is not None
    assert float(found[0][0, 1]) >= 1e6 * 2.0**-24


def judged_of(chain: Any, x: torch.Tensor, fused: torch.Tensor) -> Any:
    """The verdict on one result of one input."""
    eager, truth = chain(x.clone())[0], chain(x.double())[0]
    noise = spread(chain, lambda: [x.clone()], lambda: [x.double()], [truth, x.double()])
    assert noise is not None
    return compare(fused, eager, truth, 0, noise=noise[0])


def test_equal_rewards_are_normalised_to_what_rounding_their_mean_left_and_no_more() -> None:
    """Their deviation is 0, or what rounding left of it: whichever, it stands beside an epsilon of 1e-8."""
    x = torch.full((600,), 0.7312)

    def normalised(x: torch.Tensor) -> tuple[torch.Tensor]:
        return ((x - x.mean()) / (x.std() + 1e-8),)

    off = x - torch.nextafter(x, torch.tensor(9.0))
    assert judged_of(normalised, x, off / 1e-8).faults == ()
    assert judged_of(normalised, x, 40 * off / 1e-8).faults


def test_a_sum_that_may_overflow_in_another_order_is_asked_for_nothing_and_others_are() -> None:
    x = torch.ones(8, 4)
    x[2] = torch.tensor([3e38, -3e38, 3e38, -3e38])

    def total(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.sum(1),)

    fused = total(x)[0].clone()
    fused[2] = torch.inf
    found = judged_of(total, x, fused)
    assert found.faults == ()
    assert found.judged <= 7 / 8, "what is not asked is counted"
    fused[3] = torch.inf
    assert judged_of(total, x, fused).faults


def test_what_another_rounding_would_put_beyond_the_largest_number_may_be_beyond_it() -> None:
    x = torch.tensor([[88.72283, 80.0], [1.0, 2.0]])

    def power(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x.exp(),)

    fused = power(x)[0].clone()
    assert fused.isfinite().all()
    fused[0, 0] = torch.inf
    assert judged_of(power, x, fused).faults == ()
    fused[0, 1] = torch.inf
    assert judged_of(power, x, fused).faults


def test_which_infinity_a_quotient_by_nothing_is_is_asked_only_where_no_rounding_decides_it() -> None:
    truth = torch.tensor([torch.inf, 2.0, torch.nan], dtype=torch.float64)
    drawn = Spread([truth])
    drawn.add([torch.tensor([-torch.inf, 2.0, torch.nan], dtype=torch.float64)])
    (noise,) = drawn.noise()
    assert noise.tolist() == [-torch.inf, 0.0, 0.0]
    eager = truth.float()
    either = torch.tensor([-torch.inf, 2.0, torch.nan])
    assert compare(either, eager, truth, 0, noise=noise).faults == ()
    assert compare(either, eager, truth, 0).faults, "no rounding turns it"
    elsewhere = torch.tensor([torch.inf, 2.0, 5.0])
    assert compare(elsewhere, eager, truth, 0, noise=noise).faults, "a NaN that every draw has must be there"
    number = torch.tensor([3.0, 2.0, torch.nan])
    assert compare(number, eager, truth, 0, noise=noise).faults, "no draw has a number"
    drawn.add([torch.tensor([4.0, 2.0, torch.nan], dtype=torch.float64)])
    assert compare(number, eager, truth, 0, noise=drawn.noise()[0]).faults == (), "one has"


def test_a_quotient_by_what_rounding_left_may_be_infinite_and_other_numbers_may_not() -> None:
    truth = torch.tensor([-4.9e6, 2.0], dtype=torch.float64)
    fused, eager = torch.tensor([torch.inf, 2.0]), torch.tensor([-3.9e6, 2.0])
    noise = torch.tensor([5.8e6, 0.0], dtype=torch.float64)
    assert compare(fused, eager, truth, 0, noise=noise).faults == ()
    assert compare(fused, eager, truth, 0, noise=noise / 4).faults
    assert compare(torch.tensor([torch.nan, 2.0]), eager, truth, 0, noise=noise).faults


def test_what_meets_a_bound_exactly_may_fall_to_either_side_in_each_of_thousands_of_rows() -> None:
    """A sampler's running sum of shares that are all alike: which side of the bound one ends on is chance."""

    def nucleus(logits: torch.Tensor) -> tuple[torch.Tensor]:
        share = torch.softmax(logits, -1)
        return (share.masked_fill(torch.cumsum(share, -1) - share > 0.8, 0.0),)

    x = torch.zeros(8000, 50)
    truth = nucleus(x.double())[0]
    found = spread(nucleus, lambda: [x.clone()], lambda: [x.double()], [truth, x.double()])
    assert found is not None
    either = found[0][:, 40] >= 0.01
    assert bool(either.all()), f"{int((~either).sum())} of 8000 come out alike in every draw"
    assert float(found[0][:, [*range(40), *range(41, 50)]].max()) < 1e-8, "what no rounding decides"


def test_a_running_sum_may_be_off_as_one_of_pairs_of_pairs_is_and_by_no_more() -> None:
    x = torch.rand(4, 4096, generator=torch.Generator().manual_seed(0))
    truth = x.double().cumsum(1)

    def running(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.cumsum(x, 1),)

    found = spread(running, lambda: [x.clone()], lambda: [x.double()], [truth, x.double()])
    assert found is not None
    pairs, step = x.clone(), 1
    while step < x.shape[1]:
        pairs = torch.cat((pairs[:, :step], pairs[:, step:] + pairs[:, :-step]), 1)
        step *= 2
    off = (pairs.double() - truth).abs()
    assert bool((off <= 4 * found[0]).all())
    assert float(off.square().mean()) < float(found[0].square().mean()) < 4 * float(off.square().mean())
    one_missing = pairs - x[:, 7:8] * (torch.arange(4096) >= 7)
    assert compare(pairs, running(x)[0], truth, 0, noise=found[0]).faults == ()
    assert compare(one_missing, running(x)[0], truth, 0, noise=found[0]).faults


@pytest.mark.parametrize("training", [False, True])
def test_a_norm_of_cudnn_is_computed_in_float64_by_another_that_has_all_layouts(training: bool) -> None:
    aten = torch.ops.aten
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64).to(memory_format=torch.channels_last)
    scale, shift, mean = (torch.randn(4, dtype=torch.float64) for _ in range(3))
    variance = torch.rand(4, dtype=torch.float64)
    given = [scale, shift, mean, variance]
    one, other = [t.clone() for t in given], [t.clone() for t in given]
    found = widely(aten.cudnn_batch_norm.default, [x, *one, training, 0.1, 1e-5], {})
    wanted = aten.native_batch_norm.default(x, *other, training, 0.1, 1e-5)
    assert len(found) == 4
    assert all(torch.equal(a, b) for a, b in zip((*found, *one), (*wanted, found[3], *other), strict=True))
    assert torch.equal(one[2], mean) != training


def test_what_is_nowhere_farther_than_eager_passes_whatever_eager_may_be_off_by() -> None:
    """So that is worked out for no such result; and no wrong one is such."""
    drawn = random.Random(0)
    asked = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for seed in range(40):
            torch.manual_seed(seed)
            right = torch.randn(5, 7, dtype=torch.float64) * 10.0 ** drawn.choice([-4, 0, 4])
            right[0, 0] = drawn.choice([0.0, math.inf, math.nan, 1e6])
            eager = (right * (1 + torch.randn(5, 7) * drawn.choice([0.0, 1e-7, 1e-3]))).to(dtype)
            fused = (right * (1 + torch.randn(5, 7) * drawn.choice([0.0, 1e-7, 1e-5]))).to(dtype)
            noise = torch.rand(5, 7, dtype=torch.float64) ** 8 * 10.0 ** drawn.choice([-9, -3, 0])
            noise[1, :3] = torch.tensor([math.inf, -math.inf, 0.0])[torch.randint(0, 3, (3,))]
            ulp = drawn.choice([0.0, 1.0, 8.0])
            for even in (True, False):
                near = as_near(fused, eager, right, ulp)
                asked += near
                for may in (noise, None) if near else ():
                    assert compare(fused, eager, right, ulp, noise=may, even=even).faults == ()
    assert asked > 50
    codes = torch.tensor([1, 2, 3])
    assert as_near(codes, codes, codes, 0) and not as_near(codes + 1, codes, codes, 0)
    number = torch.ones(2)
    for wrong in (number.reshape(2, 1), number * math.nan, number * math.inf, number * (1 + 2.0**-22)):
        assert not as_near(wrong, number, number.double(), 8)
