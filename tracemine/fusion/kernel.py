"""What one kernel in place of a fusion group reads, computes and writes: all that a prediction needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass

# Steps that walk a whole row before anything after them can be computed.
REDUCTIONS = frozenset({"sum", "welford", "softmax", "scan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """What one kernel in place of a group reads, computes and writes.

    `steps` are in the order of computation: functions (`exp`, `log`, `tanh`, `erf`, `sigmoid`, `divide`), reductions
    (`sum` for any plain one, `welford`, `softmax`, `scan`), and `simple` for everything else.
    """

    reads: tuple[int, ...]  # bytes of each distinct tensor from outside
    writes: tuple[int, ...]  # bytes of each tensor that somebody outside reads
    rows: int  # rows that are reduced; all elements where nothing is
    length: int = 1  # elements of a row
    item_bytes: int = 4  # of an element of the widest full-size tensor
    steps: tuple[str, ...] = ()
    columns: bool = False  # the axis reduced is not the contiguous one
    strided: bool = False  # it reads or writes across the grain: a transpose

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return sum(self.reads) + sum(self.writes)

    @property
    def elements(self) -> int:
        """Elements of the full-size tensors."""
        return self.rows * self.length
