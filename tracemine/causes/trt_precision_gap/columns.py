"""Columns of a TensorRT engine's layers: which belong to what rules look for, each to one thing at most, and where."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracemine.causes.trt_precision_gap.engine import WIDE, EngineLayer, TrtEngine
from tracemine.rows.arrow import coded, spread
from tracemine.rows.table import Column, ColumnDoc, Columns, Rows, Sources

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
