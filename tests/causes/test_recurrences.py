"""Recurrences in loops: cells and scans that one call computes, and products of inputs that need no state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tracemine
from tests.dispatched import dispatched
from tracemine.findings.record import Finding
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.units import Threshold

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "programs"
TIME, BATCH, SIZE = 24, 8, 64
MIXED = torch.eye(64) / 2
Step = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Loop = Callable[[], Tensor]


def found(program: Loop, rule: str) -> list[Finding]:
    scan = mined(analysed(dispatched(program)), ScanOptions(threshold=Threshold(ns=0)))
    return [one for one in scan.findings if one.rule == rule]


def weights(gates: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(BATCH, TIME, SIZE), torch.randn(SIZE, gates * SIZE), torch.randn(SIZE, gates * SIZE)


def lstm(norm: bool = False, apart: bool = False, outside: bool = False) -> Loop:
    """An LSTM; or with a norm in it, with a product for each gate, with its inputs projected before the loop."""
    inputs, w, u = weights(4)
    bias = torch.randn(4 * SIZE)

    def program() -> Tensor:
        hidden = cell = torch.zeros(BATCH, SIZE)
        projected, outs = inputs @ w if outside else None, []
        for at in range(TIME):
            if apart:
                i, f, g, o = (
                    torch.addmm(b, inputs[:, at], one) + hidden @ two
                    for b, one, two in zip(bias.chunk(4), w.chunk(4, 1), u.chunk(4, 1), strict=True)
                )
            else:
                mine = inputs[:, at] @ w if projected is None else projected[:, at]
                i, f, g, o = (mine + hidden @ u + bias).chunk(4, -1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(F.layer_norm(cell, (SIZE,)) if norm else cell)
            outs.append(hidden)
        return torch.stack(outs, 1)

    return program


def gru(reset_before: bool = False) -> Loop:
    """A GRU as the library has it; or one that resets the state before its product."""
    inputs, w, u = weights(3)

    def program() -> Tensor:
        hidden, outs = torch.zeros(BATCH, SIZE), []
        for at in range(TIME):
            xr, xz, xn = (inputs[:, at] @ w).chunk(3, -1)
            if reset_before:
                r, z = torch.sigmoid(xr + hidden @ u[:, :SIZE]), torch.sigmoid(xz + hidden @ u[:, SIZE : 2 * SIZE])
                n = torch.tanh(xn + (r * hidden) @ u[:, 2 * SIZE :])
            else:
                hr, hz, hn = (hidden @ u).chunk(3, -1)
                r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
                n = torch.tanh(xn + r * hn)
            hidden = (1 - z) * n + z * hidden
            outs.append(hidden)
        return torch.stack(outs, 1)

    return program


def rnn(fed_back: bool = False, act: Callable[[Tensor], Tensor] = torch.tanh) -> Loop:
    """A plain cell; or one whose next input is what it gave last."""
    inputs, w, u = weights(1)

    def program() -> Tensor:
        hidden, outs, given = torch.zeros(BATCH, SIZE), [], inputs[:, 0]
        for at in range(TIME):
            hidden = act((given if fed_back else inputs[:, at]) @ w + hidden @ u)
            if fed_back:
                given = hidden * 2
            outs.append(hidden)
        return torch.stack(outs, 1)

    return program


def linear(step: Callable[[Tensor, Tensor, Tensor], Tensor], kept: bool = True) -> Loop:
    """A state that a step changes by what is given anew each time; all of its values are kept, or the last."""
    a, x = torch.rand(BATCH, TIME, SIZE), torch.randn(BATCH, TIME, SIZE)

    def program() -> Tensor:
        state, outs = torch.ones(BATCH, SIZE), []
        for at in range(TIME):
            state = step(state, a[:, at], x[:, at])
            outs.append(state)
        return torch.stack(outs, 1) if kept else state

    return program


def selective() -> Loop:
    """A selective scan, read by a product of its own in each time step."""
    a, x = torch.rand(BATCH, TIME, SIZE, 16), torch.randn(BATCH, TIME, SIZE, 16)
    c = torch.randn(BATCH, TIME, 16, 1)

    def program() -> Tensor:
        state, outs = torch.zeros(BATCH, SIZE, 16), []
        for at in range(TIME):
            state = a[:, at] * state + x[:, at]
            outs.append(torch.bmm(state, c[:, at]))
        return torch.stack(outs, 1)

    return program


def filtered(gated: bool = False) -> Loop:
    """A filter: how much it trusts what it sees goes on by itself; its state is linear. Gated: it is not."""
    move, look = torch.eye(4) + torch.rand(4, 4) / 8, torch.eye(4)[:2]
    seen = torch.randn(TIME, BATCH, 2)

    def program() -> Tensor:
        state, spread, states = torch.zeros(BATCH, 4), torch.eye(4).expand(BATCH, 4, 4), []
        for one in seen:
            state, spread = state @ move.T, move @ spread @ move.T
            gain = spread @ look.T / (1 + (look @ spread @ look.T).square().sum((1, 2), keepdim=True))
            spread = spread - gain @ look @ spread
            off = one - state @ look.T
            state = state + (gain @ (torch.tanh(off) if gated else off)[..., None])[..., 0]
            states.append(state)
        return torch.stack(states)

    return program


def descended() -> Loop:
    """Conjugate gradients for one right side after another: how far each goes depends on the state."""
    matrix, wanted = torch.rand(SIZE, SIZE), torch.randn(TIME, BATCH, SIZE)

    def program() -> Tensor:
        state, states = torch.zeros(BATCH, SIZE), []
        for one in wanted:
            rest = one - state @ matrix
            state = state + rest * (rest @ matrix)
            states.append(state)
        return torch.stack(states)

    return program


def own_cell() -> Loop:
    """A cell that no library has."""
    inputs, w, u = weights(1)

    def program() -> Tensor:
        hidden, outs = torch.zeros(BATCH, SIZE), []
        for at in range(TIME):
            hidden = F.layer_norm(F.gelu(inputs[:, at] @ w + hidden @ u), (SIZE,))
            outs.append(hidden)
        return torch.stack(outs, 1)

    return program


def layers() -> Tensor:
    """A model of many equal layers: each needs the one before, and nothing else."""
    x = torch.randn(BATCH, SIZE)
    for weight in torch.randn(TIME, SIZE, SIZE):
        x = x + torch.tanh(x @ weight)
    return x


@pytest.mark.parametrize(
    ("program", "call"),
    [
        (lstm(), "nn.LSTM("),
        (lstm(apart=True), "nn.LSTM("),
        (lstm(outside=True), "nn.LSTM("),
        (gru(), "nn.GRU("),
        (rnn(), "nn.RNN("),
        (rnn(act=torch.relu), "nn.RNN("),
        (linear(lambda state, a, x: a * state + x), "associative_scan("),
        (linear(lambda state, a, x: torch.addcmul(x, a, state)), "associative_scan("),
        (linear(lambda state, a, x: 0.9 * state + x), "associative_scan("),
        (selective(), "associative_scan("),
        (filtered(), "shift *= 2"),
        (linear(lambda state, a, x: state @ MIXED + x), "shift *= 2"),
        (linear(lambda state, a, x: state + x), "torch.cumsum("),
        (linear(lambda state, a, x: state * a), "torch.cumprod("),
        (linear(lambda state, a, x: torch.maximum(state, x)), "torch.cummax("),
    ],
)
def test_what_an_iteration_computes_decides_the_call(program: Loop, call: str) -> None:
    (one,) = found(program, "recurrence_unfused")
    assert call in one.fix
    assert found(program, "input_projection_in_loop") == []  # goes with it


@pytest.mark.parametrize("outside", [False, True])
def test_a_layer_makes_the_inputs_product_once_which_is_said_where_the_loop_does_not(outside: bool) -> None:
    (one,) = found(lstm(outside=outside), "recurrence_unfused")
    assert ("product of all inputs is made once" in one.fix) is not outside


def test_a_scan_leaves_the_product_of_its_inputs_to_a_finding_of_its_own() -> None:
    inputs, w, _ = weights(1)
    scale = torch.rand(BATCH, TIME, SIZE)

    def program() -> Tensor:
        state, outs = torch.zeros(BATCH, SIZE), []
        for at in range(TIME):
            state = scale[:, at] * state + inputs[:, at] @ w
            outs.append(state)
        return torch.stack(outs, 1)

    (scan,), (product,) = (found(program, rule) for rule in ("recurrence_unfused", "input_projection_in_loop"))
    assert (set(scan.ops), set(product.ops)) == ({"aten::mul", "aten::add"}, {"aten::mm"})


@pytest.mark.parametrize(
    "program",
    [
        lstm(norm=True),
        gru(reset_before=True),
        rnn(fed_back=True),
        linear(lambda state, a, x: state * state + x),  # not linear
        linear(lambda state, a, x: a * torch.tanh(state) + x),
        linear(lambda state, a, x: state + x, kept=False),  # a sum
        linear(lambda state, a, x: 0.5 * state + 1.0),  # the same each time
        linear(lambda state, a, x: state @ MIXED + 1.0),
        filtered(gated=True),
        descended(),
        own_cell(),
        layers,
    ],
    ids=[
        "norm",
        "reset before",
        "fed back",
        "squared",
        "tanh",
        "sum",
        "constant",
        "product",
        "gated",
        "descended",
        "own cell",
        "layers",
    ],
)
def test_what_no_call_computes_is_left_alone(program: Loop) -> None:
    assert found(program, "recurrence_unfused") == []


@pytest.mark.parametrize("program", [own_cell(), lstm(norm=True), gru(reset_before=True)])
def test_inputs_are_projected_before_a_loop_that_has_to_stay(program: Loop) -> None:
    (one,) = found(program, "input_projection_in_loop")
    assert set(one.ops) == {"aten::mm"}
    assert one.gpu_saving_ns.mid > 0.3 * one.measured_ns


@pytest.mark.parametrize(
    "program",
    [rnn(fed_back=True), layers, linear(lambda state, a, x: a * torch.tanh(state) + x)],
    ids=["fed back", "layers", "no product"],
)
def test_products_that_need_the_state_or_have_weights_of_their_own_stay(program: Loop) -> None:
    assert found(program, "input_projection_in_loop") == []


def fired(summed: bool = False) -> Loop:
    """Neurons that leak: no product needs the state; or a sum of what all time steps give, which has none."""
    inputs, w, _ = weights(1)

    def program() -> Tensor:
        state = fired = torch.zeros(BATCH, SIZE)
        for at in range(TIME):
            given = inputs[:, at] @ w
            if summed:
                state = state + given
            else:
                state = 0.9 * state + given
                spike = torch.sigmoid(state)
                state, fired = state * (1 - spike), fired + spike
        return state if summed else fired

    return program


@pytest.mark.parametrize(
    ("program", "rule", "other"),
    [
        (fired(), "input_projection_in_loop", "small_products_apart"),
        (fired(summed=True), "small_products_apart", "input_projection_in_loop"),
    ],
)
def test_where_a_state_needs_products_that_need_none_they_are_its_inputs(program: Loop, rule: str, other: str) -> None:
    assert len(found(program, rule)) == 1
    assert not found(program, other)


@pytest.mark.parametrize(
    ("name", "layer", "gained"), [("lstm_loop", "LSTM", 0.90), ("recurrent_training", "GRU", 0.82)]
)
def test_recorded_loops_promise_no_more_than_the_library_gained(name: str, layer: str, gained: float) -> None:
    report = tracemine.scan(RECORDED / name)
    (one,) = [each for each in report if each.rule == "recurrence_unfused"]
    assert f"nn.{layer}(" in one.fix
    assert one.per_step is not None and one.per_step.step_saving_alone_ns is not None
    step = report.summary.per_step
    assert step is not None and step.unprofiled_ns is not None
    step_ns = step.unprofiled_ns.mid
    alone = one.per_step.step_saving_alone_ns
    assert 0.7 * gained * step_ns < alone.mid < 1.05 * gained * step_ns
    assert alone.low < gained * step_ns < alone.high
