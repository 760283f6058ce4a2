"""Logits over a vocabulary that are written to memory for a loss alone, or for rows that nothing reads.

What is as wide as the logits (casts, softmax, gradients) leads on. A few numbers a row end it, and so do the products
that take the gradient. Where anything else reads what is as wide, or it is kept beyond its step, nothing is said.

Modelled, and held against one program (4,096 rows of 50,304 words on an H200, a quarter of them labelled: 4.25 ms, of
which 3.05 are saved by the labelled rows alone, and 2.17 by compiling the loss).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.calls import Call, calls_of
from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.flow import Evidence
from tracemine.flow.record import Flow
from tracemine.matching.rule import Rule
from tracemine.ops.dtypes import itemsize
from tracemine.ops.facts import base_name
from tracemine.perfmodel import Abstained, Curves, Estimate, Traffic
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import coded
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import Column, ColumnDoc, Columns, IntArray, Numbers, Rows, Sources, category, number

_LEAST_WORDS: Final = 8_192  # columns of the product
_LEAST_BYTES: Final = 64 << 20  # of the logits: fewer stay in the cache, and not writing them wins nothing
_FEW: Final = 64  # times fewer numbers than logits: some a row
_LAST: Final = 4  # times fewer bytes than there are, read: the other rows are computed for nothing
_MOST_NODES: Final = 64  # of one head
_HEADS: Final = frozenset({"aten::mm", "aten::addmm", "aten::linear"})
_WIDE: Final = frozenset({"pointwise", "copy", "softmax", "fill", "loss", "scatter", "gather"})
_ENDS: Final = frozenset({"reduction", "loss", "gather"})
_LOSSES: Final = frozenset({"nll_loss_forward", "nll_loss", "nll_loss2d_forward", "cross_entropy_loss"})
_EXPONENTIALS: Final = frozenset({"_log_softmax", "_softmax", "exp", "logsumexp"})
_CHOICES: Final = frozenset({"argmax"})  # of what is not trained they give the next words: no loss of given ones
_MAXIMA: Final = frozenset({"max", "amax"})
_RISES: Final = (frozenset({"relu", "clamp_min", "threshold"}), frozenset({"log1p", "log"}))
USES: Final = ("loss", "log probabilities", "divergence", "maximum", "last rows")
_LOSS, _LIKELIHOOD, _DIVERGENCE, _MAXIMUM, _LAST_ROWS = USES


class _Head(Struct, frozen=True):
    """Nodes of one head, the bytes of its logits, what they are for, and the share of them that is read for that."""

    nodes: frozenset[int]
    nbytes: int
    use: str | None
    percent: int
    evidence: int
    peak: int  # bytes of what is as wide, at once


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, use, nbytes, percent, evidence, peak = np.full((6, activities.count), -1)
    graph, flow = activities.graph, sources.flow
    if graph is not None and flow is not None:
        causes = category(activities, "call_cause")
        stated = causes.that(lambda cause: cause != "unknown")  # a slow product is another rule's
        for at, head in enumerate(_joined(_heads(_Reading(flow, graph)))):
            rows = np.concatenate([_rows(graph, node) for node in sorted(head.nodes)])
            if head.use is None:
                continue
            rows = rows if head.use in (_MAXIMUM, _LAST_ROWS) else rows[~stated[rows]]
            number[rows], use[rows], nbytes[rows] = at, USES.index(head.use), head.nbytes
            percent[rows], evidence[rows], peak[rows] = head.percent, head.evidence, head.peak
    known = number >= 0
    return {
        "logits": Numbers(np.maximum(number, 0), known),
        "logits_use": coded(USES, use),
        "logits_bytes": Numbers(np.maximum(nbytes, 0), known),
        "logits_peak_bytes": Numbers(np.maximum(peak, 0), known),
        "logits_read_percent": Numbers(np.maximum(percent, 0), known),
        "logits_evidence": coded([each.name.lower() for each in Evidence], evidence),
    }


def _rows(graph: NodeGraph, node: int) -> IntArray:
    return graph.activity[graph.activity_begin[node] : graph.activity_begin[node + 1]]


class _Reading:
    """What each node gives, and how much of what another gave it reads."""

    def __init__(self, flow: Flow, graph: NodeGraph) -> None:
        self.graph = graph
        self._calls, self._op_row, self._edges = calls_of(flow.timeline), flow.nodes.op_row, flow.edges
        tensors, entry = graph.tensors, graph.tensors.of["out"]
        sizes = np.where(tensors.shape < 0, 1, tensors.shape)
        known = tensors.rank[entry] >= 0
        self.numel: IntArray = np.where(known, sizes.prod(axis=1)[entry], -1)
        self.last: IntArray = np.where(known, sizes[:, -1][entry], -1)
        item = np.array([*(itemsize(name) or 0 for name in tensors.dtypes), 0])
        self.nbytes: IntArray = self.numel * item[tensors.dtype[entry]]

    def call(self, node: int) -> Call:
        return self._calls.at(int(self._op_row[node])) or Call("")

    def is_head(self, node: int) -> bool:
        return self.call(node).name in _HEADS and node not in self.graph.backward

    def kind(self, reader: int, node: int, head: int) -> tuple[str | None, int]:
        """Return what an operator is that takes something as wide as a head's logits, and the share of few rows."""
        op_class, size = self.call(reader).op_class, int(self.numel[head])
        own = (self._edges.consumer == reader) & (self._edges.producer == node)
        taken = int(self._edges.bytes[own].max(initial=0))
        if 0 < taken * _LAST <= self.nbytes[node]:
            return "few", taken * 100 // int(self.nbytes[node])
        if op_class == "gemm" and reader in self.graph.backward:
            return "product", 0
        if op_class in _WIDE and self.last[reader] == self.last[head] and size <= 2 * self.numel[reader] <= 2 * size:
            return "wide", 0
        return ("end" if op_class in _ENDS and 0 <= self.numel[reader] * _FEW <= size else None), 0

    def percent(self, node: int) -> int:
        """Return how much all readers together take of what a node gives; all where it may be kept."""
        taken, whole = int(self._edges.bytes[self._edges.producer == node].sum()), int(self.nbytes[node])
        return -(-taken * 100 // whole) if 0 < taken < whole and not self.graph.live_out[node] else 100

    def evidence(self, reader: int, node: int) -> int:
        at = int(np.searchsorted(self.graph.keys, reader * len(self.graph) + node))
        return int(self.graph.evidence[at]) if self.graph.usable[at] else Evidence.ADJACENT


def _heads(reading: _Reading) -> Iterator[_Head]:
    """Yield each head of which it is known where all of its logits go."""
    large = np.flatnonzero((reading.last >= _LEAST_WORDS) & (reading.nbytes >= _LEAST_BYTES))
    for node in large.tolist():
        found = _followed(reading, node) if reading.is_head(node) else None
        if found is not None:
            yield found


def _followed(reading: _Reading, head: int) -> _Head | None:
    graph, kinds, left = reading.graph, {head: "head"}, [head]
    percent, weakest = 1, int(Evidence.PROVEN)
    while left:
        node = left.pop()
        readers = graph.readers(node)
        if not readers or len(kinds) > _MOST_NODES:
            return None
        weakest = min(weakest, *(reading.evidence(reader, node) for reader in readers))
        for reader in {*readers}.difference(kinds):
            kind, share = reading.kind(reader, node, head)
            if kind is None:
                return None
            kinds[reader], percent = kind, max(percent, share)
            left += [reader] if kind == "wide" else []
    weakest = _kept(graph, kinds, weakest)
    if weakest < 0:
        return None
    nodes = _fed(reading, frozenset(node for node, kind in kinds.items() if kind != "few"), head)
    use = _use(reading, kinds)
    if use == _LIKELIHOOD:
        percent = max(reading.percent(node) for node in kinds if base_name(reading.call(node).name) == "gather")
    return _Head(nodes, int(reading.nbytes[head]), use, percent, weakest, _peak(reading, nodes, head))


def _kept(graph: NodeGraph, kinds: dict[int, str], evidence: int) -> int:
    """Return how sure it is that nothing else reads what is wide; −1 where something may.

    What is trained has its gradient from here, whoever keeps the logits as well.
    """
    kept = [node for node, kind in kinds.items() if kind in ("head", "wide") and graph.live_out[node]]
    if any(node in graph.backward for node in kept) or (
        kept and graph.lifetimes_known and "product" not in kinds.values()
    ):
        return -1
    return min(evidence, Evidence.CONSISTENT) if kept or not graph.lifetimes_known else evidence


def _use(reading: _Reading, kinds: dict[int, str]) -> str | None:
    """Return what logits are for: few rows, or a loss; "" for probabilities that may be compared with another head's.

    None where words are chosen, too.
    """
    names = {base_name(reading.call(node).name) for node, kind in kinds.items() if kind != "few"}
    if "few" in kinds.values():
        return _LAST_ROWS if {"head", "wide", "few"}.issuperset(kinds.values()) else None
    if names & _LOSSES:
        return _LOSS
    if names & _MAXIMA and all(names & each for each in _RISES):
        return _MAXIMUM
    trained = "product" in kinds.values()
    if names & _EXPONENTIALS and (trained or not names & _CHOICES):
        return _LIKELIHOOD if "gather" in names else _DIVERGENCE if trained else ""
    return None


def _fed(reading: _Reading, nodes: frozenset[int], head: int) -> frozenset[int]:
    """Return nodes with what only they read, and is as wide: zeros for a gradient, and the gradient put into them."""
    graph = reading.graph
    while True:
        before = {int(node) for node in graph.producer[np.isin(graph.consumer, [*nodes])]} - nodes
        own = {
            node for node in before if nodes.issuperset(graph.readers(node)) and _makes_gradient(reading, node, head)
        }
        if not own or len(nodes) > _MOST_NODES:
            return nodes
        nodes |= own


def _makes_gradient(reading: _Reading, node: int, head: int) -> bool:
    op_class = reading.call(node).op_class
    as_wide = reading.last[node] == reading.last[head] and reading.numel[node] == reading.numel[head]
    return op_class == "fill" or bool(op_class in _WIDE and as_wide and node in reading.graph.backward)


def _peak(reading: _Reading, nodes: frozenset[int], head: int) -> int:
    """Return bytes of what is as wide as logits when most of it is needed: from what makes it to its last reader."""
    wide = [node for node in sorted(nodes) if reading.last[node] == reading.last[head]]
    spans = [(node, max(reading.graph.readers(node), default=node), int(reading.nbytes[node])) for node in wide]
    return max(sum(nbytes for first, last, nbytes in spans if first <= at <= last) for at in wide)


def _joined(heads: Iterable[_Head]) -> list[_Head]:
    """Return heads, those whose logits are compared with each other as one."""
    found = list[_Head]()
    for head in heads:
        same = [each for each in found if each.nodes & head.nodes]
        for each in same:
            found.remove(each)
            use = None if {each.use, head.use} & {_LAST_ROWS, _MAXIMUM, None} else _DIVERGENCE
            evidence = min(each.evidence, head.evidence)
            head = replace(
                head,
                nodes=each.nodes | head.nodes,
                nbytes=each.nbytes + head.nbytes,
                use=use,
                evidence=evidence,
                peak=each.peak + head.peak,
            )
        found.append(head)
    return [replace(each, use=each.use or None) for each in found]


COLUMNS = Columns(
    docs=(
        ColumnDoc("logits", "numbers", "which logits it makes or works on: equal for a product of 8,192 columns or more whose result takes 64 MiB or more, all that is computed of it at that width, the products that take its gradient, and what ends it. Products that another rule may ask for (`call_cause`) are left out, unless few rows are read", "no such product, anything else reads what is as wide, or dataflow is not known", "logits_evidence"),
        ColumnDoc("logits_use", "categories", "what these logits are for: `loss` (cross-entropy with labels), `log probabilities` (of some words), `divergence` (a loss that compares two heads, or sums over all words), `maximum` (the largest of a logarithm of what is positive of them, over tokens), `last rows` (all that is read is a quarter of them or less)", "in no such logits"),
        ColumnDoc("logits_bytes", "numbers", "bytes of these logits, as the product writes them", "in no such logits"),
        ColumnDoc("logits_peak_bytes", "numbers", "bytes of these logits and of what is as wide, when most of it is needed at once", "in no such logits"),
        ColumnDoc("logits_read_percent", "numbers", "of `last rows` and `log probabilities`, how many of the logits, or of what is picked of them, are read at most", "in no such logits"),
        ColumnDoc("logits_evidence", "categories", "how sure it is where these logits go: `proven`, `consistent`, `adjacent`", "in no such logits"),
    ),
    derive=_columns,
)  # fmt: skip

_LABELLED: Final = 0.25  # of the rows, at the low end: prompts and padding have no label
# Of moving a strip's bytes at the device's rate. Measured on an H200: 1.7 and 1.2; of 128,256 words 2.5
# and 3.8, as the weight's gradient is added up in float32; of maxima over tokens 2.0 with gradients, 2.6 without.
_PASSES: Final = (1.0, 1.6, 3.0)
_PRODUCTS: Final = (1.0, 1.0, 1.1)  # of the products' time: gradients of the weight are added up strip by strip
_STRIP_BYTES: Final = 1 << 28
_OF_ROWS: Final = "; which rows have a label is not recorded: middle: all; low end: a quarter of the rows has a label"
_FEW_PERCENT: Final = 25  # of log probabilities: of more the middle has strips of all rows
_MORE: Final = 1.5  # of fewer rows' time, at the high end


class Work(Struct, frozen=True, kw_only=True):
    """What logits cost now: of products and of all else, nanoseconds; and what the fix must move, bytes."""

    products_ns: float
    others_ns: float
    nbytes: int
    trained: bool
    labelled: bool  # rows have a label or none
    weight_bytes: int = 0
    read_percent: int = 100
    peak_bytes: int = 0  # of logits and what is as wide, at once; 0: not known


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate logits that are not written."""
    rows, facts, members = context.rows["activities"], context.facts["activities"], matrix[0]
    mean_ns = facts.dur_ns[matrix].mean(axis=0)
    product = number(rows, "call")[members] > 0
    use = text_at(category(rows, "logits_use"), int(members[0]))
    nbytes = int(number(rows, "logits_bytes")[members[0]])
    work = Work(
        products_ns=float(mean_ns[product].sum()),
        others_ns=float(mean_ns[~product].sum()),
        nbytes=nbytes,
        trained=bool(facts.backward[members].any()),
        labelled=use in USES[:2],
        weight_bytes=max(int(number(rows, "call_bytes")[members].max(initial=0)) - nbytes, 0),
        read_percent=int(number(rows, "logits_read_percent")[members[0]]),
        peak_bytes=int(number(rows, "logits_peak_bytes")[members[0]]),
    )
    if context.curves is None:
        return Abstained("device_unknown")
    few = use == USES[-1] or (work.read_percent <= _FEW_PERCENT and use == USES[1] and not work.trained)
    found = fewer_rows(work, context.curves) if few else in_strips(work, context.curves)
    evidence = text_at(category(rows, "logits_evidence"), int(members[0])) or "adjacent"
    return on_gpu(context, matrix, found, Evidence[evidence.upper()])


def in_strips(work: Work, curves: Curves) -> Estimate:
    """Estimate head and loss in strips of rows: logits written once, read once, in training again with a gradient."""
    moved = (2 * work.nbytes, work.nbytes) if work.trained else (work.nbytes, 0)
    once_ns = curves.memory_ns(*moved, 0.0)
    low, mid, high = (a * work.products_ns + b * once_ns for a, b in zip(_PRODUCTS, _PASSES, strict=True))
    rows = _OF_ROWS if work.labelled else ""
    return Estimate(
        after_ns=outwards(low * (_LABELLED if work.labelled else 1.0), mid, high),
        traffic_bytes=Traffic(before=max(sum(moved), 6 * work.nbytes), after=sum(moved)),
        assumptions=(
            "modelled: the products take as long, and one kernel goes once over each strip of logits, with its "
            f"gradient where there is one{rows}",
            *_memory(work),
        ),
    )


def _memory(work: Work) -> tuple[str, ...]:
    """Return what is said of memory: what goes away at its peak, but for one strip."""
    if work.peak_bytes < 2 * _STRIP_BYTES:
        return ()
    return (f"about {(work.peak_bytes - _STRIP_BYTES) / 1e9:.1f} GB less is needed at once: a strip of logits is kept",)


def fewer_rows(work: Work, curves: Curves) -> Estimate:
    """Estimate a head of the rows alone that are read: the weight is read all the same."""
    share = work.read_percent / 100
    weight_ns = curves.memory_ns(work.weight_bytes, 0, 0.0)
    product = min(max(share * work.products_ns, weight_ns), work.products_ns)
    low, mid = product + share * work.others_ns, product + share * work.others_ns + curves.floor_ns[0]
    return Estimate(
        after_ns=outwards(low, mid, _MORE * mid),
        assumptions=(f"modelled: {work.read_percent}% of the logits are read, and the weight once",),
    )


_FACTS = column_fact("logits_for", "what logits are for", "logits_use", USES)
CAUSE = Cause(rule="logits_written", columns=COLUMNS, estimate=estimate, facts=_FACTS, fix_at=f"{__name__}.fix:FIX")
