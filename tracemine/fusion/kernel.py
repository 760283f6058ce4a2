"""What one kernel in place of a fusion group reads, computes and writes: all that a prediction needs to know of it."""

from __future__ import annotations

from itertools import groupby

from msgspec import Struct

# Steps that walk a whole row before anything after them can be computed.
REDUCTIONS = frozenset({"sum", "welford", "softmax", "scan"})
# Numbers of all rows summed to one (a loss's mean): by a small kernel of its own, after which no row can go on.
FINISH = "finish"
# Steps of an instruction or two. Multiplying stands apart, for a softmax of what was scaled is another kernel, and so
# are comparing and selecting, for a softmax of what is masked is yet another.
SIMPLE = ("simple", "scale", "compare", "select", "atomic")


class Unfused(Struct, frozen=True, kw_only=True):
    """One member of a group as it is: bytes of what it reads and writes, and its mean duration over all instances."""

    reads: int
    writes: int
    dur_ns: float


class FusedKernel(Struct, frozen=True, kw_only=True):
    """What one kernel in place of a group reads, computes and writes.

    `steps` are in the order of computation: functions (`exp`, `log`, `tanh`, `erf`, `sigmoid`, `divide`), reductions
    (`sum` for any plain one, `welford`, `softmax`, `scan`), `scale` for a product, `compare` for what makes a mask,
    `select` for what applies one, `random` for random numbers, `channel` for a batch norm's use of its channel's
    numbers, `blend` for a mean of neighbours at computed places, `atomic` for what adds at computed places, `finish`
    for what one more kernel sums of all rows, and `simple` for everything else.
    Reductions side by side are independent of each other, and done in one walk.
    """

    reads: tuple[int, ...]  # bytes of each distinct tensor from outside
    writes: tuple[int, ...]  # bytes of each live-out
    rows: int  # rows that are reduced; all elements where nothing is
    length: int = 1  # elements of a row
    item_bytes: int = 4  # of an element of the widest full-size tensor
    steps: tuple[str, ...] = ()
    columns: bool = False  # the axis reduced is not the contiguous one
    strided: bool = False  # it reads or writes across the grain: a transpose
    depth: int | None = None  # reductions in a row of which each needs the one before; None: as `steps` tells

    @property
    def walks(self) -> tuple[tuple[str, ...], ...]:
        """The reductions, those side by side together: one that needs another has a step in between.

        >>> FusedKernel(reads=(8,), writes=(8,), rows=2, steps=("sum", "welford", "simple", "sum")).walks
        (('sum', 'welford'), ('sum',))
        """
        return tuple(tuple(run) for reduces, run in groupby(self.steps, REDUCTIONS.__contains__) if reduces)

    @property
    def passes(self) -> int:
        """How often a row is walked to reduce it.

        >>> FusedKernel(reads=(8,), writes=(8,), rows=2, steps=("sum", "simple", "sum"), depth=1).passes
        1
        """
        return len(self.walks) if self.depth is None else min(self.depth, len(self.walks))

    @property
    def masked(self) -> bool:
        """Whether it is a softmax, merged or not, of rows with a mask that is computed in front.

        >>> FusedKernel(reads=(8,), writes=(8,), rows=2, steps=("compare", "simple", "softmax")).masked
        True
        >>> FusedKernel(reads=(8,), writes=(8,), rows=2, steps=("softmax", "compare")).masked
        False
        """
        return self._softmax_after("compare")

    @property
    def selected(self) -> bool:
        """Whether it is a softmax of rows to which a mask is applied that is read, or computed, in front.

        >>> FusedKernel(reads=(8,), writes=(8,), rows=2, steps=("scale", "select", "softmax")).selected
        True
        """
        return self._softmax_after("select")

    def _softmax_after(self, step: str) -> bool:
        """Return whether rows of which a softmax is taken went through that step before."""
        first = next((at for at, each in enumerate(self.steps) if each in REDUCTIONS), 0)
        rest = self.steps[first:]
        return step in self.steps[:first] and ("softmax" in rest or rest[:4] == ("sum", "simple", "exp", "sum"))

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return sum(self.reads) + sum(self.writes)

    @property
    def elements(self) -> int:
        """Elements of the full-size tensors."""
        return self.rows * self.length
