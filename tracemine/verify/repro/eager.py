"""A graph's calls as a Python function `eager` through torch.ops, and values as Python source.

Of a trace it holds numbers; operators and names come from the operator table.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from tracemine.codegen.graph import Graph, GraphCall, Ref, Refs, Scalar, Scalars, Value, asked, reads

Plain = bool | int | float | str | tuple[bool | int | float, ...]
# Literals that are arguments of `eager`: by call and place the name, what was recorded, and what it is on a CPU.
Sizes = Mapping[tuple[int, int], tuple[str, Plain, Plain]]
WIDTH = 118
MOST_REPEATED = 16  # calls or kernels of what repeats
_FORMATS = {0: "torch.contiguous_format", 1: "torch.preserve_format", 2: "torch.channels_last"}
_VALUE = re.compile(r"\bv\[(\d+)\]")
_SPARED = 6  # lines that a loop must spare


def eager_text(graph: Graph, sizes: Sizes | None = None) -> str:
    """Return the graph as a Python function `eager` of calls through torch.ops.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("scaled")
    >>> print(eager_text(b.done(b.call("aten::mul.Tensor", b.input("x", (4,), "float32"), 0.5))))
    def eager(x, *, other=0.5):
        aten = torch.ops.aten
        t1 = aten.mul.Tensor(x, other)
        return (t1,)
    """
    sizes = sizes or {}
    names = [i.name for i in graph.inputs]
    scalars = [f"{s.name}={number_text(s.value)}" for s in graph.scalars]
    scalars += [f"{name}={literal_text('int[]', value)}" for name, value, _ in sizes.values()]
    body, taken = _loops(graph, sizes), ["*inputs", *scalars]
    if not body:
        body, taken = _one_by_one(graph, names, sizes), [*names, *(["*"] if scalars else []), *scalars]
    lines = [f"def eager({', '.join(taken)}):", "    aten = torch.ops.aten", *body]
    return "\n".join(part for line in lines for part in _broken(line))


def _one_by_one(graph: Graph, names: Sequence[str], sizes: Sizes) -> list[str]:
    """Write a line a call, and what is returned. names: of the inputs."""
    names, lines = [*names], list[str]()
    read = {*graph.live, *(v for call in graph.calls for v in reads(call))}
    for number, call in enumerate(graph.calls):
        values = range(len(names), len(names) + len(call.outputs))
        target = _target(call, [f"t{v}" if v in read else "_" for v in values])
        lines.append(f"    {target}{_call_text(call, names, _named(sizes, number))}")
        names += [f"t{v}" for v in values]
    live = ", ".join(names[v] for v in graph.live)
    return [*lines, f"    return ({live}{',' if len(graph.live) == 1 else ''})"]


def _target(call: GraphCall, names: Sequence[str]) -> str:
    """Write what a call's results are assigned to; nothing where none has a name but "_"."""
    rest = iter(names)
    targets = [next(rest) if wanted else "_" for wanted in asked(call)]
    listed = bool(call.schema.outputs) and call.schema.outputs[0].endswith("[]")
    comma = "," if listed and len(names) == 1 else ""
    return "" if {*targets} <= {"_"} else f"{', '.join(targets)}{comma} = "


def _call_text(call: GraphCall, names: Sequence[str], sizes: Mapping[int, str]) -> str:
    name = call.operator.removeprefix("aten::")
    return f"aten.{name}.{call.overload or 'default'}({arguments_text(call, names, sizes)})"


def _loops(graph: Graph, sizes: Sizes) -> list[str]:
    """Return `eager` as loops over its values `v`, where calls repeat; no lines where loops would spare none.

    A call repeats another where it is the same of values that lie as far on, each time.
    """
    if not all(map(_gives_one_tensor, graph.calls)):
        return []
    names = [f"v[{k}]" for k in range(len(graph.inputs) + len(graph.calls))]
    calls = [_call_text(call, names, _named(sizes, at)) for at, call in enumerate(graph.calls)]
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
        once = range(at, at + length)
        lines += [f"        v.append({_in_loop(calls[k], places[k], places[k + length])})" for k in once]
        at += length * count
        spared += length * (count - 1) - 1
    return [*lines, f"    return {_picked(graph.live)}"] if spared >= _SPARED else []


def _gives_one_tensor(call: GraphCall) -> bool:
    return len(asked(call)) == len(call.outputs) == 1 and not any(o.endswith("[]") for o in call.schema.outputs)


def _in_loop(call: str, first: Sequence[int], second: Sequence[int]) -> str:
    """Write a call of values that go on by a step each time. first, second: their places the first two times."""
    terms = iter([_term(place, other - place) for place, other in zip(first, second, strict=True)])
    return _VALUE.sub(lambda _: f"v[{next(terms)}]", call)


def _repeated(kinds: Sequence[str], places: Sequence[Sequence[int]], at: int) -> tuple[int, int]:
    """Return how many calls from one on repeat, and how often they come: at least three times, or once."""
    best = 1, 1
    for length in range(1, MOST_REPEATED + 1):
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
    """Return a place that goes on by a step each time.

    >>> _term(0, 2), _term(7, 1), _term(3, 0)
    ('2 * k', '7 + k', '3')
    """
    times = "k" if step == 1 else f"{step} * k"
    return str(first) if step == 0 else times if first == 0 else f"{first} + {times}"


def _picked(places: Sequence[int]) -> str:
    """Return values as a tuple, those at equal distances as one slice.

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


def _named(sizes: Sizes, number: int) -> dict[int, str]:
    return {place: name for (at, place), (name, _, _) in sizes.items() if at == number}


def _broken(line: str) -> list[str]:
    """Return a line of calls that is too long, in several: after commas, within its brackets."""
    if len(line) <= WIDTH:
        return [line]
    lead: list[str] = []
    targets, equals, _ = line.partition(" = aten.")
    if equals and len(targets) > WIDTH // 2:  # many results
        rest = line[len(targets) :].partition("(")[0]
        *lead, last = textwrap.wrap(f"({targets.strip()})", WIDTH - 8 - len(rest) - len("("))
        lead = [f"{'        ' if k else '    '}{each}" for k, each in enumerate(lead)]
        line = f"{'        ' if lead else '    '}{last}{line[len(targets) :]}"
    at = line.index("(", line.find(" = aten.") + 1) + 1
    end = "):" if line.endswith("):") else ")"
    return [*lead, *packed(line[:at], line[at:].removesuffix(end).rstrip(",").split(", "), end)]


def arguments_text(call: GraphCall, names: Sequence[str], sizes: Mapping[int, str] | None = None) -> str:
    """Return a call's arguments as Python source. names: of the values that it refers to. sizes: names of literals."""
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
    """Return a value that is no tensor as Python source. kind: its type in the schema.

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
    """Return a number as Python source.

    >>> number_text(-float("inf")), number_text(1e-06), number_text(True)
    ("float('-inf')", '1e-06', 'True')
    """
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f"float({str(value)!r})"
    return repr(value)


def packed(begin: str, items: Sequence[str], end: str) -> list[str]:
    """Return items between brackets, in one line or in several.

    >>> len(packed("def eager(", ["one_of_many_names"] * 12, "):"))
    3
    """
    inner = " " * (len(begin) - len(begin.lstrip()) + (8 if end == "):" else 4))
    lines, line = [], begin
    for k, item in enumerate(items, 1):
        text = item + (end if k == len(items) else ",")
        if len(line) + (line != begin) + len(text) > WIDTH:
            lines.append(line)
            line = inner + text
        else:
            line += text if line == begin else f" {text}"
    return [*lines, line if items else begin + end]
