"""Scope of a recording, and what its operators took: what a comparison of two traces must know.

The kernels of a step by class, and what compilers fused into them: PyTorch, torch.compile and XLA compared in one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from tracemine.columns import numbers, string_ids
from tracemine.findings.accounting import Accounts
from tracemine.findings.context import ScanContext
from tracemine.findings.facts import Facts
from tracemine.findings.parts import OTHER, PARTS
from tracemine.findings.record import Recorded, Spent
from tracemine.findings.recorder import slowdown_of
from tracemine.findings.summary import WorkOfClass
from tracemine.ops import lookup
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray, category
from tracemine.timeline import PRODUCERS, Timeline
from tracemine.version import __version__

_MOST_NAMES = 1_000  # of operators, those that take most; programs have some hundreds
_NAME_LIMIT = 512  # characters, as of a finding's kernels
_PART_OF: Final = {op_class: part for part, classes in PARTS.items() for op_class in classes}
_GENERATED: Final = deferred(r"^triton_[a-z]{3}_fused_(?P<operators>\w+?)(_\d+)?$")  # as Inductor names its kernels
_OF_TORCH: Final = deferred(r"\baten::|\bat::|ProfilerStep")
_LONGEST: Final = 5  # words of an operator's name
# What moves no number through arithmetic, or only shapes it; and what Inductor writes of operators that do not.
_NO_ARITHMETIC: Final = frozenset(
    [
        *("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "broadcast", "reshape", "copy", "convert"),
        *("iota", "slice", "pad", "transpose", "concatenate", "_to_copy", "view", "_unsafe_view", "unsqueeze"),
        *("expand", "clone", "t", "split", "split_with_sizes", "permute", "squeeze", "select", "cat", "stack"),
        *("as_strided", "copy_", "constant_pad_nd", "scalar_tensor", "full", "unbind"),
    ]
)
# Operators that Inductor makes of others, and ATen does not have.
_OF_INDUCTOR: Final = frozenset({"prepare_softmax_online", "inductor_seeds", "inductor_lookup_seed", "inductor_random"})
_MOST_NAMED: Final = 6


def recorded(timeline: Timeline, accounts: Accounts) -> Recorded:
    """Return what the recording has of each thing that a finding may depend on."""
    ops, meta = timeline.ops, timeline.meta
    owned = rows_of(timeline.activities["op_row"]) >= 0
    return Recorded(
        tracemine=__version__,
        torch=meta.versions.get("torch"),
        world_size=meta.world_size,
        devices=accounts.devices,
        shapes=ops["input_shapes"].null_count < ops.num_rows,
        stacks=timeline.stacks.num_rows > 0 or ops["module"].null_count < ops.num_rows,
        traced=ops["record_function_id"].null_count < ops.num_rows,
        tensors=meta.execution_trace is not None,
        operators=round(int(accounts.dur_ns[owned].sum()) / max(accounts.gpu_time_ns, 1), 4),
        cut_off=meta.ingest.truncated,
        doubts=meta.ingest.doubts,
        idle="measured" if timeline.light.num_rows else "recorded" if slowdown_of(timeline) is None else "estimated",
        unusable=meta.ingest.unusable,
    )


def spent(context: ScanContext) -> Spent:
    """Return the GPU time of each operator, and the idle time spent waiting for it: a step, or over the trace."""
    accounts, gaps = context.accounts, context.facts["gaps"]
    steps, kept = accounts.steps, accounts.in_step
    if not steps:
        kept = np.ones_like(kept)
    in_steps_ns = context.in_steps_ns
    return Spent(
        gpu_ns=_by_operator(context.facts["activities"], accounts.dur_ns, kept, max(steps, 1)),
        idle_ns=_by_operator(gaps, in_steps_ns, in_steps_ns > 0, max(steps, 1)),
        made_by=made_by(context),
        work=work_of(context),
    )


def _by_operator(facts: Facts, dur_ns: IntArray, kept: BoolArray, steps: int) -> dict[str, int]:
    """Return nanoseconds by name, most first, of equal ones by name; those without a name under ""."""
    names = [*facts.op.values, ""]
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, facts.op.codes[kept], dur_ns[kept])  # code −1: the last
    most = sorted(np.flatnonzero(sums > 0).tolist(), key=lambda code: (-int(sums[code]), names[code]))
    spent_ns: dict[str, int] = {}
    for code in most[:_MOST_NAMES]:
        if (ns := int(sums[code]) // steps) > 0:
            name = names[code][:_NAME_LIMIT]
            spent_ns[name] = spent_ns.get(name, 0) + ns
    return spent_ns


def made_by(context: ScanContext) -> str:
    """Return what made the kernels: `PyTorch`, `torch.compile`, or a compiler with its version where it is recorded.

    "" where nothing tells: no operator of PyTorch was recorded, and no kernel of its library.
    """
    environment, timeline = context.environment, context.timeline
    if environment.producer != "torch":
        return (timeline.meta.producer or PRODUCERS[environment.producer]).partition(" (")[0]
    if environment.fused:
        return "torch.compile"
    kernels, ops = category(context.rows["activities"], "name"), categories(timeline.ops.column("name"))
    return PRODUCERS["torch"] if any(map(_OF_TORCH.search, (*kernels.values, *ops.values))) else ""


def work_of(context: ScanContext) -> tuple[WorkOfClass, ...]:
    """Return the kernels of each class in the order of PARTS, a step, over all devices."""
    rows, accounts = context.rows["activities"], context.accounts
    steps = max(accounts.steps, 1)
    kept: BoolArray = accounts.in_step if accounts.steps else np.ones(rows.count, np.bool_)
    op_class = category(rows, "op_class")
    part_of = [*(_PART_OF.get(value, OTHER) for value in op_class.values), OTHER]
    part = np.array([list(PARTS).index(each) for each in part_of])[op_class.codes]
    held, texts = _operations(context)
    part[_only_moves(context)] = list(PARTS).index(_PART_OF["copy"])
    several = np.array([*(len(text) > 1 for text in texts), False], np.bool_)[held]
    found = []
    for at, name in enumerate(PARTS):
        chosen = kept & (part == at)
        if not chosen.any():
            continue
        fused = chosen & several
        found.append(
            WorkOfClass(
                name=name,
                kernels=round(int(chosen.sum()) / steps, 2),
                gpu_ns=int(accounts.dur_ns[chosen].sum()) // steps,
                fused=round(int(fused.sum()) / steps, 2),
                operations=_most(texts, held[fused], accounts.dur_ns[fused]),
            )
        )
    return tuple(found)


def _operations(context: ScanContext) -> tuple[IntArray, list[tuple[str, ...]]]:
    """Return for each activity which entry of the list says what its kernel computes; −1: it is not known."""
    timeline = context.timeline
    if len(timeline.instructions):
        body, texts = string_ids(timeline.instructions.column("body"))
        of_op = np.full(timeline.ops.num_rows + 1, -1)
        of_op[numbers(timeline.instructions.column("op_row"))] = body
        return of_op[rows_of(timeline.activities["op_row"])], [_arithmetic(text.split()) for text in texts]
    name = category(context.rows["activities"], "name")
    return name.codes.astype(np.int64), [_arithmetic(_operators(text)) for text in name.values]


def _only_moves(context: ScanContext) -> BoolArray:
    """Return whose kernels Inductor wrote of operators that compute nothing: elsewhere they are copies too."""
    name = category(context.rows["activities"], "name")
    return name.that(lambda text: bool(_operators(text)) and not _arithmetic(_operators(text)))


def _arithmetic(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name not in _NO_ARITHMETIC)


def _is_operator(name: str) -> bool:
    known = lookup(f"aten::{name}")
    return name in _OF_INDUCTOR or (known is not None and bool(known.overloads))


@cache
def _operators(kernel: str) -> tuple[str, ...]:
    """Return the operators that Inductor wrote into a kernel's name; none of another's.

    >>> _operators("triton_per_fused_add_native_layer_norm_3"), _operators("elementwise_kernel")
    (('add', 'native_layer_norm'), ())
    """
    match = _GENERATED.match(kernel)
    words = match["operators"].split("_") if match else []
    found, at = [], 0
    while at < len(words):
        spans = ("_".join(words[at : at + count]) for count in range(_LONGEST, 0, -1))
        name = next(filter(_is_operator, spans), words[at])
        found.append(name)
        at += name.count("_") + 1
    return tuple(filter(None, found))


def _most(texts: Sequence[tuple[str, ...]], held: IntArray, dur_ns: IntArray) -> tuple[str, ...]:
    """Return the operations whose kernels take most, of each kernel all."""
    of_text = np.bincount(held, weights=dur_ns, minlength=len(texts))
    spent: dict[str, float] = {}
    for at in np.flatnonzero(of_text).tolist():
        for name in texts[at]:
            spent[name] = spent.get(name, 0) + of_text[at]
    return tuple(sorted(spent, key=lambda name: (-spent[name], name))[:_MOST_NAMED])
