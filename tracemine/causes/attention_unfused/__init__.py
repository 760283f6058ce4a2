"""Unfused attention: products and a softmax, which one fused call computes without writing scores to memory.

estimate.py    what that call saves
eager.py       the products' shapes → the call that takes their place
fused_call.py  which backend takes that call, and how long it takes
scores.py      what is done to scores that the call has no argument for
fix.py         the call, next to the calls of a finding, forward and backward
"""

from tracemine.causes.attention_unfused.estimate import FACTS, estimate
from tracemine.causes.cause import Cause

CAUSE = Cause(
    rule="attention_unfused",
    savings={"attention": estimate},
    facts=FACTS,
    part="attention",
    compiled_share=0.65,  # of three programs that write attention out, on an H200 (benchmarks/programs/graphs.py)
    fix_at=f"{__name__}.fix:FIX",
)
