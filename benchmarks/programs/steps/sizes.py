"""Where the steps of this folder run, and how large they are there."""

from __future__ import annotations

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def size(on_gpu: int, on_cpu: int) -> int:
    return on_gpu if DEVICE == "cuda" else on_cpu
