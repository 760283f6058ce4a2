"""Small patterns that fusion would help, a little, or not at all: functions of a few tensors, and how to make those.

`rows` × `columns` and a dtype make a point. The sets are modules: `first`, `fresh`, `third` (in the order in which
they were written, each held out from what was known before), `gemm` and `native`.
"""

from benchmarks.patterns import first, fresh, gemm, native, third
from benchmarks.patterns.makers import PATTERNS

__all__ = ["PATTERNS", "first", "fresh", "gemm", "native", "third"]
