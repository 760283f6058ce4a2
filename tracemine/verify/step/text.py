"""A program as Python source: functions that replay a step call by call. Nothing of a trace becomes code.

Operators and overloads come from the operator table; names are ours; all else is numbers that we format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import msgspec

from tracemine.codegen.graph import Graph, LiteralArg
from tracemine.codegen.triton.source import SourceText
from tracemine.ops import itemsize
from tracemine.tables import table_beside
from tracemine.verify.repro.eager import eager_text, literal_text, number_text
from tracemine.verify.repro.standalone import banner, file_text
from tracemine.verify.repro.text import inputs_text
from tracemine.verify.step.placing import Fused, Placed
from tracemine.verify.step.program import Argument, Program, StepCall, TensorRef

_OPERATOR = re.compile(r"aten::[a-z_][a-z0-9_]*", re.IGNORECASE)
_WIDTH = 116
Item = StepCall | Fused


class Writer:
    """Writes functions that replay a program; they share the operators and the inputs that stand above them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operators: dict[tuple[str, str], str] = {}
        self.inputs: dict[TensorRef, str] = {}
        for call in program.calls:
            for place in call.reads:
                self._input(place)

    def _input(self, place: TensorRef) -> None:
        if self.program.buffers[place.buffer].outside:
            self.inputs.setdefault(place, f"t[{len(self.inputs)}]")

    def function(self, name: str, items: Sequence[Item]) -> str:
        """Return one function of the inputs `t` and the kernels `k`, which replace the occurrences."""
        for item in items:
            if isinstance(item, Fused):
                for place in item.takes:
                    self._input(place)
        return "\n".join([f"def {name}(t, k):", *_Function(self, items).lines()])

    def header(self) -> str:
        """Return the operators, by the names that the functions have for them."""
        lines = [
            f"{name} = torch.ops.aten.{operator.removeprefix('aten::')}.{overload or 'default'}"
            for (operator, overload), name in self.operators.items()
        ]
        return "\n".join(lines)

    def operator(self, call: StepCall) -> str:
        """Return the name of a call's operator."""
        key = call.operator, call.overload
        if key not in self.operators:
            if not _OPERATOR.fullmatch(call.operator) or not re.fullmatch(r"\w*", call.overload):
                raise ValueError(f"{call.operator!a} is no operator")
            stem = call.operator.removeprefix("aten::").strip("_")
            self.operators[key] = f"_{stem}_{len(self.operators)}"
        return self.operators[key]


class _Function:
    def __init__(self, writer: Writer, items: Sequence[Item]) -> None:
        self.writer = writer
        self.program = writer.program
        self.items = needed(items, self.program)
        self.names: dict[int, dict[TensorRef, str]] = {}
        for place, name in writer.inputs.items():
            self.names.setdefault(place.buffer, {})[place] = name
        self.count = 0
        self.text: list[str] = []

    def lines(self) -> list[str]:
        """Return the function's body."""
        kept = {place.buffer for place in self.program.live}
        last: dict[int, int] = {}
        for at, item in enumerate(self.items):
            last.update(dict.fromkeys(_buffers(item), at))
        for at, item in enumerate(self.items):
            if isinstance(item, Fused):
                self._fused(item)
            else:
                self._call(item)
            gone = [b for b in _buffers(item) if last[b] == at and b not in kept]
            names = [n for b in dict.fromkeys(gone) for n in self.names.pop(b, {}).values() if n.startswith("v")]
            if names:
                self._write("", f"del ({', '.join(dict.fromkeys(names))})")
        results = [self._name(place) for place in self.program.live]
        self._write("", f"return [{', '.join(results)}]")
        return self.text

    def _new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _name(self, place: TensorRef) -> str:
        """Return the variable that is this tensor; where there is none, one is made that looks at the same memory."""
        known = self.names.get(place.buffer, {})
        if place in known:
            return known[place]
        if not known:
            raise ValueError(f"buffer {place.buffer} is read before it is made")
        name = self._new()
        same = next((n for p, n in known.items() if p.dtype == place.dtype), None)
        lies = f"{place.shape!r}, {place.strides!r}, {place.offset}"
        if same is not None:
            self.text.append(f"    {name} = torch.as_strided({same}, {lies})")
        else:
            self.text.append(f"    {name} = look({next(iter(known.values()))}, torch.{place.dtype}, {lies})")
        known[place] = name
        return name

    def _call(self, call: StepCall) -> None:
        text = f"{self.writer.operator(call)}({self._arguments(call)})"
        for buffer in call.makes:
            self.names[buffer] = {}
        targets: dict[tuple[int, int], str] = {}
        for position, member, place in call.outputs:
            known = self.names.setdefault(place.buffer, {})
            if place not in known:
                targets[position, member] = known[place] = self._new()
        self._write(self._targets(call, targets), text)

    @staticmethod
    def _targets(call: StepCall, targets: dict[tuple[int, int], str]) -> str:
        """Return the names that a call is assigned to, `_` for results without a consumer."""
        if not targets:
            return ""
        kinds = call.schema.outputs
        parts = []
        for position, kind in enumerate(kinds):
            if kind.endswith("[]"):
                members = [m for p, m, _ in call.outputs if p == position]
                inner = [targets.get((position, m), "_") for m in range(max(members, default=-1) + 1)]
                parts.append(f"[{', '.join(inner)}]" if inner else "_")
            else:
                parts.append(targets.get((position, -1), "_"))
        return f"({', '.join(parts)})" if len(parts) > 1 else parts[0]

    def _fused(self, item: Fused) -> None:
        for place in item.takes:
            if place.buffer not in self.names:  # a call that it replaces allocates this, and another one fills it
                self.names[place.buffer] = {place: self._new()}
                made = f"{place.shape!r}, {place.strides!r}, dtype=torch.{place.dtype}, device=DEVICE"
                self._write(self.names[place.buffer][place], f"torch.empty_strided({made})")
        taken = [self._name(place) for place in item.takes]
        numbers = [f"{name}={number_text(value)}" for name, value in item.scalars]
        text = f"k[{item.kernel}]({', '.join([*taken, *numbers])})"
        targets = []
        for given in item.gives:
            targets.append("_" if given is None else self._new())
            if given is not None:
                self.names[given.buffer] = {given: targets[-1]}
        self._write(f"({', '.join(targets)},)" if targets else "", text)

    def _write(self, target: str, text: str) -> None:
        line = f"    {target} = {text}" if target else f"    {text}"
        while len(line) > _WIDTH and (at := line.rfind(", ", 12, _WIDTH)) > 0:
            self.text.append(line[: at + 1])
            line = " " * 8 + line[at + 2 :]
        self.text.append(line)

    def _arguments(self, call: StepCall) -> str:
        schema = call.schema
        found: list[str] = []
        skipped = False
        for at, (argument, value) in enumerate(zip(schema.arguments, call.arguments, strict=True)):
            named = skipped or at >= schema.positional
            if value is None:
                if not named and (argument.is_optional or argument.type == "Tensor"):
                    found.append("None")  # not given; a tensor that must be is undefined
                else:
                    skipped = skipped or at < schema.positional
                continue
            text = self._value(argument.type, value)
            found.append(f"{argument.name}={text}" if named else text)
        return ", ".join(found)

    def _value(self, kind: str, value: Argument) -> str:
        if isinstance(value, TensorRef):
            return self._name(value)
        if isinstance(value, tuple):
            return f"[{', '.join('None' if v is None else self._name(v) for v in value)}]"
        assert isinstance(value, LiteralArg)  # noqa: S101  (None is not written)
        plain, kind = value.value, kind.removesuffix("?")
        if kind.startswith("Device"):
            return '"cpu"' if plain == "cpu" else "DEVICE"
        return literal_text(kind, plain)


def items_of(placed: Placed) -> list[Item]:
    """Return what runs, in order: calls, and occurrences in place."""
    return [placed.program.calls[number] if number >= 0 else placed.fused[-1 - number] for number in placed.order]


def _buffers(item: Item) -> list[int]:
    if isinstance(item, Fused):
        return [p.buffer for p in (*item.takes, *item.gives) if p is not None]
    return [*(p.buffer for p in item.reads), *item.makes, *(p.buffer for _, _, p in item.outputs)]


def needed(items: Sequence[Item], program: Program) -> list[Item]:
    """Leave out allocations and views without a consumer: a kernel does what was done with them."""
    read = {place.buffer for place in program.live}
    kept: list[Item] = []
    for item in reversed(items):
        if isinstance(item, StepCall) and not (item.activities or item.writes):
            looked_at = [*item.makes, *(p.buffer for p in item.reads if not program.buffers[p.buffer].outside)]
            if looked_at and not any(b in read for b in item.makes or looked_at):
                continue
        kept.append(item)
        read.update(p.buffer for p in (item.takes if isinstance(item, Fused) else item.reads))
    return kept[::-1]


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
