"""Facts of a finding that advice may ask for: what was matched, and what of it decides which fix is true."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.environment import library_of, runs_unfused
from tracemine.findings.labels import Label
from tracemine.matching.advice import Fact, merged
from tracemine.matching.rule import Rule
from tracemine.ops import lookup
from tracemine.ops.infer.library import OPERATIONS
from tracemine.rows.table import BoolArray, IntArray, number

_MOST_NAMED: Final = 5


def facts_of(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return the facts that advice may ask of a variant. `named`: rows that the rule's pattern names."""
    found = merged(_of_label(each.label) for each in classes)
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    of_gaps = rule.rows == "gaps"
    activities = number(context.rows["gaps"], "next_row")[rows] if of_gaps else rows
    found["training"] = context.training
    found["unfused_backend"] = runs_unfused(context.timeline, context.environment, activities)
    if of_gaps:
        found |= _of_gaps(context, rows)
    else:
        found |= _of_activities(context, classes, named)
    asked = {name for one in rule.advice for name in one.when}
    for cause in context.causes:
        if cause.facts is not None and not asked.isdisjoint(cause.facts.docs):
            found |= cause.facts.find(context, rule, classes, named)
    return found


def _of_label(label: Label) -> dict[str, Fact]:
    """Return what the label of a class tells."""
    in_function = label.module is None and label.source
    return {
        "optimizer": label.optimizer,
        "module": label.module is not None,
        "library": library_of(source.file for source in label.source[:1]),
        "backward": label.backward,
        "operation": label.ops[0].removeprefix("aten::") if len(set(label.ops)) == 1 else None,
        "call_class": call_class(label.ops),
        "function": plain_name(label.source[0].function) if in_function else None,
        "operators": operators_text(label.ops),
    }


def _of_gaps(context: ScanContext, rows: IntArray) -> dict[str, Fact]:
    """Return what most of the idle time of gaps has to do with."""
    facts = context.facts["gaps"]
    spent = facts.dur_ns[rows]
    by_optimizer = np.bincount(facts.optimizer.codes[rows] + 1, weights=spent)
    code = int(by_optimizer.argmax()) - 1
    return {"optimizer": facts.optimizer.values[code] if code >= 0 else None}


def _of_activities(context: ScanContext, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    found: dict[str, Fact] = {"widened": not all(named[one.matrix].all() for one in classes)}
    if any(one.label.backward for one in classes):
        members = np.concatenate([one.matrix.reshape(-1) for one in classes])
        found["forward_function"] = context.forwards.function(context.facts["activities"].op_row[members])
    return found


def plain_name(name: str) -> str | None:
    """Return a name that code can say; None: of a lambda, or a keyword.

    >>> plain_name("forward"), plain_name("<lambda>")
    ('forward', None)
    """
    return name if name.isascii() and name.isidentifier() and not keyword.iskeyword(name) else None


def operators_text(ops: Sequence[str]) -> str | None:
    """Return operators in words; None: none of torch's own is among them.

    >>> operators_text(["aten::mul", "aten::add", "aten::mul"]), operators_text(["x y"])
    ('`mul`, `add`', None)
    """
    names = [name for op in dict.fromkeys(ops) if op.startswith("aten::") and plain_name(name := op[6:])]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMED]) + more if names else None


def call_class(ops: Sequence[str]) -> str | None:
    """Return what kind of a library's call these operators are; None: of several kinds, or of none.

    >>> call_class(["aten::mm", "aten::bmm"]), call_class(["aten::convolution_backward"])
    ('product', 'convolution')
    >>> call_class(["aten::bmm", "aten::_softmax"]) is None
    True
    """
    kinds = {None if (known := lookup(op)) is None else OPERATIONS.get(known.op_class) for op in ops}
    return next(iter(kinds)) if len(kinds) == 1 else None
