"""One kernel in place of a chain of calls, and the proof that it computes what they compute.

findings.py leads through the rooms, stepping.py through those of a step; each knows those above it in this list:

kernels/   a chain (chain.py) → recipes → nodes of a loop-level language → source
rebuild/   a finding → its chain of calls
proof/     the source in Triton's interpreter on a CPU, wrong kernels beside it, in a process of its own
gpu/       is it right on a GPU, and how long it takes: pasted into files that stand alone (alone.py, repro.py)
library/   calls that say what a chain spells out
step/      a whole recorded step, with the kernels in place
verdicts/  what it came to, written and read again

Generating needs neither torch nor triton.
"""

from tracemine.verify.chain import Builder, Chain, ChainError, Unsupported
from tracemine.verify.kernels.source import Source, generate
from tracemine.verify.proof.check import Interpreter, prove
from tracemine.verify.proof.record import Proof

__all__ = ["Builder", "Chain", "ChainError", "Interpreter", "Proof", "Source", "Unsupported", "generate", "prove"]
