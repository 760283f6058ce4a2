"""The body of one kernel as text: where a program stands, and its loops over rows and columns.

Four shapes of kernel: `pointwise` tiles rows and columns; `persistent` holds rows in registers; `looped` loops over
rows that are too long for that, once for each reduction that needs an earlier one's result, and once more to store;
`rows in turn` holds rows as well, one block of them after another, and what it adds up along them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.indexing import spans
from tracemine.codegen.loop_ir import Axis, LoopNode
from tracemine.codegen.operators import ONLINE, table
from tracemine.codegen.schedule import IN_TURN, LOOPED, PERSISTENT, POINTWISE, Schedule
from tracemine.codegen.triton.expressions import TRITON_TYPE, Names, sizes
from tracemine.codegen.triton.printer import COLUMN, Printer, grouped, least

_ROW = "row"
_ROW_MASK = "row_mask = (row < rows) | (XBLOCK == 1)"  # there are no more programs than blocks
_ROW_HEAD = ("row = ({block}.to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]", _ROW_MASK)
_HEADS = {
    POINTWISE: (
        "blocks = tl.cdiv(columns, RBLOCK)",
        "row = (({block} // blocks).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]",
        _ROW_MASK,
        "column = (({block} % blocks).to(INDEX) * RBLOCK + tl.arange(0, RBLOCK))[None, :]",
    ),
    PERSISTENT: (*_ROW_HEAD, "column = tl.arange(0, RBLOCK)[None, :].to(INDEX)"),
    LOOPED: _ROW_HEAD,
    IN_TURN: ("part = {block}", "column = tl.arange(0, RBLOCK)[None, :].to(INDEX)", "column_mask = column < columns"),
}
# Loads that come before everything else: of a row, each some 8 registers of a thread; of tiles fewer, as `tile_configs`
# gives a thread fewer elements the more it loads. More go to its stack: on an H200 63, of 8 each, took a recurrence of
# 64 calls from 44 µs to 206.
_MOST_HELD, _MOST_OF_TILES = 16, 64
_MANY_ROWS, WIDE_ROW = 1024, 8192
# Where there are no rows, blocks are of one dimension: no division says which row, and loads are as wide as can be.
# Rows in parts: `parts` programs for each block of rows, which alternate at the blocks of columns: all of them read in
# one place of memory at a time, and what was read last is what the cache still has. `length`: columns of a part.
_SPLIT_HEAD = (
    "row_blocks = tl.cdiv(rows, XBLOCK)",
    "row = (({block} % row_blocks).to(INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]",
    _ROW_MASK,
    "part = {block} // row_blocks",
    "first, step = part * RBLOCK, {parts} * RBLOCK",
    "length = columns // step * RBLOCK + tl.minimum(tl.maximum(columns % step - first, 0), RBLOCK)",
)
_FLAT_HEAD = ("column = {block}.to(INDEX) * RBLOCK + tl.arange(0, RBLOCK)",)


class Body(Printer):
    """Prints one kernel."""

    def __init__(self, schedule: Schedule, block: str, names: Names) -> None:
        super().__init__(schedule, block, names)
        self.one_row = bool(schedule.flat)
        self._spans = spans(schedule.kernel)
        self._depths: dict[LoopNode, int] = {}

    def print(self) -> list[str]:
        """Return the lines, indented."""
        split = self.kernel.split
        for line in self._head():
            self.say(line.format(block=self.block, parts=self.names.axis(split) if split else ""))
        if split:
            self._note_sizes(() if self.mode == IN_TURN else (split,))
            self._name_part(split)
        if self.mode == IN_TURN:
            self._print_in_turn()
            return self.lines
        self._indices(self.kernel.rows, _ROW)
        if self.mode == LOOPED:
            self._print_loops()
        else:
            self._column_indices()
            if self.mode == PERSISTENT or len(self.kernel.stores) > 1:
                self._load_first()
            for store in self.kernel.stores:
                self.store(store)
        return self.lines

    def _name_part(self, split: Axis) -> None:
        """Call the index of a part what the text calls it."""
        self._names |= {n: "part" for n in ir.every(self.kernel, ir.LoopIndex) if n.axis == split}

    def _print_loops(self) -> None:
        """Print a loop for each reduction that needs the one before, what is stored by row, and a loop that stores."""
        values = [s.value for s in self.kernel.stores]
        self._load_rows()
        deepest = max(map(self._depth, values), default=0)
        early = [s for s in self.kernel.stores if self._in_loop(s) and self._early(s, deepest)]
        inside = [s for s in self.kernel.stores if self._in_loop(s) and s not in early]
        self.loops = deepest + bool(inside)
        found = ir.every(self.kernel, ir.Reduce)[::-1]
        for depth in range(1, 1 + deepest):
            self._reduce_pass([r for r in found if self._depth(r) == depth], early if depth == 1 else [])
        self._store_all([s for s in self.kernel.stores if not self._in_loop(s)])
        if inside:
            self._hoist(_stored(inside))
            with self._loop():
                self._store_all(inside)

    def _print_in_turn(self) -> None:
        """Print a loop over rows, which adds up along them what is stored behind it."""
        self._indices(self.kernel.columns, COLUMN)
        sums = {s: s.value for s in self.kernel.stores if isinstance(s.value, ir.RowSum)}
        columns = [n for n in ir.loads(self.kernel) if not self._down(n)]
        self._value_all(columns[:_MOST_HELD])
        lanes = {node: self._fresh("acc") for node in sums.values()}
        for node, acc in lanes.items():
            self.say(f"{acc} = tl.full((XBLOCK, RBLOCK), 0, {TRITON_TYPE[node.type]})")
        self.say("step = tl.num_programs(0) * XBLOCK")
        with self.inside("for start in range(part * XBLOCK, rows, step):"):
            self.say("row = (start + tl.arange(0, XBLOCK)[:, None]).to(INDEX)")
            self.say(_ROW_MASK)
            self.say("mask = row_mask & column_mask")
            self._indices(self.kernel.rows, _ROW)
            self._load_first()
            for node, acc in lanes.items():
                self.say(f"{acc} = tl.where(row_mask, {acc} + {self.value(node.arg)}, {acc})", node)
            self._store_all(s for s in self.kernel.stores if s not in sums)
        for store, node in sums.items():
            self._named(node, f"tl.sum({lanes[node]}, 0)[None, :]")
            self.store(store, down=False)

    def _value_all(self, nodes: Iterable[LoopNode]) -> None:
        for node in nodes:
            self.value(node)

    def _store_all(self, stores: Iterable[ir.Store]) -> None:
        for store in stores:
            self.store(store)

    def _head(self) -> tuple[str, ...]:
        if self.flat:
            return _FLAT_HEAD
        if self.kernel.split and self.mode != IN_TURN:
            return _SPLIT_HEAD
        return _HEADS[self.mode][self.one_row :]  # where all may be one row, the launcher says how many blocks one has

    @contextmanager
    def _loop(self) -> Iterator[None]:
        """Yield a loop over the columns."""
        # There and back again: what was looped over last is what the cache still has.
        back = self._loops % 2 == 1 and not self.kernel.split
        self._loops += 1
        # All blocks but the last of a row lie within it whole, and need no masks.
        first, step = self._stride["first"], self._stride["step"]
        rest = "rest" if self.kernel.split else "full"
        self.say("full = columns // RBLOCK * RBLOCK")
        if self.kernel.split:
            self.say("rest = first + tl.cdiv(tl.maximum(full - first, 0), step) * step")
        blocks = f"for start in range({rest} if tail else {first}, columns if tail else full, {step}):"
        with self.inside("for tail in tl.static_range(2):"), self.inside(blocks):
            self._begin = "(start if tail else full - RBLOCK - start)" if back else "start"
            self.say(f"column = ({self._begin} + tl.arange(0, RBLOCK)[None, :]).to(INDEX)")
            self._column_indices("(column < columns) | (tail == 0)")
            yield

    @property
    def _stride(self) -> dict[str, str]:
        """At which column a loop begins, how far a step goes, and how many columns it meets."""
        if self.kernel.split:
            return {"first": "first", "step": "step", "count": "length"}
        return {"first": "0", "step": "RBLOCK", "count": "columns"}

    def _column_indices(self, inside: str = "column < columns") -> None:
        self.say(f"column_mask = {inside}")
        if not self.flat:
            self.say("mask = row_mask & column_mask")
        self._indices(self.kernel.columns, COLUMN)

    def _indices(self, axes: tuple[Axis, ...], whole: str) -> None:
        """Print the index along each of several axes that are looped over as one, or along some of them together."""
        for node, (first, last) in self._spans.get(axes, {}).items():
            inner, here = axes[last:], axes[first:last]
            text = f"{whole} // {grouped(sizes(inner, self.names))}" if inner else whole
            if first > 0:
                text = f"{text} % {grouped(sizes(here, self.names))}"
                self._note_sizes(here)
            self._note_sizes(inner)
            if len(here) < len(axes):
                name = f"{whole}_{'_'.join(map(self.names.axis, here))}"
                self.say(f"{name} = {text}")
                text = name
            self._names[node] = text

    def _early(self, store: ir.Store, deepest: int) -> bool:
        """Return whether the first loop can do a store: it needs no reduction, and no later loop reads there."""
        last_walk = deepest == 1 and all(self._depth(s.value) == 0 for s in self.kernel.stores if self._in_loop(s))
        return self._depth(store.value) == 0 and (last_walk or self.program.buffers[store.buffer].role != "input")

    def _depth(self, node: LoopNode) -> int:
        if node not in self._depths:
            below = max((self._depth(c) for c in ir.children(node)), default=0)
            self._depths[node] = below + isinstance(node, ir.Reduce)
        return self._depths[node]

    def _load_first(self) -> None:
        """Print first all whose index needs no other load: after a reduction or a store, memory is waited for again."""
        waits = (ir.Load, ir.Reduce, ir.RunningSum, ir.Random)
        loads = ir.loads(self.kernel)[::-1]
        first = [n for n in loads if not any(isinstance(below, waits) for below in ir.below(n))]
        if self.mode == PERSISTENT and self._wide():
            first = [n for n in first if self._down(n)]
        if len(first) <= (_MOST_OF_TILES if self.mode == POINTWISE else _MOST_HELD):
            self._value_all(first)

    def _wide(self) -> bool:
        """Return whether rows are so wide, and so many, that what all have in common is better loaded where it is used.

        Held through the reductions it takes registers that another block of the multiprocessor would have: LayerNorm
        of 8,192 rows of 16,384 took an H200 234 us so, and 144 without; of 4,096 rows of 4,096 it took 20.9, and 22.0.
        """
        rows, columns, *_ = self.kernel.sizes
        return rows >= _MANY_ROWS and columns > WIDE_ROW

    def _load_rows(self) -> None:
        """Print early what rows have one of each, as a target's score: its wait overlaps with the loop over columns."""
        first = [n for n in ir.loads(self.kernel)[::-1] if self._depth(n) == 0 and not self.outer(n)]
        if len(first) <= _MOST_HELD:
            self._value_all(first)

    # Passes of a looped kernel.

    def _hoist(self, nodes: Iterable[LoopNode]) -> None:
        """Compute before the loop what does not change along the columns."""
        seen: set[LoopNode] = set()

        def visit(node: LoopNode) -> None:
            if node in seen or node in self._names:
                return
            seen.add(node)
            if isinstance(node, ir.Value) and not self.outer(node):
                self.value(node)
                return
            for child in ir.children(node):
                visit(child)

        for node in nodes:
            visit(node)

    def _take_in(self, kind: str, arg: LoopNode, names: dict[str, str], node: ir.Reduce) -> None:
        """Print how a reduction takes in a block of its argument."""
        text = self.value(arg)
        if kind in ONLINE:
            lower = least("values", "running_max[:, :, None]", arg)
            for line in ONLINE[kind]["step"]:
                self.say(line.format(x=text, least=lower, **self._stride, **names))
        else:
            acc = names["acc"]
            more = table().reductions[kind]["lanes"].format(acc, text)
            self.say(f"{acc} = {more}" if self._nothing_beyond(node) else f"{acc} = tl.where(mask, {more}, {acc})")

    def _reduce_pass(self, found: list[ir.Reduce], stores: list[ir.Store]) -> None:
        jobs: dict[tuple[str, LoopNode], list[ir.Reduce]] = {}
        for node in found:
            if node.kind == "sum" and isinstance(node.arg, ir.Constant):  # how many there are
                self._names[node] = f"({self._stride['count']} * {self.value(node.arg)})"
                continue
            family = node.kind.partition("_")[0]
            jobs.setdefault((family if family in ONLINE else node.kind, node.arg), []).append(node)
        self._hoist([*(n.arg for n in found), *_stored(stores)])
        if any("GROUP" in ONLINE[kind]["lanes"] for kind, _ in jobs if kind in ONLINE):
            self.say("GROUP: tl.constexpr = 8 if XBLOCK == 1 and RBLOCK > 8 else 1  # elements of a thread")
        lanes = {key: self._lanes(key[0], members[0]) for key, members in jobs.items()}
        with self._loop():
            for (kind, arg), names in lanes.items():
                self._take_in(kind, arg, names, jobs[kind, arg][0])
            self._store_all(stores)
        for key, members in jobs.items():
            self._end(key[0], members, lanes[key])

    def _lanes(self, kind: str, node: ir.Reduce) -> dict[str, str]:
        """Start the running values of a reduction."""
        running = kind in ONLINE
        parts = ONLINE[kind]["start"] if running else {"acc": table().reductions[kind]["other"]}
        lanes = ONLINE[kind]["lanes"] if running else "RBLOCK"
        names = {part: self._fresh(kind if running and part == "a" else part) for part in parts}
        for part, start in parts.items():
            self.say(f"{names[part]} = tl.full((XBLOCK, {lanes}), {start}, {TRITON_TYPE[node.type]})")
        return names

    def _end(self, kind: str, members: list[ir.Reduce], names: dict[str, str]) -> None:
        """Reduce the lanes of a row to one."""
        if kind not in ONLINE:
            self._named(members[0], table().reductions[kind]["end"].format(names["acc"]))
            return
        for line in ONLINE[kind]["end"]:
            self.say(line.format(**self._stride, **names))
        for node in members:
            self._names[node] = f"{names['a']}_{node.kind.partition('_')[2]}"


def _stored(stores: Iterable[ir.Store]) -> Iterator[LoopNode]:
    """Yield what stores write, and where."""
    for store in stores:
        yield from (store.value, *store.index)
