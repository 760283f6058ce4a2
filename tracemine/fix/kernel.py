"""From a finding to the module of its kernel: the first of its variants that one can be generated for."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from tracemine.codegen.graph import Graph, GraphCall, GraphError, LiteralArg, Unsupported
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.triton.source import SourceText, generate
from tracemine.findings.grouping import one_kernel_fixes, variants_of
from tracemine.findings.record import Finding
from tracemine.findings.verdicts import unjudged
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.validate.downsize import smaller
from tracemine.validate.resize import at_sizes, free_axes
from tracemine.verify.prepare import gated, let_go
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder
from tracemine.verify.repro.eager import eager_text, number_text
from tracemine.verify.repro.standalone import comment, facts
from tracemine.verify.repro.text import folded, inputs_text, one_line
from tracemine.version import __version__

MOST_INPUTS = 12  # of a page that is read: more are an optimizer's, which has a call of its own
_PAGE = Path(__file__).with_name("page.txt")
_ANY = (0, 1, -100, 2**63 - 1)  # the first, each, none and the last: of every size
_PLANNED = re.compile(r"^    (.+) = (_cached_plan\(PLANS, _plan, .+\))$", re.MULTILINE)
_KIND = re.compile(r"_kind\(\w+\)")
_HOLE = re.compile(r"@([a-z_]+)\b")
_CHECK = """


def _check_sizes(*inputs):
    for t, sizes in zip(inputs, SIZES):
        if t.dim() != len(sizes) or any([want not in (None, n) for n, want in zip(t.shape, sizes)]):
            raise ValueError(f"made for inputs of {sizes}, not of {tuple(t.shape)}")"""
_NOTES = (
    "Use       from FILE import {name}, and call it in place of the calls in _eager. Inputs of other shapes, types,",
    "          layouts or devices go to these calls; so does what needs gradients.",
    "Numbers   under autocast it computes in the types that were recorded.",
    "Test      python FILE: against float64, on a GPU times too. Needs torch >= 2.4 and triton.",
)


def drop_in(graph: Graph, *, title: str, name: str, says: Sequence[str] = ()) -> str:
    """Return the module's text. name: of its function. says: what is known of the finding, a line each.

    Raises Unsupported, with the reason, where none is made.
    """
    if not 0 < len(graph.inputs) <= MOST_INPUTS:
        raise Unsupported(f"it has {len(graph.inputs)} inputs: no module of one page")
    source = generate(graph)
    if source.draws:
        raise Unsupported("it draws random numbers, which the kernel draws otherwise than the calls")
    memory, count = graph.memory, len(graph.inputs)
    if len({memory[v] for v in graph.live}) < len(graph.live) or any(memory[v] < count for v in graph.live):
        raise Unsupported("what it gives shares memory, which no operator may give")
    holes = _holes(graph, source, name)
    holes["docstring"] = _docstring(title, says, name)
    text = _HOLE.sub(lambda found: holes[found[1]], _PAGE.read_text("utf-8"))
    text = "# ruff: noqa: E501, F841 - generated\n" + text
    ast.parse(text)
    return text


def function_name(rule: str, module: str | None) -> str:
    """Return what a finding's function is called: letters of a trace's texts alone.

    >>> function_name("memory_bound_chain", "Net.LogReluBias_*"), function_name("rmsnorm_unfused", None)
    ('memory_bound_chain_logrelubias', 'rmsnorm_unfused')
    """
    last = re.sub(r"[^a-z0-9]+", "", (module or "").rpartition(".")[2].lower())[:30]
    return f"{rule}_{last}".rstrip("_")


def _docstring(title: str, says: Sequence[str], name: str) -> str:
    lines = [one_line(title), "", *(line for text in says for line in folded(text))]
    lines += [note.format(name=name) for note in _NOTES]
    return f'"""{comment(chr(10).join(lines))}\n\nWritten by tracemine {__version__}."""'


def _holes(graph: Graph, source: SourceText, name: str) -> dict[str, str]:
    """Return the page's texts by the names of their places."""
    names, numbers = [i.name for i in graph.inputs], [s.name for s in graph.scalars]
    imports, _, kernel = source.text.partition("\n\n\n")
    fused = kernel[kernel.index("\ndef fused(") :]
    planned = _PLANNED.search(fused)
    assert planned is not None  # noqa: S101 - every launcher has one
    returned = re.search(r"^    return (.+)$", fused, re.MULTILINE)
    made = re.search(r"^    \(?(.+?),?\)? = _allocate\(", kernel, re.MULTILINE)
    gives = [] if returned is None or not graph.live else [n for n in returned[1].strip("()").split(", ") if n]
    order = [] if made is None else made[1].split(", ")
    scalars = [s.name if not s.recorded else f"{s.name}={number_text(s.value)}" for s in graph.scalars]
    written = graph.written
    schema = [f"Tensor({chr(97 + k)}!) {n}" if k in written else f"Tensor {n}" for k, n in enumerate(names)]
    tensors = ["Tensor"] * len(graph.live)
    return {
        "imports": imports.removeprefix("import torch\n"),
        "kernel": kernel.strip("\n"),
        "kinds": "".join(f"{kind}, " for kind in _KIND.findall(planned[2])),
        "typed": "".join(f"(type({n}), {n}), " for n in numbers),
        "plan": planned[2].strip(),
        "launched": f"    {planned[1]} = plan{fused[planned.end() :]}".rstrip(),
        "mark": f"{crc32(source.text.encode()):08x}",
        "eager": _eager(graph),
        "writes": repr(written),
        "places": repr(tuple(order.index(n.rstrip(",")) for n in gives)),
        "pick": {0: "None", 1: "found[0]"}.get(len(graph.live), "tuple(found)"),
        "tensors": ", ".join(names),
        "fakes": ", ".join(f"torch.empty_like({n})" if k in written else n for k, n in enumerate(names)),
        "positional": ", ".join([*names, *numbers]),
        "passed": "".join(f", {n}={n}" for n in numbers),
        "given": "".join(f", {n}" for n in numbers),
        "signature": ", ".join([*names, *(["*"] if scalars else []), *scalars]),
        "numbers": repr(tuple(numbers)),
        "count": str(len(names)),
        "schema": ", ".join([*schema, *(f"Scalar {n}" for n in numbers)]),
        "returns": "Tensor" if len(tensors) == 1 else f"({', '.join(tensors)})",
        "requires": " or ".join(f"{n}.requires_grad" for n in names),
        "name": name,
        "interpreted": str("libdevice." not in kernel),
        "says": f"In place of {', '.join(dict.fromkeys(c.label.removeprefix('aten::') for c in graph.calls))}.",
        "inputs": f"{inputs_text(graph)}\n{_on_cpu(graph)}",
    }


def _eager(graph: Graph) -> str:
    """Return the calls, which raise for other sizes where they hold some: a slice's end, for one.

    Raises Unsupported where they hold sizes that the kernel takes as they come.
    """
    names = ", ".join(i.name for i in graph.inputs)
    text = eager_text(graph).replace("def eager(", "def _eager(", 1).replace('"cuda"', f"{graph.inputs[0].name}.device")
    tied = [call.label for call in graph.calls if _literals(call)]
    if not tied:
        return text
    grown = at_sizes(graph, {axis: size + 1 for axis, size in free_axes(lower(graph)).items()})
    pairs = [] if grown is None else zip(graph.calls, grown.calls, strict=True)
    if grown is None or any(_literals(before) != _literals(after) for before, after in pairs):
        raise Unsupported(f"{tied[0]} names sizes: there are no calls to fall back to at other shapes")
    shapes = [zip(i.spec.shape, j.spec.shape, strict=True) for i, j in zip(graph.inputs, grown.inputs, strict=True)]
    sizes = tuple(tuple(n if n == m else None for n, m in shape) for shape in shapes)
    text = text.replace("    aten = ", f"    _check_sizes({names})\n    aten = ", 1)
    return f"{text}\n\n\nSIZES = {sizes!r}  # of inputs: the calls hold for no others. None: any{_CHECK}"


def _literals(call: GraphCall) -> list[LiteralArg]:
    """Return the sizes and places that a call is given."""
    given = zip(call.schema.arguments, call.arguments, strict=True)
    found = [v for a, v in given if isinstance(v, LiteralArg) and a.type.startswith("SymInt")]
    return [v for v in found if v.value not in _ANY and call.operator != "aten::select"]


def _on_cpu(graph: Graph) -> str:
    """Return the inputs as a CPU tries them, `ON_CPU`."""
    rows = inputs_text(smaller(graph)).replace("INPUTS = [", "ON_CPU = [", 1).splitlines()
    return "\n".join([re.sub(r" +#.*", "  # smaller", rows[0]), *rows[1:]])


WITH_PRODUCTS: Final = "With it   the two matrix products before it: it takes their inputs"


def kernel_module(finding: Finding, flow: Flow, groups: Groups) -> tuple[str, str]:
    """Return the name of the module's function, and its text. Raise Unsupported, with reasons."""
    rebuilder, refused = Rebuilder(flow, groups), list[str]()
    for variant in variants_of(unjudged(finding)):
        if not one_kernel_fixes(variant):
            continue
        name = function_name(variant.rule, variant.module)
        try:
            rebuilt = let_go(rebuilder.rebuild(variant.activities[0], variant.rule))
            says = [*facts(variant, variant.fingerprint), *(f"Assumes   {text}" for text in rebuilt.assumptions)]
            whole = gated(variant, rebuilder)
            with suppress(Unsupported):  # where its class did not measure faster
                if whole is not None:
                    return name, drop_in(whole.graph, title=variant.title, name=name, says=[*says, WITH_PRODUCTS])
            return name, drop_in(rebuilt.graph, title=variant.title, name=name, says=says)
        except (Unsupported, NotRebuilt, NotRecorded, GraphError, RecursionError) as why:
            refused.append(str(why))
    raise Unsupported("; ".join(dict.fromkeys(refused)) or "no kernel would fix it")
