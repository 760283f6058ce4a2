"""A step as one file that stands alone: needs torch and triton, and nothing of this package.

It holds the step call by call, the same with fused kernels in place, the kernels, checks and timing. Of a trace it
holds numbers, and kernel names as escaped strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.triton.source import SourceText
from tracemine.ops import itemsize
from tracemine.tables import table_beside
from tracemine.verify.repro.eager import eager_text
from tracemine.verify.repro.standalone import banner, file_text
from tracemine.verify.repro.text import inputs_text
from tracemine.verify.step.placing import Placed
from tracemine.verify.step.program import Program, TensorRef
from tracemine.verify.step.text import Writer, items_of

_LONGEST_NAME = 2000
_LARGEST_FILTER = 11


def step_file(placed: Placed, counts: Sequence[dict[str, int]], recorded: Sequence[str], expected: bytes) -> str:
    """Return the file's text.

    counts: of each kernel, how often it replaces which finding. recorded: the name of each kernel, copy and set of
    the replayed calls. expected: JSON, as is.
    """
    writer = Writer(placed.program)
    eager = writer.function("eager_step", list(placed.program.calls))
    fused = writer.function("fused_step", items_of(placed))
    program = placed.program
    says = [
        f"One recorded step, replayed call by call: {program.replayed_launches} of {program.launches} launches,",
        f"{program.share:.1%} of its GPU time; again with kernels in place of {len(placed.placed)} subgraphs.",
        *(f"Assumed: {text}." for text in program.assumptions),
        "",
        "    python THIS_FILE          checks and times it, on a GPU",
        "    python THIS_FILE --json   the same for programs",
        "    python THIS_FILE --meta   runs it without a GPU and without data, to see that its calls fit each other",
    ]
    parts = [
        'DEVICE = "cuda"',
        banner("The operators"),
        writer.header(),
        banner("The step, as recorded: t are tensors from outside"),
        eager,
        banner("The step with kernels k in place of subgraphs"),
        fused,
        banner("What both take"),
        _inputs(program, writer),
        banner("The subgraphs, as eager runs them, and a kernel in the place of each"),
        _kernels(placed),
        f"ABOUT = json.loads({_json(_about(placed, counts, recorded))})\nEXPECTED = json.loads({_json(expected)})",
    ]
    return file_text("\n".join(says), parts, _MAIN, embeds=EMBEDDED, imports=_IMPORTS)


EMBEDDED = {
    "Whether it is right, and what it takes": (
        *("validate/numerics.py", "validate/roundings.py", "validate/rounding_noise.py", "validate/undefined_casts.py"),
        *("verify/gpu/correctness.py", "verify/gpu/profiling.py", "verify/gpu/graphs.py", "verify/step/replay.py"),
    )
}
_IMPORTS = (
    "import argparse",
    "import importlib.util",
    "import json",
    "import sys",
    "import tempfile",
    "from pathlib import Path",
)


def _about(placed: Placed, counts: Sequence[dict[str, int]], recorded: Sequence[str]) -> bytes:
    return msgspec.json.encode(
        {
            "ulps": [source.ulp for _, source in placed.kernels],
            "draws": [source.draws for _, source in placed.kernels],
            "findings": counts,
            "recorded": [name[:_LONGEST_NAME] for name in recorded],
        }
    )


def _json(text: bytes) -> str:
    return ascii(text.decode())


def _inputs(program: Program, writer: Writer) -> str:
    numbers: dict[int, int] = {}
    largest: dict[int, TensorRef] = {}
    for place in writer.inputs:
        numbers.setdefault(place.buffer, len(numbers))
        known = largest.get(place.buffer)
        if known is None or _elements(place) > _elements(known):
            largest[place.buffer] = place
    written = {place.buffer for call in program.calls for place in call.writes}
    buffers = []
    for number in numbers:
        buffer, place = program.buffers[number], largest[number]
        nbytes = max(buffer.elements * buffer.itemsize, itemsize(place.dtype) or 1)
        buffers.append(
            f"    ({buffer.on_host}, {nbytes}, torch.{place.dtype}, {buffer.below}, {buffer.positive}, {_fan(place)}, "
            f"{number in written}),"
        )
    views = [
        f"    ({numbers[p.buffer]}, torch.{p.dtype}, {p.shape!r}, {p.strides!r}, {p.offset})," for p in writer.inputs
    ]
    live = [f"    (torch.{p.dtype}, {p.shape!r})," for p in program.live]
    return "\n".join(
        [
            "# Memory: on the host, bytes, dtype, places that indices point to, without a sign, fan, written by it.",
            "BUFFERS = [",
            *buffers,
            "]",
            "# Tensors in it: buffer, dtype, shape, strides, offset.",
            "VIEWS = [",
            *views,
            "]",
            "# What is left at the end: state that was written, and what no call reads.",
            "LIVE = [",
            *live,
            "]",
        ]
    )


def _fan(place: TensorRef) -> int:
    """Return how many values are summed where it is a weight: a product's last axis, a convolution's but the first."""
    if len(place.shape) < 2:
        return 1
    is_filter = len(place.shape) > 2 and max(place.shape[2:]) <= _LARGEST_FILTER
    return max(prod(place.shape[1:]) if is_filter else place.shape[-1], 1)


def _elements(place: TensorRef) -> int:
    begin, end = place.layout.reach
    return end - begin


def _kernels(placed: Placed) -> str:
    used = {placed.fused[group].kernel for group in placed.placed}
    texts = [_quoted(module_text(*kernel)) if k in used else '""' for k, kernel in enumerate(placed.kernels)]
    return "SOURCES = [\n" + "".join(f"{text},\n" for text in texts) + "]"


def module_text(graph: Graph, source: SourceText) -> str:
    """Return one subgraph and its kernel as a module of its own."""
    return "\n\n\n".join([source.text.strip("\n"), eager_text(graph), f"{inputs_text(graph)}\n"])


def _quoted(text: str) -> str:
    """Return source as a string that shows it as it is, where it can."""
    return f"r'''\n{text}'''" if "'''" not in text and not text.endswith(("'", "\\")) else ascii(text)


_TEXTS = table_beside(__file__, "file.toml")
_MAIN: str = _TEXTS["main"]
