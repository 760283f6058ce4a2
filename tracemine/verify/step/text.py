"""A program as Python source: functions that replay a step call by call. Nothing of a trace becomes code.

Operators and overloads come from the operator table; names are ours; all else is numbers that we format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracemine.codegen.graph import LiteralArg
from tracemine.verify.repro.eager import literal_text, number_text
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
