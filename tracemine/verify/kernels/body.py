"""The body of one kernel as text: loads, one line a computed node with the call it comes from, reductions, stores.

Three shapes of kernel: `pointwise` tiles rows and columns; `whole` holds rows in registers; `looped` walks rows that
are too long for that, once for each reduction that needs an earlier one's result, and once more to store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tracemine.verify.kernels import ir
from tracemine.verify.kernels.expressions import TRITON_TYPE, constant, index, sizes, template, typed
from tracemine.verify.kernels.ir import FLOAT, Axis, Buffer, Kernel, Node, Program
from tracemine.verify.kernels.operators import DROPPED, QUOTIENT, table
from tracemine.verify.kernels.places import spans
from tracemine.verify.kernels.running import RUNNING

POINTWISE, WHOLE, LOOPED = "pointwise", "whole", "looped"
_ZERO_OF_ZERO = frozenset({"{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} * {0}", "-{0}", "tl.abs({0})"})
_ROW, _COLUMN = "row", "column"


_ROW_MASK = "row_mask = (row < rows) | (XBLOCK == 1)"  # there are no more programs than blocks
_ROW_HEAD = ("row = (tl.program_id(0).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]", _ROW_MASK)
_MASKS = {(True, True): "mask", (True, False): "column_mask", (False, True): "row_mask", (False, False): None}
_HEADS = {
    POINTWISE: (
        "blocks = tl.cdiv(columns, RBLOCK)",
        "row = ((tl.program_id(0) // blocks).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]",
        _ROW_MASK,
        "column = ((tl.program_id(0) % blocks).to(INDEX) * RBLOCK + tl.arange(0, RBLOCK))[None, :]",
    ),
    WHOLE: (*_ROW_HEAD, "column = tl.arange(0, RBLOCK)[None, :].to(INDEX)"),
    LOOPED: _ROW_HEAD,
}
# Loads that come before everything else: of a row, each some 8 registers of a thread; of tiles fewer, as `cuts` gives
# a thread fewer elements the more it loads. More go to its stack: on an H200 63, of 8 each, took a recurrence of 64
# calls from 44 µs to 206.
_MOST_HELD, _MOST_OF_TILES = 16, 64
# Where there are no rows, blocks are of one dimension: no division says which row, and loads are as wide as can be.
# Rows in parts: `parts` programs for each block of rows, which take turns at the blocks of columns: all of them read in
# one place of memory at a time, and what was read last is what the cache still has. `length`: columns of a part.
_SPLIT_HEAD = (
    "row_blocks = tl.cdiv(rows, XBLOCK)",
    "row = ((tl.program_id(0) % row_blocks).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]",
    _ROW_MASK,
    "part = tl.program_id(0) // row_blocks",
    "first, step = part * RBLOCK, parts * RBLOCK",
    "length = columns // step * RBLOCK + tl.minimum(tl.maximum(columns % step - first, 0), RBLOCK)",
)
_FLAT_HEAD = ("column = tl.program_id(0).to(INDEX) * RBLOCK + tl.arange(0, RBLOCK)",)


class Body:
    """Prints one kernel. `mode`: its shape. `exact`: correctly rounded division and roots.

    `long`: rows that are walked in a loop lie one behind the other, and those that programs walk at a time may be more
    than the cache holds.
    """

    def __init__(
        self, program: Program, kernel: Kernel, mode: str, exact: bool, one_row: bool = False, long: bool = False
    ) -> None:
        self.program, self.kernel, self.mode, self.exact = program, kernel, mode, exact
        self.one_row, self.long = one_row, long
        self.walks = 0  # over the columns, all together
        self.lines: list[str] = []
        self.strides: dict[str, None] = {}
        self.sizes: dict[Axis, None] = {}
        self.scalars: dict[str, None] = {}
        self.pointers: dict[str, None] = {}
        self._indent = 1
        self._walks = 0  # over the columns
        self._begin = "(tl.program_id(0) % blocks) * RBLOCK" if mode == POINTWISE else "0"  # of a block of columns
        self._names: dict[Node, str] = {}
        self._taken: dict[str, int] = {}
        self._rows = {a.number for a in kernel.rows}
        self._columns = {a.number for a in kernel.columns}
        self.walked = ir.Walked(self._columns)
        self._spans = spans(kernel)
        self._depths: dict[Node, int] = {}
        self._given = dict(program.scalars)
        self._reserved = set(self._given)
        self._pairs: dict[tuple[str, Node], str] = {}  # results of reductions that are made together
        self.flat = mode == POINTWISE and not kernel.rows and all(self._in_loop(s) for s in kernel.stores)

    def print(self) -> list[str]:
        """The lines, indented."""
        for line in self._head():
            self.say(line.replace("parts", self.kernel.split.name) if self.kernel.split else line)
        if self.kernel.split:
            self._note_sizes((self.kernel.split,))
            self._names |= {n: "part" for n in self._all() if isinstance(n, ir.At) and n.axis == self.kernel.split}
        self._places(self.kernel.rows, _ROW)
        values = [s.value for s in self.kernel.stores]
        if self.mode != LOOPED:
            self._column_places()
            if self.mode == WHOLE or len(self.kernel.stores) > 1:
                self._load_first()
            for store in self.kernel.stores:
                self.store(store)
            return self.lines
        self._load_rows()
        deepest = max(map(self._depth, values), default=0)
        early = [s for s in self.kernel.stores if self._in_loop(s) and self._early(s, deepest)]
        inside = [s for s in self.kernel.stores if self._in_loop(s) and s not in early]
        self.walks = deepest + bool(inside)
        for depth in range(1, 1 + deepest):
            self._reduce_pass([r for r in self._reductions() if self._depth(r) == depth], early if depth == 1 else [])
        rowwise = [s for s in self.kernel.stores if not self._in_loop(s)]
        for store in rowwise:
            self.store(store)
        if inside:
            self._hoist(n for s in inside for n in (s.value, *s.index))
            with self._loop():
                for store in inside:
                    self.store(store)
        return self.lines

    def _head(self) -> tuple[str, ...]:
        if self.flat:
            return _FLAT_HEAD
        if self.kernel.split:
            return _SPLIT_HEAD
        return _HEADS[self.mode][self.one_row :]  # where all may be one row, the launcher says how many blocks one has

    # Lines.

    def say(self, text: str, node: Node | None = None) -> None:
        """A line, with the call that a node comes from."""
        origin = self.program.origins.get(node) if node is not None else None
        self.lines.append("    " * self._indent + text + (f"  # {origin}" if origin else ""))

    def _named(self, node: Node, text: str, name: str | None = None) -> str:
        origin = self.program.origins.get(node, "")
        stem = name or origin.removeprefix("aten::").partition(".")[0].strip("_") or "value"
        fresh = self._fresh(stem)
        self.say(f"{fresh} = {text}", node)
        self._names[node] = fresh
        return fresh

    def _fresh(self, stem: str) -> str:
        """A name that is no other's."""
        while True:
            count = self._taken[stem] = self._taken.get(stem, 0) + 1
            if (name := f"{stem}_{count}") not in self._reserved:
                return name

    @contextmanager
    def _loop(self) -> Iterator[None]:
        """A walk over the columns: what is named inside is forgotten after it."""
        before = dict(self._names)
        # There and back again: what was walked last is what the cache still has.
        back = self._walks % 2 == 1 and not self.kernel.split
        self._walks += 1
        # All blocks but the last of a row lie within it whole, and need no masks.
        first, step = self._stride["first"], self._stride["step"]
        rest = "rest" if self.kernel.split else "full"
        self.say("full = columns // RBLOCK * RBLOCK")
        if self.kernel.split:
            self.say("rest = first + tl.cdiv(tl.maximum(full - first, 0), step) * step")
        self.say("for tail in tl.static_range(2):")
        self._indent += 1
        self.say(f"for start in range({rest} if tail else {first}, columns if tail else full, {step}):")
        self._indent += 1
        self._begin = "(start if tail else full - RBLOCK - start)" if back else "start"
        self.say(f"column = ({self._begin} + tl.arange(0, RBLOCK)[None, :]).to(INDEX)")
        self._column_places("(column < columns) | (tail == 0)")
        yield
        self._indent -= 2
        self._names = before

    @property
    def _stride(self) -> dict[str, str]:
        """From which column on a loop walks, how far a step goes, and how many columns it meets."""
        if self.kernel.split:
            return {"first": "first", "step": "step", "count": "length"}
        return {"first": "0", "step": "RBLOCK", "count": "columns"}

    def _column_places(self, inside: str = "column < columns") -> None:
        self.say(f"column_mask = {inside}")
        if not self.flat:
            self.say("mask = row_mask & column_mask")
        self._places(self.kernel.columns, _COLUMN)

    def _places(self, axes: tuple[Axis, ...], whole: str) -> None:
        """Where the program stands on each of several axes that are walked as one, or on some of them together."""
        for node, (first, last) in self._spans.get(axes, {}).items():
            inner, here = axes[last:], axes[first:last]
            text = f"{whole} // {_grouped(sizes(inner))}" if inner else whole
            if first > 0:
                text = f"{text} % {_grouped(sizes(here))}"
                self._note_sizes(here)
            self._note_sizes(inner)
            if len(here) < len(axes):
                self.say(f"{whole}_{'_'.join(a.name for a in here)} = {text}")
                text = f"{whole}_{'_'.join(a.name for a in here)}"
            self._names[node] = text

    def _all(self) -> list[Node]:
        found: dict[Node, None] = {}
        todo = [n for s in self.kernel.stores for n in (s.value, *s.index)]
        while todo:
            node = todo.pop()
            if node not in found:
                found[node] = None
                todo.extend(ir.children(node))
        return list(found)

    def _note_sizes(self, axes: Iterable[Axis]) -> None:
        self.sizes.update((a, None) for a in axes if not a.pinned)

    # What nodes change along.

    def _across(self, *nodes: Node) -> bool:
        return any(self.walked(n) & self._columns for n in nodes)

    def _down(self, *nodes: Node) -> bool:
        return any(self.walked(n) & self._rows for n in nodes)

    def _in_loop(self, store: ir.Store) -> bool:
        return self._across(store.value, *store.index)

    def _early(self, store: ir.Store, deepest: int) -> bool:
        """Whether a store can be done on the first walk: it waits for no reduction, and no later walk reads there."""
        last_walk = deepest == 1 and all(self._depth(s.value) == 0 for s in self.kernel.stores if self._in_loop(s))
        return self._depth(store.value) == 0 and (last_walk or self.program.buffers[store.buffer].role != "input")

    def _depth(self, node: Node) -> int:
        if node not in self._depths:
            below = max((self._depth(c) for c in ir.children(node)), default=0)
            self._depths[node] = below + isinstance(node, ir.Reduce)
        return self._depths[node]

    def _reductions(self) -> list[ir.Reduce]:
        return [n for n in reversed(self._all()) if isinstance(n, ir.Reduce)]

    def _load_first(self) -> None:
        """Everything whose place needs no other load: what follows a reduction or a store is waited for once more."""
        waits = (ir.Load, ir.Reduce, ir.Scan, ir.Random)
        loads = [n for n in reversed(self._all()) if isinstance(n, ir.Load)]
        first = [n for n in loads if not any(isinstance(below, waits) for below in _below(n))]
        if len(first) <= (_MOST_OF_TILES if self.mode == POINTWISE else _MOST_HELD):
            for node in first:
                self.value(node)

    def _load_rows(self) -> None:
        """What rows have one of each, as a target's score: waited for while the columns are walked, not after."""
        loads = (n for n in reversed(self._all()) if isinstance(n, ir.Load))
        first = [n for n in loads if self._depth(n) == 0 and not self._across(n)]
        if len(first) <= _MOST_HELD:
            for node in first:
                self.value(node)

    # Passes of a looped kernel.

    def _hoist(self, nodes: Iterable[Node]) -> None:
        """Compute before the loop what does not change along the columns."""
        seen: set[Node] = set()

        def visit(node: Node) -> None:
            if node in seen or node in self._names:
                return
            seen.add(node)
            if isinstance(node, ir.Value) and not self._across(node):
                self.value(node)
                return
            for child in ir.children(node):
                visit(child)

        for node in nodes:
            visit(node)

    def _reduce_pass(self, found: list[ir.Reduce], stores: list[ir.Store]) -> None:
        jobs: dict[tuple[str, Node], list[ir.Reduce]] = {}
        for node in found:
            if node.kind == "sum" and isinstance(node.arg, ir.Constant):  # how many there are
                self._names[node] = f"({self._stride['count']} * {self.value(node.arg)})"
                continue
            family = node.kind.partition("_")[0]
            jobs.setdefault((family if family in RUNNING else node.kind, node.arg), []).append(node)
        self._hoist([*(n.arg for n in found), *(n for s in stores for n in (s.value, *s.index))])
        if any("GROUP" in RUNNING[kind].lanes for kind, _ in jobs if kind in RUNNING):
            self.say("GROUP: tl.constexpr = 8 if XBLOCK == 1 and RBLOCK > 8 else 1  # elements of a thread")
        lanes = {key: self._lanes(key[0], members[0]) for key, members in jobs.items()}
        with self._loop():
            for (kind, arg), names in lanes.items():
                text = self.value(arg)
                if kind in RUNNING:
                    least = _least("held", "top[:, :, None]", arg)
                    for line in RUNNING[kind].step:
                        self.say(line.format(x=text, least=least, **self._stride, **names))
                else:
                    acc = names["acc"]
                    more = table().reductions[kind].lanes.format(acc, text)
                    plain = self._nothing_beyond(jobs[kind, arg][0])
                    self.say(f"{acc} = {more}" if plain else f"{acc} = tl.where(mask, {more}, {acc})")
            for store in stores:
                self.store(store)
        for key, members in jobs.items():
            self._end(key[0], members, lanes[key])

    def _lanes(self, kind: str, node: ir.Reduce) -> dict[str, str]:
        """Start the running values of a reduction."""
        running = kind in RUNNING
        parts = RUNNING[kind].start if running else {"acc": table().reductions[kind].other}
        lanes = RUNNING[kind].lanes if running else "RBLOCK"
        names = {part: self._fresh(kind if running and part == "a" else part) for part in parts}
        for part, start in parts.items():
            self.say(f"{names[part]} = tl.full((XBLOCK, {lanes}), {start}, {TRITON_TYPE[node.type]})")
        return names

    def _end(self, kind: str, members: list[ir.Reduce], names: dict[str, str]) -> None:
        """The lanes of a row become one."""
        if kind not in RUNNING:
            self._named(members[0], table().reductions[kind].end.format(names["acc"]))
            return
        for line in RUNNING[kind].end:
            self.say(line.format(**self._stride, **names))
        for node in members:
            self._names[node] = f"{names['a']}_{node.kind.partition('_')[2]}"

    # Nodes.

    def value(self, node: Node) -> str:
        """The text of a value, computed on lines before where it is not a name or a number already."""
        if node in self._names:
            return self._names[node]
        if isinstance(node, ir.Number):
            self.scalars[node.name] = None
            # Correctly rounded division takes nothing but floats.
            whole = self.exact and node.type == FLOAT and isinstance(self._given.get(node.name), int)
            return f"({node.name} * 1.0)" if whole else node.name
        if isinstance(node, ir.Constant):
            return constant(node)
        if isinstance(node, ir.Count):
            self._note_sizes(node.axes)
            return f"({sizes(node.axes)} * 1.0)"
        if isinstance(node, ir.Place):
            return f"({self._index(node.index)})"
        if isinstance(node, ir.Load):
            return self._load(node)
        if isinstance(node, ir.Compute):
            args = [self.value(a) for a in node.args]
            if self._by_row(node):
                return self._named(node, f"{'_quotient' if self.exact else '_ratio'}({', '.join(args)})")
            return self._named(node, template(node.template, args, self.exact))
        if isinstance(node, ir.Cast):
            arg = self.value(node.arg)
            assert isinstance(node.arg, ir.Value)  # noqa: S101
            text = typed(arg, node.arg.type, node.dtype)
            return self._named(node, typed(text, node.dtype, node.type))
        if isinstance(node, ir.Random):
            return self._random(node)
        if isinstance(node, ir.Scan):
            arg = self.value(node.arg)
            if not self._across(node.arg):  # one number for the whole row has no columns yet
                arg = f"tl.where(column_mask, {arg}, 0)"
            return self._named(node, f"tl.cumsum({arg}, 1)")  # what lies beyond the row comes last
        assert isinstance(node, ir.Reduce)  # noqa: S101
        return self._reduce(node)

    def _random(self, node: ir.Random) -> str:
        """A number drawn for a place: where the program walks whole rows of them, four at once."""
        self.scalars[node.seed] = None
        before, column = self._index(node.before), self._index(node.column)
        if column != _COLUMN or self.flat or self._down(node.column):
            return self._named(node, f"_drawn({node.seed}, {node.stream}, {before}, {column})", "random")
        text = f"_draws({node.seed}, {node.stream}, {before}, {self._begin}, RBLOCK)"
        return self._named(node, text, "random")

    def _reduce(self, node: ir.Reduce) -> str:
        """A reduction of rows that are held whole."""
        arg = self.value(node.arg)
        family, _, part = node.kind.partition("_")
        if family in RUNNING:
            known = self._pairs.get((family, node.arg))
            if known is None:
                known = self._pairs[family, node.arg] = self._fresh(family)
                kept = arg if self._zero(node.arg) else f"tl.where(column_mask, {arg}, 0.0)"
                least = _least(arg, f"{known}_max", node.arg)
                for line in RUNNING[family].whole:
                    self.say(line.format(a=known, x=arg, kept=kept, least=least), node)
            self._names[node] = f"{known}_{part}"
            return self._names[node]
        row = table().reductions[node.kind]
        kept = arg if self._nothing_beyond(node) else f"tl.where(column_mask, {arg}, {row.other})"
        return self._named(node, row.end.format(kept))

    def _by_row(self, node: ir.Compute) -> bool:
        """Whether many elements are divided by one number: then its inverse is worked out once."""
        if node.template != QUOTIENT or (self.exact and self.mode == POINTWISE):
            return False
        return self._across(node.args[0]) and not self._across(node.args[1])

    def _nothing_beyond(self, node: ir.Reduce) -> bool:
        """Whether lanes beyond the row add nothing as they are."""
        return node.kind == "sum" and self._zero(node.arg)

    def _zero(self, value: Node) -> bool:
        """Whether a value is 0 beyond the row: what is loaded there is."""
        if isinstance(value, ir.Load):
            return self._across(*value.index, *([value.guard] if value.guard is not None else []))
        if isinstance(value, ir.Cast):
            return self._zero(value.arg)
        if isinstance(value, ir.Compute) and value.template == "tl.where({0}, {1}, {2})":
            return self._zero(value.args[1]) and self._zero(value.args[2])
        if isinstance(value, ir.Compute) and value.template == DROPPED:
            return self._zero(value.args[0])
        return isinstance(value, ir.Compute) and value.template in _ZERO_OF_ZERO and all(map(self._zero, value.args))

    def _load(self, node: ir.Load) -> str:
        buffer = self.program.buffers[node.buffer]
        guard = None if node.guard is None else self.value(node.guard)
        across, down = self._across(*node.index), self._down(*node.index)
        if node.guard is not None:
            across, down = across or self._across(node.guard), down or self._down(node.guard)
        pointer = self._pointer(buffer, node.index, across, down)
        masks = [
            {(True, True): "mask", (True, False): "column_mask", (False, True): "row_mask"}.get((across, down), "")
        ]
        masks = [m for m in (*masks, guard or "") if m]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        text = f"tl.load({pointer}{mask}{self._kept(across and down)})"
        return self._named(node, typed(text, buffer.dtype, node.type), buffer.name)

    def _kept(self, large: bool) -> str:
        """What is walked again is to stay in the cache, what is walked for the last time is not."""
        if not (large and self.long and self.walks > 1):
            return ""
        return f', eviction_policy="evict_{"first" if self._walks == self.walks else "last"}"'

    def _pointer(self, buffer: Buffer, places: tuple[Node, ...], across: bool, down: bool) -> str:
        """Address of an element, as wide as what it is masked with."""
        self.pointers[buffer.name] = None
        terms: list[str] = []
        for d, place in enumerate(places):
            if isinstance(place, ir.Int) and place.value == 0:
                continue
            self.strides[f"{buffer.name}_s{d}"] = None
            text = self._index(place)
            terms.append(f"({text}) * {buffer.name}_s{d}" if " " in text else f"{text} * {buffer.name}_s{d}")
        if across and not self._across(*places):
            terms.append("column * 0")
        if down and not self.flat and not self._down(*places):
            terms.append("row * 0")
        return " + ".join([f"{buffer.name}_ptr", *terms])

    def _index(self, node: Node) -> str:
        """An index expression; values in it are computed first."""
        todo = [node]
        while todo:
            here = todo.pop()
            if isinstance(here, ir.Fetched):
                self._names.setdefault(here.value, self.value(here.value))
                todo.extend((here.wrap,) if here.wrap is not None else ())
            elif isinstance(here, ir.Size):
                self._note_sizes(here.axes)
            else:
                todo.extend(ir.children(here) if isinstance(here, ir.Arithmetic) else ())
        return index(node, self._names)

    def store(self, store: ir.Store) -> None:
        """Write one value."""
        buffer = self.program.buffers[store.buffer]
        node = store.value
        if isinstance(node, ir.Cast) and node.dtype == buffer.dtype:  # the store casts
            node = node.arg
        value = self.value(node)
        across = self._across(*store.index)
        pointer = self._pointer(buffer, store.index, across, True)
        assert isinstance(node, ir.Value)  # noqa: S101
        # A number is no tensor: it takes the buffer's type as it is stored.
        plain = isinstance(node, ir.Constant | ir.Number | ir.Count)
        text = value if plain else typed(value, node.type, buffer.dtype)
        mask = "column_mask" if self.flat else "mask" if across else "row_mask"
        kept = self._kept(across and self._walks == self.walks)
        self.say(f"tl.store({pointer}, {text}, mask={mask}{kept})", store.value if node is not store.value else None)


def _least(x: str, top: str, node: Node) -> str:
    """An element that the largest is taken off: `_under` it where it is computed, as it is where it is loaded."""
    while isinstance(node, ir.Cast):
        node = node.arg
    return x if isinstance(node, ir.Load) else f"_under({x}, {top})"


def _below(node: Node) -> Iterator[Node]:
    """The nodes that a node is made of, and those that they are made of."""
    for child in ir.children(node):
        yield child
        yield from _below(child)


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
