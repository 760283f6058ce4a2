"""Losses that torch.compile is known for, where a trace has them and a finding's fix is torch.compile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tracemine.calls import calls_of
from tracemine.columns import sorted_unique
from tracemine.findings.environment import library_of
from tracemine.findings.labels import sources
from tracemine.findings.payback import COMPILE
from tracemine.findings.record import Finding
from tracemine.flow import Flow
from tracemine.flow.record import Source
from tracemine.rows.arrow import categories, is_named, rows_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline
from tracemine.units import count_text

LOSES = "torch.compile may slow down"
_JOINS = frozenset({"aten::stack", "aten::cat", "aten::concat", "aten::concatenate", "aten::hstack", "aten::vstack"})
_MANY = 16  # tensors that are joined
_ATTENTION, _CAUSAL = "aten::scaled_dot_product_attention", 5  # the position of is_causal
_MOST_STACKS = 64
# Measured with torch 2.11 on H200s: benchmarks/results/inductor_h200.md.
_OF_JOINS = (
    "write into one tensor that was made before, or leave the join out of what is compiled. torch.compile has made "
    "such joins slower (2.7 to 27 µs, another to 308 µs; torch 2.11, H200)."
)
_OF_CAUSAL = (
    "compiled, that library has made a mask of it, which another kernel takes (271 to 671 µs; torch 2.11, H200): look "
    "at the attention kernels before and after, and pass no padding mask."
)


def compile_losses(timeline: Timeline, flow: Flow, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return a sentence for each loss; none where no reported finding is to be fixed by torch.compile."""
    if not any(finding.reported and COMPILE in finding.fix for finding in findings):
        return ()
    return (*_joins(flow), *_causal(timeline))


def _joins(flow: Flow) -> Iterator[str]:
    """Count joins of many tensors that kernels made just before."""
    reads, nodes = flow.reads, flow.nodes
    if not len(nodes):
        return
    computed = np.bincount(reads.node[reads.source == Source.WRITTEN], minlength=len(nodes))
    names = categories(flow.timeline.ops["name"])
    join = np.array([*(name in _JOINS for name in names.values), False], np.bool_)[names.codes][nodes.op_row]
    found = np.flatnonzero(join & (computed >= _MANY))
    if not len(found):
        return
    most = found[computed[found].argmax()]
    name = names.values[names.codes[nodes.op_row[most]]].removeprefix("aten::")
    times = "" if len(found) == 1 else f" ({count_text(len(found), 'such call')})"
    yield f"{LOSES} a `{name}` of {int(computed[most])} computed tensors{times}: {_OF_JOINS}"


def _causal(timeline: Timeline) -> Iterator[str]:
    """Yield attention that a library calls as causal, which decides that while it runs."""
    attention = np.flatnonzero(is_named(categories(timeline.ops["name"]), _ATTENTION)[:-1])
    causal = calls_of(timeline).spread(attention, lambda call: call.value(_CAUSAL) == "True", False, np.bool_)
    called = attention[causal]
    library = next(filter(None, (_library(timeline, row) for row in _stacks(timeline, called))), None)
    if library is not None:
        times = count_text(len(called), "time")
        yield f"{library} calls `scaled_dot_product_attention` with is_causal ({times}), and {_OF_CAUSAL}"


def _stacks(timeline: Timeline, op_row: IntArray) -> list[int]:
    rows = sorted_unique(rows_of(timeline.ops["stack_row"])[op_row])
    found: list[int] = rows[rows >= 0][:_MOST_STACKS].tolist()
    return found


def _library(timeline: Timeline, stack_row: int) -> str | None:
    return library_of(source.file for source in sources(timeline, stack_row))
