"""Mutants: each is a kernel's source with one line changed, as a bug in the generator would change it.

A judge that lets one of them pass validates nothing. Where a mutated line cannot change any result (a bound that is one
too high where no lane lies beyond it), the mutant is equivalent, and is reported as that, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracemine.codegen.graph import Graph
from tracemine.tables import table_beside
from tracemine.validate.equivalent_maxima import nan_comes_anyway, nan_comes_otherwise
from tracemine.validate.equivalent_mutants import (
    counted_by_rows,
    estimated_again,
    factor_of_one,
    never_met,
    nothing_beyond,
    nothing_beyond_rows,
    picked_elsewhere,
    scaled_away,
    sign_cancels,
)
from tracemine.validate.kernel_text import LOADED, begin_of, end_of, made_of
from tracemine.validate.launcher_mutants import launcher_mutants, loads_of_another, why_equivalent


@dataclass(frozen=True, slots=True)
class Mutation:
    """One kind of mistake: which text, and what it becomes. `needs`: what a launch must have for it to matter."""

    name: str
    pattern: str
    becomes: str
    needs: str | None = None


def many_columns(lines: Sequence[str], at: int) -> bool:
    """Return whether the tiles of a line's kernel may have several side by side: of one alone any order is right."""
    inside = lines[begin_of(lines, at) : end_of(lines, at + 8)]
    return any("column_blocks = " in line and "tl.cdiv(columns" in line for line in inside)


def factors_exchanged(lines: Sequence[str], inside: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """Yield a kernel with the right sides of its first two products exchanged: a gate for its value."""
    dots = [at for at in inside if " = tl.dot(" in lines[at]][:2]
    sides = [re.search(r"tl\.dot\(\w+, (\w+)", lines[at]) for at in dots]
    if len(dots) == 2 and sides[0] and sides[1]:
        changed = [*lines]
        for at, mine, other in ((dots[0], sides[0], sides[1]), (dots[1], sides[1], sides[0])):
            changed[at] = lines[at].replace(f", {mine[1]}", f", {other[1]}", 1)
        yield "weights of two products exchanged", lines[dots[0]].strip(), "\n".join(changed)


MOST_OF_A_KIND = 2


@dataclass(frozen=True, slots=True)
class MutantSource:
    """A mutated source. needs: as of the mutation; or, behind SAME, why it is equivalent."""

    name: str
    line: str
    source: str
    needs: str | None


_KINDS = table_beside(__file__, "mutations.toml")
MUTATIONS_OF_PRODUCTS = tuple(Mutation(*kind) for kind in _KINDS["products"])
MUTATIONS = (*(Mutation(*kind) for kind in _KINDS["kernels"]), *MUTATIONS_OF_PRODUCTS)


def _needs(mutation: Mutation, lines: list[str], at: int, places: frozenset[str]) -> str | None:
    """Return what shows a mutation of a line, or why nothing does."""
    needs = "rows" if mutation.needs in ("row", "walked") and not _has_rows(lines, at) else mutation.needs
    needs = f"{needs} of {_kernel(lines, at)}" if needs in SPARE else needs
    same = (why for why, holds in _SAME.get(mutation.name, ()) if holds(lines, at, places))
    return next((f"{SAME}{why}" for why in same), needs)


def mutants_of(graph: Graph, text: str, rounded: str = "") -> list[MutantSource]:
    """Return mutants of a source, a few of each kind, in the order of the table.

    rounded: the build that rounds as eager does, which tells what is no mistake.
    """
    lines = text.split("\n")
    inside = _kernel_lines(lines)
    places = frozenset(i.name for i in graph.inputs if i.below is not None)
    mutants: list[MutantSource] = []
    for mutation in MUTATIONS:
        for at in [a for a in inside if re.search(mutation.pattern, lines[a])][:MOST_OF_A_KIND]:
            if mutation.needs == "rounding" and _is_of_codes(graph, lines, at):
                continue  # integers of 8 bits need no rounding
            if mutation.needs not in _MATTERS or _MATTERS[mutation.needs](lines, at):
                becomes = re.sub(mutation.pattern, mutation.becomes, lines[at], count=1)
                mutants += _made(lines, at, mutation.name, becomes, _needs(mutation, lines, at, places))
    mutants += _scalars(graph, lines, inside)
    mutants += _stores(lines, inside)
    mutants += [MutantSource(*each, None) for each in factors_exchanged(lines, inside)]
    mutants += [MutantSource(*each, None) for each in loads_of_another(lines, inside)]
    for name, line, source in launcher_mutants(graph, lines):
        why = why_equivalent(graph, name, line, lines, rounded.split("\n"))
        mutants.append(MutantSource(name, line, source, None if why is None else f"{SAME}{why}"))
    return mutants


def _is_of_codes(graph: Graph, lines: list[str], at: int) -> bool:
    """Return whether a line widens an input's integers of 8 bits."""
    source = re.search(r"= (\w+)\.to\(", lines[at])
    loaded = LOADED.match(made_of(lines, at).get(source[1], "")) if source else None
    return loaded is not None and loaded[1] in {e.name for e in graph.inputs if e.spec.dtype in ("int8", "uint8")}


def _kernel(lines: list[str], at: int) -> str:
    """Return the name of the kernel that a line belongs to; of all parts of a launch it is the launch's."""
    begin = begin_of(lines, at)
    return re.sub(r"_part_\d+$", "", lines[begin][4:].partition("(")[0])


def _has_rows(lines: list[str], at: int) -> bool:
    """Return whether the kernel of a line uses its row for more than the shape of an address."""
    end = end_of(lines, at)
    return any(re.search(r"\brow(_n\d+)?\b(?! \* 0)(?! <)(?! =)", line) for line in lines[at + 1 : end])


def _places(lines: list[str], at: int) -> list[int]:
    """Return where what a line names is used."""
    name = lines[at].strip().partition(" = ")[0]
    end = end_of(lines, at)
    return [k for k in range(at + 1, end) if re.search(rf"\b{name}\b", lines[k])]


def _uses(lines: list[str], at: int) -> list[str]:
    """Return the lines that use what a line names."""
    return [lines[k] for k in _places(lines, at)]


def _computed_alone(lines: list[str], at: int) -> bool:
    """Return whether something is computed of this value alone: no other operand, and no reduction, would widen it."""
    # With a number alone it is computed as narrow as in eager, and errs no more than eager does.
    plain = r"tl\.(max|sum)\(|_row_max\(|= tl\.where\(mask, \w+, -float|= (\w+ [-+*/] |_ratio\(\w+, )[a-z]+(_\d+)?\)?$"
    uses = {k: lines[k].partition("  #")[0] for k in _places(lines, at)}
    exact = [k for k, use in uses.items() if re.search(r"= tl\.abs\(\w+\)$", use)]  # as narrow, and the same
    rest = [use for k, use in uses.items() if k not in exact and not re.search(plain, use)]
    alone = any(len(set(re.findall(r"\b[a-z]\w*_\d+\w*", use.partition(" = ")[2]))) == 1 for use in rest)
    return alone or any(_computed_alone(lines, k) for k in exact)


def _computed_on(lines: list[str], at: int) -> bool:
    """Return whether a number may need rounding and something is computed of it: a store alone would round it."""
    return not _selects(lines[at]) and any("tl.store(" not in use and not _selects(use) for use in _uses(lines, at))


def _selects(line: str) -> bool:
    """Return whether a line's call picks among what it takes: of rounded numbers it gives rounded ones."""
    call = re.search(r"# aten::(\w+?)_?(\.\w+)?$", line)
    return call is not None and call[1].removeprefix("_foreach_") in _SELECTING


_SELECTING = frozenset(_KINDS["selecting"])
_MATTERS = {"narrow": _computed_alone, "rounding": _computed_on, "columns of tiles": many_columns}
SPARE = {  # what some launch must have for a wrong line to matter, and what is so where none has
    "row": "no launch has a lane beyond its rows",
    "column": "no launch has a lane beyond its columns",
    "tail": "no launch has a row that ends within a block",
    "steps": "no launch has a row of more than a block",
    "groups": "no launch has more rows of tiles than a group",
    "again": "no launch has a program that takes rows twice",
}
SAME = "same: "  # begins why a mutated line changes no result
_Holds = Callable[[list[str], int, frozenset[str]], bool]


def _rule(why: str, holds: Callable[[list[str], int], bool]) -> tuple[str, _Holds]:
    return why, lambda lines, at, _: holds(lines, at)


_MEND = _rule("a second estimate of the mean corrects it", estimated_again)
_BEYOND = ("it is 0 beyond the columns for every finite number", nothing_beyond)  # quotients: of a row that has some
_SIGN = _rule("all that is stored has its sign an even number of times", sign_cancels)
_SCALED = _rule("it is scaled by the exponential of −∞ before anything is added", scaled_away)
_ADDED = _rule("it is added to a row of 64 bits", counted_by_rows)
_NAN = _rule("all that is made of it is NaN there by another number, too", nan_comes_otherwise)
_ANYWAY = _rule(
    "all that is stored of a row that holds NaN is NaN, or does not ask for its largest number", nan_comes_anyway
)
_ONE = _rule("what is left out is a factor of 1", factor_of_one)
_PICKED = _rule("where the guard is off another number is chosen", picked_elsewhere)
_NEVER = _rule("no place is where they differ", never_met)
_SAME: Mapping[str, tuple[tuple[str, _Holds], ...]] = {
    "operands swapped": (_SIGN, _MEND),
    "second operand dropped": (_MEND,),
    "first operand dropped": (_MEND, _ONE),
    "plus for times": (_MEND,),
    "minus for plus": (_MEND,),
    "one element fewer counted": (_MEND,),
    "mask of a reduction dropped": (_BEYOND,),
    "mask of a loop dropped": (_BEYOND,),
    "rows beyond are added up": (_rule("it is 0 beyond the rows for every finite number", nothing_beyond_rows),),
    "running number begins elsewhere": (_SCALED,),
    "columns counted in 32 bits": (_ADDED,),
    "NaN passed over": (_NAN, _ANYWAY),
    "another comparison": (_NEVER,),
    "guard of a join dropped": (_PICKED,),
}


def _made(lines: list[str], at: int, name: str, line: str, needs: str | None) -> list[MutantSource]:
    if line == lines[at]:
        return []
    return [MutantSource(name, lines[at].strip(), "\n".join([*lines[:at], line, *lines[at + 1 :]]), needs)]


def _kernel_lines(lines: list[str]) -> list[int]:
    """Return lines inside kernels; helpers and the launcher are left alone.

    So is what corrects a mean by what rounding left of it: a narrow result does not show that it is missing.
    """
    numbers: list[int] = []
    inside = False
    for at, line in enumerate(lines):
        if line.startswith("def "):
            inside = bool(re.match(r"def \w+_kernel(_\d+)?(_part_\d+)?\($", line))
        elif inside and line.startswith("    ") and not line.rstrip().endswith(",") and "_rest" not in line:
            numbers.append(at)
    return numbers


def _scalars(graph: Graph, lines: list[str], inside: list[int]) -> list[MutantSource]:
    """Mutate a scalar: the recorded value baked in, another value, none."""
    mutants: list[MutantSource] = []
    for scalar in graph.scalars:
        for at in [a for a in inside if re.search(rf"\b{scalar.name}\b(?![_=])", lines[a])][:1]:
            for name, instead in (
                ("recorded scalar baked in", repr(scalar.value)),
                ("wrong scalar", f"({scalar.name} * 2 + 1)"),
                ("scalar left out", f"({scalar.name} * 0)"),
            ):
                line = re.sub(rf"\b{scalar.name}\b(?![_=])", instead, lines[at])
                needs = f"scalar {scalar.name}" if scalar.value == 0 and name == "scalar left out" else None
                mutants += _made(lines, at, name, line, needs)
    return mutants


def _stores(lines: list[str], inside: list[int]) -> list[MutantSource]:
    """Mutate stores: a result is not written, or its last step is left out."""
    mutants: list[MutantSource] = []
    stores = [a for a in inside if "tl.store(" in lines[a]]
    for at in stores:
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        mutants += _made(lines, at, "result not written", f"{indent}pass", None)
    for at in stores[:MOST_OF_A_KIND]:
        stored = re.search(r", ([a-z]\w*_\d+)(\.to\([\w.]+\))?, mask=", lines[at])
        made = next((a for a in inside if stored and re.match(rf"\s*{stored[1]} = ", lines[a])), None)
        if stored is None or made is None:
            continue
        operand = re.search(r"\b([a-z]\w*_\d+)\b", lines[made].split(" = ", 1)[1].partition("  #")[0])
        only_cast = re.search(r"= \w+\.to\(tl\.\w+\)(\.to\(tl\.\w+\))?(  #|$)", lines[made])  # the store casts too
        if operand is not None and "tl.load" not in lines[made] and only_cast is None:
            line = lines[at].replace(f", {stored[1]}", f", ({operand[1]} + 0 * {stored[1]})", 1)
            mutants += _made(lines, at, "last step left out", line, "epilogue")
    return mutants
