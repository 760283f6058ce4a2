"""Recurrent cells called once a position are told of the library's whole sequence; what waits for outputs is not."""

from __future__ import annotations

import pytest

from tests.findings.build import kernel, timeline_of
from tracemine.causes import load_rules
from tracemine.findings import Finding
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.units import Threshold

US = 1_000


def launch_gap(*ops: str, rounds: int = 20) -> Finding:
    """The gaps of a loop over positions: a kernel every 100 µs, each of one of these operators in turn."""
    every, count = 100 * US, len(ops) * rounds
    members = [
        kernel((of + step * count) * every, 10 * US, queued_ns=8 * US, op=ops[of % len(ops)], step_row=step)
        for step in range(2)
        for of in range(count)
    ]
    steps = [(step * count * every - 10 * US, count * every) for step in range(2)]
    timeline = timeline_of(members, steps=steps)
    found = mined(analysed(timeline), ScanOptions(rules=load_rules(), threshold=Threshold(ns=0))).findings
    (gaps,) = [one for one in found if one.rule == "launch_gap"]
    return gaps


@pytest.mark.parametrize(
    ("op", "layer"), [("aten::gru_cell", "GRU"), ("aten::lstm_cell", "LSTM"), ("aten::rnn_tanh_cell", "RNN")]
)
def test_a_cell_in_a_loop_is_told_of_the_library_s_layer(op: str, layer: str) -> None:
    assert f"rnn = nn.{layer}(" in launch_gap(op).fix


@pytest.mark.parametrize(
    "ops",
    [
        ("aten::gru_cell", "aten::linear", "aten::argmax"),  # a decoder: the next position waits for this one's word
        ("aten::gru_cell", "aten::lstm_cell"),  # two layers of kinds that no one module runs
        ("aten::linear", "aten::tanh"),
    ],
)
def test_a_loop_whose_positions_wait_for_more_than_the_state_is_not(ops: tuple[str, ...]) -> None:
    assert "rnn = nn." not in launch_gap(*ops).fix


def test_three_calls_are_no_sequence() -> None:
    assert "rnn = nn." not in launch_gap("aten::gru_cell", rounds=3).fix
