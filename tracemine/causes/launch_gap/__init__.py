"""Launch-bound steps: the GPU waits for the host to launch the next kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.columns import sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.gap_estimates import close, closed, of_gaps
from tracemine.findings.graphs import KINDS_OF_ANSWER
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import COMPILED_CALL_NS, TRAINED_CALL_NS, Abstained, Range
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray, category, flags, number
from tracemine.units import count_text

# Operators of one position, and the module that runs the whole sequence.
_LAYERS: Final = {
    "aten::gru_cell": "GRU",
    "aten::lstm_cell": "LSTM",
    "aten::rnn_tanh_cell": "RNN",
    "aten::rnn_relu_cell": "RNN",
}
_FEWEST_CALLS = 8  # of the cell, all steps together
# Of the forward pass's idle time: so little lies between two positions that none waits for another's output.
_SHARE = 0.8


def recurrent_cell(context: ScanContext, following: IntArray, idle_ns: IntArray) -> str | None:
    """Return the module whose cell most of the forward pass's gaps are of; None: no such cell, or more between.

    following: the activity that ends each gap; idle_ns: how long each gap is.
    """
    ops, facts = context.timeline.ops, context.facts["activities"]
    names, parent = categories(ops["name"]), rows_of(ops["parent_row"])
    is_cell = names.among(*_LAYERS)
    if int(is_cell.sum()) < _FEWEST_CALLS:
        return None
    forward = ~facts.backward[following] & (facts.optimizer.codes[following] < 0)
    cell = taken(outermost(nearest(parent, is_cell), parent), facts.op_row[following])
    spent, within = int(idle_ns[forward].sum()), forward & (cell >= 0)
    if not spent or int(idle_ns[within].sum()) < _SHARE * spent:
        return None
    called = {names.values[code] for code in names.codes[sorted_unique(cell[within])].tolist()}
    layers = {_LAYERS[name] for name in called}
    return layers.pop() if len(layers) == 1 else None


_MOST = 0.5  # of the step's launches, that a graph has to hold for what is called many times to count as one


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate fewer launches, or one for many.

    In training, and in a step that calls the model many times, that is of the model, and of what lies around it little.
    """
    following = number(context.rows["gaps"], "next_row")[matrix].reshape(-1)
    dur_ns = context.facts["gaps"].dur_ns
    most = dur_ns[matrix].reshape(-1)
    environment = context.environment
    if environment.derived_twice and not (environment.compiled or environment.replayed):
        return of_gaps(
            context, matrix, *closed(context, matrix, most, ((np.ones(len(most), np.bool_), "derived_twice"),))
        )
    if not context.training:
        at_once = 2 * int(most[context.alike[following]].sum()) > int(most.sum())
        if environment.compiled or environment.replayed or at_once:
            return close(context, rule, matrix)
        if not environment.repeated:
            return _held(context, rule, matrix, context.would_graph.held)
    of_model = _in_model(context)
    in_model = of_model[matrix].reshape(-1)
    by_library = recurrent_cell(context, following, most) is not None
    how, call_ns, what = _compiled_how(context, by_library=by_library)
    saved, told = closed(context, matrix, most, ((in_model, how),))
    if in_model.any() and not by_library and not environment.compiled:
        share = int(most[in_model].sum()) / max(int(dur_ns[of_model].sum()), 1)  # other gaps pay the rest
        saved, more = _without_calls(saved, call_ns, what, environment.model_calls, share)
        told += more
    others, more = closed(context, matrix, most, ((~in_model, None),))
    return of_gaps(context, matrix, saved + others, tuple(dict.fromkeys((*told, *more))))


def _held(context: ScanContext, rule: Rule, matrix: IntArray, held: float) -> ClassEstimate | Abstained:
    """Estimate gaps of a step of whose launches a graph can hold a share; the others close as fewer launches do."""
    if held == 1:
        return close(context, rule, matrix)
    most = context.facts["gaps"].dur_ns[matrix].reshape(-1)
    (graph, _), (fewer, told) = (
        closed(context, matrix, most, ((np.ones(len(most), np.bool_), how),)) for how in ("host_bound", "compiled")
    )
    low, mid = (round(held * getattr(graph, end) + (1 - held) * getattr(fewer, end)) for end in ("low", "mid"))
    note = f"a graph holds {held:.0%} of the step's launches as it is; other gaps close as far as fewer launches do"
    return of_gaps(context, matrix, Range(low, mid, max(graph.high, fewer.high)), (*told, note))


def _compiled_how(context: ScanContext, *, by_library: bool) -> tuple[str, Range, str]:
    """Return how gaps of a model close once it is compiled, what a call of it costs then, and of what call that is."""
    if not context.training:
        return "host_bound" if context.would_graph.held > _MOST else "compiled", COMPILED_CALL_NS, ""
    graph = context.would_graph
    of_part = graph.kind == "part" and graph.held > _MOST  # what is called several times, or stops around it, are known
    replayable = of_part or not (context.environment.repeated or context.environment.blockers)
    how = "in_training" if by_library or replayable else "compiled"
    return how, TRAINED_CALL_NS[how], " in training, forward and backward pass"


def _in_model(context: ScanContext) -> BoolArray:
    """Return which gaps wait for the host in the model, forward or backward; all where its end is not known."""
    facts, rows = context.facts["activities"], context.rows["gaps"]
    following = number(rows, "next_row")
    waiting: BoolArray = category(rows, "cause").among("host_bound") & ~flags(rows, "between_steps")
    if not (facts.module.codes >= 0).any():
        return waiting
    return waiting & (facts.backward[following] | (facts.module.codes[following] >= 0))


def _without_calls(saving: Range, each: Range, what: str, calls: int, share: float) -> tuple[Range, tuple[str, ...]]:
    """Return what is left of a saving once it has paid its share of each call of what is compiled; the assumption."""
    cost = {end: round(share * calls * getattr(each, end)) for end in ("mid", "high")}
    low, mid = max(saving.low - cost["high"], 0), max(saving.mid - cost["mid"], 0)
    left = Range(min(low, mid), mid, saving.high)
    note = (
        f"a compiled model costs the host {each.mid / 1e6:g} ms a call{what} "
        f"({each.low / 1e6:g}–{each.high / 1e6:g}, measured on one host), taken off for {count_text(calls, 'call')}"
    )
    return left, (note,)


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whose recurrent cell most of the gaps' time is of, and whether it is a loop's over independent parts."""
    if rule.saving != "launch_less":
        return {}
    gaps = np.concatenate([one.matrix.reshape(-1) for one in classes])
    following, idle_ns = number(context.rows["gaps"], "next_row")[gaps], context.facts["gaps"].dur_ns[gaps]
    # What another finding does at once is not to be done twice.
    independent = context.alike[following] & ~context.claimed["activities"][following]
    graph = context.would_graph
    return _optimizers(context, following, idle_ns) | {
        "graph": graph.kind,
        "graph_answer": graph.advice,
        "recurrent": recurrent_cell(context, following, idle_ns),
        "alike": 2 * int(idle_ns[independent].sum()) > int(idle_ns.sum()),
    }


def _optimizers(context: ScanContext, following: IntArray, idle_ns: IntArray) -> dict[str, Fact]:
    """Return that it is no optimizer's, where another finding has that one's step: its fix is not to be made twice."""
    stepping = context.facts["activities"].optimizer.codes[following] >= 0
    claimed = context.claimed["activities"][following]
    left_ns, all_ns = (int(idle_ns[rows].sum()) for rows in (stepping & ~claimed, stepping))
    return {"optimizer": None} if all_ns and 2 * left_ns < all_ns else {}


FACTS = AdviceFacts(
    docs={
        "alike": FactDoc(
            "most of it lies in a loop of eight rounds or more of the same operators, none of which needs another"
        ),
        "graph": FactDoc("what a CUDA graph of the step comes to", text=True, values=KINDS_OF_ANSWER),
        "graph_answer": FactDoc("the same in words, and what to write: `{graph_answer}` in the text is it", text=True),
        "recurrent": FactDoc(
            "of gaps: the module whose cell, called once a position, most of them are of",
            text=True,
            values=("GRU", "LSTM", "RNN"),
        ),
    },
    find=_facts,
)


CAUSE = Cause(rule="launch_gap", savings={"launch_less": estimate}, facts=FACTS, closed_by_graph=True)
