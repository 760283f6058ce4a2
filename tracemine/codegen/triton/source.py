"""A program as Python source: its Triton kernels and a function `fused` that launches them.

The source stands alone: it needs torch and triton, nothing of this package, and may be pasted into a model. Sizes
that the graph does not fix, strides and scalars are arguments; what the kernels rely on is checked at each call.
"""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from tracemine.codegen.graph import Graph, GraphError
from tracemine.codegen.loop_ir import LoopProgram
from tracemine.codegen.operators import table
from tracemine.codegen.options import DEFAULT, WHATEVER, CodegenOptions
from tracemine.codegen.partition import plan
from tracemine.codegen.products import TileConfigs
from tracemine.codegen.tiles import blocks_text
from tracemine.codegen.triton.launch import KernelLaunch, launches
from tracemine.codegen.triton.wrapper import PLANS, called, calling, launching

_HEAD = "import torch\nimport triton\nimport triton.language as tl"
_LIBRARY = "\nfrom triton.language.extra import libdevice"
_DESCRIPTORS = "\nfrom triton.tools.tensor_descriptor import TensorDescriptor"
_QUANTIZED = frozenset({"int8", "uint8", "float8_e4m3fn", "float8_e5m2"})


class SourceText(msgspec.Struct, frozen=True, kw_only=True):
    """Generated source.

    masks: how many of what `fused` gives back are what dropout kept, after the live values. ulp: how far expressions
    may be off in all, in units in the last place of float32. draws: whether it draws random numbers.
    """

    text: str
    kernels: tuple[str, ...]  # names
    masks: int = 0
    ulp: float = 0.0
    draws: bool = False


def generate(graph: Graph, options: CodegenOptions = DEFAULT) -> SourceText:
    """Generate Triton kernels that compute a graph, as source that stands alone.

    Raises Unsupported, with the reason, where there are none.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("double")
    >>> source = generate(b.done(b.call("aten::mul.Tensor", b.input("x", (64, 128), "bfloat16"), 2.0)))
    >>> print(source.text[source.text.index("@triton.jit") :].splitlines()[1].partition("(")[0])
    def double_kernel
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"a graph is what GraphBuilder.done gives, not {type(graph).__name__}")
    return print_program(plan(graph, options), options, [i.name for i in graph.inputs])


def print_program(program: LoopProgram, options: CodegenOptions, parameters: list[str]) -> SourceText:
    """Print a program as source."""
    found = launched(program, options)
    bodies = "\n\n\n".join(launch.text for launch in found)
    calls = calling(program, found, parameters)
    helpers = _helpers(bodies)
    parts = [
        _HEAD
        + _LIBRARY * any("libdevice." in text for text in (*helpers, bodies))
        + _DESCRIPTORS * ("_Described(" in calls),
        *helpers,
        bodies,
        *called(calls, options.short_steps),
        PLANS + blocks_text((launch.name, _least(launch.tile_configs, options.least_block)) for launch in found),
        calls,
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts) + "\n"
    kernels = tuple(launch.name for launch in found)
    return SourceText(text=text, kernels=kernels, masks=program.masks, ulp=program.ulp, draws=program.draws)


def launched(program: LoopProgram, options: CodegenOptions = DEFAULT) -> list[KernelLaunch]:
    """Return a program's launches, by the names that its source has for them."""
    return launches(program, _stem(program.name), _rounding(program, options))


def kernel_codes(graph: Graph) -> set[tuple[object, ...]]:
    """Return the code of each sub-kernel of a graph, by neutral names: equal for those that differ in names alone."""
    return {part.code() for launch in launched(plan(graph, WHATEVER)) for part in launch.parts}


def _rounding(program: LoopProgram, options: CodegenOptions) -> CodegenOptions:
    # Quantized values are eager's own: a quotient that is one bit off may fall on the other side of a tie.
    quantized = any(b.dtype in _QUANTIZED for b in program.buffers.values() if b.role != "input")
    return replace(options, rounds=True) if quantized else options


def _least(tile_configs: TileConfigs, elements: int) -> TileConfigs:
    """Return tile configs of which the first has so many elements at least."""
    (first, *each), *others = tile_configs
    return ((max(first, elements), *each) if len(each) == 1 else (first, *each)), *others


def shared() -> tuple[dict[str, str], dict[str, str]]:
    """Return functions that sources share word for word, by name: those of kernels, and those of launchers.

    Several files may have them from one place.
    """
    of_launchers = {text.split("(")[0].split(":")[0].split()[-1]: text.strip("\n") for text in launching()}
    return {name: text.strip("\n") for name, text in table().helpers.items()}, of_launchers


def _stem(name: str) -> str:
    """Return what kernels of a graph are called, whatever it is called itself: a rule of a file may have any name.

    >>> _stem("RMS norm"), _stem("3d_conv"), _stem("²")
    ('rms_norm', 'graph_3d_conv', 'graph')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:40]
    return plain if plain[:1].isalpha() else f"graph_{plain}".rstrip("_")


def _helpers(text: str) -> list[str]:
    """Return the functions that a text calls, and those that they call, in an order that defines first."""
    found: dict[str, str] = {}

    def visit(body: str) -> None:
        words = set(re.findall(r"\w+", body))
        for name, helper in table().helpers.items():
            if name not in found and name in words:
                visit(helper.partition(":")[2])
                found[name] = helper

    visit(text)
    return list(found.values())
