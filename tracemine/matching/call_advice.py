"""Whether what a rule advises can be done to the calls that it finds: products, convolutions, attention."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from tracemine.matching.advice import advised
from tracemine.matching.rule import ColumnTest, Rule
from tracemine.ops import lookup
from tracemine.ops.infer.library import OPERATIONS
from tracemine.ops.operators import operator_names
from tracemine.patterns import deferred
from tracemine.rows.library import KINDS_OF_CAUSE

_ATEN: Final = "aten::"
_NAMED_BY: Final[Mapping[str, str]] = {
    "operation": _ATEN,
    "op": "",
}  # columns with an operator, and what they leave out
# What takes calls of one kind alone, by how a text names it; and operators of another kind that it takes the place of.
_TAKES: Final[tuple[tuple[re.Pattern[str], str, frozenset[str]], ...]] = (
    (deferred(r"channels_last|cudnn\.(benchmark|allow_tf32)|MIOPEN"), "convolution", frozenset()),
    (deferred(r"blas_library|TUNABLEOP|matmul_precision|cuda\.matmul"), "product", frozenset()),
    (deferred(r"sdpa_kernel|scaled_dot_product_attention|flex_attention"), "attention", frozenset({"bmm", "baddbmm"})),
)
# A text that has another call made in place of what was found says how to make that.
_MAKES: Final[Mapping[str, re.Pattern[str]]] = {"product": deferred(r"torch\.bmm\(|F\.linear\(")}
_LAYOUT, _TAKEN_WITH = "channels_last", "PYTORCH_MIOPEN_SUGGEST_NHWC"


def misfits(rule: Rule) -> Iterator[str]:
    """Yield what the rule's texts name that cannot take an operator that it finds, once each."""
    seen = set[tuple[str, str]]()
    for kind in sorted(_kinds(rule)):
        for operator in _operators(kind):
            for amd in (False, True):
                text = advised(rule.advice, rule.fix, {"call_class": kind, "operation": operator, "amd": amd})
                for named in _unfit(text, kind, operator, amd=amd):
                    if (named, kind) not in seen:
                        seen.add((named, kind))
                        yield f"{named!r} is advised of {operator} ({kind}), which it cannot take"


def _unfit(text: str, kind: str, operator: str, *, amd: bool) -> Iterator[str]:
    made = {each for each, pattern in _MAKES.items() if pattern.search(text)}
    for pattern, taken, besides in _TAKES:
        found = pattern.search(text)
        if found is not None and taken not in {kind, *made} and operator not in besides:
            yield found[0]
    if amd and kind == "convolution" and _LAYOUT in text and _TAKEN_WITH not in text:
        yield f"{_LAYOUT} without {_TAKEN_WITH}"


@cache
def _operators(kind: str) -> tuple[str, ...]:
    """Return every operator of a kind, without its namespace.

    >>> "addmm" in _operators("product"), "convolution_backward" in _operators("convolution")
    (True, True)
    """
    names = [name for name in operator_names() if name.startswith(_ATEN) and _kind(name) == kind]
    return tuple(name.removeprefix(_ATEN) for name in names)


def _kind(operator: str) -> str | None:
    known = lookup(operator)
    return None if known is None else OPERATIONS.get(known.op_class)


def _kinds(rule: Rule) -> frozenset[str]:
    """Return the kinds of calls that a rule finds; none where what it finds is more than calls."""
    each = [_kinds_of(tests) for tests in rule.define.values()]
    return frozenset().union(*each) if all(each) else frozenset()


def _kinds_of(tests: tuple[ColumnTest, ...]) -> frozenset[str]:
    for test in tests:
        values = [str(value) for value in test.values] if test.relation == "is" else []
        if test.column == "call_cause":
            return frozenset(kind for cause in values for kind in KINDS_OF_CAUSE.get(cause, ()))
        if test.column in _NAMED_BY:
            kinds = (_kind(_NAMED_BY[test.column] + name) for name in values)
            return frozenset(kind for kind in kinds if kind is not None)
    return frozenset()
