"""Validate generated kernels on a CPU: in Triton's interpreter, along with mutants of them.

>>> import tracemine
>>> from tracemine.codegen import GraphBuilder
>>> b = GraphBuilder("scaled")
>>> graph = b.done(b.call("aten::mul.Tensor", b.input("x", (64, 128), "bfloat16"), 2.0))
>>> tracemine.validate(graph).passed
True

pipeline.py leads a graph through: downsize.py makes it small enough, sandbox.py generates what is tried and limits the
process in which worker.py tries it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand
from tracemine.validate.record import TIME_LIMIT_S, Validation

if TYPE_CHECKING:
    from tracemine.codegen import Graph
    from tracemine.validate.pipeline import Interpreter, ValidationReport, validate, validate_graphs

__all__ = ["Interpreter", "Validation", "ValidationReport", "validate", "validate_graphs"]


# Who reads verdicts needs the record alone, and no code generator.
__getattr__ = on_demand(
    __name__, dict.fromkeys(("Interpreter", "ValidationReport", "validate", "validate_graphs"), f"{__name__}.pipeline")
)


class _Callable(ModuleType):
    """Let `tracemine.validate(graph)` be called: this package and its main function have one name.

    An import of the package sets that attribute of `tracemine` to the package, whatever stood there.
    """

    def __call__(self, graph: Graph, *, mutants: bool = True, time_limit_s: float = TIME_LIMIT_S) -> ValidationReport:
        report: ValidationReport = __getattr__("validate")(graph, mutants=mutants, time_limit_s=time_limit_s)
        return report


sys.modules[__name__].__class__ = _Callable
