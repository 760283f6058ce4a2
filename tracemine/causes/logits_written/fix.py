"""Head and loss in strips of rows: cross-entropy, log-probabilities of some words, divergence of two heads."""

from __future__ import annotations

from typing import Final

from tracemine.codegen.graph import Graph, Ref, reads
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.heads import SAME, Core, Head, HeadGraph, in_strips
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import plain
from tracemine.verify.repro.eager import number_text

_SOFTMAX: Final = ("_log_softmax", "_log_softmax_backward_data", "sum")
_SPREAD: Final = ("scatter_add", "scatter_add_", "scatter", "scatter_")
_REDUCED: Final = ("none", "mean", "sum")
LABELLED: Final = "each row has a label in the trial; rows without one give nothing"


def loss_in_strips(graph: Graph, around: Around) -> Fixed:
    """Return head and loss in strips. Raises NoFixedForm."""
    names = {call.operator for call in graph.calls}
    if "aten::nll_loss_forward" in names:
        return in_strips(graph, around, _cross_entropy)
    return in_strips(graph, around, _log_probs if "aten::gather" in names else _divergence)


def _given(head: Head, *more: str) -> str:
    return ", ".join(["hidden", "weight", *filter(None, more), *([] if head.bias is None else ["bias=bias"])])


def _words(found: HeadGraph, head: Head) -> int:
    return found.graph.specs[head.weight].shape[-1]


def _head_of_softmax(found: HeadGraph, value: int) -> Head:
    """Return the head of whose logits a value is the log-softmax, over all words. Raises NoFixedForm."""
    number, call = found.one("_log_softmax")
    axis, rank = plain(call.given()["dim"]), len(found.graph.specs[reads(call)[0]].shape)
    if found.root(value) != found.graph.first_output(number) or axis not in (-1, rank - 1):
        raise NoFixedForm("it is no loss of a softmax over all words")
    return found.head_of(reads(call)[0])


def _cross_entropy(found: HeadGraph) -> Core:
    found.expect((*_SOFTMAX, "nll_loss_forward", "nll_loss_backward"))
    number, call = found.one("nll_loss_forward")
    given, log = call.given(), reads(call)[0]
    if any(found.root(reads(each)[0]) == found.root(log) for _, each in found.of("sum")):
        raise NoFixedForm("labels are smoothed: `linear_cross_entropy(…, label_smoothing=…)` is not tried")
    head, target, weights = _head_of_softmax(found, log), given["target"], given.get("weight")
    ignored, reduction = plain(given["ignore_index"]), plain(given["reduction"])
    if not isinstance(target, Ref) or not isinstance(ignored, int) or reduction not in (0, 1, 2):
        raise NoFixedForm("its labels, or how it is reduced, are not recorded")
    behind, how = found.of("nll_loss_backward"), _REDUCED[reduction]
    return Core(
        head=head,
        function="linear_cross_entropy",
        text=_given(
            head,
            f"{{v{target.value}}}",
            f"class_weights={{v{weights.value}}}" if isinstance(weights, Ref) else "",
            f"ignore_index={ignored}" if ignored != -100 else "",
            f'reduction="{how}"',
        ),
        results={found.graph.first_output(number): "made"},
        upstream=reads(behind[0][1])[0] if behind else None,
        needs=[target.value, *([weights.value] if isinstance(weights, Ref) else [])],
        holds=found.bound(target.value, _words(found, head)),
        assumptions=(LABELLED,),
    )


def _log_probs(found: HeadGraph) -> Core:
    found.expect((*_SOFTMAX, "gather", *_SPREAD))
    number, call = found.one("gather")
    value, (log, index) = found.graph.first_output(number), reads(call)
    head, shape = _head_of_softmax(found, log), found.graph.specs[value].shape
    if shape[-1] != 1:
        raise NoFixedForm("more than one log-probability of a row is read")
    behind = [each for name in _SPREAD for each in found.of(name)]
    return Core(
        head=head,
        function="chosen_log_probs",
        text=_given(head, f"{{v{index}}}.reshape(-1)"),
        results={value: f"made.reshape({shape!r})"},
        upstream=reads(behind[0][1])[-1] if behind else None,
        shaped=".reshape(-1)",
        needs=[index],
        holds=found.bound(index, _words(found, head)),
    )


def _divergence(found: HeadGraph) -> Core:
    found.expect((*_SOFTMAX, "exp", "sub", "mul", "neg", "div"))
    graph = found.graph
    logs = {graph.first_output(number): call for number, call in found.of("_log_softmax")}
    number, total = found.one("sum")
    sub, product = found.one("sub"), found.call(reads(total)[0])
    theirs, ours = (found.root(value) for value in reads(sub[1]))
    powers = {graph.first_output(n): found.root(reads(call)[0]) for n, call in found.of("exp")}
    compared = {theirs, ours} == set(logs) and {theirs} == set(powers.values()) and theirs != ours
    value = graph.first_output(number)
    if not compared or product is None or product.operator != "aten::mul" or graph.specs[value].elements != 1:
        raise NoFixedForm("it is no sum of the divergence of two heads' words")
    head, teacher = (found.head_of(reads(logs[each])[0], SAME | {"aten::div"}) for each in (ours, theirs))
    behind = [call for _, call in found.of("mul") if call is not product]
    upstream = next((v for call in behind for v in reads(call) if v not in powers), None)
    needs = [teacher.hidden, teacher.weight, *([] if teacher.bias is None else [teacher.bias])]
    other = [f"{{v{teacher.hidden}}}", f"{{v{teacher.weight}}}.t()"]
    other += [] if teacher.bias is None else [f"teacher_bias={{v{teacher.bias}}}"]
    return Core(
        head=head,
        function="linear_kl_div",
        text=_given(head, *other, _temperature(found), 'reduction="sum"'),
        results={value: f"made.reshape({graph.specs[value].shape!r})"},
        upstream=upstream,
        shaped=".reshape(-1)[0]",
        needs=needs,
    )


def _temperature(found: HeadGraph) -> str:
    """Return what both heads' logits are divided by, as an argument. Raises NoFixedForm where that differs."""
    graph = found.graph
    divided = [call for n, call in found.of("div") if graph.specs[graph.first_output(n)].elements > 1]
    numbers = [plain(value) for call in divided if (value := call.given().get("other")) is not None]
    if len(numbers) != len(divided) or len(set(numbers)) > 1 or len(numbers) == 1:
        raise NoFixedForm("its heads' temperatures differ, or are no numbers")
    if not numbers:
        return ""
    if not isinstance(numbers[0], int | float):
        raise NoFixedForm("its heads' temperature is not recorded")
    return f"temperature={number_text(numbers[0])}"


FIX = Maker(loss_in_strips)
