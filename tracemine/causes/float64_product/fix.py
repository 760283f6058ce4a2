"""The same call in float32 and TF32."""

from __future__ import annotations

from tracemine.verify.fixes.calls import Ways

FIX = Ways(
    ways=("float32", "float32, TF32"),
    assumes=("nothing needs float64: results are right as float32 and TF32 round, not equal to eager's",),
)
