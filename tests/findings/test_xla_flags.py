"""Flags of XLA in advice: each was tried, and where the version is not known the advice says how to try it."""

from __future__ import annotations

import re

import pytest

from tracemine.causes import load_rules
from tracemine.findings.notes import TAKEN, with_trial

FIX = "Compare:\n\n    XLA_FLAGS=--xla_gpu_triton_gemm_any=true python train.py"


def test_rules_name_no_flag_that_was_not_tried() -> None:
    texts = [text for rule in load_rules() for text in (rule.fix, *(advice.text for advice in rule.advice))]
    named = {flag for text in texts for flag in re.findall(r"--(xla_\w+)", text)}
    assert len(named) >= 4
    assert named <= TAKEN


@pytest.mark.parametrize(
    ("jax", "fix", "tried"),
    [
        ("0.11.2", FIX, False),
        ("0.12.0.1", FIX, False),
        ("0.13.0", FIX, True),
        ("0.3.25", FIX, True),
        (None, FIX, True),
        ("0.11.2", FIX.replace("triton_gemm_any", "enable_split_k_autotuning"), True),
        (None, "step = jax.jit(step)", False),
    ],
)
def test_a_flag_is_tried_first_unless_the_version_takes_it(jax: str | None, fix: str, tried: bool) -> None:
    found = with_trial(fix, jax)
    assert found.startswith(fix)
    assert ("jax.devices()" in found) is tried
