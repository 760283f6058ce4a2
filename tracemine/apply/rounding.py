"""How coarsely a step computes: two programs that are the same on paper may differ by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_TF32 = 2.0**-11
_HALF = (torch.float16, torch.bfloat16)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv")


class _Seen(TorchDispatchMode):  # type: ignore[misc]  # torch may have no types here
    """Notes of each operator the coarsest rounding in it."""

    coarsest = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        out = function(*given, **(named or {}))
        first = out[0] if isinstance(out, tuple | list) and out else out
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            self.coarsest = max(self.coarsest, _rounding(str(function.__name__), first))
        return out


def _rounding(name: str, out: Any) -> float:
    if out.dtype in _HALF:
        return float(torch.finfo(out.dtype).eps)
    if out.dtype != torch.float32 or out.device.type == "cpu":
        return 0.0
    kind = name.partition(".")[0]
    products = kind in _PRODUCTS and torch.get_float32_matmul_precision() != "highest"
    by_cudnn = any(part in kind for part in ("convolution", "cudnn")) and torch.backends.cudnn.allow_tf32
    return _TF32 if products or by_cudnn else 0.0


def rounding_of(run: Callable[[], Any]) -> float:
    """Run a step once and return the coarsest rounding in it, relative: of half precision, of TF32, or 0.0."""
    seen = _Seen()
    try:
        with seen:
            run()
    except Exception:  # of what does not run so, nothing more is known
        return seen.coarsest
    return seen.coarsest
