"""What Proton says of a kernel: its call stack, what the program stated of it, and whether it is Proton's own.

A call stack holds scopes by name, Python's frames as `file:line@function`, and the kernel last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tracemine.formats.small_tables import Row, small_timeline
from tracemine.timeline import Timeline
from tracemine.units import percent_text

UNNAMED: Final = "(unnamed)"
_ROOT: Final = "ROOT"
_METADATA: Final = "__proton_launch_metadata"  # the scope in which Proton computes what a kernel says of itself
_METRIC: Final = "<metric>"  # the name of a kernel that stores such a value
_CAPTURED: Final = "<captured_at>"  # between where a CUDA graph is replayed and where its kernel was captured
# Older versions write `file:function@line`.
_FRAME: Final = re.compile(
    r"(?P<file>.+):(?:(?P<line>\d{1,9})@(?P<function>[^:@]+)|(?P<old_function>[^:@]+)@(?P<old_line>\d{1,9}))"
)
_FLOPS: Final = re.compile(r"flops(?:8|16|32|64)?")
_DEEPEST = 64  # scopes around a kernel that its module path names
_LONGEST = 4096  # characters of a name
_LARGEST = 1 << 61  # of bytes and operations
_LAST_LINE = (1 << 31) - 1
_OWN_TO_SAY = 0.01  # of all GPU time


class ScopedKernel(Struct):
    """A kernel in its scopes, itself the last: one run of it, or the sum of all."""

    stack: tuple[str, ...]
    dur_ns: int
    metrics: dict[str, Any]
    start_ns: int = 0
    thread: int = -1

    @property
    def own(self) -> bool:
        """Whether Proton itself launched it, to compute metrics.

        >>> [ScopedKernel(("ROOT", scope, "at::sum"), 9, {}).own for scope in ("__proton_launch_metadata:k", "k")]
        [True, False]
        """
        return self.stack[-1] == _METRIC or any(part.partition(":")[0] == _METADATA for part in self.stack)

    def row(self, contexts: Contexts) -> Row:
        """Return its row of `activities`."""
        own = {"kind": "kernel", "name": self.stack[-1], "start_ns": self.start_ns, "dur_ns": self.dur_ns}
        return own | contexts.columns(self.stack[:-1]) | stated(self.metrics)


def proton_timeline(
    path: str, found: Sequence[ScopedKernel], tables: Mapping[str, Sequence[Row]], *, says: Iterable[str], **more: Any
) -> Timeline:
    """Return a timeline that leaves out Proton's own kernels among those found, and says where they took long."""
    own_ns, gpu_ns = (sum(kernel.dur_ns for kernel in found if kernel.own is own) for own in (True, False))
    own_text = (
        f"Proton's own kernels took {percent_text(own_ns, gpu_ns + own_ns)} of the GPU's time, to compute what "
        "launch_metadata returns: they are left out, and are no part of the program. Return numbers that need no "
        "kernel."
    )
    says = [*says, own_text if own_ns > _OWN_TO_SAY * (gpu_ns + own_ns) else ""]
    skipped = {"work of Proton's own": sum(kernel.own for kernel in found)}
    return small_timeline(path, tables, says=says, skipped=skipped, format="proton", **more)


def whole(value: object, most: int = _LARGEST) -> int:
    """Return a recorded number; 0 of what is none, or cannot be.

    >>> whole(2.5), whole(True), whole(-1), whole("9")
    (2, 0, 0, 0)
    """
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most else 0


def stated(metrics: dict[str, Any]) -> dict[str, int | None]:
    """Return what a program stated of a kernel: bytes, and operations of all widths.

    >>> stated({"bytes": 64, "flops16": 8.0, "flops8": 8, "name": "x"})
    {'stated_bytes': 64, 'stated_flops': 16}
    """
    flops = sum(whole(value) for name, value in metrics.items() if _FLOPS.fullmatch(name))
    return {"stated_bytes": whole(metrics.get("bytes")) or None, "stated_flops": min(flops, _LARGEST) or None}


class Contexts:
    """Distinct places of kernels: the module path of each, and the row of `stacks` of its innermost line.

    >>> contexts = Contexts()
    >>> contexts.columns(("ROOT", "step", "mlp")), contexts.columns(("ROOT", "model.py:7@forward"))
    ({'module': 'step.mlp', 'stack_row': None}, {'module': None, 'stack_row': 0})
    >>> contexts.columns(("model.py:forward@7",)), [row["frame"] for row in contexts.stacks]
    ({'module': None, 'stack_row': 1}, ['model.py(7): forward', 'model.py(7): forward'])
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Row] = {}
        self._rows: dict[tuple[int | None, str], int] = {}
        self.stacks: list[Row] = []  # of all lines that were asked for

    def columns(self, stack: Sequence[str]) -> Row:
        """Return module path and row of `stacks` of a call stack without its kernel."""
        key = tuple(part[:_LONGEST] for part in stack if part not in (_ROOT, _CAPTURED, ""))
        if key not in self._found:
            row, scopes = None, list[str]()
            for part in key:
                if (frame := _FRAME.fullmatch(part)) is None:
                    scopes.append(part)
                    continue
                if (row, part) not in self._rows:
                    self._rows[row, part] = len(self.stacks)
                    self.stacks.append({"parent_row": row, **_columns_of(frame)})
                row = self._rows[row, part]
            self._found[key] = {"module": ".".join(scopes[:_DEEPEST]) or None, "stack_row": row}
        return self._found[key]


def _columns_of(frame: re.Match[str]) -> Row:
    file, line, function = frame["file"], frame["line"] or frame["old_line"], frame["function"] or frame["old_function"]
    at = min(int(line), _LAST_LINE)
    return {"frame": f"{file}({line}): {function}", "file": file, "line": at, "function": function}
