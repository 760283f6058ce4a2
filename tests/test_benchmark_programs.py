"""What is written by hand in place of a program of benchmarks/programs/unseen.py computes the same."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SMALL = {
    "conjugate_gradient": {"count": 128},
    "adaptive_solver": {"batch": 16},
    "k_means": {"count": 400, "clusters": 4},
    "contrastive": {"count": 16},
    "trust_ratios": {"batch": 2},
    "mobile": {"side": 32},
    "rollout": {"count": 4, "length": 8},
    "text_filters": {"count": 4, "length": 20},
    "denoising": {"batch": 1},
    "window_attention": {"windows": 2},
    "super_resolution": {"batch": 1, "side": 8},
    "detector": {"batch": 1, "side": 8},
    "rotary": {"batch": 1, "length": 16},
    "odd_words": {"rows": 8, "words": 101},
}


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "compile", lambda function: function)  # only what is computed is held here
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return {program.name: program for program in importlib.import_module("programs.unseen").UNSEEN}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_by_hand_computes_the_same(unseen: dict[str, Any], name: str) -> None:
    program, sizes = unseen[name], SMALL[name]
    original = _computed(program, program.make, sizes)
    assert _apart(original, _computed(program, program.make, sizes, seed=1)) > program.tolerance
    for fix, (_, make) in program.by_hand.items():
        assert _apart(original, _computed(program, make, sizes)) <= program.tolerance, fix


def test_each_has_a_fix_of_a_rule_that_there_is(unseen: dict[str, Any]) -> None:
    assert list(unseen) == list(SMALL)
    for program in unseen.values():
        asked_by = {rule for rules, _ in program.by_hand.values() for rule in rules}
        assert asked_by
        assert not [rule for rule in asked_by if not (ROOT / "rules" / rule / "rule.toml").exists()]


def _computed(program: Any, make: Any, sizes: dict[str, int], seed: int = 0) -> Any:
    """Give what the third step computes: a fix may show only in what a step leaves behind."""
    import torch

    with torch.random.fork_rng(), torch.set_grad_enabled(program.training):
        torch.manual_seed(seed)
        with torch.device("cpu"):
            step = make(**sizes)
        step(), step()
        return step().detach().double()


def _apart(one: Any, other: Any) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max() / one.abs().max())
