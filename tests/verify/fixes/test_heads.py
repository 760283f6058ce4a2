"""Heads over a vocabulary and what is made of their logits, in strips, of graphs as PyTorch records them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.verify.fixes.test_by_rule import fixed_graph, tried  # noqa: E402
from tracemine.codegen.graph import Graph  # noqa: E402
from tracemine.codegen.graph_builder import GraphBuilder  # noqa: E402
from tracemine.verify.fixes.record import Around, NoFixedForm  # noqa: E402

pytestmark = pytest.mark.usefixtures("interpreted")
ROWS, WIDTH, WORDS = 12, 6, 31

Head = tuple[Any, Any, Any]  # hidden states, weight, logits


def inputs(b: GraphBuilder, name: str = "", bias: bool = False) -> list[Any]:
    found = [b.input(f"x{name}", (ROWS, WIDTH), "float32"), b.input(f"w{name}", (WORDS, WIDTH), "float32")]
    return [*found, b.input(f"b{name}", (WORDS,), "float32")] if bias else found


def head(b: GraphBuilder, x: Any, w: Any, bias: Any = None) -> Head:
    turned = b.call("aten::permute", w, [1, 0])
    return x, w, b.call("aten::mm", x, turned) if bias is None else b.call("aten::addmm", bias, x, turned)


def gradients(b: GraphBuilder, x: Any, w: Any, of_logits: Any) -> tuple[Any, Any]:
    turned = b.call("aten::permute", of_logits, [1, 0])
    return b.call("aten::mm", turned, x), b.call("aten::mm", of_logits, w)


def loss(
    *, trained: bool = True, bias: bool = False, reduction: int = 1, ignored: int = -100, changed: str = ""
) -> Graph:
    b = GraphBuilder("loss")
    given = inputs(b, bias=bias)
    labels = b.input("labels", (ROWS,), "int64", below=WORDS)
    of_loss = b.input("of_loss", (ROWS,) if reduction == 0 else (), "float32") if trained else None
    x, w, logits = head(b, *given)
    if changed:
        logits = b.call(changed, logits)
    log = b.call("aten::_log_softmax", logits, 1, False)
    found, total = b.call("aten::nll_loss_forward", log, labels, None, reduction, ignored)
    if not trained:
        return b.done(found)
    of_log = b.call("aten::nll_loss_backward", of_loss, log, labels, None, reduction, ignored, total)
    of_logits = b.call("aten::_log_softmax_backward_data", of_log, log, 1, "float32")
    of_weight, of_hidden = gradients(b, x, w, of_logits)
    more = [b.call("aten::sum.dim_IntList", of_logits, [0], True)] if bias else []
    return b.done(found, of_weight, of_hidden, *more)


def log_probs(trained: bool = True) -> Graph:
    b = GraphBuilder("log_probs")
    given, words = inputs(b), b.input("words", (3, 4, 1), "int64", below=WORDS)
    of_chosen = b.input("of_chosen", (3, 4, 1), "float32") if trained else None
    x, w, logits = head(b, *given)
    log = b.call("aten::_log_softmax", b.call("aten::view", logits, [3, 4, WORDS]), -1, False)
    chosen = b.call("aten::gather", log, 2, words)
    if not trained:
        return b.done(chosen)
    zeros = b.call("aten::full", [3, 4, WORDS], 0.0, dtype="float32")
    of_log = b.call("aten::scatter_add", zeros, 2, words, of_chosen)
    of_logits = b.call("aten::_log_softmax_backward_data", of_log, log, -1, "float32")
    of_weight, of_hidden = gradients(b, x, w, b.call("aten::view", of_logits, [ROWS, WORDS]))
    return b.done(chosen, of_weight, of_hidden)


def divergence(temperature: float = 1.0, trained: bool = True, turned: bool = False) -> Graph:
    b = GraphBuilder("divergence")
    teacher, student = inputs(b, "_teacher"), inputs(b)
    of_sum = b.input("of_sum", (), "float32") if trained else None
    (_, _, wanted), (x, w, logits) = head(b, *teacher), head(b, *student)
    if temperature != 1.0:
        wanted, logits = (b.call("aten::div.Tensor", z, temperature) for z in (wanted, logits))
    theirs, ours = (b.call("aten::_log_softmax", z, -1, False) for z in (wanted, logits))
    power = b.call("aten::exp", theirs)
    apart = b.call("aten::sub.Tensor", *((ours, theirs) if turned else (theirs, ours)))
    found = b.call("aten::sum", b.call("aten::mul.Tensor", power, apart))
    if not trained:
        return b.done(found)
    of_all = b.call("aten::expand", of_sum, [ROWS, WORDS])
    of_ours = b.call("aten::neg", b.call("aten::mul.Tensor", of_all, power))
    of_logits = b.call("aten::_log_softmax_backward_data", of_ours, ours, -1, "float32")
    if temperature != 1.0:
        of_logits = b.call("aten::div.Tensor", of_logits, temperature)
    return b.done(found, *gradients(b, x, w, of_logits))


def largest(*, trained: bool = True, masked: bool = True, curve: str = "aten::log1p") -> Graph:
    b = GraphBuilder("largest")
    given = inputs(b, bias=True)
    mask = b.input("seen", (3, 4), "int64", below=2) if masked else None
    of_most = b.input("of_most", (3, WORDS), "float32") if trained else None
    x, w, logits = head(b, *given)
    relu = b.call("aten::relu", b.call("aten::view", logits, [3, 4, WORDS]))
    scores = b.call(curve, relu)
    mask = b.call("aten::unsqueeze", mask, -1) if masked else None
    seen = b.call("aten::mul.Tensor", scores, mask) if masked else scores
    if not trained:
        return b.done(b.call("aten::amax", seen, [1]))
    most, place = b.call("aten::max.dim", seen, 1)
    zeros = b.call("aten::full", [3, 4, WORDS], 0.0, dtype="float32")
    of_one = b.call("aten::unsqueeze", of_most, 1)
    spread = b.call("aten::scatter.src", zeros, 1, b.call("aten::unsqueeze", place, 1), of_one)
    spread = b.call("aten::mul.Tensor", spread, mask) if masked else spread
    of_relu = b.call("aten::div.Tensor", spread, b.call("aten::add.Tensor", relu, 1))
    of_logits = b.call("aten::view", b.call("aten::threshold_backward", of_relu, relu, 0), [ROWS, WORDS])
    return b.done(most, *gradients(b, x, w, of_logits), b.call("aten::sum.dim_IntList", of_logits, [0], True))


CASES: list[tuple[str, Callable[[], Graph], tuple[str, str]]] = [
    ("logits_written", loss, ('"mean"', '"sum"')),
    ("logits_written", lambda: loss(trained=False), ('"mean"', '"sum"')),
    ("logits_written", lambda: loss(bias=True), ("bias=bias", "bias=0 * bias")),
    ("logits_written", lambda: loss(bias=True), ("of_bias.reshape", "of_bias.abs().reshape")),
    ("logits_written", lambda: loss(reduction=2), ("of_weight, of_hidden", "of_weight, 2 * of_hidden")),
    ("logits_written", lambda: loss(reduction=0), ("labels, reduction", "labels, ignore_index=3, reduction")),
    ("logits_written", lambda: loss(ignored=3), ("ignore_index=3, ", "")),
    ("logits_written", log_probs, ("of_chosen.reshape(-1)", "of_chosen.abs().reshape(-1)")),
    ("logits_written", lambda: log_probs(False), ("words.reshape(-1)", "(words.reshape(-1) - 1).clamp(0)")),
    ("logits_written", divergence, ("weight, x_teacher", "weight, x")),
    ("logits_written", lambda: divergence(2.0), ("temperature=2.0", "temperature=1.0")),
    ("logits_written", lambda: divergence(2.0, False), ("temperature=2.0", "temperature=1.0")),
    ("vocabulary_maximum", largest, ("unsqueeze.default(of_most", "unsqueeze.default(-of_most")),
    ("vocabulary_maximum", lambda: largest(trained=False), ("weight, bias", "weight, None")),
    ("vocabulary_maximum", lambda: largest(masked=False), ("torch.ones", "torch.zeros")),
]


@pytest.mark.parametrize(("rule", "graph", "spoil"), CASES, ids=[f"{r} {k}" for k, (r, *_) in enumerate(CASES)])
def test_strips_are_right_and_spoiled_ones_are_told(
    rule: str, graph: Callable[[], Graph], spoil: tuple[str, str], tmp_path: Path
) -> None:
    assert tried(rule, graph(), tmp_path) == {"in strips": []}
    assert tried(rule, graph(), tmp_path, spoil=spoil)["in strips"]


REFUSED: list[tuple[str, Callable[[], Graph], str]] = [
    ("logits_written", lambda: loss(changed="aten::tanh"), "tanh is no part of it"),
    ("logits_written", lambda: divergence(turned=True), "no sum of the divergence"),
    ("logits_written", lambda: largest(), "no part of it"),
    ("vocabulary_maximum", lambda: largest(curve="aten::exp"), "no part of it"),
    ("vocabulary_maximum", loss, "no part of it"),
]


@pytest.mark.parametrize(("rule", "graph", "why"), REFUSED)
def test_what_is_another_function_is_refused(rule: str, graph: Callable[[], Graph], why: str) -> None:
    with pytest.raises(NoFixedForm, match=why):
        fixed_graph(rule, graph())


def read(of_log: bool = False) -> tuple[GraphBuilder, dict[str, Any]]:
    """A loss, and what stands around it."""
    b = GraphBuilder("read")
    given, labels = inputs(b), b.input("labels", (ROWS,), "int64", below=WORDS)
    of = b.input("of_log", (ROWS, WORDS), "float32") if of_log else None
    x, w, logits = head(b, *given)
    log = b.call("aten::_log_softmax", logits, 1, False)
    found, total = b.call("aten::nll_loss_forward", log, labels, None, 1, -100)
    return b, {"log": log, "found": found, "total": total, "of_log": of, "x": x, "w": w}


def test_what_reads_logits_besides_refuses_them_and_what_nothing_reads_is_left_out() -> None:
    b, made = read()
    with pytest.raises(NoFixedForm, match="read apart"):
        fixed_graph("logits_written", b.done(made["found"], made["log"]))
    b, made = read()
    graph = b.done(made["found"], made["total"])
    with pytest.raises(NoFixedForm, match="read apart"):
        fixed_graph("logits_written", graph)
    assert "return (made, None,)" in fixed_graph("logits_written", graph, Around(unread=(graph.live[1],))).source


def test_a_gradient_from_nowhere_is_refused() -> None:
    b, made = read(of_log=True)
    of_logits = b.call("aten::_log_softmax_backward_data", made["of_log"], made["log"], 1, "float32")
    with pytest.raises(NoFixedForm, match="where its gradient comes from"):
        fixed_graph("logits_written", b.done(made["found"], *gradients(b, made["x"], made["w"], of_logits)))


def test_smoothed_labels_are_refused_with_what_takes_them() -> None:
    b, made = read()
    total = b.call("aten::sum.dim_IntList", made["log"], [1])
    with pytest.raises(NoFixedForm, match="label_smoothing"):
        fixed_graph("logits_written", b.done(made["found"], total))
