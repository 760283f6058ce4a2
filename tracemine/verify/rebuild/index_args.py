"""Index arguments of `index`, where the members of its list were not recorded: found by the calls inside it.

Profilers record nothing of a list of optional tensors. ATen's `index` looks at its source once more, with the indexed
axes replaced by those of the indices, which step over nothing (`restride_src` in TensorAdvancedIndexing.cpp), and then
reshapes each index (`reshape_indexer`): `as_strided` says which axes, and each `reshape` which tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

INDEX, STRIDED, RESHAPE = "aten::index", "aten::as_strided", "aten::reshape"
# What else may be inside. A mask is turned into places first, and axes that are not side by side change their order.
INSIDE = frozenset({STRIDED, RESHAPE, "aten::expand", "aten::contiguous", "aten::empty", "aten::resize_"})


def first_axis(
    source: tuple[Sequence[int], Sequence[int]], strided: tuple[Sequence[int], Sequence[int]], indices: int
) -> int | None:
    """Return the first indexed axis; None where none leads from the source's shape and strides to those, or several do.

    >>> first_axis(((169, 12), (12, 1)), ((2401, 12), (0, 1)), 1)
    0
    >>> first_axis(((8, 512, 18, 64), (589824, 1152, 64, 1)), ((8, 512, 1, 64), (589824, 1152, 0, 1)), 1)
    2
    >>> first_axis(((8, 512), (512, 1)), ((8, 1, 1, 512), (0, 0, 0, 0)), 2)
    0
    >>> first_axis(((4, 8), (8, 1)), ((4, 8), (8, 1)), 1)
    """
    own, wanted = list(zip(*source, strict=True)), list(zip(*strided, strict=True))
    new = len(wanted) - len(own) + indices  # axes of the indices
    if new < 0 or not indices:
        return None
    found = [
        first
        for first in range(len(own) - indices + 1)
        if wanted[:first] == own[:first]
        and wanted[first + new :] == own[first + indices :]
        and not any(stride for _, stride in wanted[first : first + new])
    ]
    return found[0] if len(found) == 1 else None
