"""Python lines that lead to a row: the innermost frames of the user's own code."""

from __future__ import annotations

import re

from tracemine.findings.record import Source
from tracemine.timeline import Timeline

_MOST_FRAMES = 5
# Frames that say how a call was dispatched and not who made it: the framework's and the interpreter's own.
_NOT_THE_USERS = re.compile(
    r"(^|[/\\])(torch|torch_npu|functorch|triton|_dynamo|_inductor)[/\\]"
    r"|(^|[/\\])(contextlib|functools|threading|runpy)\.py$|^<"
)


def sources(timeline: Timeline, stack_row: int | None) -> tuple[Source, ...]:
    """Frames of a call path, innermost first, without torch's own, modules and built-ins; empty where no stack is."""
    stacks = timeline.stacks
    found: list[Source] = []
    row = stack_row
    while row is not None and len(found) < _MOST_FRAMES:
        file = stacks["file"][row].as_py()
        if file is not None and not _NOT_THE_USERS.search(file):
            line, function = stacks["line"][row].as_py(), stacks["function"][row].as_py()
            if line is not None and function is not None:
                found.append(Source(file=file, line=line, function=function))
        caller = stacks["parent_row"][row].as_py()
        row = caller if caller is not None and 0 <= caller < row else None  # callers stand before callees
    return tuple(found)


def short(source: Source) -> str:
    """A frame without what differs between machines and edits: the file's last two names, and the function.

    >>> short(Source(file="/home/x/site-packages/models/llama.py", line=71, function="forward"))
    'models/llama.py: forward'
    """
    names = source.file.replace("\\", "/").split("/")
    return f"{'/'.join(names[-2:])}: {source.function}"
