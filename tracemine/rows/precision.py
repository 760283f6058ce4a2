"""Whether float64 comes into a recording by a conversion. Each distinct call is looked at once."""

from __future__ import annotations

from math import prod
from typing import Final

from tracemine.calls import DTYPES, Call, calls_of
from tracemine.ops import lookup
from tracemine.timeline import Timeline

_SMALLER: Final = frozenset({"float32", "float16", "bfloat16"})
_FEW: Final = 1024  # elements: what is smaller is a count, a scale or a sum
# What is part of a network and of nothing else: float64 is not asked for there.
_OF_NETWORKS: Final = frozenset({"norm", "softmax", "embedding", "attention", "conv"})
_MIXING: Final = frozenset({"copy", "pointwise"})


def float64_comes_in(timeline: Timeline) -> bool:
    """Return whether something turns into float64 in this recording, or back, or a network's own layers compute in it.

    Where nothing does, inputs, weights and results are float64: the program asked for it.
    """
    calls = calls_of(timeline)
    wide = (number for number in range(len(calls)) if "double" in (calls.text(number, DTYPES) or ""))
    return any(_comes_in(calls[number]) for number in wide)


def _comes_in(call: Call) -> bool:
    """Return whether a call converts large tensors to float64 or from it, or is a network's layer in it.

    >>> types = ("double", "float", "Scalar")
    >>> [_comes_in(Call("aten::copy_", (shape, shape, ()), types)) for shape in ((64, 64), ())]
    [True, False]
    >>> _comes_in(Call("aten::add", ((64, 64), (64, 64), ()), ("double", "double", "Scalar")))
    False
    """
    kind = _class_of(call.name)
    if kind not in _MIXING | _OF_NETWORKS:
        return False
    taken = [call.dtype(place) for place in range(len(call.shapes or ())) if prod(call.shape(place) or (0,)) >= _FEW]
    return "float64" in taken and (kind in _OF_NETWORKS or not _SMALLER.isdisjoint(taken))


def _class_of(name: str) -> str | None:
    operator = lookup(name)
    return None if operator is None else operator.op_class
