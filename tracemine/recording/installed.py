"""The torch that is installed here."""

from __future__ import annotations

import platform
import re
from typing import Any

from tracemine.errors import TracemineError, UsageError
from tracemine.recording.files import driver
from tracemine.version import __version__

_OLDEST_TORCH = (2, 4)  # the first that writes `Record function id`


def torch_here() -> Any:
    """Return torch. Raises TracemineError where there is none, UsageError where it is too old."""
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise TracemineError(
            f"tracemine.capture needs torch, which cannot be imported here: {error}",
            hint='capture where the model runs, or: pip install "torch>=2.4"',
        ) from None
    version = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if version and tuple(map(int, version.groups())) < _OLDEST_TORCH:
        raise UsageError(
            f"tracemine.capture needs torch 2.4 or newer, and this is {torch.__version__}",
            hint="record with torch.profiler and pass its trace to tracemine scan",
        )
    return torch


def versions(torch: Any) -> dict[str, Any]:
    """Return what records, and on which GPUs, as `Capture` names it."""
    return {
        "tracemine": __version__,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "driver": driver() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }
