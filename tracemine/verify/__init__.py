"""One kernel in place of a chain of calls, and the proof that it computes what they compute.

Chain (chain.py) → recipes (lower.py, values.py) → kernels of a loop-level language (plan.py, ir.py)
→ source (generate.py) → verdict of Triton's interpreter on a CPU, in a process of its own (check.py, worker.py)

Generating needs neither torch nor triton.
"""

from tracemine.verify.chain import Builder, Chain, ChainError, Unsupported
from tracemine.verify.kernels.source import Source, generate
from tracemine.verify.proof.check import Interpreter, prove
from tracemine.verify.proof.record import Proof

__all__ = ["Builder", "Chain", "ChainError", "Interpreter", "Proof", "Source", "Unsupported", "generate", "prove"]
