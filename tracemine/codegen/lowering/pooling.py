"""Lower windows of images: pooling, upsampling, and their backwards, without atomic adds.

A result is a sum or a maximum over few places, which follow from its own place. In a backward pass an element looks at
the windows that it lies in, so the order of summing is fixed. Images are the last two axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf
from struct import pack, unpack

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, LONG
from tracemine.codegen.lowering.args import CallArgs
from tracemine.codegen.lowering.context import Lowering, rule
from tracemine.codegen.lowering.gather import gather
from tracemine.codegen.lowering.reduction import cast_outputs
from tracemine.codegen.tensor_ir import Iota, Permute, ScalarArg, Tensor

_MOST = 64  # elements that a result may be made of: each is a load of its own

Pair = tuple[int, int]  # along rows and columns of an image


def _pair(given: CallArgs, name: str, other: Sequence[int] | None = None) -> Pair:
    found = given.integers(name) or other or ()
    if len(found) not in (1, 2):
        raise Unsupported(f"{given.call.label}: {name} is not for two axes")
    return int(found[0]), int(found[-1])


class _Image:
    """Elements of a tensor at places of its last two axes that follow from the places of a result."""

    def __init__(self, low: Lowering, source: Tensor, shape: Sequence[int]) -> None:
        self.low, self.source = low, source
        self.sizes = self.height, self.width = low.shape(source)[-2:]
        self.axes = [low.new_dims((size,), pinned=True)[0] for size in shape[-2:]]
        for dim in source.dims[-2:]:
            low.axes.pin(dim)

    def place(self, axis: int) -> Tensor:
        """Return the result's own place along its rows (0) or columns (1)."""
        dims = (self.axes[axis],)
        place = Iota(dims=dims, dtype=LONG, origin=self.low.at, along=0)
        return place if axis == 1 else self.low.with_dims(place, (*dims, ()))  # rows change down a column

    def at(self, row: Tensor, column: Tensor) -> Tensor:
        """Return its elements at a row and a column that must be inside."""
        lead = len(self.source.dims) - 2
        dims = (*self.source.dims[:-2], *self.axes)
        return gather(self.low, self.source, (*range(lead), row, column), (lead, lead + 1), dims)


def _window(given: CallArgs) -> tuple[Pair, Pair, Pair]:
    """Return the size of a window, how far one is from the next, and the padding."""
    kernel = _pair(given, "kernel_size")
    return kernel, _pair(given, "stride", kernel), _pair(given, "padding", (0,))


def _image(low: Lowering, given: CallArgs) -> tuple[_Image, list[Tensor]]:
    """Return an image, and where the windows begin."""
    kernel, step, pad = _window(given)
    _few(kernel)
    image = _Image(low, given.tensor("self"), given.output.shape)
    return image, [_index(low, "mul_sub", image.place(a), step[a], pad[a]) for a in (0, 1)]


def _elements(
    low: Lowering, given: CallArgs, image: _Image, first: Sequence[Tensor], kept: str
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield row, column and value of each element of the windows; `kept`: what it is beyond the image."""
    kernel, step, pad = _window(given)
    for i, j in product(range(kernel[0]), range(kernel[1])):
        rows, columns = (_moved(low, f, by) for f, by in zip(first, (i, j), strict=True))
        reach = _reach(given, step, (i - pad[0], j - pad[1]))
        yield rows, columns, _guarded(low, image, rows, columns, kept, reach)


@rule("max_pool2d_with_indices")
def _max_pool(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    if _pair(given, "dilation", (1,)) != (1, 1):
        raise Unsupported("a window with gaps")
    image, first = _image(low, given)
    inside = [_index(low, "at_least_zero", f) for f in first]
    best: Tensor | None = None
    where: Tensor = _flat(low, image, *inside)
    for rows, columns, value in _elements(low, given, image, first, "where_or_lowest"):
        before: Tensor | float = -inf if best is None else best
        found = low.pointwise("gt | isnan", [value, before, value], FLOAT, BOOL)
        where = low.pointwise("where", [found, _flat(low, image, rows, columns), where], LONG, as_is=(0,))
        best = value if best is None else low.op("maximum", best, value)
    assert best is not None  # noqa: S101  (a window has elements)
    return cast_outputs(low, given, [best, where])


@rule("avg_pool2d")
def _avg_pool(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    image, first = _image(low, given)
    parts = [value for _, _, value in _elements(low, given, image, first, "where_or_zero")]
    return cast_outputs(low, given, [low.op("div", _added(low, parts), _count(low, given, first, image.sizes))])


@rule("avg_pool2d_backward")
def _avg_pool_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    grad, (kernel, step, pad) = given.tensor("grad_output"), _window(given)
    _alike(low, grad, given.tensor("self"))
    image = _Image(low, grad, given.output.shape)
    sizes = given.output.shape[-2], given.output.shape[-1]
    parts: list[Tensor] = []
    for rows, columns, there in _windows(low, image, kernel, step, pad):
        first = [_index(low, "mul_sub", at, step[a], pad[a]) for a, at in enumerate((rows, columns))]
        share = low.op("div", image.at(rows, columns), _count(low, given, first, sizes))
        parts.append(low.pointwise("where", [there, share, 0.0], FLOAT, as_is=(0,)))
    return cast_outputs(low, given, [_added(low, parts)])


@rule("_adaptive_avg_pool2d")
def _adaptive_avg_pool(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return windows from ⌊i · size / results⌋ to ⌈(i + 1) · size / results⌉: they may overlap and differ in size."""
    image = _Image(low, given.tensor("self"), given.output.shape)
    sizes, results = image.sizes, given.output.shape[-2:]
    begins, ends, most = [], [], []
    for a in (0, 1):
        size, count = sizes[a], max(results[a], 1)
        begins.append(_index(low, "mul_floordiv", image.place(a), size, count))
        ends.append(_index(low, "adaptive_window_end", image.place(a), size, count))
        most.append(max((-(-(p + 1) * size // count) - p * size // count for p in range(results[a])), default=1))
    _few((most[0], most[1]))
    parts: list[Tensor] = []
    for i, j in product(range(most[0]), range(most[1])):
        rows, columns = _moved(low, begins[0], i), _moved(low, begins[1], j)
        there = low.pointwise("lt & lt", [rows, ends[0], columns, ends[1]], LONG, BOOL)
        value = image.at(_clamped(low, rows, sizes[0]), _clamped(low, columns, sizes[1]))
        parts.append(low.pointwise("where", [there, value, 0.0], FLOAT, as_is=(0,)))
    tall, wide = (low.pointwise("sub", [e, b], LONG) for e, b in zip(ends, begins, strict=True))
    # As eager does: by the window's height, then by its width.
    return cast_outputs(low, given, [low.op("div", low.op("div", _added(low, parts), tall), wide)])


@rule("_adaptive_avg_pool2d_backward")
def _adaptive_avg_pool_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    _alike(low, given.tensor("grad_output"), given.tensor("self"))
    image = _Image(low, given.tensor("grad_output"), given.output.shape)
    times = [n // max(m, 1) for n, m in zip(given.output.shape[-2:], image.sizes, strict=True)]
    if (image.height * times[0], image.width * times[1]) != tuple(given.output.shape[-2:]):
        raise Unsupported("windows that overlap")
    rows, columns = (_index(low, "floordiv", image.place(a), times[a]) for a in (0, 1))
    shared = low.op("div", low.op("div", image.at(rows, columns), times[0]), times[1])
    return cast_outputs(low, given, [shared])


@rule("upsample_bilinear2d")
def _bilinear(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    image = _Image(low, given.tensor("self"), given.output.shape)
    corners = bool(given.literal("align_corners", False))
    near, far, share = [], [], []
    for a, (size, scale) in enumerate(zip(image.sizes, _scales(given, image.sizes, corners), strict=True)):
        source = low.pointwise("mul" if corners else "half_pixel_source", [image.place(a), scale], FLOAT)
        whole = _clamped(low, low.cast(low.pointwise("floor", [source], FLOAT), "int64"), size)
        near.append(whole)
        far.append(_clamped(low, _moved(low, whole, 1), size))
        share.append(low.pointwise("sub", [source, whole], FLOAT))
    tops = [image.at(near[0], column) for column in (near[1], far[1])]
    bottoms = [image.at(far[0], column) for column in (near[1], far[1])]
    upper, lower = (low.op("blend", *pair, share[1]) for pair in (tops, bottoms))
    return cast_outputs(low, given, [low.op("blend", upper, lower, share[0])])


@rule("upsample_nearest2d", "_upsample_nearest_exact2d")
def _nearest(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    repeated = _repeated(low, given)
    if repeated is not None:
        return (repeated,)
    image = _Image(low, given.tensor("self"), given.output.shape)
    middle = 0.5 if "exact" in given.call.operator else 0.0
    places: list[Tensor] = []
    for a, (size, scale) in enumerate(zip(image.sizes, _scales(given, image.sizes), strict=True)):
        source = low.pointwise("nearest_source", [image.place(a), scale, middle], FLOAT)
        places.append(_clamped(low, low.cast(source, "int64"), size))
    return (image.at(places[0], places[1]),)


def _repeated(low: Lowering, given: CallArgs) -> Tensor | None:
    """Repeat each element an integer number of times along both axes; None where an enlargement is another."""
    source = given.tensor("self")
    *lead, height, width = low.shape(source)
    times = _times(given, (height, width), given.output.shape[-2:])
    if times is None:
        return None
    wide = (*lead, height, times[0], width, times[1])
    fresh = low.new_dims(wide, pinned=True)
    for dim in source.dims[-2:]:
        low.axes.pin(dim)
    dims = (*source.dims[:-1], fresh[-3], source.dims[-1], fresh[-1])
    low.axes.keep_apart(dims)
    order = (*range(len(lead)), len(lead), None, len(lead) + 1, None)
    repeated = Permute(dims=dims, dtype=source.dtype, origin=low.at, arg=source, source=order)
    return low.reshape(repeated, low.new_dims(given.output.shape))


@rule("upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward")
def _nearest_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    image = _Image(low, given.tensor("grad_output"), given.output.shape)
    times = _times(given, given.output.shape[-2:], image.sizes)
    if times is None:
        raise Unsupported("an enlargement by a factor that is no integer")
    _few(times)
    first = [_index(low, "mul", image.place(a), times[a]) for a in (0, 1)]
    parts = [
        image.at(_moved(low, first[0], i), _moved(low, first[1], j))
        for i, j in product(range(times[0]), range(times[1]))
    ]
    return cast_outputs(low, given, [_added(low, parts)])


def _alike(low: Lowering, grad: Tensor, source: Tensor) -> None:
    """Require a gradient and what it is of to have the same images, of sizes that are part of the kernel."""
    for own, other in zip(grad.dims[:-2], source.dims[:-2], strict=True):
        if own and other:
            low.axes.join(own, other)
    for dim in source.dims[-2:]:
        low.axes.pin(dim)


def _few(kernel: Pair) -> None:
    if kernel[0] * kernel[1] > _MOST:
        raise Unsupported(f"windows of more than {_MOST} elements")


def _index(low: Lowering, operation: str, index: Tensor, *numbers: int) -> Tensor:
    """Return an expression over an index and numbers that shape the kernel."""
    return low.pointwise(operation, [index, *numbers], LONG)


def _moved(low: Lowering, place: Tensor, by: int) -> Tensor:
    return _index(low, "add", place, by) if by else place


def _clamped(low: Lowering, place: Tensor, size: int) -> Tensor:
    return _index(low, "clamp_index", place, max(size - 1, 0))


def _flat(low: Lowering, image: _Image, row: Tensor, column: Tensor) -> Tensor:
    return low.pointwise("mul + identity", [row, ScalarArg(image.width), column], LONG)


def _reach(given: CallArgs, step: Pair, first: Pair) -> tuple[Pair, Pair]:
    """Return the bounds of the index, along rows and along columns, of an element of all windows, from its first."""
    counts = given.output.shape[-2:]
    rows, columns = ((f, f + s * (n - 1)) for f, s, n in zip(first, step, counts, strict=True))
    return rows, columns


def _guarded(low: Lowering, image: _Image, row: Tensor, column: Tensor, kept: str, reach: tuple[Pair, Pair]) -> Tensor:
    """Return an element, or what `kept` gives beyond the image; only sides that an index reaches are tested."""
    places: list[Tensor] = []
    tests: list[str] = []
    asked: list[Tensor | float] = []
    for place, size, (least, most) in zip((row, column), (image.height, image.width), reach, strict=True):
        held = place
        if least < 0:
            tests.append("ge")
            asked += [place, 0]
            held = _index(low, "at_least_zero", held)
        if most >= size:
            tests.append("lt")
            asked += [place, size]
            held = _index(low, "at_most", held, max(size - 1, 0))
        places.append(held)
    value = image.at(places[0], places[1])
    if not asked:
        return value
    there = low.pointwise(" & ".join(tests), asked, LONG, BOOL)
    return low.pointwise(kept, [there, value], FLOAT, as_is=(0,))


def _windows(
    low: Lowering, image: _Image, kernel: Pair, step: Pair, pad: Pair
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the windows that an element may lie in, in order: row and column of each, and whether it does."""
    counts = [-(-k // s) for k, s in zip(kernel, step, strict=True)]
    _few((counts[0], counts[1]))
    last = [_index(low, "add_floordiv", image.place(a), pad[a], step[a]) for a in (0, 1)]
    for i, j in product(reversed(range(counts[0])), reversed(range(counts[1]))):
        rows, columns = (_moved(low, at, -by) for at, by in zip(last, (i, j), strict=True))
        # The last index before a window that ends there.
        reached = [_index(low, "add", image.place(a), pad[a] - kernel[a]) for a in (0, 1)]
        inside = (rows, 0, rows, image.height, columns, 0, columns, image.width)
        begun = (rows, step[0], reached[0], columns, step[1], reached[1])
        there = low.pointwise("ge & lt & ge & lt & mul_gt & mul_gt", (*inside, *begun), LONG, BOOL)
        yield _clamped(low, rows, image.height), _clamped(low, columns, image.width), there


def _count(low: Lowering, given: CallArgs, first: Sequence[Tensor], sizes: Sequence[int]) -> Tensor | int:
    """Return how many elements a window's sum is divided by."""
    kernel, _, pad = _window(given)
    override = given.literal("divisor_override", None)
    if isinstance(override, int):
        return override
    padded = bool(given.literal("count_include_pad", True))
    if padded and not given.literal("ceil_mode", False):
        return kernel[0] * kernel[1]
    spans: list[Tensor] = []
    for a in (0, 1):
        low_, high = (-pad[a], sizes[a] + pad[a]) if padded else (0, sizes[a])
        spans.append(_index(low, "window_length", first[a], kernel[a], high, low_))
    return low.pointwise("mul", spans, LONG)


def _added(low: Lowering, parts: Sequence[Tensor]) -> Tensor:
    """Return the sum, in order."""
    low.reduces = True
    total = parts[0]
    for part in parts[1:]:
        total = low.op("add", total, part)
    return total


def _scales(given: CallArgs, sizes: Sequence[int], corners: bool = False) -> list[float]:
    """Return how far a step of the result goes in the source along both axes, as eager's float32 has it."""
    along = zip(("scales_h", "scales_w"), sizes, given.output.shape[-2:], strict=True)
    return [_scale(given, name, size, result, corners) for name, size, result in along]


def _scale(given: CallArgs, name: str, size: int, result: int, corners: bool) -> float:
    asked = given.literal(name, None) if name in given else None
    if corners:
        return _narrow((size - 1) / (result - 1)) if result > 1 else 0.0
    if isinstance(asked, int | float) and asked > 0:
        return _narrow(1 / asked)
    return _narrow(size / result) if result else 0.0


def _times(given: CallArgs, sizes: Sequence[int], results: Sequence[int]) -> Pair | None:
    """Return how often each element is taken along both axes, as eager's float32 works it out; None: not always so."""
    times: list[int] = []
    for name, size, result in zip(("scales_h", "scales_w"), sizes, results, strict=True):
        scale, factor = _scale(given, name, size, result, False), result // max(size, 1)
        if result % max(size, 1) or any(int(_narrow(place * scale)) != place // factor for place in range(result)):
            return None
        times.append(factor)
    return times[0], times[1]


def _narrow(value: float) -> float:
    return float(unpack("f", pack("f", value))[0])
