"""From an ATen graph to the Triton source of kernels that compute the same. Needs neither torch nor triton.

graph.py → lowering/ (tensor_ir.py) → partition.py, inline.py (loop_ir.py) → passes/ → schedule.py, tiles.py → triton/

>>> b = GraphBuilder("scaled_relu")
>>> x = b.input("x", (64, 128), "bfloat16")
>>> graph = b.done(b.call("aten::relu", b.call("aten::mul.Tensor", x, 2.0)))
>>> source = generate(graph)
>>> source.kernels
('scaled_relu_kernel',)
"""

from tracemine.codegen.graph import Graph, GraphError, Unsupported
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.codegen.triton.source import SourceText, generate

__all__ = ["Graph", "GraphBuilder", "GraphError", "SourceText", "Unsupported", "generate"]
