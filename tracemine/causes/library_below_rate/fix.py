"""Other algorithms and layouts of a convolution, other tiles of a product."""

from __future__ import annotations

from tracemine.verify.fixes.calls import SEARCHED, Ways

FIX = Ways(ways=("padded", "cublasLt"), of_convolutions=SEARCHED)
