"""Columns of a TensorRT engine's layers: what rules look for that they are part of, and where."""

from __future__ import annotations

import numpy as np

from tracemine.causes.trt_precision_gap.engine import TrtEngine
from tracemine.causes.trt_precision_gap.parts import PARTS, parts
from tracemine.rows.table import Categories, Column, ColumnDoc, Columns, Numbers, Rows, Sources


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    code = np.full(activities.count, -1, np.int32)
    place = np.zeros(activities.count, np.int64)
    engine = TrtEngine.of(sources.timeline)
    for number, (what, first) in parts(engine).items() if engine.layers else ():
        row = engine.layers[number].activity
        code[row], place[row] = PARTS.index(what), first
    return {"engine_part": Categories(code, PARTS), "engine_place": Numbers(place, code >= 0)}


COLUMNS = Columns(
    docs=(
        ColumnDoc("engine_part", "categories", "of a TensorRT layer: `gap` (between narrow products, and wide), `alone` (a conversion of precision that no layer took in, and products that read its result), `input`, `output` (a conversion of what the engine is given or gives), `reformat`, `pad` (a padding that a pooling alone reads), `no_tf32` (a product of FP32 whose channels fill no vector, where others have TF32)", "none of these"),
        ColumnDoc("engine_place", "numbers", "the same for the layers of one of these", "as engine_part"),
    ),
    derive=_columns,
)  # fmt: skip
