"""What pip installs for what needs more: packages by the extra of pyproject.toml that asks for them.

Hints name packages, not `tracemine[extra]`: that would be looked for on an index, also of an install from a checkout.
"""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "verify": ("torch", "triton"),
    "fix": ("libcst",),
    "ncu": ("ncu-report",),
    "nsys": ("adbc-driver-sqlite",),
    "tickets": ("httpx", "keyring"),
    "mcp": ("mcp",),
    "fleet": ("duckdb", "fsspec"),
    "ray": ("ray",),
}


def install(extra: str) -> str:
    """Return the command that installs what an extra needs.

    >>> install("verify")
    'pip install torch triton'
    """
    return " ".join(("pip install", *EXTRAS[extra]))
