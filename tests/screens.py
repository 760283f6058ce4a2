"""The scan and the first screen of a trace, made once in a run, whichever of its processes asks for them first."""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]


@cache
def tool() -> ModuleType:
    """tools/first_screens.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("first_screens", ROOT / "tools" / "first_screens.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_screens"] = module
    spec.loader.exec_module(module)
    return module


def measured_once(folder: Path) -> Callable[[Path], Any]:
    """`measured` of the tool, of which a folder keeps what it told of each trace."""

    make = tool().measured

    @cache
    def measured(path: Path) -> Any:
        kept = folder / f"{sha256(str(path).encode()).hexdigest()}.screen"
        if kept.is_file():
            return pickle.loads(kept.read_bytes())  # noqa: S301 - of this run
        found = make(path)
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(found))
        whole.replace(kept)
        return found

    return measured
