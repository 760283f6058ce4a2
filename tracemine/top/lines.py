"""Lines of Python that kernels come from: the user's own, and within it the innermost line of a library."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from tracemine.columns import codes, examples
from tracemine.columns import numbers as integers
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import IntArray
from tracemine.rows.user_frames import is_own, own_frames, written_name
from tracemine.top.grouping import NOT_KNOWN, Path

# Standard modules that call whoever calls the user's code, and capture's own.
_STANDARD: Final = deferred(
    r"^(threading|contextlib|functools|runpy|socketserver|asyncio[/\\]\w+|concurrent[/\\]futures[/\\]\w+"
    r"|multiprocessing[/\\]\w+)\.py$|(^|[/\\])tracemine[/\\]recording[/\\]|(^|[/\\])bin[/\\](torchrun|accelerate)$"
)
_CALLS_FORWARD: Final = deferred(r"(^|[/\\])torch[/\\]nn[/\\]modules[/\\]module\.py$")


def line_paths(stacks: pa.Table) -> tuple[list[Path], IntArray]:
    """Return the lines that call paths lead through, the user's own and within it a library's; and which of them each
    row of `stacks` has.

    Where none is the user's, a library's alone; where all are the framework's, or none has a file: not known.
    """
    parent = rows_of(stacks["parent_row"])
    file = categories(stacks["file"])
    has_file = file.codes >= 0
    library = own_frames(stacks) & has_file & ~file.that(_STANDARD.search)
    of_user = library & file.that(is_own)
    inner, own = nearest(parent, library), nearest(parent, of_user)
    text, texts = _texts(stacks)
    outer_text, inner_text = (taken(text, rows) for rows in (own, inner))
    pair = codes(outer_text, inner_text)
    sample = examples(pair)
    values: list[Path] = []
    for outer, within in zip(outer_text[sample].tolist(), inner_text[sample].tolist(), strict=True):
        names = [texts[each] for each in dict.fromkeys((outer, within)) if each >= 0]
        values.append(tuple(names) or NOT_KNOWN)
    return values, pair


def _texts(stacks: pa.Table) -> tuple[IntArray, list[str]]:
    """Return `file:line function` of each frame that has a file, as codes; −1: it has none."""
    file, function = categories(stacks["file"]), categories(stacks["function"])
    line, module = integers(stacks["line"], 0), categories(stacks["module"])
    called = taken(file.that(_CALLS_FORWARD.search).astype(np.int64), rows_of(stacks["parent_row"])) == 1
    is_forward = called & function.among("forward")
    of_module = np.where(is_forward, module.codes, -1)
    code = codes(*(each.astype(np.int64) for each in (file.codes, function.codes, line, of_module)))
    sample = examples(code)
    columns = (each[sample].tolist() for each in (file.codes, function.codes, line, of_module))
    texts = []
    for of_file, of_function, number, of in zip(*columns, strict=True):
        name = written_name(function.values[of_function]) if of_function >= 0 else ""
        owner = "" if of < 0 else module.values[of].rpartition(".")[2].rpartition("_")[0] + "."
        texts.append(f"{file.values[of_file]}:{number} {owner}{name}".rstrip() if of_file >= 0 else "")
    distinct = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    number_of = np.array([distinct[text] if text else -1 for text in texts], np.int64)
    return (number_of[code] if len(code) else code), list(distinct)
