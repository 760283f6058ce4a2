"""Split long reductions of few rows: each part is reduced by a program of its own, then the parts are.

An expression becomes two: what each part gives, and how the parts make the whole. Both have a fixed order: the bits are
the same at each run. How many parts there are, the launcher decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from tracemine.codegen.axes import Dim
from tracemine.codegen.loop_ir import FLOAT, mapped
from tracemine.codegen.lowering.context import Lowered
from tracemine.codegen.tensor_ir import NumElements, Pointwise, Reduction, ScalarArg, Tensor

PARTS = 16  # of a row, as far as the plan knows


def split(lowered: Lowered, chosen: Collection[Reduction]) -> Lowered:
    """Return the same expressions with the chosen reductions made in parts."""
    splitter = _SplitReductions(lowered, frozenset(chosen))
    return replace(
        lowered,
        values=tuple(map(splitter, lowered.values)),
        live=tuple(map(splitter, lowered.live)),
        written={v: splitter(t) for v, t in lowered.written.items()},
        drawn=tuple((number, splitter(t)) for number, t in lowered.drawn),
    )


class _SplitReductions:
    def __init__(self, lowered: Lowered, chosen: frozenset[Reduction]) -> None:
        self.axes, self.chosen = lowered.axes, chosen
        self._known: dict[Tensor, Tensor] = {}
        self._parts: dict[tuple[frozenset[int], ...], Dim] = {}  # by the rows and columns that are looped over
        self._made: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        found = self._known.get(tensor)
        if found is None:
            before = {name: getattr(tensor, name) for name in tensor.__struct_fields__}
            after = {name: mapped(value, Tensor, self) for name, value in before.items()}
            found = replace(tensor, **after) if any(after[name] is not before[name] for name in before) else tensor
            if tensor in self.chosen:
                assert isinstance(found, Reduction)  # noqa: S101  (it is chosen among those)
                found = _WHOLES.get(found.kind, _same)(self, found)
            self._known[tensor] = found
        return found

    def each(self, row: Reduction, kind: str, arg: Tensor) -> Tensor:
        """Return what each part of a row gives."""
        over = frozenset(leaf for d in row.over for leaf in self.axes.leaves(row.arg.dims[d]))
        rows = frozenset(self.axes.flat(row.dims))
        if (rows, over) not in self._parts:
            self._parts[rows, over] = self.axes.dims((PARTS,))[0]
        part = self._parts[rows, over]
        key = (kind, arg, row.over, row.dims)
        if key not in self._made:
            dims, kept = (part, *row.dims), (None, *row.kept)
            self._made[key] = replace(row, dims=dims, kept=kept, kind=kind, arg=arg, part=part)
        return self._made[key]

    def whole(self, row: Reduction, kind: str, parts: Tensor) -> Tensor:
        """Return what all parts of a row give together."""
        key = (kind, parts)
        if key not in self._made:
            kept = tuple(range(1, 1 + len(row.dims)))
            self._made[key] = replace(row, kind=kind, arg=parts, over=(0,), kept=kept)
        return self._made[key]

    def pointwise(self, operation: str, *args: Tensor | ScalarArg, like: Tensor | None = None) -> Tensor:
        """Return an expression over what has the dimensions of the first, or none."""
        key = (operation, args, like)
        if key not in self._made:
            dims = max((t.dims for t in (*args, like) if isinstance(t, Tensor)), key=len)
            self._made[key] = Pointwise(dims=dims, dtype=FLOAT, operation=operation, args=args, compute=FLOAT)
        return self._made[key]


def _same(s: _SplitReductions, row: Reduction) -> Tensor:
    """Return the sum of sums, or the largest of the largest."""
    return s.whole(row, row.kind, s.each(row, row.kind, row.arg))


def _highest(s: _SplitReductions, row: Reduction) -> Tensor:
    return s.whole(row, "max", s.each(row, "online_max", row.arg))


def _exponentials(s: _SplitReductions, row: Reduction) -> Tensor:
    """Rescale each part's sum of exponentials from its own maximum to that of all; a part of −inf alone has none."""
    highest, total = (s.each(row, kind, row.arg) for kind in ("online_max", "online_sum"))
    shares = s.pointwise("exp_rescaled", total, highest, _highest(s, row))
    return s.whole(row, "sum", shares)


def _welford(s: _SplitReductions, row: Reduction) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean of all parts', by how many elements each has; these; and how far each mean is from that of all.

    What rounding left of the mean is added, as in a row that is held whole: equal numbers have no variance.
    """
    seen = s.each(row, "sum", s.pointwise("identity", ScalarArg(1.0), like=row.arg))
    mean = s.each(row, "welford_mean", row.arg)
    count = NumElements(dims=(), dtype=FLOAT, over=tuple(a for d in row.over for a in row.arg.dims[d]))
    first = s.pointwise("div", s.whole(row, "sum", s.pointwise("mul", mean, seen)), count)
    rest = s.whole(row, "sum", s.pointwise("mul", s.pointwise("sub", mean, first), seen))
    whole = s.pointwise("add", first, s.pointwise("div", rest, count))
    return whole, seen, s.pointwise("sub", mean, whole)


def _squares(s: _SplitReductions, row: Reduction) -> Tensor:
    """Combine the parts by Chan's formula."""
    _, seen, apart = _welford(s, row)
    between = s.pointwise("mul", seen, s.pointwise("square", apart))
    return s.whole(row, "sum", s.pointwise("add", s.each(row, "welford_squares", row.arg), between))


_WHOLES: dict[str, Callable[[_SplitReductions, Reduction], Tensor]] = {
    "online_max": _highest,
    "online_sum": _exponentials,
    "welford_mean": lambda s, row: _welford(s, row)[0],
    "welford_squares": _squares,
}
