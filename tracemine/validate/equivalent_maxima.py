"""Equivalent mutants of row maxima: where NaN may be ignored, as what is stored of such a row is NaN or the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from tracemine.validate.kernel_text import begin_of, end_of, kernel_of, plain, said_of


class _Otherwise(Exception):
    """A value is something else than the largest or smallest of numbers."""


def nan_comes_otherwise(lines: Sequence[str], at: int) -> bool:
    """Return whether all that is made of a line's number takes another that is NaN where this one should be."""
    return _beside(lines, at, said_of(lines[at])[0])


def _beside(lines: Sequence[str], at: int, name: str) -> bool:
    end = end_of(lines, at)
    uses = [k for k in range(at + 1, end) if re.search(rf"\b{name}\b", plain(lines[k]))]
    return bool(uses) and all(_used_beside(lines, k, name) for k in uses)


def _used_beside(lines: Sequence[str], at: int, name: str) -> bool:
    stored = re.match(rf"\s*tl\.store\((scratch\d+)_ptr \+ [^,]+, {name}, mask=\w+\)$", plain(lines[at]))
    if stored is not None:
        loads = [k for k, line in enumerate(lines) if f"tl.load({stored[1]}_ptr " in line]
        return all(_beside(lines, k, said_of(lines[k])[0]) for k in loads)
    target, said = said_of(lines[at])
    if re.fullmatch(rf"-?_row_max\((-?tl\.where\(column_mask, )?{name}(, -?float\('inf'\)\))?\)", said):
        return _beside(lines, at, target)
    both = re.fullmatch(r"(\w+) [-+*/] (\w+)", said)  # NaN if either is
    if both is None or both[1] == both[2]:
        return False
    try:
        return _made_of(lines, at, both[1]) == _made_of(lines, at, both[2])
    except _Otherwise:
        return False


def _made_of(lines: Sequence[str], at: int, name: str, inside: tuple[str, ...] = ()) -> str:
    """Return what a value is the largest or smallest of, written the same for both."""
    begin = begin_of(lines, at)
    said = [said for given, said in map(said_of, lines[begin:at]) if given == name]
    if name in inside:
        return "itself"
    if not said:
        raise _Otherwise
    return " and ".join(_form(lines, at, ast.parse(each, mode="eval").body, (*inside, name)) for each in said)


def _form(lines: Sequence[str], at: int, tree: ast.expr, inside: tuple[str, ...]) -> str:
    text = ast.unparse(tree)
    if isinstance(tree, ast.Name):
        return _made_of(lines, at, tree.id, inside)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return _form(lines, at, tree.operand, inside)
    if text == "float('inf')":
        return "infinity"
    if text.endswith(".to(tl.float32)"):
        text = text.removesuffix(".to(tl.float32)")
        tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise _Otherwise
    if ast.unparse(tree.func) == "tl.load":
        return _loaded(lines, at, text)
    return _form_of_call(lines, at, tree, inside)


def _form_of_call(lines: Sequence[str], at: int, tree: ast.Call, inside: tuple[str, ...]) -> str:
    name, first, rest = ast.unparse(tree.func), tree.args[0], tree.args[1:]
    if name in ("_row_max", "_row_min"):
        return f"row of {_form(lines, at, first, inside)}"
    if name in ("tl.maximum", "tl.minimum") and "propagate_nan=tl.PropagateNan.ALL" in ast.unparse(tree):
        return f"({_form(lines, at, first, inside)}, {_form(lines, at, rest[0], inside)})"
    if name == "tl.where":
        one, other = (_form(lines, at, each, inside) for each in rest)
        return f"{ast.unparse(first)} ? {one} : {other}"
    if name == "tl.full":
        return f"{ast.unparse(first)} of {_form(lines, at, rest[0], inside)}"
    raise _Otherwise


def _loaded(lines: Sequence[str], at: int, text: str) -> str:
    """Follow a load: an input's numbers are themselves, in this kernel; partial results are what was stored."""
    scratch = re.match(r"tl\.load\((scratch\d+)_ptr ", text)
    if scratch is None:
        begin = begin_of(lines, at)
        return f"{lines[begin]} {text}"
    stores = [k for k, line in enumerate(lines) if f"tl.store({scratch[1]}_ptr " in line]
    stored = re.search(r", (\w+), mask=\w+\)$", plain(lines[stores[0]])) if len(stores) == 1 else None
    if stored is None:
        raise _Otherwise
    ways = re.sub(rf"\b{scratch[1]}_", "scratch_", f"{text} {plain(lines[stores[0]])}").replace(stored[1], "stored")
    return f"{ways} {_made_of(lines, stores[0], stored[1])}"


def nan_comes_anyway(lines: Sequence[str], at: int) -> bool:
    """Return whether all that is stored of a row is NaN, or the same, where its largest number passes over NaN.

    Of a row that holds NaN, what has it everywhere and what has it somewhere is followed with what differs: that is
    NaN in the right kernel. It may go into sums with what is NaN without it, and be compared with NaN, and no further.
    """
    source = re.search(r"_row_max\(tl\.where\(column_mask, (\w+), -float\('inf'\)\)\)", said_of(lines[at])[1])
    if source is None:
        return False
    begin, end = kernel_of(lines, at)
    body = [line for k, line in enumerate(lines[begin:end], begin) if k != at]
    shares = [line for line in body if re.match(rf"\s*{source[1]} = .*# aten::_?softmax$", line)]
    logs = [line for line in body if re.match(rf"\s*{source[1]} = \w+ - \w+  # aten::_?log_softmax$", line)]
    # A row of shares is NaN everywhere or nowhere: its inverted sum is, or the sum's logarithm, which each has.
    row = [re.fullmatch(r"\w+ [-*] (\w+)", said_of(line)[1]) for line in (*shares, *logs)]
    if len(row) == 1 and row[0] is not None and any("online_" in line for line in body):
        return _Follow(lines, body, {source[1], row[0][1]}, set(), {said_of(lines[at])[0]}).same()
    return _Follow(lines, body, set(), {source[1]}, {said_of(lines[at])[0]}).same()


class _Follow:
    """What is NaN of a row, everywhere or somewhere, and what differs there from what the right kernel has."""

    def __init__(
        self, lines: Sequence[str], body: list[str], everywhere: set[str], somewhere: set[str], differs: set[str]
    ) -> None:
        self.lines, self.body = lines, body
        self.everywhere, self.somewhere, self.differs = everywhere, somewhere, differs
        self.stored: dict[str, tuple[str, str]] = {}  # partial results: what is stored, and where

    def same(self) -> bool:
        """Return whether no store of a result shows what differs."""
        known = self.everywhere | self.somewhere
        for line in self.body:
            name, said = said_of(line)
            partial = re.match(r"\s*tl\.store\((scratch\d+)_ptr \+ ([^,]+), (\w+), mask=\w+\)$", plain(line))
            if partial is not None:
                self.stored[partial[1]] = partial[3], partial[2].replace(partial[1], "scratch")
            elif not name.isidentifier() or name in known:
                if self.differs & set(re.findall(r"\w+", plain(line))):
                    return False
            elif not self._made(name, said):
                return False
        kept = [scratch for scratch, (name, _) in self.stored.items() if name in self.differs]
        return all(self._elsewhere(scratch) for scratch in kept)

    def _elsewhere(self, scratch: str) -> bool:
        """Return whether no store shows it in the kernels that load what differs."""
        place = self.stored[scratch][1]
        alike = [s for s, (name, where) in self.stored.items() if name in self.everywhere and where == place]
        for at in (k for k, line in enumerate(self.lines) if f"tl.load({scratch}_ptr " in line):
            begin, end = kernel_of(self.lines, at)
            where = said_of(self.lines[at])[1].replace(scratch, "scratch")
            loads = [(s, said_of(line)) for line in self.lines[begin:end] for s in alike if f"tl.load({s}_ptr " in line]
            everywhere = {name for s, (name, said) in loads if said.replace(s, "scratch") == where}
            body = [line for k, line in enumerate(self.lines[begin:end], begin) if k != at]
            if not _Follow(self.lines, body, everywhere, set(), {said_of(self.lines[at])[0]}).same():
                return False
        return True

    def _made(self, name: str, said: str) -> bool:
        """Take in a line; False where what differs goes where it cannot be followed."""
        used = set(re.findall(r"\w+", said))
        differs, compared = self.differs & used, re.fullmatch(r"(\w+) (<|<=|>|>=|==) (\w+)", said)
        if compared is not None:
            return not differs or bool(self.everywhere & {compared[1], compared[3]})
        spreads = _CARRIES.fullmatch(said) is not None
        if differs and not spreads:
            return False
        if spreads and self.everywhere & used:
            self.everywhere.add(name)
        elif spreads and self.somewhere & used:
            (self.everywhere if re.match(r"tl\.sum\(|_row_max\(", said) else self.somewhere).add(name)
            if differs and name in self.somewhere:
                self.differs.add(name)
        elif differs:
            self.differs.add(name)
        return True


# What is NaN where one of its operands is.
_CARRIES = re.compile(
    r"-?\w+|\w+ [-+*/] \w+"
    r"|(?:tl\.exp|_exp|tl\.log|tl\.sqrt_rn|tl\.abs|_ratio|_quotient|_under|libdevice\.sub_rn)\(\w+(, \w+)?\)"
    r"|tl\.sum\((?:tl\.where\(column_mask, )?\w+(?:, 0(?:\.0)?\))?, 1\)\[:, None\]"
)
