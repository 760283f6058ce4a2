"""Modules of this package that are written out as one file, which needs PyTorch alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

from tracemine.verify.repro.standalone import file_text, module_text

# By the file's name its parts, the last of which says what it is.
PAGES: Final[Mapping[str, Sequence[str]]] = {
    "linear_losses": ("verify/gpu/strips.py", "verify/gpu/linear_losses.py"),
    "vocabulary_max": ("verify/gpu/strips.py", "verify/gpu/vocabulary_max.py"),
}


def page_of(advice: str) -> str | None:
    """Return the page that a text of advice imports from; None: it names none.

    >>> page_of("from linear_losses import linear_cross_entropy")
    'linear_losses'
    """
    return next((name for name in PAGES if f"from {name} import " in advice), None)


def page_text(name: str) -> str:
    """Return the text of a page."""
    *rest, last = PAGES[name]
    source = resources.files("tracemine").joinpath(last).read_text("utf-8")
    body, imports = module_text(last)
    says = ast.get_docstring(ast.parse(source)) or ""
    return file_text(says, (), body, embeds={"Strips": rest}, imports=imports, tools=())
