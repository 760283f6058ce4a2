"""Replacements of a graph by calls of PyTorch's own library.

find(graph)   → Found: a function `library` and the call that it makes, or why there is none
"""

from tracemine.verify.library.record import Found, Replacement
from tracemine.verify.library.replace import find

__all__ = ["Found", "Replacement", "find"]
