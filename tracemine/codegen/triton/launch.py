"""How kernels are launched: what each takes, and how it is cut into blocks.

Kernels of one level that need nothing of each other become parts of one launch: siblings that a model runs one after
another, the members of a list. Parts that differ in names alone share their code.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tracemine.codegen.loop_ir import Program, Random, in_flight, loads, nodes_of
from tracemine.codegen.options import CodegenOptions
from tracemine.codegen.passes.collapse_axes import Run, runs
from tracemine.codegen.schedule import (
    POINTWISE,
    reads_windows,
)
from tracemine.codegen.tiles import Cuts, cuts
from tracemine.codegen.triton.cutting import cut_lines
from tracemine.codegen.triton.foreach import Members, adjacent, choice, chosen, members, planned
from tracemine.codegen.triton.subkernel import Part, large_reads

_FEW_LOADS, _RAGGED_SHARE = 4, 0.7  # inputs of rows of which a thread may hold 64 elements; what fills a block
_MOST_PARTS = 32  # of one launch: 161 tensors of an SGD step took 130 µs so, by 16 140
_TAKES = 112  # characters of a line
_SMALL = 2  # a part of so many times fewer elements than the first costs less beside it than in a launch of its own


_TURNED = "block = tl.num_programs(0) - 1 - tl.program_id(0)"


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of the source: a part, or several that share a launch."""

    name: str
    parts: tuple[Part, ...]
    exact: bool
    shared: tuple[int, ...]  # for each part, the part whose code it uses
    members: tuple[Members, ...]  # the parts as they are called: those that may be chosen among by one call
    turned: bool  # the last blocks first: a launch before it has read the same, and the cache has its end

    @property
    def cuts(self) -> Cuts:
        """How it may be cut into blocks."""
        first = self.parts[0]
        most = max(len(loads(part.kernel)) for part in self.parts)
        length = prod(axis.size for axis in first.kernel.columns)
        ragged = most <= _FEW_LOADS and 0 < length <= _RAGGED_SHARE * (1 << (length - 1).bit_length())
        again, parts = first.long and first.body.walks > 1, first.kernel.split is not None
        return cuts(
            first.mode,
            first.grain,
            first.kernel.pieces,
            max(in_flight(part.kernel) for part in self.parts),
            odd=length % 2 == 1,
            ragged=ragged,
            again=again,
            parts=parts,
            windows=any(reads_windows(part.kernel) for part in self.parts),
            draws=any(isinstance(node, Random) for part in self.parts for node in nodes_of(part.kernel)),
        )

    @property
    def text(self) -> str:
        """The kernel and the functions of its parts."""
        constants = "INDEX: tl.constexpr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr"
        if len(self.parts) == 1:
            part, lines = self.parts[0], self.parts[0].lines
            if self.turned:
                lines = [f"    {_TURNED}", *(line.replace("tl.program_id(0)", "block") for line in lines)]
            return _function(self.name, [*part.parameters(part.takes), part.rows, *part.columns], constants, lines)
        texts: list[str] = []
        for k, part in enumerate(self.parts):
            if self.shared[k] == k:
                lines = [line.replace("tl.program_id(0)", "block") for line in part.lines]
                takes = ["block", *part.parameters(part.takes), part.rows, *part.columns]
                texts.append(_function(f"{self.name}_part_{k}", takes, constants, lines))
        return "\n\n\n".join([*texts, self._dispatch()])

    def _numbered(self, each: Members) -> list[str]:
        """Return what a dispatching kernel takes of sub-kernels that share their code, by their numbers."""
        found: list[str] = []
        for at in each.places:
            own = self.parts[at].columns[: 1 if at > each.first else None]  # members are cut alike
            rows = self.parts[self.shared[at]].rows
            found += [re.sub(r"^\w+", rf"\g<0>_{at}", name) for name in (rows, *own, "end")]
        return found

    def _branch(self, first: int, last: int) -> str:
        """Return the condition under which a block is of the sub-kernels first to last."""
        return "else" if last == len(self.parts) - 1 else f"{'elif' if first else 'if'} block < end_{last}"

    def _dispatch(self) -> str:
        takes = list(dict.fromkeys(t for part in self.parts for t in part.given))
        takes += self._known()
        numbered: list[str] = []
        lines = [_TURNED if self.turned else "block = tl.program_id(0)"]
        calls: list[str] = []
        for each in self.members:
            k, last = each.first, each.places[-1]
            numbered += self._numbered(each)
            begin = f"end_{k - 1}" if k else "0"
            mine = [*self.parts[k].takes, f"rows_{k}", f"columns_{k}"]
            if each.chosen:
                ends = [begin, *(f"end_{at}" for at in each.places[:-1])]
                begin = f"begin_{k}"
                lines += chosen(begin, each, ends)
                given = [[*self.parts[at].takes, f"rows_{at}", f"columns_{at}"] for at in each.places]
                more, mine = choice(each, given)
                lines += more
            mine += [f"blocks_{k}"] * (len(self.parts[k].columns) - 1)
            word = self._branch(k, last)
            arguments = ["block" if begin == "0" else f"block - {begin}", *mine, "INDEX", f"XBLOCK_{k}", f"RBLOCK_{k}"]
            calls += [f"{word}:", f"    {self.name}_part_{self.shared[k]}(", *_wrapped(arguments, "        "), "    )"]
        lines += calls if len(self.members) > 1 else [line[4:] for line in calls[1:]]
        blocks = [f"{n}_{each.first}: tl.constexpr" for each in self.members for n in ("XBLOCK", "RBLOCK")]
        constants = "\n".join(_wrapped(["INDEX: tl.constexpr", *blocks], "    ")).strip().rstrip(",")
        return _function(self.name, [*takes, *numbered], constants, [f"    {line}" for line in lines])

    def _known(self) -> list[str]:
        """What a plan knows of all parts: known to the compiler too where the code of any part wants it so."""
        found: dict[str, str] = {}
        for part, code in zip(self.parts, (self.parts[k] for k in self.shared), strict=True):
            for name, taken in zip(part.known, code.parameters(code.known), strict=True):
                kind = taken.partition(":")[2]
                found[name] = f"{name}:{kind}" if kind else found.get(name, name)
        return list(found.values())

    @property
    def merged(self) -> list[Run]:
        """Axes that are walked as one."""
        if any(part.flat for part in self.parts):
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

    def lines(self, name: str) -> list[str]:
        """A plan's lines for it, by that name: what it takes behind what it is given."""
        walked = {axis.name for run in self.merged for axis in run.axes}
        return [_walked(line, walked) for line in self._lines(name)]

    def _lines(self, name: str) -> list[str]:
        known = self._strides({name: text for part in self.parts for name, text in part.known.items()})
        cut = f'BLOCKS["{self.name}"][0]'
        if len(self.parts) == 1:
            part = self.parts[0]
            known += ["rows", "columns", *["wide"] * bool(part.flat), "index", "xblock", "rblock"]
            return [*cut_lines(part, f"*{cut}"), *self._planned(name, "blocks", known, "warps")]
        lines = [f"elements, each = {cut}"]
        for each in self.members:
            k, part = each.first, self.parts[each.first]
            if each.chosen:
                mine = [self.parts[at] for at in each.places]
                dense = dict.fromkeys(text for part in mine for text in part.dense)
                lines.append(planned(each, dense, [part.walk for part in mine]))
                short = each.places[1:] if part.flat else each.places  # that are told nothing of a row's blocks
                known += [f"*part_{at}[:2], part_{at}[-4]" if at in short else f"*part_{at}[:-3]" for at in each.places]
                continue
            known.append(f"*part_{k}[:-3]")
            lines += cut_lines(part, "elements, each")
            end = f"blocks + part_{k - 1}[-4]" if k else "blocks"
            wide = "wide, " * bool(part.flat)
            lines.append(f"part_{k} = rows, columns, {wide}{end}, xblock, rblock, warps")
        known += ["index", *(f"*part_{each.first}[-3:-1]" for each in self.members)]
        most = "max(" + ", ".join(f"part_{k}[-1]" for k in range(len(self.parts))) + ")"
        return [*lines, *self._planned(name, f"part_{len(self.parts) - 1}[-4]", known, most)]

    def _strides(self, known: Mapping[str, str]) -> list[str]:
        """What a plan knows, as expressions: of tensors of which a kernel takes all strides, those together."""
        buffers = self.parts[0].program.buffers
        found: list[str] = []
        whole: list[str] = []  # tensors, of which all strides are taken one after another
        texts = list(known.values())
        at = 0
        while at < len(texts):
            name = texts[at].partition(".")[0]
            every = [f"{name}.stride({d})" for d in range(len(buffers[name].dims))] if name in buffers else []
            if every and texts[at : at + len(every)] == every:
                whole.append(name)
                at += len(every)
                continue
            found += [f"*_strides({', '.join(whole)})"] * bool(whole)
            whole = []
            found.append(texts[at])
            at += 1
        return found + [f"*_strides({', '.join(whole)})"] * bool(whole)

    def _planned(self, name: str, blocks: str, known: Sequence[str], warps: str) -> list[str]:
        contract = ", enable_fp_fusion=False" if self.exact else ""
        takes = f"takes = ({', '.join(known)})"
        rest = textwrap.wrap(takes, _TAKES, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        return [*rest, f"{name} = _Launch({self.name}, {blocks}, takes, num_warps={warps}{contract})"]


def _walked(line: str, names: set[str]) -> str:
    """A launcher's line with the sizes of axes as they are walked."""
    return re.sub(r"\bn\d+\b", lambda m: f"{m[0]}_walked" if m[0] in names else m[0], line)


def launches(program: Program, stem: str, options: CodegenOptions) -> list[Launch]:
    """The kernels of a program: those of one level and one shape share a launch, and small ones of another shape."""
    groups: list[list[Part]] = []
    parts = [Part(program, kernel, options) for kernel in program.kernels]
    for part in sorted(parts, key=lambda p: (p.kernel.level, -p.elements, p.order)):
        group = next((g for g in groups if _fits(part, g)), None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    found: list[Launch] = []
    for k, group in enumerate(groups):
        texts = [part.renamed() for part in group]
        order = adjacent(*_kinds([texts.index(text) for text in texts], group))
        group, texts = [group[place] for place in order], [texts[place] for place in order]
        shared = tuple(texts.index(text) for text in texts)
        name = f"{stem}_kernel" + (f"_{k}" if len(groups) > 1 else "")
        called = tuple(members(*_kinds(shared, group)))
        found.append(Launch(name, tuple(group), options.rounds, shared, called, _turned(group, found)))
    return found


def _kinds(shared: Sequence[int], parts: Sequence[Part]) -> tuple[list[tuple[int, bool]], list[bool]]:
    """Of each part what those have in common that may be chosen among, and whether it may."""
    kinds = [(code, part.even) for code, part in zip(shared, parts, strict=True)]
    return kinds, [part.may_be_chosen for part in parts]


def _turned(group: list[Part], before: list[Launch]) -> bool:
    """Whether to take the last blocks first: where an earlier launch read from the first on what this one reads."""
    here = large_reads(group)
    found = next((launch for launch in reversed(before) if here & large_reads(launch.parts)), None)
    return found is not None and not found.turned


def _fits(part: Part, group: list[Part]) -> bool:
    """Whether a part may share a launch: all programs get as many registers as the one that needs most."""
    first = group[0]
    alike = part.mode == first.mode or part.elements * _SMALL <= first.elements
    return part.kernel.level == first.kernel.level and alike and len(group) < _MOST_PARTS


def _function(name: str, takes: Sequence[str], constants: str, lines: Iterable[str]) -> str:
    arguments = "\n".join([*_wrapped(takes, "    "), f"    {constants},"])
    return "\n".join([f"@triton.jit\ndef {name}(\n{arguments}\n):", *lines])


def _wrapped(items: Sequence[str], indent: str) -> list[str]:
    """Items joined by commas, on lines that are not too long."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) < 116:
            lines[-1] += f" {item},"
        else:
            lines.append(f"{indent}{item},")
    return lines
