"""Launches of kernels: what each takes, and how it is divided into tiles.

Kernels of one level that need nothing of each other become parts of one launch: siblings that a model runs one after
another, the members of a list. Parts that differ in names alone share their code.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from tracemine.codegen.loop_ir import Axis, LoopKernel, LoopProgram, Random, every, loads
from tracemine.codegen.options import CodegenOptions
from tracemine.codegen.passes.collapse_axes import AxisRun, runs
from tracemine.codegen.products import PRODUCT, TileConfigs, product_tiles
from tracemine.codegen.schedule import IN_TURN, POINTWISE, Schedule, large_reads, reads_windows
from tracemine.codegen.tiles import tile_configs, turn_configs
from tracemine.codegen.triton.body import WIDE_ROW
from tracemine.codegen.triton.expressions import SizeNames
from tracemine.codegen.triton.foreach import ForeachMembers, adjacent, choice, chosen, members, planned
from tracemine.codegen.triton.subkernel import PROGRAM, Parameter, SubKernel
from tracemine.codegen.triton.tiling import PRODUCT_CONSTANTS, PRODUCT_TAKES, product_lines, tile_lines

_FEW_LOADS, _RAGGED_SHARE = 4, 0.7  # inputs of rows of which a thread may hold 64 elements; what fills a block
_MOST_PARTS = 32  # of one launch: 161 tensors of an SGD step took 130 µs so, by 16 140
_TAKES = 112  # characters of a line
_ALONE = frozenset({PRODUCT, IN_TURN})  # kernels of these share no launch
_SMALL = 2  # a part of so many times fewer elements than the first costs less with it than in a launch of its own


_TURNED = f"block = tl.num_programs(0) - 1 - {PROGRAM}"


class KernelLaunch(msgspec.Struct, frozen=True):
    """One kernel of the source: a part, or several that share a launch."""

    name: str
    parts: tuple[SubKernel, ...]
    exact: bool
    shared: tuple[int, ...]  # for each part, the part whose code it uses
    members: tuple[ForeachMembers, ...]  # the parts as they are called: those that may be chosen among by one call
    turned: bool  # the last blocks first: a launch before it has read the same, and the cache has its end

    @property
    def tile_config(self) -> str:
        """How it is divided into tiles, as an expression."""
        return f'BLOCKS["{self.name}"][0]'

    @property
    def tile_configs(self) -> TileConfigs:
        """How it may be divided into tiles."""
        first = self.parts[0]
        if first.mode == PRODUCT:
            return product_tiles(first.program.buffers, first.kernel, first.schedule.options)
        if first.mode == IN_TURN:
            return turn_configs(first.schedule.options.longest_row)
        most = max(len(loads(part.kernel)) for part in self.parts)
        _, length, *_ = first.kernel.sizes
        fills = length / (1 << (length - 1).bit_length()) if length else 1.0
        so = {
            "each program loops over a part of a row": first.kernel.split is not None,
            "long rows are looped over again": first.long and first.body.loops > 1,
            "rows have an odd length": length % 2 == 1,
            "random numbers are drawn": any(every(part.kernel, Random) for part in self.parts),
            "rows fill little of a block": most <= _FEW_LOADS and (fills <= _RAGGED_SHARE or length > WIDE_ROW),
            "windows are read": any(reads_windows(part.kernel) for part in self.parts),
        }
        loads_at_once = max(_in_flight(part.kernel) for part in self.parts)
        found = [what for what, holds in so.items() if holds]
        return tile_configs(first.mode, first.contiguity, first.kernel.column_tiles, loads_at_once, found)

    @property
    def text(self) -> str:
        """The kernel and the functions of its parts."""
        constants = ["INDEX: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr"]
        if len(self.parts) == 1:
            part = self.parts[0]
            constants += PRODUCT_CONSTANTS * (part.mode == PRODUCT)
            lines = [*[f"    {_TURNED}"] * self.turned, *part.lines]
            return _function(self.name, _taken(part), constants, lines)
        functions = [
            _function(f"{self.name}_part_{k}", ["block", *_taken(part)], constants, part.lines)
            for k, part in enumerate(self.parts)
            if self.shared[k] == k
        ]
        return "\n\n\n".join([*functions, self._dispatch()])

    def _numbered(self, each: ForeachMembers) -> list[str]:
        """Return what a dispatching kernel takes of sub-kernels that share their code, by their numbers."""
        found: list[Parameter] = []
        for at in each.positions:
            own = self.parts[at].columns[: 1 if at > each.first else None]  # members have the same tiles
            named = (self.parts[self.shared[at]].rows, *own, Parameter("end"))
            found += [Parameter(f"{name}_{at}", constexpr) for name, constexpr in named]
        return [*map(str, found)]

    def _passed(self, at: int) -> list[str]:
        return [*self.parts[at].takes, f"rows_{at}", f"columns_{at}"]

    def _dispatch(self) -> str:
        takes = list(dict.fromkeys(t for part in self.parts for t in part.given))
        takes += self._known()
        numbered: list[str] = []
        lines = [_TURNED if self.turned else f"block = {PROGRAM}"]
        calls: list[str] = []
        for each in self.members:
            k, last = each.first, each.positions[-1]
            numbered += self._numbered(each)
            begin = f"end_{k - 1}" if k else "0"
            mine = self._passed(k)
            if each.chosen:
                ends = [begin, *(f"end_{at}" for at in each.positions[:-1])]
                begin = f"begin_{k}"
                lines += chosen(begin, each, ends)
                more, mine = choice(each, list(map(self._passed, each.positions)))
                lines += more
            mine += [f"blocks_{k}"] * (len(self.parts[k].columns) - 1)
            word = "else" if last == len(self.parts) - 1 else f"{'elif' if k else 'if'} block < end_{last}"
            arguments = ["block" if begin == "0" else f"block - {begin}", *mine, "INDEX", f"XBLOCK_{k}", f"RBLOCK_{k}"]
            calls += [f"{word}:", f"    {self.name}_part_{self.shared[k]}(", *_wrapped(arguments, "        "), "    )"]
        lines += calls if len(self.members) > 1 else [line[4:] for line in calls[1:]]
        blocks = [f"{n}_{each.first}: tl.constexpr" for each in self.members for n in ("XBLOCK", "RBLOCK")]
        constants = ["INDEX: tl.constexpr", *blocks]
        return _function(self.name, [*takes, *numbered], constants, [f"    {line}" for line in lines])

    def _known(self) -> list[str]:
        """Return what a plan knows of all parts: known to the compiler too where the code of any part wants it so."""
        found: dict[str, bool] = {}
        for part, code in zip(self.parts, (self.parts[k] for k in self.shared), strict=True):
            for name, taken in zip(part.known, code.parameters(code.known), strict=True):
                found[name] = taken.constexpr or found.get(name, False)
        return [str(Parameter(name, constexpr)) for name, constexpr in found.items()]

    @property
    def merged(self) -> list[AxisRun]:
        """Axes that are looped over as one."""
        if any(part.flat or part.mode in _ALONE for part in self.parts):
            return []
        kernels = [(part.kernel, part.mode == POINTWISE) for part in self.parts]
        return runs(self.parts[0].program.buffers, kernels)

    @property
    def given(self) -> list[str]:
        """The tensors and numbers that every launch is given, first of what it takes."""
        return list({name: text for part in self.parts for name, text in part.given.items()}.values())

    @property
    def scalars(self) -> list[str]:
        """The numbers among them."""
        return list(dict.fromkeys(name for part in self.parts for name in part.body.scalars))

    def lines(self, name: str, names: SizeNames) -> list[str]:
        """Return a plan's lines for it, by that name: what it takes behind what it is given."""
        names.looped = frozenset(axis for run in self.merged for axis in run.axes)
        known = self._known_texts(names)
        if len(self.parts) == 1:
            part = self.parts[0]
            if part.mode == PRODUCT:
                known += PRODUCT_TAKES
                lines = product_lines(part, self.tile_config, self.given, names)
                return [*lines, *self._planned(name, "blocks", known, "warps")]
            known += ["rows", "columns", *["blocks_per_row"] * bool(part.flat), "index", "xblock", "rblock"]
            return [*tile_lines(part, f"*{self.tile_config}", names), *self._planned(name, "blocks", known, "warps")]
        lines = [f"elements, elements_per_thread = {self.tile_config}"]
        for each in self.members:
            k, part = each.first, self.parts[each.first]
            if each.chosen:
                lines.append(self._planned_choice(each, names))
                short = each.positions[1:] if part.flat else each.positions  # that get nothing of a row's blocks
                known += [
                    f"*part_{at}[:2], part_{at}[-4]" if at in short else f"*part_{at}[:-3]" for at in each.positions
                ]
                continue
            known.append(f"*part_{k}[:-3]")
            lines += tile_lines(part, "elements, elements_per_thread", names)
            end = f"blocks + part_{k - 1}[-4]" if k else "blocks"
            wide = "blocks_per_row, " * bool(part.flat)
            lines.append(f"part_{k} = rows, columns, {wide}{end}, xblock, rblock, warps")
        known += ["index", *(f"*part_{each.first}[-3:-1]" for each in self.members)]
        most = "max(" + ", ".join(f"part_{k}[-1]" for k in range(len(self.parts))) + ")"
        return [*lines, *self._planned(name, f"part_{len(self.parts) - 1}[-4]", known, most)]

    def _planned_choice(self, each: ForeachMembers, names: SizeNames) -> str:
        mine = [self.parts[at] for at in each.positions]
        dense = dict.fromkeys(text for part in mine for text in part.dense(names))
        return planned(each, dense, [part.loop(names) for part in mine])

    def _known_texts(self, names: SizeNames) -> list[str]:
        """Return what a plan knows, as expressions: of tensors of which a kernel takes all strides, those together."""
        known = {name: what for part in self.parts for name, what in part.known.items()}.values()
        found: list[tuple[bool, str]] = []  # whether it is a tensor, of which all strides are taken in order
        for of, group in groupby(known, lambda what: "" if isinstance(what, Axis) else what[0]):
            found += self._taken_texts(of, [*group], names)
        texts: list[str] = []
        for whole, run in groupby(found, lambda each: each[0]):
            taken = [text for _, text in run]
            texts += [f"*_strides({', '.join(taken)})"] if whole else taken
        return texts

    def _taken_texts(self, of: str, taken: list[Axis | tuple[str, int]], names: SizeNames) -> list[tuple[bool, str]]:
        if of and taken == [(of, d) for d in range(len(self.parts[0].program.buffers[of].dims))]:
            return [(True, of)]
        return [(False, names.axis(t) if isinstance(t, Axis) else f"{of}.stride({t[1]})") for t in taken]

    def _planned(self, name: str, blocks: str, known: Sequence[str], warps: str) -> list[str]:
        contract = ", enable_fp_fusion=False" if self.exact else ""
        takes = f"args = ({', '.join(known)})"
        rest = textwrap.wrap(takes, _TAKES, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        if self.parts[0].mode == PRODUCT:
            made, warps = f"_Described(described, {self.name}", f"{warps}, num_stages=stages"
        else:
            made = f"_Launch({self.name}"
        return [*rest, f"{name} = {made}, {blocks}, args, num_warps={warps}{contract})"]


def _in_flight(kernel: LoopKernel) -> int:
    """Return how many loads an element waits for at once: members of a concat, each under a guard, count as one."""
    guards = Counter(load.guard for load in loads(kernel))
    free = guards.pop(None, 0)
    return free + max(guards.values(), default=0)


def _taken(part: SubKernel) -> list[str]:
    """Return the parameters of a kernel, but for its tiles."""
    return [*map(str, (*part.parameters(part.takes), part.rows, *part.columns))]


def _parts(group: Sequence[Schedule], numbered: str) -> tuple[list[SubKernel], tuple[int, ...]]:
    """Return a launch's kernels, those with one code next to each other, and of each the first that has its code."""
    parts = [SubKernel(schedule, numbered) for schedule in group]
    codes: list[object] = [part.code() for part in parts] if len(parts) > 1 else [None]
    order = adjacent(_kinds([codes.index(code) for code in codes], parts))
    parts, codes = [parts[place] for place in order], [codes[place] for place in order]
    return parts, tuple(codes.index(code) for code in codes)


def launches(program: LoopProgram, stem: str, options: CodegenOptions) -> list[KernelLaunch]:
    """Group kernels into launches: those of one level and one kind, and with them small ones of another kind."""
    groups = _grouped([Schedule(program, kernel, options) for kernel in program.kernels])
    found: list[KernelLaunch] = []
    for k, group in enumerate(groups):
        turned = group[0].mode not in _ALONE and _turned(group, found)
        parts, shared = _parts(group, "block" if turned or len(group) > 1 else PROGRAM)
        name = f"{stem}_kernel" + (f"_{k}" if len(groups) > 1 else "")
        called = tuple(members(_kinds(shared, parts)))
        found.append(KernelLaunch(name, tuple(parts), options.rounds, shared, called, turned))
    return found


def _grouped(schedules: Iterable[Schedule]) -> list[list[Schedule]]:
    groups: list[list[Schedule]] = []
    for schedule in sorted(schedules, key=lambda s: (s.kernel.level, -s.elements, s.order)):
        group = next((g for g in groups if _fits(schedule, g)), None)
        if group is None:
            groups.append([schedule])
        else:
            group.append(schedule)
    return groups


def _kinds(shared: Sequence[int], parts: Sequence[SubKernel]) -> list[tuple[object, ...]]:
    """Return what those sub-kernels share that may be chosen among; what may not has a kind of its own."""
    return [(code, part.even) if part.may_be_chosen else (part,) for code, part in zip(shared, parts, strict=True)]


def _turned(group: list[Schedule], before: list[KernelLaunch]) -> bool:
    """Return whether to take the last blocks first: where an earlier launch read the same from the first on."""
    here = large_reads(group)
    found = next((n for n in reversed(before) if here & large_reads(part.schedule for part in n.parts)), None)
    return found is not None and not found.turned


def _fits(schedule: Schedule, group: list[Schedule]) -> bool:
    """Return whether a kernel may share a launch: all programs get as many registers as the one that needs most."""
    first = group[0]
    if {schedule.mode, first.mode} & _ALONE:
        return False
    alike = schedule.mode == first.mode or schedule.elements * _SMALL <= first.elements
    return schedule.kernel.level == first.kernel.level and alike and len(group) < _MOST_PARTS


def _function(name: str, takes: Sequence[str], constants: Sequence[str], lines: Iterable[str]) -> str:
    arguments = "\n".join([*_wrapped(takes, "    "), *_wrapped(constants, "    ")])
    return "\n".join([f"@triton.jit\ndef {name}(\n{arguments}\n):", *lines])


def _wrapped(items: Sequence[str], indent: str) -> list[str]:
    """Return items joined by commas, on lines that are not too long."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) < 116:
            lines[-1] += f" {item},"
        else:
            lines.append(f"{indent}{item},")
    return lines
