"""Tensors that leave an INT8 engine's narrow precision between its products."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from math import inf, prod

import numpy as np
from msgspec import Struct

from tracemine.calls import calls_of
from tracemine.causes.cause import Cause
from tracemine.columns import numbers
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.ops.dtypes import itemsize
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import coded, spread
from tracemine.rows.table import Column, ColumnDoc, Columns, IntArray, Rows, Sources
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


# What lies between a product and what narrows its result again, and would itself work on narrow elements.
_BETWEEN = frozenset(
    {"Reformat", "Pooling", "PointWise", "PointWiseV2", "ElementWise", "Activation", "Scale", "Shuffle"}
)
_CONVERTS = frozenset({"Reformat", "Quantize", "Shuffle", "Padding"})
_TF32 = "tf32"
_VECTOR = 4  # channels that a tactic of TF32 takes at once


def _parts(engine: TrtEngine) -> dict[int, tuple[str, int]]:
    """Return of each layer's number what it is part of, and of which place of it, by its first layer."""
    placed: dict[int, tuple[str, int]] = {}
    for what, members in (*_gaps(engine), *_alone(engine), *_others(engine), *_without_tf32(engine)):
        numbers = [member.number for member in members]
        if placed.keys().isdisjoint(numbers):
            placed |= dict.fromkeys(numbers, (what, min(numbers, default=0)))
    return placed


def _gaps(engine: TrtEngine) -> Iterator[tuple[str, list[EngineLayer]]]:
    """Yield regions in which the results of narrow products are wide before they are narrowed again."""
    regions: list[dict[int, EngineLayer]] = []
    for layer in engine.layers:
        if layer.kind == "Quantize" and any(user.narrow for user in engine.users(layer)):
            members = _upwards(engine, layer)
            if any(member.writes_wide for member in members.values()):
                joined = [region for region in regions if region.keys() & members.keys()]
                regions = [region for region in regions if region not in joined]
                regions.append({number: each for region in (members, *joined) for number, each in region.items()})
    for region in regions:
        yield "gap", [member for member in region.values() if member.activity >= 0]


def _upwards(engine: TrtEngine, layer: EngineLayer) -> dict[int, EngineLayer]:
    """Return a layer and those before it up to the narrow products whose wide results it reads."""
    members, left = {layer.number: layer}, [layer]
    while left:
        for source in engine.sources(left.pop()):
            if source.number in members or not source.writes or source.writes[0].dtype not in WIDE:
                continue
            if source.writes_wide or (
                source.kind in _BETWEEN and not engine.is_given(source) and not source.is_global_pool
            ):
                members[source.number] = source
                left += [] if source.writes_wide else [source]
    return members


def _alone(engine: TrtEngine) -> Iterator[tuple[str, list[EngineLayer]]]:
    """Yield conversions of precision that no layer took in; after a global pooling there is next to nothing of them."""
    for layer in engine.layers:
        if layer.kind not in ("Quantize", "Dequantize") or layer.activity < 0 or engine.is_given(layer):
            continue
        users = [user for user in engine.users(layer) if user.narrow]
        wide = [user for user in users if user.writes_wide] if layer.kind == "Dequantize" else []
        if users and not layer.is_global_pool:
            yield "alone", [layer, *wide]


def _others(engine: TrtEngine) -> Iterator[tuple[str, list[EngineLayer]]]:
    """Yield conversions at the engine's ends and inside, and pads before pools."""
    for layer in engine.layers:
        users = engine.users(layer)
        if layer.activity < 0:
            continue
        if layer.kind in _CONVERTS and engine.is_given(layer):
            yield "input", _onwards(engine, layer)
        elif layer.kind == "Reformat":
            yield ("reformat" if users else "output"), [layer]
        elif layer.kind == "Padding" and [user.kind for user in users] == ["Pooling"]:
            yield "pad", [layer]


def _without_tf32(engine: TrtEngine) -> Iterator[tuple[str, list[EngineLayer]]]:
    """Yield products of FP32 whose channels fill no vector of a tactic of TF32, where others have such a tactic."""
    products = [layer for layer in engine.layers if layer.is_product and layer.activity >= 0 and layer.reads[:1]]
    products = [layer for layer in products if layer.reads[0].dtype == "float32" and layer.facts.get("tactic")]
    others = [layer for layer in products if _TF32 not in layer.facts["tactic"]]
    for layer in others if len(others) < len(products) else ():
        if any(channels % _VECTOR for channels in layer.reads[0].dims[1:2]):
            yield "no_tf32", [layer]


def _onwards(engine: TrtEngine, layer: EngineLayer) -> list[EngineLayer]:
    """Return a conversion and those behind it that each alone read what the one before gives."""
    placed = [layer]
    while len(users := engine.users(placed[-1])) == 1 and users[0].kind in _CONVERTS and users[0] not in placed:
        placed.append(users[0])
    return [member for member in placed if member.activity >= 0]


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    engine, of = TrtEngine.of(sources.timeline), np.full(activities.count, -1, np.int64)
    placed = _parts(engine)
    of[[engine.layers[number].activity for number in placed]] = range(len(placed))
    parts = placed.values()
    return {"engine_part": coded([what for what, _ in parts], of), "engine_place": spread([at for _, at in parts], of)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("engine_part", "categories", "of a TensorRT layer: `gap` (between narrow products, and wide), `alone` (a conversion of precision that no layer took in, and products that read its result), `input`, `output` (a conversion of what the engine is given or gives), `reformat`, `pad` (a padding that a pooling alone reads), `no_tf32` (a product of FP32 whose channels fill no vector, where others have TF32)", "none of these"),
        ColumnDoc("engine_place", "numbers", "the same for the layers of one of these", "as engine_part"),
    ),
    derive=_columns,
)  # fmt: skip

Ends = tuple[float, float, float]  # low, middle, high, in nanoseconds

_CONVERSION_STAYS = 0.2  # of a conversion's time at most: what reads its result reads a tensor all the same
_WIDE_ENOUGH = 0.999  # of the work, from which on a product does no less
_SAYS = (
    "conversions go, and products write as narrow as they read: priced by the engine's own narrow products of as much "
    "work, and by bytes where it has none"
)


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate regions of one form, all of their layers together."""
    engine = TrtEngine.of(context.timeline)
    by_activity = {layer.activity: layer for layer in engine.layers}
    saved = [_saved_ns(by_activity[row], engine) for row in matrix.reshape(-1).tolist()]
    low, mid, high = (sum(ends) / len(matrix) for ends in zip(*saved, strict=True))
    spent = float(context.facts["activities"].dur_ns[matrix].sum()) / len(matrix)
    after = outwards(max(spent - high, 0.0), max(spent - mid, 0.0), max(spent - low, 0.0))
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(_SAYS,)))


def _saved_ns(layer: EngineLayer, engine: TrtEngine) -> Ends:
    """Return what a layer of a wide region saves when all in it is narrow."""
    if layer.is_product:
        return _of_product(layer, engine)
    if layer.kind in ("Quantize", "Dequantize", "Reformat", "Shuffle"):
        return (layer.ns * (1 - _CONVERSION_STAYS), layer.ns, layer.ns)
    wide, narrow = layer.nbytes(), layer.nbytes(1)
    share = 1 - narrow / wide if wide else 0.0
    # Limited by memory; a product may take in a pooling, or what is computed element by element.
    return (layer.ns * share / 2, layer.ns * (1 + share) / 2, float(layer.ns)) if share else (0.0, 0.0, 0.0)


def _of_product(layer: EngineLayer, engine: TrtEngine) -> Ends:
    """Return what a product saves by writing narrow elements.

    Between what narrow products of the engine take that do as much, and what those do that also sum as deep: for
    few elements the depth decides. Without such products by bytes: at the engine's best rate, and at the layer's.
    """
    larger = [peer for peer in engine.narrow_products if layer.work and peer.work >= _WIDE_ENOUGH * layer.work]
    if not larger:
        wide, narrow = layer.nbytes(), layer.nbytes(1)
        fastest = (wide - narrow) / engine.bytes_per_ns
        slowest = max(layer.ns * (1 - narrow / wide), fastest) if wide else 0.0
        return fastest / 2, (fastest + slowest) / 2, slowest
    most = _beyond(layer, larger, engine.bytes_per_ns)
    least = _beyond(layer, [peer for peer in larger if peer.depth >= layer.depth], engine.bytes_per_ns)
    return least, (least + most) / 2, most


def _beyond(layer: EngineLayer, narrow: list[EngineLayer], rate: float) -> float:
    """Return how much longer a product takes than the fastest of these would with its bytes; 0 without any."""
    own = layer.nbytes(1)
    return max(layer.ns - min((peer.ns + max(own - peer.nbytes(), 0) / rate for peer in narrow), default=inf), 0.0)


CAUSE = Cause(rule="trt_precision_gap", columns=COLUMNS, estimate=estimate)
