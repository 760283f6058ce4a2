"""Calls as a short file: a library's as recorded, and other ways to make it; a finding's, and fixed forms."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracemine.calls.call import sizes
from tracemine.codegen.graph import numbers_once, settled
from tracemine.columns import numbers, string_ids
from tracemine.findings.record import CALL, Finding
from tracemine.ops import Overload, dtype, lookup, overload_of
from tracemine.verdicts.candidate import Candidate
from tracemine.verify.fixes.by_rule import Cause, Maker, fix_of
from tracemine.verify.fixes.calls import Ways, fixed_call
from tracemine.verify.fixes.record import Around, Fixed
from tracemine.verify.gpu.marks import INTERFACE
from tracemine.verify.library.validation_job import LIBRARY_ULP
from tracemine.verify.rebuild.arguments import NUMBER, Names, NotRecorded, given
from tracemine.verify.rebuild.call_facts import CallFacts
from tracemine.verify.rebuild.rebuilder import Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import Recorded, kernels_of
from tracemine.verify.repro.eager import literal_text
from tracemine.verify.repro.standalone import comment
from tracemine.verify.repro.text import NEEDS, folded, graph_parts, one_line, recorded_rows, title_text

ONE_VALUE = "a Python number among the arguments is not recorded: it is tried at one value"
CALL_NOT_VALIDATED = "a library's call has no kernel that could be validated on a CPU"
# What calls a library's function inside itself: the outermost of these is what a program calls.
_AROUND = frozenset({"aten::_convolution", "aten::convolution"})
_WIDTH = 100
_ON_GPU, _DEVICE = 'device="cuda"', 'DEVICE = "cuda" if torch.cuda.is_available() else "cpu"'
_LARGEST_ELEMENTS = 1 << 31

Tensor = tuple[str, tuple[int, ...], str, tuple[int, ...]]  # name, shape, dtype, strides
Kernels = Sequence[tuple[str, Sequence[int] | None]]  # name and grid


def library_call(
    finding: Finding, recorded: Recorded, causes: Sequence[Cause], fingerprint: str, says: Sequence[str] = ()
) -> Candidate | None:
    """Return other ways to make the call of a finding's first occurrence; None where its cause has none.

    says: facts about it, a line each. Raises NotRecorded where the trace does not tell what it was called with.
    """
    ways = fix_of(finding.rule, causes)
    if not isinstance(ways, Ways):
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
    tensors, text, assumptions, plain, named = _written(facts, _overload(facts))
    fixed = fixed_call(ways, facts.operator, plain, named, tensors)
    kernels = kernels_of(recorded.timeline, rows)
    return Candidate(
        by=CALL,
        source=call_reproduction(finding, text, tensors, fixed, kernels, fingerprint, says),
        calls=1,
        evidence="proven",
        traced_ns=_took(recorded, rows),
        assumptions=(*assumptions, *fixed.assumptions),
        check=CALL_NOT_VALIDATED,
    )


def _took(recorded: Recorded, rows: Sequence[int]) -> int:
    """Return what activities took, nanoseconds."""
    return int(sum(recorded.timeline.activities.column("dur_ns").take(list(rows)).to_pylist()))


def _overload(facts: CallFacts) -> Overload:
    operator = lookup(facts.operator)
    found = overload_of(facts.operator, facts.overload) if facts.overload is not None else None
    found = found or (None if operator is None else operator.pick(facts.types))
    if found is None:
        raise NotRecorded("it is not in the operator table")
    return found


def _written(
    facts: CallFacts, overload: Overload
) -> tuple[tuple[Tensor, ...], str, tuple[str, ...], dict[str, object], dict[str, str]]:
    """Return the tensors that a call takes, the call as Python source, and what is assumed.

    With them, by the schema's names, its other arguments, and what its tensors are called.
    """
    tensors, words, assumptions, spelled = [], [], dict[str, None](), Names()
    plain, named = dict[str, object](), dict[str, str]()
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
            named[argument.name] = name
            continue
        value, assumed = given(argument, place, facts)
        assumptions.update(dict.fromkeys(assumed))
        plain[argument.name] = value
        words.append("None" if value is None else literal_text(argument.type.removesuffix("?"), value))
        if place >= overload.positional:
            words[-1] = f"{argument.name}={words[-1]}"
    operator = facts.operator.removeprefix("aten::")
    called = f"aten.{operator}{f'.{overload.name}' if overload.name else ''}"
    return tuple(tensors), f"{called}({', '.join(words)})", tuple(assumptions), plain, named


def _tensor(facts: CallFacts, place: int) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
    kind = dtype(facts.types[place])
    shape, strides = ((sizes(each[place]) or ()) if place < len(each) else () for each in (facts.shapes, facts.strides))
    if kind is None or not shape or len(shape) != len(strides):
        raise NotRecorded("shapes, dtypes or strides of its tensors are not recorded")
    if sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) > _LARGEST_ELEMENTS:
        raise NotRecorded("its tensors are too large to be made again")
    return shape, kind, strides


def _wrapped(text: str) -> str:
    """Return a call as one line of a function's body, or its arguments on lines of their own."""
    if len(text) <= _WIDTH:
        return text
    begin, _, rest = text.partition("(")
    lines = textwrap.wrap(rest.removesuffix(")"), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n        ".join([f"{begin}(", *lines]) + "\n    )"


def call_reproduction(
    finding: Finding,
    call: str,
    tensors: Sequence[Tensor],
    fixed: Fixed,
    kernels: Kernels,
    fingerprint: str,
    says: Sequence[str] = (),
) -> str:
    """Return the file that times a library's call, Python source, next to other ways to make it."""
    rows = "".join(f"\n        {row}," for row in recorded_rows(list(kernels)))
    inputs = "".join(
        f'\n        ("{name}", {shape!r}, torch.{kind}, {strides!r}, None),' for name, shape, kind, strides in tensors
    )
    eager = f"""aten = torch.ops.aten


def eager({", ".join(name for name, *_ in tensors)}):
    return {_wrapped(call)}"""
    return ways_text(
        finding.title,
        says,
        eager,
        fixed,
        fingerprint,
        inputs=f"""[  # name, shape, dtype, strides, what its values are bound by
        {inputs.strip()}
    ]""",
        trace=f"""[  # short name, digest of the whole name, grid
        {rows.strip()}
    ]""",
        ulp=None,
    )


def fixed_calls(
    finding: Finding,
    rebuilder: Rebuilder,
    causes: Sequence[Cause],
    fingerprint: str,
    says: Sequence[str] = (),
    maker: Maker | Ways | None = None,
) -> Candidate | None:
    """Return a fixed form of the calls of a finding's first occurrence; None where its cause has none.

    says: facts about it, a line each. maker: of that form; None: its cause's. Raises NotRebuilt or NoFixedForm with the
    reason.
    """
    maker = maker or fix_of(finding.rule, causes)
    if not isinstance(maker, Maker):
        return None
    first = finding.activities[0]
    whole = maker.whole
    rebuilt = rebuilder.rebuild(first, finding.rule) if whole else rebuilder.alone(first, finding.rule, maker.before)
    rebuilt = replace(rebuilt, graph=numbers_once(rebuilt.graph))
    remains = finding.fused_ns is None or finding.fused_ns.mid > 0
    around = Around(unread=rebuilt.unread, remains=remains, lies=rebuilt.lies)
    fixed = maker.made(rebuilt.graph, around)
    rebuilt = replace(rebuilt, graph=settled(rebuilt.graph, fixed.numbers), assumptions=_assumed(rebuilt, fixed))
    kernels = kernels_of(rebuilder.flow.timeline, rebuilt.activities)
    return Candidate(
        by=CALL,
        source=graph_reproduction(finding, rebuilt, fixed, kernels, fingerprint, says),
        calls=len(rebuilt.graph.calls),
        evidence=rebuilt.evidence,
        traced_ns=_took(rebuilder.recorded, rebuilt.activities),
        assumptions=(*rebuilt.assumptions, *fixed.assumptions),
        check=CALL_NOT_VALIDATED,
    )


def _assumed(rebuilt: Rebuilt, fixed: Fixed) -> tuple[str, ...]:
    """Return what a graph assumes: a number that is not recorded is tried at one value here."""
    others = [s.name for s in rebuilt.graph.scalars if not s.recorded and s.name not in fixed.numbers]
    kept = tuple(text for text in rebuilt.assumptions if text != NUMBER)
    return (*kept, ONE_VALUE) if others and NUMBER in rebuilt.assumptions else kept


def graph_reproduction(
    finding: Finding, rebuilt: Rebuilt, fixed: Fixed, recorded: Kernels, fingerprint: str, says: Sequence[str] = ()
) -> str:
    """Return the file that times a finding's calls and fixed forms. recorded: name and grid of their kernels."""
    eager, tables = graph_parts(rebuilt.graph, recorded, fixed.holds)
    assumed = [f"Assumes   {text}" for text in (*rebuilt.assumptions, *fixed.assumptions)]
    return ways_text(
        finding.title,
        [*says, *assumed],
        f"{eager}\n\n\n{tables}",
        fixed,
        fingerprint,
        inputs="INPUTS",
        trace="TRACE",
        ulp=LIBRARY_ULP,
        uses=("inputs_of",),
    )


def ways_text(
    title: str,
    says: Sequence[str],
    eager: str,
    fixed: Fixed,
    fingerprint: str,
    *,
    inputs: str,
    trace: str,
    ulp: float | None,
    uses: Sequence[str] = (),
) -> str:
    """Return a file that checks and times calls against other ways to compute the same.

    eager: the function's source. inputs, trace: Python expressions. ulp: as CallCheck's. uses: what `eager` and those
    expressions need of the harness.
    """
    about = [one_line(title), "", *(line for text in says for line in folded(text))]
    about += ["", "Run it:   python FILE [--json]     checks and times it: needs a GPU", NEEDS]
    names = sorted({"CallCheck", *uses, *fixed.uses, *(["Way"] if fixed.own else [])})
    own = "".join(f'\n        "{name}": Way({arguments}),' for name, arguments in fixed.own.items())
    given = [f"ways={fixed.ways!r},"] if fixed.ways else []
    given += [f"fixed={{{own}\n    }},"] if own else []
    given += [] if ulp is None else [f"ulp={ulp},"]
    given += [] if fixed.rounds is None else [f"rounds={fixed.rounds},"]
    source = f"\n\n\n{fixed.source.strip()}" if fixed.source else ""
    device = f"{_DEVICE}\n\n\n" if _ON_GPU in eager or _ON_GPU in source else ""
    eager, source = (part.replace(_ON_GPU, "device=DEVICE") for part in (eager, source))
    text = f'''"""{comment(chr(10).join(about))}
"""

import torch
from tracemine_repro import {", ".join(names)}

{device}{eager}{source}


CHECK = CallCheck(
    file=__file__, interface={INTERFACE}, fingerprint="{fingerprint}",
    title={title_text(title)},
    eager=eager,
    {f"{chr(10)}    ".join(given)}
    inputs={inputs},
    trace={trace},
)
if __name__ == "__main__":
    CHECK.main()
'''
    ast.parse(text)
    return text
