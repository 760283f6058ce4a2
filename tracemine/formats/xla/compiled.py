"""What is compiled of this reader (`_event_cells.c`), where the installation has it: all of it is in Python too."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_INTERFACE = 4  # of `_event_cells.c`; a source tree may hold a build of before


def _built() -> Any:
    try:  # by name: what reads imports from source knows no module without one
        built = import_module("tracemine.formats.xla._event_cells")
    except ImportError:  # installed without a compiler, or run from a source tree
        return None
    return built if getattr(built, "INTERFACE", None) == _INTERFACE else None


_MODULE = _built()
FILL, MESSAGE, NUMBER = (getattr(_MODULE, name, None) for name in ("fill", "message", "number"))
