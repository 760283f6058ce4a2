"""What an operator, a kernel and a dtype is: tables and the functions that look things up in them. Needs no torch.

lookup("aten::add")                 → Operator: class, overloads, aliases, what is written
op_class(names)                     → class of each operator name
classify(names)                     → family and class of each kernel name
functor("void at::native::…")       → what an elementwise kernel computes
dtype("c10::BFloat16")              → "bfloat16"
"""

from __future__ import annotations

from tracemine.ops.custom import is_custom
from tracemine.ops.dtypes import dtype, itemsize, scalar_type
from tracemine.ops.facts import CLASSES, COMPUTE_BOUND_CLASSES
from tracemine.ops.kernels import KernelFamily, classify, functor
from tracemine.ops.operators import (
    Argument,
    Operator,
    Overload,
    is_view,
    lookup,
    op_class,
    operator_names,
    overload_of,
    table_version,
)

__all__ = [
    "CLASSES",
    "COMPUTE_BOUND_CLASSES",
    "Argument",
    "KernelFamily",
    "Operator",
    "Overload",
    "classify",
    "dtype",
    "functor",
    "is_custom",
    "is_view",
    "itemsize",
    "lookup",
    "op_class",
    "operator_names",
    "overload_of",
    "scalar_type",
    "table_version",
]
