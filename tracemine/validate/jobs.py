"""Make the job of the process that validates: a graph, its generated sources, and mutants of them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.options import LONGEST_ROW, CodegenOptions
from tracemine.codegen.triton.source import SourceText, generate
from tracemine.processes import worker
from tracemine.validate.downsize import MOST_ELEMENTS, elements
from tracemine.validate.mutants import mutants_of
from tracemine.validate.record import Validation, ValidationJob

_BLOCKS = 4  # of a larger graph's largest tensor: as many show a kernel that depends on a program's number


WORKER = worker("tracemine.validate.worker")


def environment() -> dict[str, str]:
    """Return what a process that interprets kernels is started with."""
    return {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def make_job(
    graph: Graph, mutants: bool = True, longest_row: int = LONGEST_ROW, recorded: Graph | None = None
) -> ValidationJob:
    """Generate the sources that are validated together. Raises Unsupported where no kernel can be generated.

    recorded: the graph at other sizes, for which the sources are generated that are tried at the graph's own.
    """
    largest = elements(graph)
    options = CodegenOptions(
        export_masks=True,
        every_product=True,
        small_tiles=True,
        longest_row=longest_row,
        short_steps=recorded is not None or longest_row < LONGEST_ROW,
        least_block=max(MOST_ELEMENTS, 1 << (largest // _BLOCKS).bit_length()) if largest > MOST_ELEMENTS else 0,
    )
    source, rounded = (generate(recorded or graph, replace(options, rounds=rounds)) for rounds in (False, True))
    return ValidationJob(
        graph=msgspec.msgpack.encode(graph),
        source=source.text,
        rounded=rounded.text,
        masks=source.masks,
        kernels=source.kernels,
        mutants=_wrong(graph, source, rounded) if mutants else (),
    )


def _wrong(
    graph: Graph, source: SourceText, rounded: SourceText
) -> tuple[tuple[str, str, str, str | None, str | None], ...]:
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
