"""The judge of kernels on a GPU, asked on a CPU: right ones whose sums and functions are a GPU's pass, wrong ones do
not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.codegen.summation import summed
from tests.codegen.user_written import recorded
from tracemine.codegen import Graph
from tracemine.validate.input_domains import domains
from tracemine.verify.gpu.correctness import right
from tracemine.verify.repro.eager import eager_text

LOG2_E = 1.4426950408889634
ROWS, COLUMNS = 48, 64
HUGE = (0, 1, 13, 23)  # seeds: of the last three ratios reach 10³³ and more


def judged(chain: Graph, seeds: Sequence[int], **kernels: Callable[..., Any]) -> dict[str, Any]:
    """The verdict on each, as a reproduction asks for it."""
    named: dict[str, Any] = {"torch": torch}
    exec(eager_text(chain).replace('device="cuda"', 'device="cpu"'), named)  # noqa: S102 - our own text
    holds = domains(chain)
    described = [
        (i.name, i.spec.shape, getattr(torch, str(i.spec.dtype)), i.spec.strides, holds.get(k, i.below))
        for k, i in enumerate(chain.inputs)
    ]
    return right(named["eager"], kernels, described, 2.0, "cpu", seeds)


def refused(found: dict[str, Any]) -> set[str]:
    return {name for name, one in found.items() if one["faults"]}


def exponential(x: torch.Tensor) -> torch.Tensor:
    """As Triton compiles it for a GPU."""
    return torch.exp2(x * LOG2_E)


def clipped_loss(
    total: Callable[[torch.Tensor], torch.Tensor],
    exp: Callable[[torch.Tensor], torch.Tensor] = exponential,
    most: float = 1.2,
) -> Callable[..., Any]:
    """The clipped loss of a policy's tokens and its gradient, as one careful kernel computes them.

    total: the sum over all. exp: the exponential. most: what the ratio is bounded by.
    """

    def fused(logp: Any, old_logp: Any, advantages: Any, valid: Any) -> Any:
        ratio, gain = exp(logp - old_logp), advantages[:, None]
        plain, bounded = ratio * gain, ratio.clamp(0.8, most) * gain
        kept = (valid > 0).float()
        count = kept.sum().clamp(min=1)
        loss = total((-torch.minimum(plain, bounded) * kept).reshape(-1)) / count
        return loss, torch.where(plain <= bounded, -kept / count * gain, 0.0) * ratio

    return fused


RIGHT = {f"lanes_{width}": clipped_loss(functools.partial(summed, width=width)) for width in (32, 128, 1024)}


def test_a_policy_s_loss_is_right_whatever_the_order_of_its_sums_and_near_the_largest_number() -> None:
    """What rounding the exponent comes to is 40 units in the last place there."""
    found = judged(recorded("ppo_of_tokens", ROWS, COLUMNS), HUGE, **RIGHT)
    assert refused(found) == set()
    assert min(one["judged"] for one in found.values()) > 0.6


def test_wrong_kernels_of_a_policy_s_loss_are_refused() -> None:
    def last_tile_left_out(*given: Any) -> Any:
        loss, slope = RIGHT["lanes_128"](*given)
        slope[:, -32:] = 0
        return loss, slope

    def a_tile_too_far(*given: Any) -> Any:
        loss, slope = RIGHT["lanes_128"](*given)
        return loss, slope.roll(1, 0)

    wrong = {
        "last_tile_left_out": last_tile_left_out,
        "a_tile_too_far": a_tile_too_far,
        "term_dropped": clipped_loss(lambda x: summed(x[:-1], 128)),
        "tile_dropped": clipped_loss(lambda x: summed(x[:-128], 128)),
        "summed_in_16_bits": clipped_loss(lambda x: summed(x.bfloat16(), 128).float()),
        "exponent_in_16_bits": clipped_loss(lambda x: summed(x, 128), lambda x: exponential(x.bfloat16().float())),
        "another_base": clipped_loss(lambda x: summed(x, 128), torch.exp2),
        "another_bound": clipped_loss(lambda x: summed(x, 128), most=1.25),
    }
    assert refused(judged(recorded("ppo_of_tokens", ROWS, COLUMNS), range(3), **wrong)) == wrong.keys()


@pytest.mark.parametrize("off", [8, 64])
def test_an_exponential_near_the_largest_number_may_err_by_its_exponent_s_rounding_and_no_more(off: int) -> None:
    """An exponent of 80 may move its power by 80 roundings of 2⁻²⁴; one of 1 by no more than functions may."""
    from tracemine.codegen import GraphBuilder

    b = GraphBuilder("ratio")
    x, y = b.input("x", (64, 256), "float32"), b.input("y", (64, 256), "float32")
    chain = b.done(
        b.call("aten::exp", b.call("aten::add.Tensor", b.call("aten::tanh", b.call("aten::mul.Tensor", x, y)), 80.0))
    )
    moved = lambda x, y: (exponential((x * y).tanh() + 80.0) * (1 + off * 80 * 2.0**-24),)  # noqa: E731
    plain = lambda x, y: (exponential((x * y).tanh() + 80.0),)  # noqa: E731
    assert refused(judged(chain, range(3), plain=plain, moved=moved)) == {"moved"}


def test_what_overflows_is_judged_where_a_gradient_is_a_view_of_one_number_a_row() -> None:
    """Sums of log-probabilities have exponentials of several hundred; their gradient is expanded, not copied."""

    def fused(logp: Any, old_logp: Any, rewards: Any) -> Any:
        gain = (rewards - rewards.mean()) / (rewards.std(unbiased=False) + 1e-8)
        total = summed(logp, 32)
        weight = exponential(total - summed(old_logp, 32)).clamp(max=2.0)
        slope = -(gain * weight) / len(gain)
        return -(weight * total * gain).mean(), slope[:, None].expand(logp.shape).contiguous()

    def unweighted(logp: Any, old_logp: Any, rewards: Any) -> Any:
        return fused(logp, logp, rewards)

    found = judged(recorded("reinforce_normalised", 40, 100), range(6), fused=fused, unweighted=unweighted)
    assert refused(found) == {"unweighted"}
