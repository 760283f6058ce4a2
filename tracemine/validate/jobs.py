"""Make the job of the process that validates: a graph, its generated sources, and mutants of them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.schedule import LONGEST_ROW
from tracemine.codegen.triton.source import Source, generate
from tracemine.programs import python
from tracemine.validate.downsize import MOST_ELEMENTS, elements
from tracemine.validate.mutants import mutants_of
from tracemine.validate.record import Job, Validation

_BLOCKS = 4  # of a larger graph's largest tensor: as many show a kernel that depends on a program's number


WORKER = python("-m", "tracemine.validate.worker")


def environment() -> dict[str, str]:
    """Return what a process that interprets kernels is started with."""
    return {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def make_job(graph: Graph, mutants: bool = True, longest_row: int = LONGEST_ROW, recorded: Graph | None = None) -> Job:
    """Generate the sources that are validated together. Raises Unsupported where no kernel can be generated.

    recorded: the graph at other sizes, for which the sources are generated that are tried at the graph's own.
    """
    drops = bool(lower(graph).drawn)
    source, rounded = (
        generate(recorded or graph, rounds=rounds, export_masks=drops, longest_row=longest_row)
        for rounds in (False, True)
    )
    if recorded is not None or longest_row < LONGEST_ROW:
        source, rounded = (replace(s, text=_in_steps(s.text)) for s in (source, rounded))
    largest = elements(graph)
    if largest > MOST_ELEMENTS:
        block = max(MOST_ELEMENTS, 1 << (largest // _BLOCKS).bit_length())
        source, rounded = (replace(s, text=_in_large_blocks(s.text, block)) for s in (source, rounded))
    return Job(
        chain=msgspec.msgpack.encode(graph),
        source=source.text,
        rounded=rounded.text,
        masks=source.masks,
        kernels=source.kernels,
        mutants=_wrong(graph, source, rounded) if mutants else (),
    )


# Of a loop over `columns`: as many at a time that rows take several steps, and of long ones each has no dozens of them.
STEP = "max(32, triton.next_power_of_2(columns // 16))"


def _in_steps(text: str) -> str:
    """Return a source that loops over short rows in several steps: the launcher's blocks shrink, no kernel changes.

    Rows that are cut into parts, for as many programs as fill a GPU, are cut into two, so that a part has steps too.
    """
    text = re.sub(r"^(    rblock = )(.* if widest else .*)$", rf"\1min({STEP}, \2)", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(def _parts\(.*\n    \"\"\".*)$", rf"\1\n    rblock = min(rblock, {STEP})", text, flags=re.MULTILINE
    )
    return text.replace("triton.cdiv(1024, triton.cdiv(max(rows, 1), xblock))", "2")


def _in_large_blocks(text: str, block: int) -> str:
    """Return a source whose launcher takes larger blocks: an interpreted program costs the same whatever its block."""
    return re.sub(
        r'^((?:    |BLOCKS = \{)"\w+": \[\()(\d+)(?=, \d+\))',
        lambda found: f"{found[1]}{max(int(found[2]), block)}",
        text,
        flags=re.MULTILINE,
    )


def _wrong(graph: Graph, source: Source, rounded: Source) -> tuple[tuple[str, str, str, str | None, str | None], ...]:
    """Return mutants, each with the same mistake in the build that rounds: a generator would make it in both."""
    of_rounded = mutants_of(graph, rounded.text)
    twins = {(w.name, w.line): w.source for w in of_rounded}
    found = [w for w in mutants_of(graph, source.text, rounded.text) if w.needs != "rounding"]
    both = [(w.name, w.line, w.source, w.needs, twins.get((w.name, w.line))) for w in found]
    return (*both, *((w.name, w.line, w.source, w.needs, None) for w in of_rounded if w.needs == "rounding"))


def refused(graph: Graph, reason: str) -> Validation:
    """Return the verdict on a graph that no kernel can be generated for."""
    nothing: dict[str, Any] = {
        **dict.fromkeys(("kernels", "skipped", "faults", "mutants"), ()),
        **dict.fromkeys(("trials", "bytes_read", "bytes_written"), 0),
        **dict.fromkeys(("error", "eager_error", "equal_share", "seconds"), 0.0),
    }
    return Validation(chain=graph.name, exact=False, refused=reason, **nothing)
