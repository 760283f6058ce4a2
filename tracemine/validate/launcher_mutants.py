"""Mutants of launchers: launches exchanged or left out, another tensor's strides, plans kept too long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tracemine.codegen.graph import Graph
from tracemine.tables import table_beside
from tracemine.validate.kernel_text import LOADED, begin_of, end_of, parsed, plain

MOST_OF_A_KIND = 3
NARROWER = "partial results stored narrower"
WHATEVER_STRIDES = "plan kept whatever the strides"
_TENSORS = re.compile(r" = _cached_plan\(.*, \((\w+(?:, \w+)*),?\)\)$")
_LINES = table_beside(__file__, "mutations.toml")["launchers"]


def why_equivalent(graph: Graph, name: str, line: str, lines: Sequence[str], rounded: Sequence[str] = ()) -> str | None:
    """Return why a launcher's mutant changes no result, or none that eager does not change; None where it does."""
    narrow = frozenset(i.name for i in graph.inputs if i.spec.dtype == "bfloat16")
    if name == NARROWER and of_extremes(lines, line.partition(" = ")[0], narrow):
        return "the largest of numbers of 16 bits is one of them"
    if name == NARROWER and rounded_by_eager(lines, rounded, line.partition(" = ")[0]):
        return "eager rounds it to 16 bits there, too"
    own = next((i.spec for i in graph.inputs if i.name == line.partition(".")[0]), None)
    if name == WHATEVER_STRIDES and own is not None and max((n for n in own.shape), default=0) <= 1:
        return "a tensor of one element has its one place"
    return None


def launcher_mutants(graph: Graph, lines: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield sources whose kernels are right and whose launcher is not: what is wrong, the line, the source."""
    inside = _launcher(lines)
    for name, pattern, becomes in _LINES:
        places = [k for k in inside if re.search(pattern, lines[k])]
        for at in _spread(places):
            yield name, lines[at].strip(), _with(lines, {at: re.sub(pattern, becomes, lines[at], count=1)})
    tensors = next((found[1].split(", ") for line in lines if (found := _TENSORS.search(line))), [])
    for at in [k for k in inside if lines[k].startswith("    key = ")]:
        for place in _spread(range(len(tensors))):
            without = lines[at].replace("t.stride()", f"t is tensors[{place}] or t.stride()")
            yield WHATEVER_STRIDES, f"{tensors[place]}.stride()", _with(lines, {at: without})
    launches = [k for k in inside if re.match(r"    launch\w*\(.*\)$", lines[k])]
    for first, second in pairwise(launches):
        yield "launches exchanged", lines[first].strip(), _with(lines, {first: lines[second], second: lines[first]})
    yield from _of_another(graph, lines, inside)
    yield from _in_an_input(graph, lines, inside)


def _launcher(lines: Sequence[str]) -> list[int]:
    """Return lines of `_plan`, `fused`, and of what chooses plans and the index type."""
    numbers: list[int] = []
    inside = False
    for at, line in enumerate(lines):
        if line.startswith(("def ", "class ")):
            inside = bool(re.match(r"def (_plan|_cached_plan|fused|_index_type)\(", line))
        elif inside and line.startswith("    "):
            numbers.append(at)
    return numbers


def _spread(places: Sequence[int]) -> list[int]:
    """Return a few of many: the first, the last, and between."""
    if len(places) <= MOST_OF_A_KIND:
        return list(places)
    return [places[k * (len(places) - 1) // (MOST_OF_A_KIND - 1)] for k in range(MOST_OF_A_KIND)]


def _of_another(graph: Graph, lines: Sequence[str], inside: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """Take a tensor's strides from another of the same shape."""
    specs = {i.name: i.spec for i in graph.inputs}
    alike = {
        name: other
        for name, spec in specs.items()
        for other in [o for o, s in specs.items() if o != name and s.shape == spec.shape][:1]
    }
    for name, other in list(alike.items())[:MOST_OF_A_KIND]:
        stride = (
            rf"\b{name}(?=\.stride\(\d\)(?:, |,$))|(?<=_strides\(){name}\b|(?<=, ){name}(?=(?:, [a-z]\w*)*\)(?:, |,$))"
        )
        within = (k for k in inside if re.match(r"    (args = \(|    )", lines[k]))
        changed = {k: re.sub(stride, other, lines[k]) for k in within if re.search(stride, lines[k])}
        if changed:
            yield "strides of another tensor", lines[min(changed)].strip(), _with(lines, changed)


def _in_an_input(graph: Graph, lines: Sequence[str], inside: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """Put a result in the memory of an input that must not be written."""
    returned = next((re.findall(r"\w+", lines[k])[1:] for k in inside if lines[k].startswith("    return out")), [])
    for name, value in zip(returned, graph.live, strict=False):
        spec = graph.specs[value]
        free = (i.name for k, i in enumerate(graph.inputs) if k not in graph.written and i.spec == spec)
        taken = next(free, None)
        at = next((k for k in inside if re.match(rf"    .*\b{name}\b.* = _allocate\(", lines[k])), None)
        if taken is not None and at is not None:
            changed = {at: f"{lines[at]}\n    {name} = {taken}"}
            yield "result in an input's memory", lines[at].strip(), _with(lines, changed)
            return


def _with(lines: Sequence[str], changed: dict[int, str]) -> str:
    return "\n".join(changed.get(k, line) for k, line in enumerate(lines))


def loads_of_another(lines: Sequence[str], inside: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Load one tensor in another's place, or store a result where another belongs."""
    for word, name in (("tl.load(", "another tensor loaded"), ("tl.store(", "stored where another result belongs")):
        places = [k for k in inside if f"{word}" in lines[k] and re.search(re.escape(word) + r"\w+_ptr", lines[k])]
        for at in _spread(places):
            own = re.search(re.escape(word) + r"(\w+)_ptr", lines[at])
            begin = begin_of(lines, at)
            end = end_of(lines, at)
            here = [re.search(re.escape(word) + r"(\w+)_ptr", lines[k]) for k in range(begin, end)]
            others = [m[1] for m in here if m is not None and own is not None and m[1] != own[1]]
            if own is not None and others:
                line = lines[at].replace(f"{own[1]}_ptr", f"{others[0]}_ptr", 1)
                yield name, lines[at].strip(), _with(lines, {at: line})


def of_extremes(lines: Sequence[str], scratch: str, narrow: frozenset[str]) -> bool:
    """Return whether a partial result is the largest or smallest of loaded numbers, and no wider.

    narrow: tensors whose numbers are no wider than the partial result is to be.
    """
    stores = [k for k, line in enumerate(lines) if f"tl.store({scratch}_ptr" in line]
    for at in stores:
        stored = re.search(r", (\w+), mask=\w+\)$", plain(lines[at]))
        begin = begin_of(lines, at)
        made: dict[str, list[str]] = {}
        for line in lines[begin:at]:
            name, _, said = line.partition("  #")[0].strip().partition(" = ")
            made.setdefault(name, []).append(said)
        if stored is None or not _picked(made, stored[1], lines, narrow):
            return False
    return bool(stores)


_PICKS = frozenset(
    (
        *("_larger", "_smaller", "_row_max", "_row_min", "tl.max", "tl.min", "tl.maximum", "tl.minimum", "tl.reduce"),
        *("tl.where", "tl.reshape", "tl.full", "float"),
    )
)


def _picked(made: Mapping[str, list[str]], name: str, lines: Sequence[str], narrow: frozenset[str]) -> bool:
    seen, todo = set[str](), [name]
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        for said in made.get(each, ["?"]):
            loaded = LOADED.match(said)
            if loaded is not None:
                if loaded[1] in narrow or (loaded[1].startswith("scratch") and of_extremes(lines, loaded[1], narrow)):
                    continue
                return False
            tree = parsed(said)
            calls = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)} if tree else {"?"}
            if calls - _PICKS or tree is None:
                return False
            todo += _numbers_of(tree)
    return True


def _numbers_of(tree: ast.expr) -> list[str]:
    """Return the names that a call picks from: no condition, no shape."""
    if isinstance(tree, ast.Name):
        return [tree.id]
    if isinstance(tree, ast.Subscript):
        return _numbers_of(tree.value)
    if isinstance(tree, ast.Constant) or ast.unparse(tree) in ("-float('inf')", "float('inf')"):
        return []
    if not isinstance(tree, ast.Call):
        return ["?"]
    name = ast.unparse(tree.func)
    places = {"tl.where": (1, 2), "tl.full": (1,), "_larger": (0, 1), "_smaller": (0, 1)}.get(name, (0,))
    places = (0, 1) if name in ("tl.maximum", "tl.minimum") else places
    return [each for k in places for each in _numbers_of(tree.args[k])]


def rounded_by_eager(lines: Sequence[str], rounded: Sequence[str], scratch: str) -> bool:
    """Return whether the build that rounds as eager does has bfloat16 where this one stores a partial result."""
    stored, theirs = _stored(lines, scratch), _stored(rounded, scratch)
    if len(stored) != 1 or len(theirs) != 1:
        return False
    (where, made), (there, narrow) = stored[0], theirs[0]
    calls = [made.partition("  # aten::")[2], narrow.partition("  # aten::")[2]]
    if calls[1] == "_to_copy":  # nothing but a cast, of what is stored here
        source = re.match(r"\s*\w+ = (\w+)\.to\(tl\.bfloat16\)\.to\(tl\.float32\)", narrow)
        before = [line for line in rounded if source and line.strip() == made.strip() and f" {source[1]} = " in line]
        return where == there and bool(before)
    return where == there and bool(calls[0]) and calls[0] == calls[1] and ".to(tl.bfloat16).to(tl.float32)" in narrow


def _stored(lines: Sequence[str], scratch: str) -> list[tuple[str, str]]:
    """Return where partial results are stored, kernel and place, and the line that makes them."""
    stores = []
    for at in (k for k, line in enumerate(lines) if f"tl.store({scratch}_ptr" in line):
        place, _, name = plain(lines[at]).rpartition(", mask=")[0].rpartition(", ")
        begin = begin_of(lines, at)
        made = [line for line in lines[begin:at] if line.strip().startswith(f"{name} = ")]
        stores.append((lines[begin] + place, made[0] if len(made) == 1 else ""))
    return stores
