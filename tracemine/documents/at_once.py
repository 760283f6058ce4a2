"""What one edit does of several findings: torch.compile of what holds them, or the same lines for two rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracemine.documents.next_step import statements
from tracemine.documents.words import of_finding, saved_alone
from tracemine.findings.payback import AS_GRAPH, GRAPH_MODE
from tracemine.patterns import deferred
from tracemine.units import TimeUnit

if TYPE_CHECKING:
    from tracemine.findings.record import Finding

ALSO = "`torch.compile(model)` does this too"  # in the fix of what it makes needless by itself
_WHOLE = "model = torch.compile(model)"
_ITSELF = deferred(r"(?P<what>[\w.]+) = torch\.compile\((?P=what)[,.)]")
_STRIP = deferred(r"\w+ = torch\.compile\(lambda |@torch\.compile ")
_TORCHS = deferred(r"\btorch\.(?:\w+\.)*")  # in front of a name that may be imported from there
_NO_MODEL = ("optimizer", "attend", "chain")  # compiled alone: nothing else is in them, or a stand-in for a name
_BLOCK = "block.forward"  # of any class
_OF_MODEL = ("model", _BLOCK, "norm.forward", "forward")
_GRAPH = GRAPH_MODE
_SURE = ("low", "medium", "high", "measured")
_GAINS = 1.1  # of what the best of its rows saves


def at_once(rows: Sequence[tuple[int, Finding]], unit: TimeUnit, whole_ns: int, sure: Mapping[int, str]) -> str:
    """Return which rows one torch.compile does, what that saves, and how sure it is; "" where the first row alone is
    about as much.

    sure: of each row, in the words of the table: all of them are as sure as the least.
    """
    edits = {number: edit for number, one in rows if (edit := _edit(one))}
    if len(edits) < 2 or not any(_compiling(one.fix) for _, one in rows):
        return ""
    saves = sum(of_finding(one, "step_saving_ns").mid for number, one in rows if number in edits)
    best = max(saved_alone(one).mid for _, one in rows)
    if saves < _GAINS * best:
        return ""
    numbers = [str(number) for number in edits]
    share = 100 * saves / max(whole_ns, 1)
    least = min((sure[number] for number in edits), key=_SURE.index)
    of = f"{unit.text(saves)} {unit.name}, {share:.0f}%, sure: {least}"
    return f"First: {', '.join(numbers[:-1])} and {numbers[-1]} in one edit ({of}): {_whole(rows, edits)}"


def said_once(rows: Sequence[tuple[int, str, str]]) -> tuple[str, ...]:
    """Return what to do for each row, and of what was said for another cause above, which row says it.

    rows: number, rule and what to do. One cause at two places is two edits; so is a block that is not named.

    >>> said_once([(1, "gap", "torch.call(it)"), (2, "gap", "torch.call(it)"), (3, "loop", "call(it)")])
    ('torch.call(it)', 'torch.call(it)', 'Done by the edit of 1')
    """
    said, edits = [], {number: _TORCHS.sub("", todo) for number, _, todo in rows}
    for number, rule, todo in rows:
        above = (at for at, other, _ in rows if at < number and edits[at] == edits[number] and other != rule)
        first = None if _BLOCK in todo else next(above, None)
        said.append(todo if first is None else f"Done by the edit of {first}")
    return tuple(said)


def _whole(rows: Sequence[tuple[int, Finding]], edits: Mapping[int, str]) -> str:
    """Return the statement that does all of it: as a graph, where the host needs longer than what is left then."""
    found = _one_edit(list(edits.values()))
    if _GRAPH in found or not any(AS_GRAPH in one.fix for number, one in rows if number in edits):
        return found
    return re.sub(r"(= torch\.compile\(\w+)\)", rf"\1, {_GRAPH})", found, count=1)


def _edit(finding: Finding) -> str:
    """Return what compiles a finding's kernels: the model where it is a part of it, or has a fix that goes without."""
    found = _compiling(finding.fix)
    if found and finding.module is not None and _GRAPH not in found:
        return _WHOLE
    return found or (_WHOLE if ALSO in finding.fix else "")


def _compiling(fix: str) -> str:
    """Return the statement of a fix by which torch.compile does it; "" where it does not.

    >>> _compiling("Compile it:\\n\\n    step = torch.compile(step)"), _compiling("Call `f` once.")
    ('step = torch.compile(step)', '')
    """
    for one in statements(fix):
        if (found := _ITSELF.match(one)) is not None and not found["what"].startswith(_NO_MODEL):
            return one
        if _STRIP.match(one) and "torch.func" not in one:  # which the model itself cannot be compiled for
            return _WHOLE
    return ""


def _one_edit(edits: Sequence[str]) -> str:
    """Return the statement that does what several do: a graph of the step, what all name, the model, or their caller.

    >>> _one_edit(["block.forward = torch.compile(block.forward)", "model = torch.compile(model)"])
    'model = torch.compile(model)'
    >>> _one_edit(["focal = torch.compile(focal)", "model = torch.compile(model)"])
    'step = torch.compile(step)  # what calls them all'
    """
    for one in edits:
        if _GRAPH in one:
            return one
    if len(set(edits)) == 1 and not edits[0].startswith(_BLOCK):
        return edits[0]
    if all(one.startswith(_OF_MODEL) for one in edits):
        return _WHOLE
    return "step = torch.compile(step)  # what calls them all"
