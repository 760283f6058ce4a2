"""Causes of slowness: a room each, named like the rule. A cause without Python is a rule alone.

attention_unfused     products and a softmax in place of fused attention
batch_norm_evaluated  a norm in evaluation behind a convolution that could do its work
cache_grown           a cache that is joined with each new row
conversion_pair       conversions around calls that take tensors as they lie
embedding_bags_apart  embedding bags over many tables, a call each
expert_sort           tokens sorted by their expert with wide keys
gradient_zeroing      gradients that are filled with zeros, and added to
layout_leak           a call slow because of how its inputs lie
loop_invariant        work that gives the same in each step
optimizer_unfused     an optimizer that updates tensor by tensor
parameter_loop        a loop over tensors that an operator over lists does at once
scaler_needless       a gradient scaler that nothing needs
small_products_apart  small products in a loop, a call each
weight_cast           weights cast anew in each step
"""

from __future__ import annotations

from tracemine.causes.attention_unfused import ATTENTION_UNFUSED
from tracemine.causes.batch_norm_evaluated import BATCH_NORM_EVALUATED
from tracemine.causes.cache_grown import CACHE_GROWN
from tracemine.causes.cause import Cause
from tracemine.causes.conversion_pair import CONVERSION_PAIR
from tracemine.causes.embedding_bags_apart import EMBEDDING_BAGS_APART
from tracemine.causes.expert_sort import EXPERT_SORT
from tracemine.causes.gradient_zeroing import GRADIENT_ZEROING
from tracemine.causes.layout_leak import LAYOUT_LEAK
from tracemine.causes.loop_invariant import LOOP_INVARIANT
from tracemine.causes.parameter_loop import PARAMETER_LOOP
from tracemine.causes.scaler_needless import SCALER_NEEDLESS
from tracemine.causes.small_products_apart import SMALL_PRODUCTS_APART
from tracemine.causes.weight_cast import WEIGHT_CAST

__all__ = ["CAUSES", "Cause"]

CAUSES: tuple[Cause, ...] = (
    ATTENTION_UNFUSED,
    BATCH_NORM_EVALUATED,
    CACHE_GROWN,
    CONVERSION_PAIR,
    EMBEDDING_BAGS_APART,
    EXPERT_SORT,
    GRADIENT_ZEROING,
    LAYOUT_LEAK,
    LOOP_INVARIANT,
    Cause(rule="optimizer_unfused", part="optimizer"),
    PARAMETER_LOOP,
    SCALER_NEEDLESS,
    SMALL_PRODUCTS_APART,
    WEIGHT_CAST,
)
