"""A finding as one short file: what it is, its inputs, the calls as eager runs them, the kernel, its launcher.

What all such files share stands beside them once (`harness.py`). They need torch and triton, and nothing of this
package. Of a trace they hold numbers and escaped strings; operators and names come from the operator table.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence

from tracemine.codegen.graph import Call, Graph, Literal, Ref, Refs, Scalar, Scalars, Value, asked, reads
from tracemine.codegen.min_traffic import compulsory
from tracemine.codegen.triton.source import Source, shared
from tracemine.ops.kernel_names import short
from tracemine.ops.kernels import functor
from tracemine.validate.input_domains import POSITIVE, domains
from tracemine.verify.gpu.marks import INTERFACE, KERNEL_BEGINS, KERNEL_ENDS, name_digest
from tracemine.verify.repro.standalone import comment
from tracemine.version import __version__

Plain = bool | int | float | str | tuple[bool | int | float, ...]
_FORMATS = {0: "torch.contiguous_format", 1: "torch.preserve_format", 2: "torch.channels_last"}
_WIDTH, _LONGEST_LINE = 118, 120
_VALUE = re.compile(r"\bv\[(\d+)\]")
_MANY = 6  # inputs, each in a line of its own
_LINES = 3  # of one entry in the head
_SHOWN = 48  # characters of a kernel's short name
_SOURCE = "; --source prints kernel and launcher"
_INPUTS = "Inputs, as recorded: names, shape, dtype, strides, values (None: normal ones, a number: indices below it)"
_MOST_REPEATED = 16  # calls or kernels of what repeats
_SPARED = 6  # lines that a loop must spare
NEEDS = f"Needs:    torch, triton, and tracemine_repro.py beside it. Written by tracemine {__version__}."


def repro(
    chain: Graph,
    source: Source | None,
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
    """The file's text.

    says: what is known of the finding, a line each. recorded: name and grid of each kernel that the chain had in the
    trace. library: a function of that name that says the same by calls of PyTorch's library, timed beside the kernel;
    in its place, where there is no source. positive: inputs that hold no negative numbers, beside those of which roots
    and logarithms are taken. small: the chain as a CPU tries it, or why it cannot; None: as it is.
    """
    on_cpu, sizes = ([], {}) if isinstance(small, str) else _smaller(chain, small or chain, positive)
    calls = f"Fused     {len(chain.calls)} calls in {_becomes(source)}: {_calls(chain)}"
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
        f"{section('Eager, call by call')}\n{eager_text(chain, sizes)}",
        f"{section(_INPUTS)}\n{_inputs(chain, positive)}\n{_on_cpu(small, on_cpu, sizes)}\n{_recorded(recorded)}",
        *([] if library is None else [f"{section('The same by a call of the library')}\n{library.strip()}"]),
        *([] if source is None else [f"{section(KERNEL_BEGINS)}\n{kernel}"]),
        f"{section(KERNEL_ENDS)}\n{_check(chain, source, library, fingerprint, title, ulp, draws, bool(sizes))}",
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


def chain_parts(
    chain: Graph, recorded: Sequence[tuple[str, Sequence[int] | None]], holds: Mapping[int, object]
) -> tuple[str, str]:
    """The source of `eager`, and tables `INPUTS` and `TRACE`. holds: what some inputs hold (`make_inputs`)."""
    return eager_text(chain), f"{_inputs(chain, (), holds)}\n{_recorded(recorded)}"


def _masks_for_nothing(kernel: str) -> bool:
    """Whether a function names the mask of its whole tile and uses it nowhere."""
    named = "mask = row_mask & column_mask"
    functions = (each.replace(named, "") for each in kernel.split("@triton.jit") if named in each)
    return any(re.search(r"[=(&|] ?mask\b", each) is None for each in functions)


def section(text: str) -> str:
    """The line above a part of a file.

    >>> section("Inputs")[:16]
    '# --- Inputs ---'
    """
    return f"# --- {text.removeprefix('# --- ').strip()} ".ljust(_WIDTH, "-")


def _import(names: Sequence[str]) -> str:
    whole = f"from tracemine_repro import {', '.join(names)}"
    return whole if len(whole) <= _WIDTH else "\n".join(_packed("from tracemine_repro import (", names, ")"))


def _check(
    chain: Graph,
    source: Source | None,
    library: str | None,
    fingerprint: str,
    title: str,
    ulp: float,
    draws: bool,
    sized: bool,
) -> str:
    moved = compulsory(chain)
    given = ["eager=eager", *(["fused=fused", "blocks=BLOCKS"] if source is not None else [])]
    given += [*(["library=library"] if library is not None else []), "inputs=INPUTS", "on_cpu=ON_CPU"]
    given += [*(["sizes_on_cpu=SIZES_ON_CPU"] if sized else []), "trace=TRACE"]
    given += [f"ulp={ulp}", f"nbytes={moved.both}", f"read_bytes={moved.read}", f"draws={draws}"]
    return "\n".join(
        [
            "CHECK = Reproduction(",
            f'    file=__file__, interface={INTERFACE}, fingerprint="{fingerprint}", title={title_text(title)},',
            *textwrap.wrap(", ".join(given) + ")", _WIDTH, initial_indent="    ", subsequent_indent="    "),
            'if __name__ == "__main__":',
            "    CHECK.main()",
        ]
    )


def title_text(title: str) -> str:
    """A title as a Python string: none of its characters does anything to a terminal."""
    return ascii(one_line(title)[:100])


def _apart(text: str) -> tuple[str, list[str]]:
    """A source without its imports and without what files share, and the names of that which it calls itself."""
    text = text[text.index("\n\n\n") :]
    names: list[str] = []
    for name, helper in (item for of in shared() for item in of.items()):
        if f"\n\n\n{helper}\n\n\n" in text:
            text = text.replace(f"\n\n\n{helper}\n\n\n", "\n\n\n", 1)
            names.append(name)
    text = text.strip("\n").replace("\n\n\n", "\n\n")  # no function of it has an empty line
    return text, [name for name in names if re.search(rf"(?<!\w){name}\b", text)]


def _calls(chain: Graph) -> str:
    return ", ".join(_runs(call.label.removeprefix("aten::") for call in chain.calls))


def _runs(labels: Iterable[str]) -> list[str]:
    """Labels, what repeats once.

    >>> _runs(["add", "mul", "mul"]), _runs(["full", *["mul", "add"] * 3])
    (['add', 'mul x2'], ['full', '(mul, add) x3'])
    """
    return [
        label if count == 1 else f"{label} x{count}" if len(several) == 1 else f"({', '.join(several)}) x{count}"
        for several, count in repeats(list(labels))
        for label in several[:1]
    ]


def repeats(items: Sequence[str]) -> list[tuple[Sequence[str], int]]:
    """Items in their order: what comes so often one after another, and how often. Of several at least three times.

    >>> repeats(["a", "b", "b", "a", "b", "a", "b", "a", "b"])
    [(['a'], 1), (['b'], 2), (['a', 'b'], 3)]
    """
    found: list[tuple[Sequence[str], int]] = []
    at = 0
    while at < len(items):
        spared, length, count = 0, 1, 1
        for long in range(1, _MOST_REPEATED + 1):
            many = 1
            while items[at + many * long : at + (many + 1) * long] == items[at : at + long]:
                many += 1
            if long * (many - 1) > spared and many >= (2 if long == 1 else 3):
                spared, length, count = long * (many - 1), long, many
        found.append((items[at : at + length], count))
        at += length * count
    return found


def _becomes(source: Source | None) -> str:
    if source is None:
        return "one call of the library"
    return "1 kernel" if len(source.kernels) == 1 else f"{len(source.kernels)} kernels"


def one_line(text: str) -> str:
    """A text of which no character begins a line, or does anything to a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def folded(text: str) -> list[str]:
    """A line of the head, with the lines that it goes on in."""
    word, rest = text[:10], one_line(text[10:])
    lines = textwrap.wrap(rest, _WIDTH - 12, break_on_hyphens=False) or [""]
    lines = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "..."]
    return [f"{word}{lines[0]}".rstrip(), *(f"{' ' * 10}{line}" for line in lines[1:])]


def _smaller(
    chain: Graph, small: Graph, positive: Collection[int]
) -> tuple[list[tuple[str, str]], dict[tuple[int, int], tuple[str, Plain, Plain]]]:
    """Inputs that are smaller on a CPU, each by its name, and arguments of calls that say sizes: by call and place the
    name that `eager` has for them, what was recorded, and what it is there.
    """
    holds = _values(chain, positive), _values(small, positive)
    rows: list[tuple[str, str]] = []
    for k, (one, other) in enumerate(zip(chain.inputs, small.inputs, strict=True)):
        if one.spec != other.spec or holds[0][k] != holds[1][k]:
            rows.append((one.name, f"({other.spec.shape!r}, {other.spec.strides!r}, {holds[1][k]!r})"))
    sizes: dict[tuple[int, int], tuple[str, Plain, Plain]] = {}
    taken = {i.name for i in chain.inputs} | {s.name for s in chain.scalars}
    for at, (call, tried) in enumerate(zip(chain.calls, small.calls, strict=True)):
        for place, (was, now) in enumerate(zip(call.arguments, tried.arguments, strict=True)):
            if was != now and isinstance(was, Literal) and isinstance(now, Literal):
                stem = call.schema.arguments[place].name
                name = next(n for n in (stem, *(f"{stem}_{k}" for k in range(1, 10_000))) if n not in taken)
                taken.add(name)
                sizes[at, place] = name, was.value, now.value
    return rows, sizes


def _on_cpu(
    small: Graph | str | None,
    rows: Sequence[tuple[str, str]],
    sizes: Mapping[tuple[int, int], tuple[str, Plain, Plain]],
) -> str:
    if isinstance(small, str):
        return f"ON_CPU = {small!a}  # why a CPU does not try it"
    if not rows:
        return "ON_CPU = {}  # without a GPU it is tried at the same sizes"
    alike: dict[str, list[str]] = {}
    for name, text in rows:
        alike.setdefault(text, []).append(name)
    items = [f'"{" ".join(names)}": {text}' for text, names in alike.items()]
    lines = ["# Without a GPU these are smaller: shape, strides, values.", *_packed("ON_CPU = {", items, "}")]
    each = [f'"{name}": {literal_text("int[]", value)}' for name, _, value in sizes.values()]
    return "\n".join([*lines, *(_packed("SIZES_ON_CPU = {", each, "}") if each else [])])


def _packed(begin: str, items: Sequence[str], end: str) -> list[str]:
    """Items between brackets, in one line or in several.

    >>> len(_packed("def eager(", ["one_of_many_names"] * 12, "):"))
    3
    """
    inner = " " * (len(begin) - len(begin.lstrip()) + (8 if end == "):" else 4))
    lines, line = [], begin
    for k, item in enumerate(items, 1):
        text = item + (end if k == len(items) else ",")
        if len(line) + (line != begin) + len(text) > _WIDTH:
            lines.append(line)
            line = inner + text
        else:
            line += text if line == begin else f" {text}"
    return [*lines, line if items else begin + end]


def eager_text(chain: Graph, sizes: Mapping[tuple[int, int], tuple[str, Plain, Plain]] | None = None) -> str:
    """The chain as a Python function `eager` of calls through torch.ops. sizes: literals that are arguments of it: by
    call and place the name, and what was recorded.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("scaled")
    >>> print(eager_text(b.done(b.call("aten::mul.Tensor", b.input("x", (4,), "float32"), 0.5))))
    def eager(x, *, other=0.5):
        aten = torch.ops.aten
        t1 = aten.mul.Tensor(x, other)
        return (t1,)
    """
    sizes = sizes or {}
    scalars = [f"{s.name}={number_text(s.value)}" for s in chain.scalars]
    scalars += [f"{name}={literal_text('int[]', value)}" for name, value, _ in sizes.values()]
    looped = _loops(chain, sizes)
    if looped:
        lines = [f"def eager({', '.join(['*inputs', *scalars])}):", "    aten = torch.ops.aten", *looped]
        return "\n".join(found for line in lines for found in _broken(line))
    names = [i.name for i in chain.inputs]
    lines = [f"def eager({', '.join([*names, *(['*'] if scalars else []), *scalars])}):", "    aten = torch.ops.aten"]
    read = {*chain.live, *(v for call in chain.calls for v in reads(call))}
    for number, call in enumerate(chain.calls):
        outputs = [f"t{len(names) + k}" for k in range(len(call.outputs))]
        listed = bool(call.schema.outputs) and call.schema.outputs[0].endswith("[]")
        rest = iter(name if len(names) + k in read else "_" for k, name in enumerate(outputs))
        targets = [next(rest) if wanted else "_" for wanted in asked(call)]
        target = ", ".join(targets) + ("," if listed and len(outputs) == 1 else "")
        text = _call_text(call, names, _named(sizes, number))
        lines.append(f"    {text}" if {*targets} <= {"_"} else f"    {target} = {text}")
        names += outputs
    live = ", ".join(names[v] for v in chain.live)
    lines.append(f"    return ({live}{',' if len(chain.live) == 1 else ''})")
    return "\n".join(found for line in lines for found in _broken(line))


def _call_text(call: Call, names: Sequence[str], sizes: Mapping[int, str]) -> str:
    name = call.operator.removeprefix("aten::")
    return f"aten.{name}.{call.overload or 'default'}({arguments_text(call, names, sizes)})"


def _loops(chain: Graph, sizes: Mapping[tuple[int, int], tuple[str, Plain, Plain]]) -> list[str]:
    """The lines of `eager` of a chain whose calls repeat, as loops over its values `v`; none where none spares lines.

    A call repeats another where it is the same of values that lie as far on, each time.
    """
    if any(len(asked(call)) != len(call.outputs) or len(call.outputs) != 1 for call in chain.calls):
        return []
    if any(o.endswith("[]") for call in chain.calls for o in call.schema.outputs):
        return []
    names = [f"v[{k}]" for k in range(len(chain.inputs) + len(chain.calls))]
    calls = [_call_text(call, names, _named(sizes, at)) for at, call in enumerate(chain.calls)]
    kinds = [_VALUE.sub("v", call) for call in calls]
    places = [[int(k) for k in _VALUE.findall(call)] for call in calls]
    lines = ["    v = [*inputs]  # and what each call gives"]
    at = spared = 0
    while at < len(calls):
        length, count = _repeated(kinds, places, at)
        if length * count <= length + 1:
            lines.append(f"    v.append({calls[at]})")
            at += 1
            continue
        lines.append(f"    for k in range({count}):")
        for here in range(at, at + length):
            steps = zip(places[here], places[here + length], strict=True)
            terms = iter([_term(first, second - first) for first, second in steps])
            lines.append(f"        v.append({_VALUE.sub(lambda _, terms=terms: f'v[{next(terms)}]', calls[here])})")  # type: ignore[misc]
        at += length * count
        spared += length * (count - 1) - 1
    return [*lines, f"    return {_picked(chain.live)}"] if spared >= _SPARED else []


def _repeated(kinds: Sequence[str], places: Sequence[Sequence[int]], at: int) -> tuple[int, int]:
    """How many calls from one on repeat, and how often they come: at least three times, or once."""
    best = 1, 1
    for length in range(1, _MOST_REPEATED + 1):
        count = 1
        while _goes_on(kinds, places, at, length, count):
            count += 1
        if count >= 3 and length * count > best[0] * best[1]:
            best = length, count
    return best


def _goes_on(kinds: Sequence[str], places: Sequence[Sequence[int]], at: int, length: int, count: int) -> bool:
    begin = at + count * length
    if begin + length > len(kinds) or kinds[begin : begin + length] != kinds[at : at + length]:
        return False
    return all(
        place == first + count * (second - first)
        for k in range(length)
        for first, second, place in zip(places[at + k], places[at + length + k], places[begin + k], strict=True)
    )


def _term(first: int, step: int) -> str:
    """A place that goes on by a step each time.

    >>> _term(0, 2), _term(7, 1), _term(3, 0)
    ('2 * k', '7 + k', '3')
    """
    times = "k" if step == 1 else f"{step} * k"
    return str(first) if step == 0 else times if first == 0 else f"{first} + {times}"


def _picked(places: Sequence[int]) -> str:
    """Values as a tuple, those at equal distances as one slice.

    >>> _picked([5, 7, 9, 10]), _picked([4])
    ('(*v[5:10:2], v[10])', '(v[4],)')
    """
    texts: list[str] = []
    at = 0
    while at < len(places):
        step = places[at + 1] - places[at] if at + 1 < len(places) else 0
        end = at + 1
        while step > 0 and end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        if end - at >= 3:
            texts.append(f"*v[{places[at]}:{places[end - 1] + 1}{f':{step}' if step > 1 else ''}]")
            at = end
        else:
            texts.append(f"v[{places[at]}]")
            at += 1
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _named(sizes: Mapping[tuple[int, int], tuple[str, Plain, Plain]], number: int) -> dict[int, str]:
    return {place: name for (at, place), (name, _, _) in sizes.items() if at == number}


def _broken(line: str) -> list[str]:
    """A line of calls that is too long, in several: after commas, within its brackets."""
    if len(line) <= _WIDTH:
        return [line]
    lead: list[str] = []
    targets, equals, _ = line.partition(" = aten.")
    if equals and len(targets) > _WIDTH // 2:  # many results
        rest = line[len(targets) :].partition("(")[0]
        *lead, last = textwrap.wrap(f"({targets.strip()})", _WIDTH - 8 - len(rest) - len("("))
        lead = [f"{'        ' if k else '    '}{each}" for k, each in enumerate(lead)]
        line = f"{'        ' if lead else '    '}{last}{line[len(targets) :]}"
    at = line.index("(", line.find(" = aten.") + 1) + 1
    end = "):" if line.endswith("):") else ")"
    return [*lead, *_packed(line[:at], line[at:].removesuffix(end).rstrip(",").split(", "), end)]


def arguments_text(call: Call, names: Sequence[str], sizes: Mapping[int, str] | None = None) -> str:
    """A call's arguments as Python source. names: of the values that it refers to. sizes: of its literals that have
    names, by place.
    """
    schema = call.schema
    found: list[str] = []
    skipped = False
    for place, (argument, value) in enumerate(zip(schema.arguments, call.arguments, strict=True)):
        if value is None and (place >= schema.positional or not argument.is_optional):
            skipped = True
            continue
        text = (sizes or {}).get(place) or _value(argument.type, value, names)
        if call.wraps_numbers and argument.is_tensor and isinstance(value, Scalar):
            text = f"torch.tensor({text})"
        found.append(f"{argument.name}={text}" if skipped or place >= schema.positional else text)
    if any(a.name == "device" for a in schema.arguments) and not reads(call):
        found.append('device="cuda"')
    return ", ".join(found)


def _value(kind: str, value: Value, names: Sequence[str]) -> str:
    if value is None:
        return "None"
    if isinstance(value, Ref):
        return names[value.value]
    if isinstance(value, Refs):
        return f"[{', '.join('None' if v is None else names[v] for v in value.values)}]"
    if isinstance(value, Scalar):
        return value.name
    if isinstance(value, Scalars):
        return f"[{', '.join(s.name for s in value.values)}]"
    return literal_text(kind.removesuffix("?"), value.value)


def literal_text(kind: str, value: Plain) -> str:
    """A value that is no tensor as Python source. kind: its type in the schema.

    >>> literal_text("ScalarType", "bfloat16"), literal_text("int[]", (1, 2)), literal_text("MemoryFormat", 0)
    ('torch.bfloat16', '[1, 2]', 'torch.contiguous_format')
    """
    if kind == "ScalarType":
        return f"torch.{value}"
    if kind == "MemoryFormat" and isinstance(value, int):
        return _FORMATS.get(value, "None")
    if isinstance(value, tuple):
        return f"[{', '.join(map(number_text, value))}]"
    return repr(value) if isinstance(value, str) else number_text(value)


def number_text(value: float | int | bool) -> str:
    """A number as Python source.

    >>> number_text(-float("inf")), number_text(1e-06), number_text(True)
    ("float('-inf')", '1e-06', 'True')
    """
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def _values(chain: Graph, positive: Collection[int]) -> list[object]:
    """What each input holds, as `gpu/correctness.py` makes it."""
    holds = {**domains(chain), **dict.fromkeys(positive, POSITIVE)}
    return [holds.get(k, i.below) for k, i in enumerate(chain.inputs)]


def inputs_text(chain: Graph, positive: Collection[int] = ()) -> str:
    """A chain's inputs as a Python table `INPUTS`, as `gpu/correctness.py` makes them. positive: as in `repro`."""
    rows = [
        f'("{i.name}", {i.spec.shape!r}, torch.{i.spec.dtype}, {i.spec.strides!r}, {holds!r}),'
        for i, holds in zip(chain.inputs, _values(chain, positive), strict=True)
    ]
    says = "# name, shape, dtype, strides, values: None normal ones, a number indices below it"
    lines = [f"    {row}" for row in rows] if len(rows) <= _MANY else _rows(rows)
    return "\n".join([f"INPUTS = [  {says}", *lines, "]"])


def _inputs(chain: Graph, positive: Collection[int], instead: Mapping[int, object] | None = None) -> str:
    """The same with a row for inputs that are alike. Where `eager` names none, those that follow each other."""
    ordered = "def eager(*inputs" in eager_text(chain)
    alike: list[tuple[str, list[str]]] = []
    values = [(instead or {}).get(k, holds) for k, holds in enumerate(_values(chain, positive))]
    for i, holds in zip(chain.inputs, values, strict=True):
        text = f"{i.spec.shape!r}, torch.{i.spec.dtype}, {i.spec.strides!r}, {holds!r}"
        found = next((names for looks, names in alike[-1 if ordered else 0 :] if looks == text), None)
        if found is None:
            alike.append((text, [i.name]))
        else:
            found.append(i.name)
    rows = [f'("{" ".join(names)}", {text})' for text, names in alike]
    return "\n".join(_packed("INPUTS = inputs_of(eager, [", rows, "])"))


def _rows(rows: Sequence[str]) -> list[str]:
    """Rows of a table, as many in a line as fit."""
    lines = _packed("", [row.rstrip(",") for row in rows], ",")
    return [f"    {line.strip()}" for line in lines if rows]


def _recorded(recorded: Sequence[tuple[str, Sequence[int] | None]]) -> str:
    """The trace's kernels as a Python table `TRACE`: a short name, the whole name's digest, the grid."""
    rows = [
        ", ".join(several) if count == 1 else f"*[{', '.join(several)}] * {count}"
        for several, count in repeats(recorded_rows(recorded))
    ]
    says = "# The trace's kernels: short name, digest of the whole name, grid."
    return "\n".join([says, *_packed("TRACE = [", rows, "]")])


def recorded_rows(recorded: Sequence[tuple[str, Sequence[int] | None]]) -> list[str]:
    """Name and grid of kernels as rows of `TRACE`, Python source."""
    return [
        f'({shown_kernel(name)!a}, "{name_digest(name)}", {list(grid) if grid is not None else None!r})'
        for name, grid in recorded
    ]


def shown_kernel(name: str) -> str:
    """A kernel's function name, and what an elementwise one computes.

    >>> shown_kernel("void at::native::elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)")
    'elementwise (add)'
    """
    bare, does = re.sub(r"[^\x20-\x7e]", "?", short(name) or name)[:_SHOWN], functor(name)
    bare = bare.removesuffix("_kernel")
    return f"{bare} ({does})" if does is not None and does not in bare else bare
