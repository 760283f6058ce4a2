"""Whether generated kernels are right, on a CPU: in Triton's interpreter, with wrong ones beside them.

pipeline.py makes the job, worker.py does it in a process of its own, sandbox.py gives that process limits.
"""

from tracemine.validate.pipeline import Interpreter, prove
from tracemine.validate.record import Proof

__all__ = ["Interpreter", "Proof", "prove"]
