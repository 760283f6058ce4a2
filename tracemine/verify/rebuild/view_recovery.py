"""View calls between two layouts of one storage: slices, permutes, views and expands.

Views launch nothing, so a trace may not tell which calls made one. Offset, shape and strides tell what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Step = tuple[str, tuple[object, ...]]  # a view operator and what it takes after the tensor
_Axis = tuple[int, int]  # its length and its stride


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor lie in its storage, in elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    guessed: bool = False  # strides were not recorded: it is taken to lie without gaps, its last axis innermost

    @property
    def is_known(self) -> bool:
        """Return whether its strides are known: not every profiler records them."""
        return len(self.strides) == len(self.shape)

    @property
    def reach(self) -> tuple[int, int]:
        """Return the first element and the one after the last.

        >>> Layout(2, (3, 4), (8, 1)).reach
        (2, 22)
        """
        if 0 in self.shape:
            return self.offset, self.offset
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return self.offset, self.offset + last + 1

    @property
    def in_parts(self) -> Layout:
        """Of complex numbers how their real and imaginary parts lie: two along a last axis.

        >>> Layout(3, (4, 2), (2, 1)).in_parts
        Layout(offset=6, shape=(4, 2, 2), strides=(4, 2, 1), guessed=False)
        """
        strides = (*(2 * s for s in self.strides), 1) if self.is_known else ()
        return Layout(2 * self.offset, (*self.shape, 2), strides, self.guessed)

    def covers(self, other: Layout) -> bool:
        """Return whether all that the other reaches lies within; False where the layout was not recorded."""
        return self.is_known and other.is_known and self.reach[0] <= other.reach[0] and other.reach[1] <= self.reach[1]


def views(source: Layout, target: Layout) -> tuple[Step, ...] | None:
    """View calls that make `target` of `source`; None where slices, splits, merges, orders and repeats do not suffice.

    >>> views(Layout(0, (4, 6), (6, 1)), Layout(3, (4, 3), (6, 1)))
    (('aten::slice.Tensor', (1, 3, 6, 1)),)
    >>> views(Layout(0, (2, 3, 4), (12, 4, 1)), Layout(0, (4, 6), (1, 4)))
    (('aten::view', ((6, 4),)), ('aten::permute', ((1, 0),)))
    """
    if 0 in target.shape or 0 in source.shape:
        return () if source == target else None
    if source.guessed or target.guessed:
        return _merges(source, target)
    if min((*source.strides, *target.strides), default=0) < 0:
        return None
    simple = _one_step(source, target)
    if simple is not None:
        return simple
    makers = _Makers(source.shape)
    axes = _ordered(makers, source)
    wanted = sorted(
        ((s, n, at) for at, (n, s) in enumerate(zip(target.shape, target.strides, strict=True)) if n > 1 and s),
        key=lambda w: (-w[0], w[2]),
    )
    rest = target.offset - source.offset
    if rest < 0 or not _cut(makers, axes, wanted, rest):
        return None
    _arranged(makers, wanted, target)
    return tuple(makers.steps)


def _merges(source: Layout, target: Layout) -> tuple[Step, ...] | None:
    """Return a view that merges axes at most: any other shape may as well have come by a change of their order.

    >>> _merges(Layout(0, (2, 3, 4), (12, 4, 1), True), Layout(0, (6, 1, 4), (4, 4, 1), True))
    (('aten::view', ((6, 1, 4),)),)
    >>> _merges(Layout(0, (6, 4), (4, 1), True), Layout(0, (3, 2, 4), (8, 4, 1), True))
    """
    if source.shape == target.shape:
        return ()
    rest = [n for n in source.shape if n > 1]
    for size in (n for n in target.shape if n > 1):
        while size > 1 and rest and size % rest[0] == 0:
            size //= rest.pop(0)
        if size > 1:
            return None
    return None if rest else (("aten::view", (target.shape,)),)


def _one_step(source: Layout, target: Layout) -> tuple[Step, ...] | None:
    """Return nothing, a slice or a selection, where one of them does it."""
    own = list(zip(source.shape, source.strides, strict=True))
    wanted = list(zip(target.shape, target.strides, strict=True))
    ahead = target.offset - source.offset
    if len(own) == len(wanted):
        return _sliced(own, wanted, ahead)
    return _selected(own, wanted, ahead) if len(own) == len(wanted) + 1 else None


def _sliced(own: list[_Axis], wanted: list[_Axis], ahead: int) -> tuple[Step, ...] | None:
    """Return nothing, or a slice along the one axis that differs. ahead: how far on the wanted ones begin."""
    changed = [d for d, (a, b) in enumerate(zip(own, wanted, strict=True)) if a != b]
    if not changed and not ahead:
        return ()
    if len(changed) != 1:
        return None
    (here, unit), (size, stride) = own[changed[0]], wanted[changed[0]]
    step = stride // unit if unit else 0
    start = ahead // unit if unit else -1
    if step > 0 and stride % unit == 0 and start * unit == ahead and 0 <= start + (size - 1) * step < here:
        makers = _Makers([length for length, _ in own])
        makers.slice(changed[0], start, size, step)
        return tuple(makers.steps)
    return None


def _selected(own: list[_Axis], wanted: list[_Axis], ahead: int) -> tuple[Step, ...] | None:
    """Return the selection of one place along the axis that is gone."""
    for dim, (here, unit) in enumerate(own):
        if own[:dim] + own[dim + 1 :] == wanted and unit and ahead % unit == 0 and 0 <= ahead // unit < here:
            return (("aten::select.int", (dim, ahead // unit)),)
    return None


class _Makers:
    """View calls in the making, and the shape that they have led to."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.steps: list[Step] = []
        self.shape = list(shape)

    def view(self, shape: Sequence[int]) -> None:
        if list(shape) != self.shape:
            if self.steps and self.steps[-1][0] == "aten::view":
                self.steps.pop()
            self.steps.append(("aten::view", (tuple(shape),)))
            self.shape = list(shape)

    def permute(self, order: Sequence[int]) -> None:
        if list(order) != list(range(len(order))):
            self.steps.append(("aten::permute", (tuple(order),)))
            self.shape = [self.shape[d] for d in order]

    def slice(self, dim: int, start: int, size: int, step: int) -> None:
        here = self.shape[dim]
        end = start + (size - 1) * step + 1
        if (start, size, step) == (0, here, 1):
            return
        self.steps.append(("aten::slice.Tensor", (dim, start, here if end > here - step else end, step)))
        self.shape[dim] = size

    def select(self, dim: int, index: int) -> None:
        self.steps.append(("aten::select.int", (dim, index)))
        del self.shape[dim]

    def expand(self, shape: Sequence[int]) -> None:
        if list(shape) != self.shape:
            self.steps.append(("aten::expand", (tuple(shape),)))
            self.shape = list(shape)


def _ordered(makers: _Makers, source: Layout) -> list[tuple[int, int]]:
    """Return size and stride of the source's axes, widest stride first, without broadcast and 1-element axes."""
    for dim in range(len(source.shape) - 1, -1, -1):
        if source.strides[dim] == 0 and source.shape[dim] > 1:
            makers.select(dim, 0)
    axes = [(n, s) for n, s in zip(source.shape, source.strides, strict=True) if n == 1 or s]
    order = sorted(range(len(axes)), key=lambda d: (-axes[d][1] if axes[d][0] > 1 else -(1 << 62), d))
    if [d for d in order if axes[d][0] > 1] != [d for d in range(len(axes)) if axes[d][0] > 1]:
        makers.permute(order)
        axes = [axes[d] for d in order]
    return [(n, s) for n, s in axes if n > 1]


def _cut(makers: _Makers, axes: list[tuple[int, int]], wanted: Sequence[tuple[int, int, int]], rest: int) -> bool:
    """Split, merge and slice until one axis for each wanted is left, in their order. False where nothing leads there.

    axes: size and stride, widest first. wanted: stride, size and place in the target, widest first.
    """
    merged: list[tuple[int, int]] = []
    for size, stride in axes:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    pending = list(wanted)
    plan: list[tuple[int, int, int, int, bool]] = []  # size of the axis, start, elements, step, whether it stays
    for place, (span, unit) in enumerate(merged):
        inner = merged[place + 1][1] * merged[place + 1][0] if place + 1 < len(merged) else 0
        if inner > unit:  # axes that overlap one another
            return False
        mine = []
        while pending and pending[0][0] >= unit:
            mine.append(pending.pop(0))
        within = min(rest // unit, span - 1) if place + 1 < len(merged) else rest // unit
        rest -= within * unit
        parts = _split(span, unit, mine, within)
        if parts is None:
            return False
        plan += parts
    if pending or rest:
        return False
    _carry_out(makers, axes, plan)
    return True


def _split(
    span: int, unit: int, mine: Sequence[tuple[int, int, int]], start: int
) -> list[tuple[int, int, int, int, bool]] | None:
    """Return how an axis of `span` elements is cut into those wanted of it, from `start` on."""
    parts: list[tuple[int, int, int, int, bool]] = []
    for number, (stride, size, _) in enumerate(mine):
        if stride % unit:
            return None
        step = stride // unit
        last = number == len(mine) - 1
        if last and (span % step or step == 1):
            if start + (size - 1) * step >= span:
                return None
            return [*parts, (span, start, size, step, True)]
        if span % step:
            return None
        outer = span // step
        if start // step + size > outer:
            return None
        parts.append((outer, start // step, size, 1, True))
        start %= step
        span = step
    if start >= span:
        return None
    return [*parts, (span, start, 1, 1, False)] if span > 1 else parts


def _carry_out(
    makers: _Makers, axes: Sequence[tuple[int, int]], plan: Sequence[tuple[int, int, int, int, bool]]
) -> None:
    sizes = [n for n in makers.shape if n > 1]
    split = [size for size, *_ in plan]
    if sizes != [n for n in split if n > 1]:
        makers.view(split)
    elif split != makers.shape:  # only axes of one element come or go
        positions = [d for d, n in enumerate(makers.shape) if n > 1]
        if len(positions) == len(split):
            for (_, start, size, step, stays), dim in reversed(list(zip(plan, positions, strict=True))):
                makers.slice(dim, start, size, step)
                if not stays:
                    makers.select(dim, 0)
            return
        makers.view(split)
    for dim in range(len(plan) - 1, -1, -1):
        _, start, size, step, stays = plan[dim]
        if stays:
            makers.slice(dim, start, size, step)
        else:
            makers.select(dim, start)


def _arranged(makers: _Makers, wanted: Sequence[tuple[int, int, int]], target: Layout) -> None:
    """Bring the axes into the target's order, with those of one element and those that repeat."""
    places = [at for _, _, at in wanted]
    narrow = [n if s or n == 1 else 1 for n, s in zip(target.shape, target.strides, strict=True)]
    if places == sorted(places):
        if [n for n in makers.shape if n > 1] != [n for n in narrow if n > 1] or makers.shape != narrow:
            makers.view(narrow)
    else:
        sizes = [size for _, size, _ in wanted]
        makers.view(sizes)
        order = sorted(range(len(places)), key=places.__getitem__)
        makers.permute(order)
        makers.view(narrow)
    makers.expand(target.shape)
