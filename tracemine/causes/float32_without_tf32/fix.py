"""The same call in TF32."""

from __future__ import annotations

from tracemine.verify.fixes.calls import Ways

FIX = Ways(ways=("TF32",))
