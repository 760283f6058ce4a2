"""Step-invariant work with consumers that vary: it could be done once, before the steps.

What rests on constants alone is known from the dataflow. An input that lies in the same memory in each recorded step
looks like a parameter. So what rests on tensors from outside counts where it is used as a weight: an argument of that
name, or a product's second factor that is unpacked from narrow integers. Else it counts only where each step was
given inputs of its own, and where it is no input of a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tracemine.causes.loop_invariant.given import inputs_change
from tracemine.causes.loop_invariant.pieces import before_others, done_again, joined, without_fused
from tracemine.causes.loop_invariant.unpacked import unpacked
from tracemine.columns import numbers, sorted_unique, string_ids
from tracemine.flow.record import Evidence, Flow, Source
from tracemine.flow.value_numbers import Repeated, may_repeat, repeated, untouched
from tracemine.fusion.barriers import unowned
from tracemine.fusion.record import Groups
from tracemine.ops import lookup
from tracemine.ops.facts import base_name
from tracemine.rows.ancestors import engine_of, nearest, taken
from tracemine.rows.arrow import coded, rows_of
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, FloatArray, IntArray, Numbers, Rows, Sources

# What a value rests on: tensors from outside; some of them inputs, or labels of such; narrow integers that are
# computed with, and floating ones: a packed weight and its scales; what was looked up, for which numbers say where.
_OUTSIDE, _INPUT, _NARROW, _FLOATING, _LOOKED_UP = 1, 2, 4, 8, 16
_DEQUANTISED: Final = _NARROW | _FLOATING
_LAYERS: Final = frozenset({"conv", "norm", "embedding"})  # that have weights: what attention calls bias is a mask
_AS_WEIGHTS: Final = frozenset({"weight", "bias", "running_mean", "running_var"})  # arguments of operators
# What a product takes within `linear`: its input, and its weight and bias.
_LINEAR: Final = {"mm": ((0,), (1,)), "addmm": ((1,), (0, 2)), "_addmm_activation": ((1,), (0, 2))}
# The second factor of a product, which a dequantised weight is wherever it is called.
_SECOND: Final = {"mm": 1, "bmm": 1, "addmm": 2, "baddbmm": 2, "_addmm_activation": 2}
_Places = tuple[tuple[int, ...], tuple[int, ...]]  # positions of arguments: the input, weights
_NO_PLACES: Final[_Places] = ((), ())
_MOST_ARGUMENTS = 16
_SMALL_NS = 4_000  # not much longer than a launch
_MASKS: Final = frozenset(
    ("triu", "tril", "lt", "le", "gt", "ge", "eq", "ne", "logical_not", "logical_and", "logical_or", "bitwise_not")
) | {"bitwise_and", "bitwise_or", "masked_fill", "where", "isinf"}  # fmt: skip
_MASK_AT: Final = {"masked_fill": 1, "where": 0}  # the argument that is a mask
_MASK_AT_LEAST = 3  # of attention, behind queries, keys and values
_SPREADS: Final = frozenset({"var", "var_mean", "std", "std_mean", "native_batch_norm", "cudnn_batch_norm"})
_LENGTHS: Final = frozenset({"linalg_vector_norm", "norm", "norm_except_dim", "_weight_norm", "_weight_norm_interface"})
_CASTS: Final = frozenset({"copy", "_to_copy", "to"})
_TURNS: Final = frozenset({"sin", "cos"})
_PACKED: Final = frozenset(
    {"signed char", "unsigned char", "short int", "int", "c10::Float8_e4m3fn", "c10::Float8_e5m2"}
)
_FLOATS: Final = frozenset({"float", "double", "c10::Half", "c10::BFloat16"})
KINDS: Final = (
    "standardised weight",
    "normalised weight",
    "dequantised weight",
    "converted weight",
    "weight",
    "sine table",
    "mask",
    "constant",
    "repeated",
)


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    piece, kind, evidence = np.full((3, activities.count), -1)
    if sources.flow is not None and len(sources.flow.nodes):
        found = _pieces(sources.flow, activities, sources.groups)
        piece, kind, evidence = (taken(each, sources.flow.activity_node) for each in found)
    if not sources.timeline.tensors.num_rows:
        piece = unpacked(sources.timeline, activities)
        kind = np.where(piece >= 0, KINDS.index("dequantised weight"), -1)
        evidence = np.where(piece >= 0, Evidence.CONSISTENT, -1)
    return {
        "invariant": Numbers(np.maximum(piece, 0), piece >= 0),
        "invariant_kind": coded(KINDS, kind),
        "invariant_evidence": coded([each.name.lower() for each in Evidence], evidence),
    }


def _pieces(flow: Flow, activities: Rows, groups: Groups | None) -> tuple[IntArray, IntArray, IntArray]:
    """Return the piece of work that each node is part of, −1: none; what that gives, and how sure it is."""
    silent = _silent(flow)
    known = may_repeat(flow, silent)
    if known is None:
        return _no_pieces(flow)
    operators = _Operators(flow)
    marks = _marks(flow, operators)
    found = repeated(flow, marks, known, operators.of_engine, beside=_LOOKED_UP)
    layers = flow.edges.consumer[_dequantised(flow, found, operators)]
    if len(layers):  # what such a product gives is no weight, whatever it is given
        marks[layers] |= _INPUT
        found = repeated(flow, marks, known, operators.of_engine, beside=_LOOKED_UP)
    keeps = untouched(flow, found.known & (found.marks & _INPUT == 0), silent)
    wanted, weights = _wanted(flow, found, keeps, operators)
    repeats = done_again(flow, known, silent, operators.of_engine)
    if not (wanted | weights | repeats).any():
        return _no_pieces(flow)
    spent = _spent(flow, activities, found)
    kept = without_fused(flow, before_others(flow, wanted | weights, keeps), spent, groups)
    piece = joined(flow, kept)
    kind = _kinds(flow, operators, weights, kept, piece)
    kept = kept & ~_only_filled(operators, found, kind, piece, spent)
    piece, kind = np.where(kept, piece, -1), np.where(kept, kind, -1)
    repeats = without_fused(flow, repeats & ~kept, spent, groups)
    more = joined(flow, repeats)
    repeats &= np.isin(more, more[~operators.of_class("fill", "copy") | (spent > _SMALL_NS)])
    piece, kind = np.where(repeats, more, piece), np.where(repeats, KINDS.index("repeated"), kind)
    kept |= repeats
    guessed = found.assumed | (wanted & (found.marks & _OUTSIDE != 0))
    sure = np.where(guessed, np.minimum(found.evidence, Evidence.CONSISTENT), found.evidence)
    weakest = np.full(len(piece) + 1, Evidence.PROVEN)
    np.minimum.at(weakest, piece, sure)
    return piece, kind, np.where(kept, weakest[piece], -1)


def _no_pieces(flow: Flow) -> tuple[IntArray, IntArray, IntArray]:
    none = np.full(len(flow.nodes), -1)
    return none, none, none


class _Operators:
    """Operator of each node, and which of its reads are a weight, a mask, or what the weights work on."""

    def __init__(self, flow: Flow) -> None:
        ops, rows = flow.timeline.ops, flow.nodes.op_row
        name, texts = string_ids(ops.column("name"))
        parent = rows_of(ops.column("parent_row"))
        self.name = name[rows]
        self.operation = tuple(base_name(text) for text in texts)
        self.op_class = tuple("" if (known := lookup(text)) is None else known.op_class for text in texts)
        self.of_engine = engine_of(flow.timeline)[rows] >= 0
        self.of_linear = nearest(parent, _flags(text == "aten::linear" for text in texts)[name])[rows] >= 0
        position = numbers(flow.timeline.tensors.column("position"), -1)[flow.reads.tensor_row]
        position = np.where((position >= 0) & (position < _MOST_ARGUMENTS), position, _MOST_ARGUMENTS)
        reader = flow.reads.node
        at = np.array([*(_MASK_AT.get(each, _MOST_ARGUMENTS + 1) for each in self.operation), -1])[self.name[reader]]
        self.mask = (position == at) | (self.of_class("attention")[reader] & (position >= _MASK_AT_LEAST))
        second = np.array([*(_SECOND.get(each, _MOST_ARGUMENTS + 1) for each in self.operation), -1])[self.name[reader]]
        self.second = position == second
        plain = _table([_places(text) for text in texts])
        linear = _table([_LINEAR.get(each, _NO_PLACES) for each in self.operation])
        self.input, self.weight = (
            np.where(self.of_linear[reader], *(table[which, self.name[reader], position] for table in (linear, plain)))
            for which in (0, 1)
        )

    def among(self, operations: frozenset[str]) -> BoolArray:
        """Return nodes whose operation is one of these."""
        return _flags(each in operations for each in self.operation)[self.name]

    def of_class(self, *classes: str) -> BoolArray:
        """Return nodes of one of these classes."""
        return _flags(each in classes for each in self.op_class)[self.name]


def _flags(flags: Iterable[bool]) -> BoolArray:
    """Return one flag a text, and one more for none, −1."""
    return np.array([*flags, False], np.bool_)


def _places(operator: str) -> _Places:
    """Return which arguments of an operator are the input to its weights, and which are weights and biases."""
    known = lookup(operator)
    if known is None or known.op_class not in _LAYERS or "backward" in operator:
        return _NO_PLACES
    named = [(at, each.name) for overload in known.overloads for at, each in enumerate(overload.arguments)]
    weights = tuple({at for at, name in named if name in _AS_WEIGHTS})
    if known.op_class == "conv":
        return (0,), weights
    return tuple({at for at, name in named if name == "indices"}) if weights else (), weights


def _table(places: Sequence[_Places]) -> BoolArray:
    """Return [input or weight, operator, position]; the last operator and the last position are none."""
    found = np.zeros((2, len(places) + 1, _MOST_ARGUMENTS + 1), np.bool_)
    for row, sides in enumerate(places):
        for which, positions in enumerate(sides):
            found[which, row, [at for at in positions if at < _MOST_ARGUMENTS]] = True
    return found


def _silent(flow: Flow) -> IntArray:
    """Count, before each node, what ran of which it is not known what it writes."""
    launched = np.zeros(len(flow.nodes) + 1, np.int64)
    launched[unowned(flow.timeline, flow)] = 1
    unknown = np.cumsum(np.append(False, ~flow.nodes.known)[:-1])
    return unknown + np.cumsum(launched)[:-1]


def _marks(flow: Flow, operators: _Operators) -> IntArray:
    """Return what each node itself takes from outside.

    An input, as far as that is known: what a convolution, `linear` or an embedding is given to work on, and whole
    numbers of 64 bits (ids, places, masks) but for those that only say where to read. What a layer gives is no weight.
    """
    reads, table = flow.reads, flow.timeline.tensors
    outside = reads.source == Source.OUTSIDE
    kind, kinds = string_ids(table.column("dtype"))
    ids = _flags(name == "long int" for name in kinds)[kind[reads.tensor_row]]
    ids &= ~operators.of_class("gather")[reads.node]
    inputs = np.isin(reads.buffer, reads.buffer[outside & operators.input]) | ids
    found = np.zeros(len(flow.nodes), np.int64)
    found[reads.node[outside]] |= _OUTSIDE
    narrow = _flags(name in _PACKED for name in kinds)[kind[reads.tensor_row]]
    floating = _flags(name in _FLOATS for name in kinds)[kind[reads.tensor_row]]
    for flags, mark in ((narrow, _NARROW), (floating, _FLOATING)):
        found[sorted_unique(reads.node[outside & flags])] |= mark
    found[reads.node[outside & inputs]] |= _INPUT
    found[operators.of_class("gather", "embedding")] |= _LOOKED_UP
    found[operators.of_class("conv") | (operators.of_linear & operators.of_class("gemm"))] |= _INPUT
    return found


def _wanted(flow: Flow, found: Repeated, keeps: BoolArray, operators: _Operators) -> tuple[BoolArray, BoolArray]:
    """Return nodes that could be kept and that varying nodes read; and apart, those read as a weight."""
    edges, step = flow.edges, flow.nodes.step_row
    producer, consumer = edges.producer, edges.consumer
    used = keeps[producer] & ~keeps[consumer] & ~operators.of_engine[consumer] & (step[producer] == step[consumer])
    marks = _of_whole(flow, found.marks)[producer]
    outside = (marks & _OUTSIDE != 0) & _parameters_settled(flow, operators.of_engine)
    weight = used & outside & (operators.weight[edges.read] | _dequantised(flow, found, operators))
    other = used & outside & ~operators.input[edges.read] & inputs_change(flow)
    wanted, weights = np.zeros((2, len(keeps)), np.bool_)
    wanted[producer[other | (used & (marks & _OUTSIDE == 0))]] = True
    weights[producer[weight]] = True
    return wanted & ~weights, weights


def _of_whole(flow: Flow, marks: IntArray) -> IntArray:
    """Return marks, with what a tensor rests on that is written by several nodes: zeros may be filled from outside."""
    writes, found = flow.writes, marks.copy()
    outside = np.zeros(int(writes.buffer.max(initial=-1)) + 1, np.bool_)
    outside[writes.buffer[marks[writes.node] & _OUTSIDE != 0]] = True
    found[writes.node[outside[writes.buffer]]] |= _OUTSIDE
    return found


def _dequantised(flow: Flow, found: Repeated, operators: _Operators) -> BoolArray:
    """Return edges over which a product reads its second factor, unpacked from narrow integers by scales."""
    unpacked = found.marks[flow.edges.producer] & (_DEQUANTISED | _LOOKED_UP) == _DEQUANTISED
    made: BoolArray = unpacked & operators.second[flow.edges.read] & found.known[flow.edges.producer]
    return made


def _parameters_settled(flow: Flow, of_engine: BoolArray) -> bool:
    """Return whether what is not written is not trained either: there is no backward pass, or every step writes what is
    trained. Where gradients are only gathered, parameters change after the recording.
    """
    reads, writes, step = flow.reads, flow.writes, flow.nodes.step_row
    if not of_engine.any():
        return True
    updated = ~writes.made & np.isin(writes.buffer, reads.buffer[reads.source == Source.OUTSIDE])
    steps = sorted_unique(step[step >= 0])
    return bool(np.isin(steps, step[writes.node[updated]]).all())


def _spent(flow: Flow, activities: Rows, found: Repeated) -> FloatArray:
    """Return how long all took that each node launched, ns; where it is the same in every step, the fastest."""
    dur = activities.columns["dur_ns"]
    assert isinstance(dur, Numbers)  # noqa: S101 - the row set's documented kind
    owned = flow.activity_node >= 0
    spent = np.bincount(flow.activity_node[owned], dur.values[owned].astype(np.float64), len(flow.nodes))
    fastest = np.full(int(found.value.max(initial=-1)) + 2, np.inf)
    np.minimum.at(fastest, found.value, np.where(found.known, spent, np.inf))
    return np.where(found.known, fastest[found.value], spent)


def _only_filled(
    operators: _Operators, found: Repeated, kind: IntArray, piece: IntArray, spent: FloatArray
) -> BoolArray:
    """Return small constants that are only filled or copied: keeping one saves a launch at most."""
    computed = ~operators.of_class("fill", "copy") | (found.marks & _OUTSIDE != 0) | (spent > _SMALL_NS)
    filled: BoolArray = (kind == KINDS.index("constant")) & ~np.isin(piece, piece[computed])
    return filled


def _kinds(flow: Flow, operators: _Operators, weights: BoolArray, kept: BoolArray, piece: IntArray) -> IntArray:
    """Return what each node's piece gives: position in KINDS, −1: in none. `weights` are used as such."""
    reads, edges = flow.reads, flow.edges
    kind, kinds = string_ids(flow.timeline.tensors.column("dtype"))
    packed = np.zeros(len(kept), np.bool_)
    packed[reads.node[_flags(name in _PACKED for name in kinds)[kind[reads.tensor_row]]]] = True
    masks = operators.among(_MASKS)
    behind = kept[edges.producer] & ~kept[edges.consumer]
    masks[edges.producer[behind & operators.mask[edges.read]]] = True

    def in_piece(nodes: BoolArray) -> BoolArray:
        return np.isin(piece, piece[nodes & kept])

    weight = in_piece(weights)
    told = (
        weight & in_piece(operators.among(_SPREADS)),
        weight & in_piece(operators.among(_LENGTHS)),
        in_piece(packed),
        weight & ~in_piece(~operators.among(_CASTS)),
        weight,
        in_piece(operators.among(_TURNS)),
        in_piece(masks),
        kept,
    )
    return np.where(kept, np.select(told, range(len(told)), -1), -1)


_NONE: Final = "in none, fewer than two steps were recorded, or dataflow is not known"
COLUMNS = Columns(
    docs=(
        ColumnDoc("invariant", "numbers", "which piece of work it is part of that gives the same in every recorded step, and that something reads which does not: equal where one result goes into the next. It rests on constants alone, or on tensors that nothing writes and is used as a weight (of a convolution, `linear`, a norm, an embedding); or it gives what was computed before in its step, four times or more, of the same", _NONE, evidence="invariant_evidence"),
        ColumnDoc("invariant_kind", "categories", "what that work gives, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
        ColumnDoc("invariant_evidence", "categories", "how sure that is: `proven`; `consistent`: some of the dataflow is, or a number that was not recorded is taken to be the same", _NONE),
    ),
    derive=_columns,
)  # fmt: skip
