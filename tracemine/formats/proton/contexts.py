"""What Proton says of a kernel: its call stack, what the program stated of it, and whether it is Proton's own.

A call stack holds scopes by name, Python's frames as `file:line@function`, and the kernel last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tracemine.formats.small_tables import Row
from tracemine.units import percent_text

PROTON: Final = {"format": "proton", "producer": "Triton Proton"}
OWN_WORK: Final = "work of Proton's own"
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


def is_own_work(stack: Iterable[str], name: str) -> bool:
    """Return whether Proton itself launched a kernel, to compute metrics.

    >>> [is_own_work(stack, "at::sum") for stack in (("ROOT", "__proton_launch_metadata:matmul_kernel"), ("ROOT",))]
    [True, False]
    """
    return name == _METRIC or any(part == _METADATA or part.startswith(f"{_METADATA}:") for part in stack)


def own_work_text(own_ns: int, gpu_ns: int) -> str:
    """Say how much of the GPU's time Proton itself took, besides the program's; "" where that is little.

    >>> own_work_text(3, 997)
    ''
    """
    if own_ns <= _OWN_TO_SAY * (gpu_ns + own_ns):
        return ""
    share = percent_text(own_ns, gpu_ns + own_ns)
    return (
        f"Proton's own kernels took {share} of the GPU's time, to compute what launch_metadata returns: they are left "
        "out, and are no part of the program. Return numbers that need no kernel."
    )


def stated(metrics: dict[str, Any]) -> dict[str, int | None]:
    """Return what a program stated of a kernel: bytes, and operations of all widths.

    >>> stated({"bytes": 64, "flops16": 8.0, "flops8": 8, "name": "x"})
    {'stated_bytes': 64, 'stated_flops': 16}
    >>> stated({"flops": -1})
    {'stated_bytes': None, 'stated_flops': None}
    """
    flops = [amount for name, value in metrics.items() if _FLOPS.fullmatch(name) and (amount := _amount(value))]
    return {"stated_bytes": _amount(metrics.get("bytes")), "stated_flops": min(sum(flops), _LARGEST) or None}


def _amount(value: object) -> int | None:
    """Return a number that can be one of bytes or operations; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < _LARGEST:
        return None
    return int(value)


class Contexts:
    """Distinct places of kernels: the module path of each, and the row of `stacks` of its innermost line.

    >>> contexts = Contexts()
    >>> contexts.columns(("ROOT", "step", "mlp")), contexts.columns(("ROOT", "model.py:7@forward"))
    ({'module': 'step.mlp', 'stack_row': None}, {'module': None, 'stack_row': 0})
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], dict[str, str | int | None]] = {}
        self._rows: dict[tuple[int | None, str], int] = {}

    def columns(self, stack: Sequence[str]) -> dict[str, str | int | None]:
        """Return module path and row of `stacks` of a call stack without its kernel."""
        key = tuple(part[:_LONGEST] for part in stack if part not in (_ROOT, _CAPTURED, ""))
        if key not in self._found:
            row, scopes = None, list[str]()
            for part in key:
                if _FRAME.fullmatch(part):
                    row = self._rows.setdefault((row, part), len(self._rows))
                else:
                    scopes.append(part)
            self._found[key] = {"module": ".".join(scopes[:_DEEPEST]) or None, "stack_row": row}
        return self._found[key]

    def module(self, stack: Sequence[str]) -> str | int | None:
        """Return the module path alone."""
        return self.columns(stack)["module"]

    def stacks(self) -> list[Row]:
        """Return the rows of `stacks` of all lines that were asked for."""
        return [{"parent_row": above, **_frame(text)} for above, text in self._rows]


def _frame(text: str) -> dict[str, str | int]:
    """Return a frame as `stacks` holds it.

    >>> _frame("model.py:7@forward")["frame"], _frame("model.py:forward@7")["frame"]
    ('model.py(7): forward', 'model.py(7): forward')
    """
    found = _FRAME.fullmatch(text)
    assert found is not None  # noqa: S101 - only such texts become rows
    line, function = found["line"] or found["old_line"], found["function"] or found["old_function"]
    return {
        "frame": f"{found['file']}({line}): {function}",
        "file": found["file"],
        "line": min(int(line), _LAST_LINE),
        "function": function,
    }
