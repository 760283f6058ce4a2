"""Chains drawn at random are right, or are refused: eager is what they are held against, trial by trial."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

from tests.codegen.random_graphs import FINDINGS, random_chain, text, verdict
from tracemine.validate.sandbox import Sandbox

LEAST, SECONDS, SEEDS = 3, 8.0, 40


def test_random_chains_are_right_or_refused() -> None:
    """As many as there is time for; `python -m tests.codegen.random_graphs` tries others, for longer."""
    proved, end = 0, time.monotonic() + SECONDS
    with Sandbox() as process:
        for seed in range(SEEDS):
            chain = random_chain(seed)
            if chain is None:
                continue
            kind, says = verdict(process, chain)
            assert kind not in FINDINGS, f"seed {seed}: {says}\n{text(chain)}"
            proved += kind == "right"
            if proved >= LEAST and time.monotonic() > end:
                break
    assert proved >= LEAST
