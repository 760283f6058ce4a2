"""Python lines that lead to something: of a recorded call path, the innermost frame of the user's own."""

from __future__ import annotations

import re
import sys

import numpy as np
import pyarrow as pa

from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.table import BoolArray, Categories
from tracemine.tables import table_beside

# Frames of the framework: they say how a call was dispatched, not who made it.
_FRAMEWORK = deferred(
    r"(^|[/\\])(torch|torch_npu|functorch|triton|_dynamo|_inductor|torchinductor(_[\w.-]+)?)[/\\]"
    r"|(^|-packages[/\\])(jax|jaxlib)[/\\]|^<"
)
_TABLE = table_beside(__file__, "user_frames.toml")
# Packages whose files profilers record without the folder that they are installed in.
_LIBRARIES = frozenset(_TABLE["libraries"])
_INSTALLED = deferred(
    r"(^|[/\\])((site|dist)-packages|lib[/\\]python\d[\w.]*)[/\\]|[/\\](torchinductor_|\.cache[/\\])|^/tmp/[^/]+\.py$"
    r"|(^|[/\\])tracemine[/\\]recording(\.py$|[/\\])|^<",
    re.IGNORECASE,
)
# What dynamo calls the rest of a function behind a graph break. Its recorded line is the one that broke the graph.
_RESUMED = deferred(r"^(?:torch_dynamo_resume_in_)+(.+?)(?:_at_\d+)+$")


def written_name(function: str) -> str:
    """Return the function's name in its source, of one that dynamo resumes behind a graph break as well.

    >>> written_name("torch_dynamo_resume_in_forward_at_69")
    'forward'
    """
    found = _RESUMED.match(function)
    return found[1] if found else function


def is_own(file: str) -> bool:
    """Return whether a file is neither a library's, nor Python's, nor generated.

    >>> is_own("train.py"), is_own("/home/me/model/llama.py"), is_own("transformers/models/llama/modeling_llama.py")
    (True, True, False)
    >>> is_own("/x/lib/python3.12/site-packages/mine.py"), is_own("threading.py"), is_own("<string>")
    (False, False, False)
    """
    if not file or _INSTALLED.search(file):
        return False
    parts = re.split(r"[/\\]", file)
    if parts[0] in ("", ".", "..") or ":" in parts[0]:  # a path from the root, or from where the program ran
        return True
    name = parts[0].removesuffix(".py")
    return name not in _LIBRARIES and name not in sys.stdlib_module_names


def own_frames(stacks: pa.Table) -> BoolArray:
    """Return which rows of `stacks` are in a file that is not the framework's: the user's own, or a library's."""
    file = categories(stacks.column("file"))
    return file.that(lambda name: _FRAMEWORK.search(name) is None)


def source_lines(stacks: pa.Table) -> Categories:
    """Return `file:line function` of the innermost frame outside the framework, for each row of `stacks`. Where every
    frame is the framework's, of the innermost frame that has a file; null where none has one.

    The line is the one that profilers record: where the function begins; behind a graph break, the line that broke it.
    """
    parent = rows_of(stacks.column("parent_row")).tolist()
    file, function = categories(stacks.column("file")), categories(stacks.column("function"))
    line = numbers(stacks.column("line")).values.tolist()
    own = own_frames(stacks).tolist()
    has_file = (file.codes >= 0).tolist()
    best, fallback = [-1] * len(parent), [-1] * len(parent)
    for row, caller in enumerate(parent):  # callers stand before callees
        inherited = (best[caller], fallback[caller]) if 0 <= caller < row else (-1, -1)
        best[row] = row if own[row] else inherited[0]
        fallback[row] = row if has_file[row] else inherited[1]
    texts: dict[str, int] = {}
    codes = np.full(len(parent), -1, np.int32)
    for row, (user, anything) in enumerate(zip(best, fallback, strict=True)):
        chosen = user if user >= 0 else anything
        if chosen >= 0:
            name = written_name(function.values[function.codes[chosen]]) if function.codes[chosen] >= 0 else ""
            text = f"{file.values[file.codes[chosen]]}:{line[chosen]} {name}".rstrip()
            codes[row] = texts.setdefault(text, len(texts))
    return Categories(codes, tuple(texts))
