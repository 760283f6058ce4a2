"""Recurrent cells called once a position, where the library has a call for the whole sequence."""

from __future__ import annotations

from typing import Final

from tracemine.columns import sorted_unique
from tracemine.findings.context import ScanContext
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import IntArray

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
