"""A finding as one short file: what it is, its inputs, the calls as eager runs them, the kernel, its launcher.

What all such files share is in one file next to them (`harness.py`). They need torch and triton, and nothing of this
package. Of a trace they hold numbers and escaped strings; operators and names come from the operator table.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from tracemine.codegen.graph import Graph, LiteralArg, reads
from tracemine.codegen.triton.source import SourceText, shared
from tracemine.ops import itemsize
from tracemine.ops.facts import VIEWS, base_name, keeping_values
from tracemine.ops.kernel_names import short
from tracemine.ops.kernels import functor
from tracemine.validate.input_domains import POSITIVE, domains
from tracemine.verify.gpu.marks import INTERFACE, KERNEL_BEGINS, KERNEL_ENDS, name_digest
from tracemine.verify.repro.eager import MOST_REPEATED, WIDTH, Plain, Sizes, eager_text, literal_text, packed
from tracemine.verify.repro.standalone import comment
from tracemine.version import __version__

_LONGEST_LINE = 120
_MANY = 6  # inputs, each in a line of its own
_LINES = 3  # of one entry in the head
_SHOWN = 48  # characters of a kernel's short name
_SOURCE = "; --source prints kernel and launcher"
_INPUTS = "Inputs, as recorded: names, shape, dtype, strides, values (None: normal ones, a number: indices below it)"
NEEDS = f"Needs:    torch, triton, and tracemine_repro.py next to it. Written by tracemine {__version__}."


def repro(
    graph: Graph,
    source: SourceText | None,
    *,
    fingerprint: str,
    title: str,
    ulp: float,
    says: Sequence[str] = (),
    recorded: Sequence[tuple[str, Sequence[int] | None]] = (),
    assumptions: Sequence[str] = (),
    draws: bool = False,
    library: str | None = None,
    positive: Collection[int] = (),
    small: Graph | str | None = None,
) -> str:
    """Return the file's text.

    says: what is known of the finding, a line each. recorded: name and grid of each kernel that the graph had in the
    trace. library: a function of that name that says the same by calls of PyTorch's library, timed with the kernel;
    in its place, where there is no source. positive: inputs that hold no negative numbers, besides those of which
    roots and logarithms are taken. small: the graph as a CPU tries it, or why it cannot; None: as it is.
    """
    on_cpu, sizes = ([], {}) if isinstance(small, str) else _smaller(graph, small or graph, positive)
    calls = f"Fused     {len(graph.calls)} calls in {_becomes(source)}: {_calls(graph)}"
    about = [*says, calls, *(f"Assumes   {text}" for text in assumptions)]
    docstring = [
        one_line(title),
        "",
        *(line for text in about for line in folded(text)),
        f"Run it:   python FILE [--json]  checks the numbers, on a GPU also times them{_SOURCE if source else ''}",
        NEEDS,
    ]
    kernel, helpers = ("", []) if source is None else _apart(source.text)
    tools = ["torch", *(["triton", "tl"] if kernel else []), *(["libdevice"] if "libdevice." in kernel else [])]
    parts = [
        f'"""{comment(chr(10).join(docstring))}"""',
        _import(["Reproduction", "inputs_of", *helpers, *tools]),
        f"{section('Eager, call by call')}\n{eager_text(graph, sizes)}",
        f"{section(_INPUTS)}\n{_inputs(graph, positive)}\n{_on_cpu(small, on_cpu, sizes)}\n{_recorded(recorded)}",
        *([] if library is None else [f"{section('The same by a call of the library')}\n{library.strip()}"]),
        *([] if source is None else [f"{section(KERNEL_BEGINS)}\n{kernel}"]),
        f"{section(KERNEL_ENDS)}\n{_check(graph, source, library, fingerprint, title, ulp, draws, bool(sizes))}",
    ]
    text = "\n\n".join(parts) + "\n"
    if (
        "    length = " in kernel
        or _masks_for_nothing(kernel)
        or any(len(line) > _LONGEST_LINE for line in text.splitlines())
    ):
        text = f"# ruff: noqa: E501, F841 - lines of the kernel are generated\n{text}"
    ast.parse(text)
    return text


def graph_parts(
    graph: Graph, recorded: Sequence[tuple[str, Sequence[int] | None]], holds: Mapping[int, object]
) -> tuple[str, str]:
    """Return the source of `eager`, and tables `INPUTS` and `TRACE`. holds: what some inputs hold (`make_inputs`)."""
    return eager_text(graph), f"{_inputs(graph, (), holds)}\n{_recorded(recorded)}"


def _masks_for_nothing(kernel: str) -> bool:
    """Return whether a function names the mask of its whole tile and uses it nowhere."""
    named = "mask = row_mask & column_mask"
    functions = (each.replace(named, "") for each in kernel.split("@triton.jit") if named in each)
    return any(re.search(r"[=(&|] ?mask\b", each) is None for each in functions)


def section(text: str) -> str:
    """Return the line above a part of a file.

    >>> section("Inputs")[:16]
    '# --- Inputs ---'
    """
    return f"# --- {text.removeprefix('# --- ').strip()} ".ljust(WIDTH, "-")


def _import(names: Sequence[str]) -> str:
    whole = f"from tracemine_repro import {', '.join(names)}"
    return whole if len(whole) <= WIDTH else "\n".join(packed("from tracemine_repro import (", names, ")"))


def _check(
    graph: Graph,
    source: SourceText | None,
    library: str | None,
    fingerprint: str,
    title: str,
    ulp: float,
    draws: bool,
    sized: bool,
) -> str:
    read, written = compulsory(graph)
    given = ["eager=eager", *(["fused=fused", "blocks=BLOCKS"] if source is not None else [])]
    given += [*(["library=library"] if library is not None else []), "inputs=INPUTS", "on_cpu=ON_CPU"]
    given += [*(["sizes_on_cpu=SIZES_ON_CPU"] if sized else []), "trace=TRACE"]
    given += [f"ulp={ulp}", f"nbytes={read + written}", f"read_bytes={read}", f"draws={draws}"]
    return "\n".join(
        [
            "CHECK = Reproduction(",
            f'    file=__file__, interface={INTERFACE}, fingerprint="{fingerprint}", title={title_text(title)},',
            *textwrap.wrap(", ".join(given) + ")", WIDTH, initial_indent="    ", subsequent_indent="    "),
            'if __name__ == "__main__":',
            "    CHECK.main()",
        ]
    )


def title_text(title: str) -> str:
    """Return a title as a Python string: none of its characters does anything to a terminal."""
    return ascii(one_line(title)[:100])


def _apart(text: str) -> tuple[str, list[str]]:
    """Return a source without its imports and without what files share, and the names of that which it calls itself."""
    text = text[text.index("\n\n\n") :]
    names: list[str] = []
    for name, helper in (item for of in shared() for item in of.items()):
        if f"\n\n\n{helper}\n\n\n" in text:
            text = text.replace(f"\n\n\n{helper}\n\n\n", "\n\n\n", 1)
            names.append(name)
    text = text.strip("\n").replace("\n\n\n", "\n\n")  # no function of it has an empty line
    return text, [name for name in names if re.search(rf"(?<!\w){name}\b", text)]


def _calls(graph: Graph) -> str:
    return ", ".join(_runs(call.label.removeprefix("aten::") for call in graph.calls))


def _runs(labels: Iterable[str]) -> list[str]:
    """Return labels, what repeats once.

    >>> _runs(["add", "mul", "mul"]), _runs(["full", *["mul", "add"] * 3])
    (['add', 'mul x2'], ['full', '(mul, add) x3'])
    """
    return [
        label if count == 1 else f"{label} x{count}" if len(several) == 1 else f"({', '.join(several)}) x{count}"
        for several, count in repeats(list(labels))
        for label in several[:1]
    ]


def repeats(items: Sequence[str]) -> list[tuple[Sequence[str], int]]:
    """Return items in order: what repeats, and how often it comes. Several items repeat from three times on.

    >>> repeats(["a", "b", "b", "a", "b", "a", "b", "a", "b"])
    [(['a'], 1), (['b'], 2), (['a', 'b'], 3)]
    """
    found: list[tuple[Sequence[str], int]] = []
    at = 0
    while at < len(items):
        spared, length, count = 0, 1, 1
        for long in range(1, MOST_REPEATED + 1):
            many = 1
            while items[at + many * long : at + (many + 1) * long] == items[at : at + long]:
                many += 1
            if long * (many - 1) > spared and many >= (2 if long == 1 else 3):
                spared, length, count = long * (many - 1), long, many
        found.append((items[at : at + length], count))
        at += length * count
    return found


def _becomes(source: SourceText | None) -> str:
    if source is None:
        return "one call of the library"
    return "1 kernel" if len(source.kernels) == 1 else f"{len(source.kernels)} kernels"


def one_line(text: str) -> str:
    """Return a text of which no character begins a line, or does anything to a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def folded(text: str) -> list[str]:
    """Return a line of the head, with the lines that it goes on in."""
    word, rest = text[:10], one_line(text[10:])
    lines = textwrap.wrap(rest, WIDTH - 12, break_on_hyphens=False) or [""]
    lines = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "..."]
    return [f"{word}{lines[0]}".rstrip(), *(f"{' ' * 10}{line}" for line in lines[1:])]


def _smaller(graph: Graph, small: Graph, positive: Collection[int]) -> tuple[list[tuple[str, str]], Sizes]:
    """Return inputs that are smaller on a CPU, by name, and arguments of calls that say sizes: by call and place the
    name that `eager` has for them, what was recorded, and what it is there.
    """
    holds = _values(graph, positive), _values(small, positive)
    rows: list[tuple[str, str]] = []
    for k, (one, other) in enumerate(zip(graph.inputs, small.inputs, strict=True)):
        if one.spec != other.spec or holds[0][k] != holds[1][k]:
            rows.append((one.name, f"({other.spec.shape!r}, {other.spec.strides!r}, {holds[1][k]!r})"))
    sizes: dict[tuple[int, int], tuple[str, Plain, Plain]] = {}
    taken = {i.name for i in graph.inputs} | {s.name for s in graph.scalars}
    for at, (call, tried) in enumerate(zip(graph.calls, small.calls, strict=True)):
        for place, (was, now) in enumerate(zip(call.arguments, tried.arguments, strict=True)):
            if was != now and isinstance(was, LiteralArg) and isinstance(now, LiteralArg):
                stem = call.schema.arguments[place].name
                name = next(n for n in (stem, *(f"{stem}_{k}" for k in range(1, 10_000))) if n not in taken)
                taken.add(name)
                sizes[at, place] = name, was.value, now.value
    return rows, sizes


def _on_cpu(small: Graph | str | None, rows: Sequence[tuple[str, str]], sizes: Sizes) -> str:
    if isinstance(small, str):
        return f"ON_CPU = {small!a}  # why a CPU does not try it"
    if not rows:
        return "ON_CPU = {}  # without a GPU it is tried at the same sizes"
    alike: dict[str, list[str]] = {}
    for name, text in rows:
        alike.setdefault(text, []).append(name)
    items = [f'"{" ".join(names)}": {text}' for text, names in alike.items()]
    lines = ["# Without a GPU these are smaller: shape, strides, values.", *packed("ON_CPU = {", items, "}")]
    each = [f'"{name}": {literal_text("int[]", value)}' for name, _, value in sizes.values()]
    return "\n".join([*lines, *(packed("SIZES_ON_CPU = {", each, "}") if each else [])])


def _values(graph: Graph, positive: Collection[int]) -> list[object]:
    """Return what each input holds, as `gpu/correctness.py` makes it."""
    holds = {**domains(graph), **dict.fromkeys(positive, POSITIVE)}
    return [holds.get(k, i.below) for k, i in enumerate(graph.inputs)]


def inputs_text(graph: Graph, positive: Collection[int] = ()) -> str:
    """Return a graph's inputs as a Python table `INPUTS` for `make_inputs`. positive: as in `repro`."""
    rows = [
        f'("{i.name}", {i.spec.shape!r}, torch.{i.spec.dtype}, {i.spec.strides!r}, {holds!r}),'
        for i, holds in zip(graph.inputs, _values(graph, positive), strict=True)
    ]
    says = "# name, shape, dtype, strides, values: None normal ones, a number indices below it"
    lines = [f"    {row}" for row in rows] if len(rows) <= _MANY else _rows(rows)
    return "\n".join([f"INPUTS = [  {says}", *lines, "]"])


def _inputs(graph: Graph, positive: Collection[int], instead: Mapping[int, object] | None = None) -> str:
    """Return the same with a row for equal inputs; of unnamed ones for those that follow each other."""
    ordered = "def eager(*inputs" in eager_text(graph)
    alike: list[tuple[str, list[str]]] = []
    values = [(instead or {}).get(k, holds) for k, holds in enumerate(_values(graph, positive))]
    for i, holds in zip(graph.inputs, values, strict=True):
        text = f"{i.spec.shape!r}, torch.{i.spec.dtype}, {i.spec.strides!r}, {holds!r}"
        found = next((names for looks, names in alike[-1 if ordered else 0 :] if looks == text), None)
        if found is None:
            alike.append((text, [i.name]))
        else:
            found.append(i.name)
    rows = [f'("{" ".join(names)}", {text})' for text, names in alike]
    return "\n".join(packed("INPUTS = inputs_of(eager, [", rows, "])"))


def _rows(rows: Sequence[str]) -> list[str]:
    """Return rows of a table, as many in a line as fit."""
    lines = packed("", [row.rstrip(",") for row in rows], ",")
    return [f"    {line.strip()}" for line in lines if rows]


def _recorded(recorded: Sequence[tuple[str, Sequence[int] | None]]) -> str:
    """Return the trace's kernels as a Python table `TRACE`: a short name, the whole name's digest, the grid."""
    rows = [
        ", ".join(several) if count == 1 else f"*[{', '.join(several)}] * {count}"
        for several, count in repeats(recorded_rows(recorded))
    ]
    says = "# The trace's kernels: short name, digest of the whole name, grid."
    return "\n".join([says, *packed("TRACE = [", rows, "]")])


def recorded_rows(recorded: Sequence[tuple[str, Sequence[int] | None]]) -> list[str]:
    """Return name and grid of kernels as rows of `TRACE`, Python source."""
    return [
        f'({shown_kernel(name)!a}, "{name_digest(name)}", {list(grid) if grid is not None else None!r})'
        for name, grid in recorded
    ]


def shown_kernel(name: str) -> str:
    """Return a kernel's function name, and what an elementwise one computes.

    >>> shown_kernel("void at::native::elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)")
    'elementwise (add)'
    """
    bare, does = re.sub(r"[^\x20-\x7e]", "?", short(name) or name)[:_SHOWN], functor(name)
    bare = bare.removesuffix("_kernel")
    return f"{bare} ({does})" if does is not None and does not in bare else bare


# What looks up as many elements of its first tensor as it gives; what gives some or all of them, in another shape.
_LOOKUPS, _VIEWS = keeping_values("looked_up"), keeping_values(*VIEWS)


def compulsory(graph: Graph) -> tuple[int, int]:
    """Return bytes that are read and written at least: of a table, as many elements as are looked up in it.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("rows")
    >>> table, ids = b.input("table", (1000, 8), "float32"), b.input("ids", (3,), "int64", below=1000)
    >>> compulsory(b.done(b.call("aten::embedding", table, ids)))
    (120, 96)
    """
    count = len(graph.inputs)
    needed = _needed(graph)
    widths = [itemsize(str(spec.dtype)) or 0 for spec in graph.specs]
    read = sum(needed[v] * widths[v] for v in range(count))
    return read, sum(distinct_elements(graph, v) * widths[v] for v in (*dict.fromkeys(graph.live), *graph.written))


def _needed(graph: Graph) -> list[int]:
    """Return elements of each value that are read."""
    found = [0] * len(graph.specs)
    for number in reversed(range(len(graph.calls))):
        call, first = graph.calls[number], graph.first_output(number)
        outputs = range(first, first + len(call.outputs))
        name = base_name(call.operator)
        for place, value in enumerate(reads(call)):
            whole = distinct_elements(graph, value)
            part = whole
            if name in _LOOKUPS and place == 0:
                part = sum(distinct_elements(graph, v) for v in outputs)
            elif name in _VIEWS:
                part = sum(distinct_elements(graph, v) if v in graph.live else found[v] for v in outputs)
            found[value] = min(found[value] + part, whole)
    return found


def distinct_elements(graph: Graph, value: int) -> int:
    """Return elements of a value, those that are repeated once."""
    spec, found = graph.specs[value], 1
    for size, stride in zip(spec.shape, spec.strides or (), strict=True):
        found *= size if stride else 1
    return found
