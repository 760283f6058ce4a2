"""Mutations of kernels around matrix products: their loops, tiles, operands, and what they reduce in flight."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracemine.validate.kernel_text import begin_of, end_of


@dataclass(frozen=True, slots=True)
class Mutation:
    """One kind of mistake: which text, and what it becomes. `needs`: what a launch must have for it to matter."""

    name: str
    pattern: str
    becomes: str
    needs: str | None = None


_TOP = r"(_row_max\(tl\.where\(column_mask, "
_DOT = r"(product_\d+) = tl\.dot\("
MUTATIONS_OF_PRODUCTS = (
    Mutation("mask of a sum's tail dropped", r"\b(along|down)_mask = .*", r"\1_mask = \1 >= 0"),
    Mutation("product begins at one", r"= tl\.zeros\((\(.*\)), ", r"= tl.full(\1, 1.0, "),
    Mutation("product not carried", rf"{_DOT}(.*), \1\b", r"\1 = tl.dot(\2"),
    Mutation("product in float16", rf"{_DOT}(.*\))(?=$|  #)", r"\1 = tl.dot(\2.to(tl.float16).to(tl.float32)"),
    Mutation("operands of a product exchanged", rf"{_DOT}(\w+), (\w+)", r"\1 = tl.dot(\3, \2"),
    Mutation("factors of ten bits", r'input_precision="ieee"', 'input_precision="tf32"'),
    Mutation("second product goes on with the first", r"(product_2 = tl\.dot\(.*), product_2\b", r"\1, product_1"),
    Mutation("left tile reaches beyond the rows", r"left_mask = row_mask & ", "left_mask = (row >= 0) & "),
    Mutation("right tile reaches beyond the columns", r"right_mask = (down_mask) & .*", r"right_mask = \1"),
    Mutation("sum along another stride", r"\b(along|down) \* (\w+)_s1\b", r"\1 * \2_s0"),
    Mutation("rows along the sum's stride", r"(tl\.load\(.*\brow \* \w+)_s0\b(.*along)", r"\1_s1\2"),
    Mutation("tile not turned", r"(\.load\(\[.*)\.T$", r"\1"),
    Mutation("descriptor not advanced", r"(\.load\(\[.*), start\]", r"\1, 0]"),
    Mutation("descriptor one too far", r"(\.load\(\[.*), start\]", r"\1, start + 1]"),
    Mutation("descriptor of rows for columns", r"(\.load\(\[.*)column_block \* RBLOCK", r"\1row_block * XBLOCK"),
    Mutation("descriptor at the first block", r"(\.load\(\[.*)(?:row_block|walked) \* \w+", r"\g<1>0"),
    Mutation("descriptor of the first batch", r"\.load\(\[tl\.cast\(batch, tl\.int32\)", ".load([0"),
    Mutation("batch left out", r"(tl\.load\(.*)\bbatch \* ", r"\1batch * 0 * "),
    Mutation("batch stored elsewhere", r"(tl\.store\(.*)\bbatch \* ", r"\1batch * 0 * "),
    Mutation("last batch or part left out", r"(tiles = .*) \* (n\d+)$", r"\1 * max(\2 - 1, 1)", "batches"),
    Mutation("last tile left out", r"(tl\.range\(.*), tiles, ", r"\1, tiles - 1, "),
    Mutation("tile one too far", r"tl\.range\(tl\.program_id\(0\)", "tl.range(tl.program_id(0) + 1"),
    Mutation("quotient for remainder of tiles", r"(row_block = .*) % height$", r"\1 // height", "columns of tiles"),
    Mutation("rows of tiles for columns", r"(column_block = .*) // height$", r"\1 % height", "columns of tiles"),
    Mutation("group not clipped", r"height = tl\.minimum\(.*", "height = GROUP", "columns of tiles"),
    Mutation("group of tiles not left out", r"(group = .*) \* GROUP$", r"\1", "groups"),
    Mutation("parts of a sum meet", r"(range\(part \* KBLOCK, .*, )\w+ \* KBLOCK", r"\1KBLOCK"),
    Mutation("all parts begin at the first", r"range\(part \* KBLOCK, ", "range(0, "),
    Mutation("parts of a row meet", r"(for walked in range\(part, .*, )n\d+\)", r"\g<1>1)"),
    Mutation("last columns not looped over", r"(for walked in .*)tl\.cdiv\(columns, RBLOCK\)", r"\1columns // RBLOCK"),
    Mutation("nothing for what is not there", rf"{_TOP}.*), -float\('inf'\)\)(?!.*logsumexp)", r"\1, 0.0)"),
    Mutation("largest of the product itself", rf"{_TOP})(?!product)[a-z]\w*", r"\1product_1"),
    Mutation("function taken twice", r"= (_log1p|tl\.exp|_gelu\w*)\((\w+)\)(?=$|  #)", r"= \1(\1(\2))"),
    Mutation("blocks joined without rescaling", r"(\w+_sum) = \1 \* _exp\(.*\) \+ (\w+)$", r"\1 = \1 + \2"),
    Mutation("block not rescaled", r"(\w+_sum) \* _exp\(\w+_max - finite_max\)\)$", r"\1)"),
    Mutation("block in place of all before", r"^( *)(\w+) = _larger\(\2, (\w+)\)$", r"\1\2 = \3"),
    Mutation("later of two equals", r"(better_\d+ = \(\w+) > ", r"\1 >= "),
    Mutation("place of NaN passed over", r"(better_\d+ = .*?) \| \(\(\w+ != \w+\) & \(\w+ == \w+\)\)", r"\1"),
    Mutation("place within its block", r"\(column\)\.to\(tl\.int32\)", "(column % RBLOCK).to(tl.int32)"),
)  # fmt: skip


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
