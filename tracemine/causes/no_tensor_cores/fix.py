"""Other algorithms and layouts, or one batched product."""

from __future__ import annotations

from tracemine.verify.fixes.calls import SEARCHED, Ways

FIX = Ways(ways=SEARCHED, others=("unfold, bmm",))
