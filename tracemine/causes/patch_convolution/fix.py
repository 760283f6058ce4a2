"""Other algorithms and layouts, or patches and one product."""

from __future__ import annotations

from tracemine.verify.fixes.calls import SEARCHED, Ways

FIX = Ways(ways=SEARCHED, others=("patches, linear",), assumes=("what reads the result takes it in any layout",))
