"""One thread for each process of a test, set before anything loads NumPy, Arrow or torch; children inherit it.

As many processes run tests as there are cores. OpenMP's threads wait for each other busily: where two processes with
two threads each have two cores, products of a few numbers took ten times their CPU time.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
