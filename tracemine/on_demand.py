"""Names of a package that are imported on first use, so that nothing waits for what it does not need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    modules: by public name the module that it lies in; a module's own path names the module itself.

    >>> on_demand("tracemine.api", {"Report": "tracemine.api.report"})("Report").__name__
    'Report'
    """

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return found
