"""Python lines that lead to a row: the innermost frames of the user's own code."""

from __future__ import annotations

import re

from msgspec.structs import replace

from tracemine.findings.record import Source
from tracemine.rows.user_frames import written_name
from tracemine.timeline import Timeline

_MOST_FRAMES = 5
# Frames that say how a call was dispatched and not who made it: the framework's and the interpreter's own.
_NOT_THE_USERS = re.compile(
    r"(^|[/\\])(torch|torch_npu|functorch|triton|_dynamo|_inductor|torchinductor(_[\w.-]+)?)[/\\]"
    r"|(^|[/\\])(contextlib|functools|threading|runpy)\.py$|^<"
)


def sources(timeline: Timeline, stack_row: int | None) -> tuple[Source, ...]:
    """Return frames of a call path, innermost first, without torch's own, modules and built-ins; empty where no stack
    is.

    A function that torch.compile broke and resumed is one frame, at the line that broke it last.
    """
    stacks = timeline.stacks
    begins = stacks["file"].null_count > 0  # built-ins are frames as well: events, not the text of older versions
    found: list[Source] = []
    row, resumes = stack_row, False
    while row is not None and len(found) < _MOST_FRAMES:
        file = stacks["file"][row].as_py()
        if file is not None and not _NOT_THE_USERS.search(file):
            line, function = stacks["line"][row].as_py(), stacks["function"][row].as_py()
            if line is not None and function is not None:
                frame = Source(file=file, line=line, function=written_name(function), begins=begins)
                frame = frame if frame.function == function else replace(frame, begins=False)  # the line that broke it
                resumed = found and resumes and (found[-1].file, found[-1].function) == (frame.file, frame.function)
                found += [] if resumed else [frame]
                resumes = frame.function != function
        caller = stacks["parent_row"][row].as_py()
        row = caller if caller is not None and 0 <= caller < row else None  # callers stand before callees
    return tuple(found)


def short(source: Source) -> str:
    """Return a frame without what differs between machines and edits: the file's last two names, and the function.

    >>> short(Source(file="/home/x/site-packages/models/llama.py", line=71, function="forward"))
    'models/llama.py: forward'
    """
    names = source.file.replace("\\", "/").split("/")
    return f"{'/'.join(names[-2:])}: {source.function}"
