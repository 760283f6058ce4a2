"""What is drawn: as much kept as should be, each element by a draw of its own, and numbers of their distribution."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from tracemine.validate.rng_checks import coins, faults, random_numbers


def drawn(share: float, seed: int, shape: tuple[int, ...] = (40, 50)) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


def test_what_is_drawn_passes() -> None:
    for seed in range(50):
        masks, again = [drawn(0.9, seed), drawn(0.7, seed + 50)], [drawn(0.9, seed + 100), drawn(0.7, seed + 150)]
        assert faults(masks, [0.9, 0.7], again) == []
    assert faults([drawn(1.0, 0), drawn(0.0, 0)], [1.0, 0.0]) == []
    assert faults([drawn(0.9, 0, (0, 7))], [0.9]) == []


def test_too_many_or_too_few_are_found() -> None:
    assert "keeps" in faults([drawn(0.8, 0)], [0.9])[0]


def test_rows_that_are_alike_are_found() -> None:
    mask = drawn(0.9, 0, (1, 50)).expand(40, 50)
    assert any("neighbours along axis 0" in fault for fault in faults([mask], [float(mask.double().mean())]))


def test_dropouts_that_share_their_numbers_are_found() -> None:
    numbers = torch.rand((40, 50), generator=torch.Generator().manual_seed(0))
    assert any("draws 0 and 1" in fault for fault in faults([numbers < 0.9, numbers < 0.7], [0.9, 0.7]))


def test_a_seed_that_changes_nothing_is_found() -> None:
    assert "two seeds" in faults([drawn(0.9, 0)], [0.9], [drawn(0.9, 0)])[0]


@pytest.mark.parametrize(
    ("operator", "given", "mean", "variance"),
    [
        ("aten::uniform_", {"from": -2.0, "to": 4.0}, 1.0, 3.0),
        ("aten::normal_", {"mean": 0.5, "std": 2.0}, 0.5, 4.0),
        ("aten::exponential_", {"lambd": 0.5}, 2.0, 4.0),
    ],
)
def test_numbers_made_of_all_draws_have_the_mean_and_variance_of_their_distribution(
    operator: str, given: dict[str, float], mean: float, variance: float
) -> None:
    numbers = random_numbers(operator, torch.arange(1 << 24, dtype=torch.int32), given)
    assert bool(numbers.isfinite().all())
    assert float(numbers.mean()) == pytest.approx(mean, rel=1e-4)
    assert float(numbers.var()) == pytest.approx(variance, rel=1e-4)


def test_draws_that_leave_out_a_half_or_all_odd_numbers_are_found() -> None:
    draws = torch.randint(0, 1 << 24, (40, 50), generator=torch.Generator().manual_seed(0))
    assert faults(coins(draws), [0.5, 0.5]) == []
    assert faults(coins(draws // 2), [0.5, 0.5])
    assert faults(coins(draws * 2 % (1 << 24)), [0.5, 0.5])
