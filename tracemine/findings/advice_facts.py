"""Facts of a finding that advice may ask for: what was matched, and what of it decides which fix is true."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.ops import lookup
from tracemine.ops.infer.library import OPERATIONS


def call_class(ops: Sequence[str]) -> str | None:
    """Return what kind of a library's call these operators are; None: of several kinds, or of none.

    >>> call_class(["aten::mm", "aten::bmm"]), call_class(["aten::convolution_backward"])
    ('product', 'convolution')
    >>> call_class(["aten::bmm", "aten::_softmax"]) is None
    True
    """
    kinds = {None if (known := lookup(op)) is None else OPERATIONS.get(known.op_class) for op in ops}
    return next(iter(kinds)) if len(kinds) == 1 else None
