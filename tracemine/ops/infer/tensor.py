"""A tensor as a call sees it (shape, dtype, strides), and how torch lays out what it makes. All counts in elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from tracemine.ops.dtypes import itemsize

Sizes = tuple[int, ...]


class TensorSpec(Struct, frozen=True):
    """One tensor. dtype: canonical name, None where not recorded (members of a list). strides: None where not known."""

    shape: Sizes
    dtype: str | None
    strides: Sizes | None = None

    @property
    def elements(self) -> int:
        """Elements as the shape counts them.

        >>> TensorSpec((4, 8), "float32", (0, 1)).elements
        32
        """
        return prod(self.shape)

    @property
    def distinct_elements(self) -> int:
        """Elements in memory: an axis of stride 0 repeats one. Unknown strides count as dense.

        >>> TensorSpec((4, 8), "float32", (0, 1)).distinct_elements
        8
        """
        if self.strides is None or 0 not in self.strides:
            return prod(self.shape)
        sizes = zip(self.shape, self.strides, strict=True)
        return prod(size for size, stride in sizes if stride != 0 or size == 0)

    @property
    def bytes(self) -> int | None:
        """Bytes of the distinct elements; None where the dtype is not known.

        >>> TensorSpec((4, 8), "bfloat16", (8, 1)).bytes, TensorSpec((4,), None).bytes
        (64, None)
        """
        size = None if self.dtype is None else itemsize(self.dtype)
        return None if size is None else size * self.distinct_elements


def contiguous(shape: Sequence[int]) -> Sizes:
    """Return row-major strides; an empty axis counts as one element, as torch has it.

    >>> contiguous((2, 3, 4)), contiguous((2, 0, 4))
    ((12, 4, 1), (4, 4, 1))
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * (shape[axis] or 1)
    return tuple(strides)


def channels_last(shape: Sequence[int]) -> Sizes:
    """Return strides with the second axis innermost (NHWC, NDHWC).

    >>> channels_last((2, 3, 4, 5))
    (60, 1, 15, 3)
    """
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    """Return whether it is row-major: axes of size 1 may have any stride, and a tensor without elements always is."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1:
            if stride != step:
                return 0 in shape
            step *= size
    return True


def is_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """Return whether elements lie as channels_last has them (four or five axes)."""
    if len(shape) not in (4, 5):
        return False
    step = 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[axis] != 1:
            if strides[axis] != step:
                return False
            step *= shape[axis]
    return True


def looks_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """Return what torch takes for channels last when it chooses a layout: by the order of strides, not values."""
    if len(shape) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(shape[axis], 1)
    return True


def is_dense(shape: Sizes, strides: Sizes) -> bool:
    """Return every element of the storage's span belongs to the tensor, once, in whatever order of axes."""
    if is_contiguous(shape, strides):
        return True
    step = 1
    for stride, size in sorted((b, a) for a, b in zip(shape, strides, strict=True) if a > 1):
        if stride != step:
            return False
        step *= size
    return True


def overlaps(spec: TensorSpec) -> bool:
    """Return whether elements may share memory: an axis steps no further than the ones inside it reach.

    >>> overlaps(TensorSpec((3, 4), "float32", (4, 1))), overlaps(TensorSpec((3, 4), "float32", (2, 1)))
    (False, True)
    """
    reach = 0
    for stride, size in sorted((s, n) for n, s in zip(spec.shape, spec.strides or (), strict=False) if n > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _order(shape: Sizes, layouts: Sequence[Sizes]) -> list[int]:
    """Return axes from innermost to outermost, as an iteration over tensors with these strides chooses them."""
    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        moving = start
        for place in range(start - 1, -1, -1):
            verdict = _compare(order[place], order[moving], shape, layouts)
            if verdict > 0:
                order[place], order[moving] = order[moving], order[place]
                moving = place
            elif verdict < 0:
                break
    return order


def _compare(inner: int, outer: int, shape: Sizes, layouts: Sequence[Sizes]) -> int:
    """Return 1: swap the axes; −1: they stand right; 0: nothing says. The first tensor that tells decides."""
    for strides in layouts:
        first, second = strides[inner], strides[outer]
        if first == 0 or second == 0:  # broadcast along one of them
            continue
        if first != second:
            return 1 if first > second else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def like(shape: Sizes, strides: Sizes) -> Sizes:
    """Return strides of a tensor made with torch.preserve_format: the other's own if dense, else its order.

    >>> like((2, 3), (1, 2)), like((2, 3), (1, 4)), like((2, 3), (0, 1))
    ((1, 2), (1, 2), (3, 1))
    """
    if is_dense(shape, strides):
        return strides
    result, step = [0] * len(shape), 1
    for axis in _order(shape, (strides,)):
        result[axis] = step
        step *= max(shape[axis], 1)
    return tuple(result)


def suggested(shape: Sizes, strides: Sizes) -> Sizes:
    """Return strides of a new dense tensor in the memory format that another's strides suggest.

    >>> suggested((2, 3, 4, 5), (60, 1, 15, 3)), suggested((2, 3), (1, 2))
    ((60, 1, 15, 3), (3, 1))
    """
    return channels_last(shape) if looks_channels_last(shape, strides) else contiguous(shape)


def _kept(shape: Sizes, layouts: Sequence[Sizes]) -> Sizes | None:
    """Return the layout that operands of one shape share; None: none, or one that is not kept."""
    if all(is_contiguous(shape, strides) for strides in layouts):
        return contiguous(shape)
    if all(is_channels_last(shape, strides) for strides in layouts):
        return channels_last(shape)
    alike = all(strides == layouts[0] for strides in layouts) and is_dense(shape, layouts[0])
    return layouts[0] if alike else None


def iterated(shape: Sizes, operands: Sequence[TensorSpec]) -> Sizes | None:
    """Return strides of a pointwise result over operands that broadcast to `shape`; None if one is unknown.

    As torch's TensorIterator: equal dense layouts are kept, else axes are ordered by the operands' strides.
    """
    layouts = [operand.strides for operand in operands if operand.strides is not None]
    if len(layouts) < len(operands):
        return contiguous(shape) if len(shape) < 2 else None
    kept = _kept(shape, layouts) if all(operand.shape == shape for operand in operands) else None
    if kept is not None:
        return kept
    order = _order(shape, [_stretched(shape, operand.shape, operand.strides or ()) for operand in operands])
    if all(axis == len(order) - 1 - place for place, axis in enumerate(order)):
        return contiguous(shape)
    result, step = [0] * len(shape), 1
    for axis in order:
        result[axis] = step
        step *= shape[axis]
    return tuple(result)


def _stretched(shape: Sizes, own: Sizes, strides: Sizes) -> Sizes:
    """Return strides over the broadcast shape: 0 where the operand repeats."""
    lead = len(shape) - len(own)
    rest = (
        0 if size == 1 and shape[lead + axis] != 1 else stride
        for axis, (size, stride) in enumerate(zip(own, strides, strict=True))
    )
    return (0,) * lead + tuple(rest)


def broadcast(shapes: Sequence[Sizes]) -> Sizes:
    """Return the common shape. Raises ValueError where there is none.

    >>> broadcast([(4, 1, 3), (5, 1), ()])
    (4, 5, 3)
    """
    result: list[int] = []
    for shape in shapes:
        result[:0] = [1] * (len(shape) - len(result))
        for axis in range(1, len(shape) + 1):
            size, known = shape[-axis], result[-axis]
            if size != known:
                if known != 1 and size != 1:
                    raise ValueError("shapes do not broadcast")
                result[-axis] = size if known == 1 else known
    return tuple(result)


def viewed(shape: Sizes, strides: Sizes, wanted: Sizes) -> Sizes | None:
    """Return strides under which the same storage has another shape; None where it would have to be copied.

    >>> viewed((2, 3, 4), (12, 4, 1), (6, 4)), viewed((2, 3), (1, 2), (6,))
    ((4, 1), None)
    """
    if 0 in shape:
        return strides if wanted == shape else contiguous(wanted)
    if not shape:
        return (1,) * len(wanted)
    result = [0] * len(wanted)
    place = len(wanted) - 1
    base = strides[-1]
    taken = given = 1
    for axis in range(len(shape) - 1, -1, -1):
        given *= shape[axis]
        # A run of axes that lie behind each other ends here: the wanted axes must use it up exactly.
        if axis == 0 or (shape[axis - 1] != 1 and strides[axis - 1] != given * base):
            while place >= 0 and (taken < given or wanted[place] == 1):
                result[place] = taken * base
                taken *= wanted[place]
                place -= 1
            if taken != given:
                return None
            base, taken, given = strides[axis - 1], 1, 1  # those of the next run
    return tuple(result) if place == -1 else None
