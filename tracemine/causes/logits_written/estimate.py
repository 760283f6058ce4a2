"""Head and loss together, in strips of rows, or a head of the rows that are read: what that saves.

Modelled, and held against one program (4,096 rows of 50,304 words on an H200, a quarter of them labelled: 4.25 ms, of
which 3.05 are saved by the labelled rows alone, and 2.17 by compiling the loss).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tracemine.causes.logits_written.columns import USES
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.flow import Evidence
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate, Traffic
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, category, number

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
