"""The layers of a TensorRT engine, joined by the tensors that they read and write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from math import inf, prod

from msgspec import Struct

from tracemine.calls import calls_of
from tracemine.columns import numbers
from tracemine.ops.dtypes import itemsize
from tracemine.timeline import Timeline

NARROW = frozenset({"int8", "float8_e4m3fn"})
WIDE = frozenset({"float16", "bfloat16", "float32"})
_NAMESPACE = "TensorRT::"
_TELLING_BYTES = 4_000_000  # of a layer that tells how fast bytes are moved: smaller ones tell what a launch takes
_PRODUCTS = ("conv", "gemm")
_OPERAND = ("op_row", "is_output", "storage_id", "dtype", "shape", "numel")


class LayerOperand(Struct, frozen=True):
    """A tensor as a layer reads or writes it. `elements`: those of padding too; None: not known."""

    storage: int
    dtype: str
    dims: tuple[int, ...]
    elements: int | None


class EngineLayer(Struct, frozen=True):
    """A layer. `activity`: its row; −1 of one that takes no time."""

    number: int
    activity: int
    ns: int
    kind: str
    reads: tuple[LayerOperand, ...]
    writes: tuple[LayerOperand, ...]
    facts: dict[str, str]
    is_product: bool

    @property
    def narrow(self) -> bool:
        """Whether it is a product of narrow operands."""
        return self.is_product and bool(self.reads and self.writes) and self.reads[0].dtype in NARROW

    @property
    def writes_wide(self) -> bool:
        """Whether its result is wider than what it multiplies."""
        return self.narrow and self.writes[0].dtype in WIDE

    @property
    def is_global_pool(self) -> bool:
        """Whether it leaves one element a channel, or works on such: next to nothing lies behind it."""
        behind = self.reads[0].dims[2:] if self.kind != "Pooling" and self.reads else self.writes[0].dims[2:]
        return bool(behind) and all(size == 1 for size in behind)

    @property
    def depth(self) -> int:
        """Return how many products are summed for each element; 0 where that is not known."""
        dims = self.reads[0].dims
        groups, kernel = int(self.facts.get("groups", "1")), self.facts.get("kernel", "")
        spread = prod(int(size) for size in kernel.split("x") if size.isdecimal())
        channels = dims[1] if kernel and len(dims) > 1 else dims[-1] if dims else 0
        return max(channels // groups * spread, 0)

    @property
    def work(self) -> int:
        """Return multiplications; 0 where they are not known."""
        return max(prod(self.writes[0].dims), 0) * self.depth

    def nbytes(self, itemsize_bytes: int | None = None) -> int:
        """Return bytes read and written, as they are or in another precision; weights are not counted."""
        operands = (*self.reads, *self.writes)
        return sum((operand.elements or 0) * (itemsize_bytes or itemsize(operand.dtype) or 0) for operand in operands)


class TrtEngine(Struct, frozen=True, dict=True):
    """An engine's layers in their order."""

    layers: list[EngineLayer]

    @staticmethod
    def of(timeline: Timeline) -> TrtEngine:
        """Return the engine that a timeline is of; one without layers where it is of something else."""
        if timeline.meta.format != "tensorrt":
            return TrtEngine([])
        given: dict[tuple[int, bool], list[LayerOperand]] = defaultdict(list)
        for row, is_output, storage, dtype, shape, numel in zip(
            *(timeline.tensors[name].to_pylist() for name in _OPERAND), strict=True
        ):
            given[row, is_output].append(LayerOperand(storage, dtype or "", tuple(shape), numel if shape else None))
        rows, spent = (numbers(timeline.activities[name], -1).tolist() for name in ("op_row", "dur_ns"))
        timed = {row: (at, ns) for at, (row, ns) in enumerate(zip(rows, spent, strict=True))}
        layers = []
        for row, call in enumerate(map(calls_of(timeline).at, range(timeline.ops.num_rows))):
            assert call is not None  # noqa: S101 - each row of `ops` is a call
            facts = dict(word.split("=", 1) for word in call.values or () if "=" in word)
            kind, is_product = call.name.removeprefix(_NAMESPACE), call.op_class in _PRODUCTS
            ends = tuple(given[row, False]), tuple(given[row, True])
            layers.append(EngineLayer(row, *timed.get(row, (-1, 0)), kind, *ends, facts, is_product))
        return TrtEngine(layers)

    @cached_property
    def makers(self) -> dict[int, EngineLayer]:
        """The layer that writes each tensor, the last of several; none writes what the engine is given."""
        return {operand.storage: layer for layer in self.layers for operand in layer.writes}

    @cached_property
    def readers(self) -> dict[int, list[EngineLayer]]:
        """The layers that read each tensor; none reads what the engine gives."""
        joined: dict[int, list[EngineLayer]] = defaultdict(list)
        for layer in self.layers:
            for operand in layer.reads:
                joined[operand.storage].append(layer)
        return joined

    @cached_property
    def bytes_per_ns(self) -> float:
        """The most that a layer moves; without end where all are small."""
        rates = [layer.nbytes() / layer.ns for layer in self.layers if layer.ns and layer.nbytes() > _TELLING_BYTES]
        return max(rates, default=inf)

    @cached_property
    def narrow_products(self) -> list[EngineLayer]:
        """Products that took time, and read and write narrow elements alone."""
        timed = [layer for layer in self.layers if layer.narrow and layer.ns]
        return [layer for layer in timed if all(operand.dtype in NARROW for operand in (*layer.reads, *layer.writes))]

    def sources(self, layer: EngineLayer) -> list[EngineLayer]:
        """Return the layers that write what a layer reads, through those that only name memory anew."""
        makers = self.makers
        found = self._beyond(layer, lambda each: [makers[o.storage] for o in each.reads if o.storage in makers])
        return [maker for maker in found if maker.number < layer.number]

    def users(self, layer: EngineLayer) -> list[EngineLayer]:
        """Return the layers that read what a layer writes, through those that only name memory anew."""
        return self._beyond(layer, lambda each: [user for o in each.writes for user in self.readers.get(o.storage, ())])

    def is_given(self, layer: EngineLayer) -> bool:
        """Return whether a layer reads what the engine is given."""
        return bool(layer.reads) and layer.reads[0].storage not in self.makers

    def _beyond(self, layer: EngineLayer, near: Callable[[EngineLayer], list[EngineLayer]]) -> list[EngineLayer]:
        joined, left = list[EngineLayer](), [layer]
        for _ in range(len(self.layers)):
            for each in near(left.pop()) if left else ():
                (left if each.kind == "NoOp" else joined).append(each)
        return joined
