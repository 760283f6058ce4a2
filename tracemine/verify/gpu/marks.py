"""What reproductions and their harness agree on. Needs nothing."""

from __future__ import annotations

import hashlib

INTERFACE = 5  # what a reproduction expects of the harness; another number where the two no longer fit
KERNEL_BEGINS, KERNEL_ENDS = "# --- Kernel and launcher ", "# --- Run "


def name_digest(name: str) -> str:
    """Return the short form of a kernel's name in a reproduction: names have up to thousands of characters.

    >>> name_digest("gemm")
    '16188283'
    """
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
