"""A library's call as a short file: as it was recorded, beside other ways to make it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracemine.columns import numbers, string_ids
from tracemine.findings.record import Finding
from tracemine.ops import Overload, dtype, lookup, overload_of
from tracemine.verify.gpu.marks import INTERFACE
from tracemine.verify.rebuild.arguments import Names, NotRecorded, given
from tracemine.verify.rebuild.recorded import NodeFacts, Recorded, kernels_of
from tracemine.verify.repro.standalone import comment
from tracemine.verify.repro.text import NEEDS, folded, literal_text, one_line, recorded_rows, title_text

CALL_NOT_PROVED = "a library's call has no kernel that could be proved on a CPU"
# For each rule whose fix makes the same call in another way: the ways that are tried, by their names in
# gpu/library_call.py. Several rights are timed, and the fastest counts.
WAYS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "channels_last": ("channels_last", "channels_last, cudnn.benchmark", "cudnn.benchmark"),
    "float32_without_tf32": ("TF32",),
    "grouped_convolution": ("cudnn.benchmark", "channels_last", "channels_last, cudnn.benchmark"),
    "misaligned_product": ("padded",),
    "no_tensor_cores": ("cudnn.benchmark", "channels_last", "channels_last, cudnn.benchmark"),
}
# What calls a library's function inside itself: the outermost of these is what a program calls.
_AROUND = frozenset({"aten::_convolution", "aten::convolution"})
_WIDTH = 100
_LARGEST_ELEMENTS = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """One call of a finding, as recorded. `tensors`: name, shape, dtype and strides of each."""

    operator: str
    tensors: tuple[tuple[str, tuple[int, ...], str, tuple[int, ...]], ...]
    text: str  # the call, Python source
    kernels: tuple[tuple[str, list[int] | None], ...]
    traced_ns: int  # all its kernels
    ways: tuple[str, ...]
    assumptions: tuple[str, ...]


def library_call(finding: Finding, recorded: Recorded) -> LibraryCall | None:
    """The call that a finding's first occurrence belongs to; None where the finding is of no such rule.

    Raises NotRecorded where the trace does not tell what it was called with.
    """
    ways = WAYS_OF.get(finding.rule)
    if ways is None:
        return None
    ops, activities = recorded.timeline.ops, recorded.timeline.activities
    owner = numbers(activities.column("op_row"), -1)
    above = numbers(ops.column("parent_row"), -1)
    codes, names = string_ids(ops.column("name"))
    row = int(owner[finding.activities[0][0]])
    if row < 0:
        raise NotRecorded("no operator owns its kernels")
    while (parent := int(above[row])) >= 0 and codes[parent] >= 0 and names[codes[parent]] in _AROUND:
        row = parent
    rows = np.flatnonzero(np.isin(owner, recorded.within(row))).tolist()
    facts = recorded.call(row, rows)
    tensors, text, assumptions = _written(facts, _overload(facts))
    return LibraryCall(
        operator=facts.operator,
        tensors=tensors,
        text=text,
        kernels=tuple(kernels_of(recorded.timeline, rows)),
        traced_ns=sum(activities.column("dur_ns").take(rows).to_pylist()),
        ways=ways,
        assumptions=assumptions,
    )


def _overload(facts: NodeFacts) -> Overload:
    operator = lookup(facts.operator)
    found = overload_of(facts.operator, facts.overload) if facts.overload is not None else None
    found = found or (None if operator is None else operator.pick(facts.types))
    if found is None:
        raise NotRecorded("it is not in the operator table")
    return found


def _written(
    facts: NodeFacts, overload: Overload
) -> tuple[tuple[tuple[str, tuple[int, ...], str, tuple[int, ...]], ...], str, tuple[str, ...]]:
    """The tensors that a call takes, the call as Python source, and what is assumed."""
    tensors, words, assumptions, spelled = [], [], dict[str, None](), Names()
    for place, argument in enumerate(overload.arguments):
        if argument.is_tensor:
            if argument.is_list:
                raise NotRecorded("it takes lists of tensors")
            if facts.types[place : place + 1] in ((), ("",)):
                words.append("None")
                continue
            name = spelled.tensor(argument.name)
            tensors.append((name, *_tensor(facts, place)))
            words.append(name)
            continue
        value = given(argument, place, facts)
        assumptions.update(dict.fromkeys(value.assumptions))
        words.append("None" if value.value is None else literal_text(argument.type.removesuffix("?"), value.value))
        if place >= overload.positional:
            words[-1] = f"{argument.name}={words[-1]}"
    operator = facts.operator.removeprefix("aten::")
    called = f"aten.{operator}{f'.{overload.name}' if overload.name else ''}"
    return tuple(tensors), f"{called}({', '.join(words)})", tuple(assumptions)


def _tensor(facts: NodeFacts, place: int) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
    kind = dtype(facts.types[place])
    shape, strides = (tuple(each[place]) if place < len(each) else () for each in (facts.shapes, facts.strides))
    whole = all(type(size) is int and 0 <= size < 1 << 40 for size in (*shape, *strides))
    if kind is None or not shape or len(shape) != len(strides) or not whole:
        raise NotRecorded("shapes, dtypes or strides of its tensors are not recorded")
    if sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) > _LARGEST_ELEMENTS:
        raise NotRecorded("its tensors are too large to be made again")
    return shape, kind, strides


def _wrapped(text: str) -> str:
    """A call as one line of a function's body, or its arguments on lines of their own."""
    if len(text) <= _WIDTH:
        return text
    begin, _, rest = text.partition("(")
    lines = textwrap.wrap(rest.removesuffix(")"), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n        ".join([f"{begin}(", *lines]) + "\n    )"


def call_reproduction(finding: Finding, call: LibraryCall, fingerprint: str, says: Sequence[str] = ()) -> str:
    """The file that times a library's call beside other ways to make it. says: what is known of it, a line each."""
    about = [one_line(finding.title), "", *(line for text in says for line in folded(text))]
    about += ["", "Run it:   python FILE [--json]     checks and times it: needs a GPU", NEEDS]
    rows = "".join(f"\n        {row}," for row in recorded_rows(list(call.kernels)))
    inputs = "".join(
        f'\n        ("{name}", {shape!r}, torch.{kind}, {strides!r}, None),'
        for name, shape, kind, strides in call.tensors
    )
    return f'''"""{comment(chr(10).join(about))}
"""

import torch
from tracemine_repro import CallCheck

aten = torch.ops.aten


def eager({", ".join(name for name, *_ in call.tensors)}):
    return {_wrapped(call.text)}


CHECK = CallCheck(
    file=__file__, interface={INTERFACE}, fingerprint="{fingerprint}",
    title={title_text(finding.title)},
    eager=eager,
    ways={call.ways!r},
    inputs=[  # name, shape, dtype, strides, what its values are bound by
        {inputs.strip()}
    ],
    trace=[  # short name, digest of the whole name, grid
        {rows.strip()}
    ],
)
if __name__ == "__main__":
    CHECK.main()
'''
