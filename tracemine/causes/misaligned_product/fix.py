"""The same product, padded."""

from __future__ import annotations

from tracemine.verify.fixes.calls import Ways

FIX = Ways(ways=("padded",))
