"""Equivalent mutants: rules on a kernel's text that say why a mutated line changes no result.

They look at what is done with a value, never at what a trial found: a wrong kernel that no trial catches and no rule
explains is one that was not caught.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from tracemine.validate.kernel_text import LOADED, after, end_of, kernel_of, made_of, parsed, said_of


def sign_cancels(lines: list[str], at: int) -> bool:
    """Return whether a difference can be turned: whatever is stored holds its sign an even number of times.

    Negation is exact, and rounding does the same on either side of 0: where every product holds the sign twice, and
    every sum holds it in all its terms or in none, the results have the same bits.
    """
    name, _, said = lines[at].partition("  #")[0].strip().partition(" = ")
    if not re.fullmatch(r"\w+ - \w+", said):
        return False
    odd, before = {name}, made_of(lines, at)
    for line in after(lines, at):
        if not odd & set(re.findall(r"\w+", line)):
            continue
        target, _, said = line.strip().partition(" = ")
        tree = parsed(said)
        turned = None if tree is None or target in before or not re.fullmatch(r"\w+", target) else _turned(tree, odd)
        if turned is None:
            return False
        odd = odd | {target} if turned == 1 else odd - {target}
    return True


_EITHER = 2  # 0 has both signs


def _converted(tree: ast.Call) -> ast.expr | None:
    """Return what `.to` converts to another type; None where a call is another."""
    return tree.func.value if isinstance(tree.func, ast.Attribute) and tree.func.attr == "to" else None


def _turned(tree: ast.expr, odd: set[str]) -> int | None:
    """Return how often, by twos, an expression holds the sign; None where that cannot be said."""
    if isinstance(tree, ast.Constant):
        return _EITHER if tree.value == 0 else 0
    if isinstance(tree, ast.Name):
        return int(tree.id in odd)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return _turned(tree.operand, odd)
    if isinstance(tree, ast.Subscript):
        return _turned(tree.value, odd)
    if isinstance(tree, ast.BinOp):
        return _of_two(tree, _turned(tree.left, odd), _turned(tree.right, odd))
    if isinstance(tree, ast.Call) and (found := _of_call(tree, odd)) is not None:
        return found
    return None if odd & {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} else 0


def _of_two(tree: ast.BinOp, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if isinstance(tree.op, ast.Mult | ast.Div):
        return _EITHER if _EITHER in (left, right) else (left + right) % 2
    return _same(left, right) if isinstance(tree.op, ast.Add | ast.Sub) else None


def _same(left: int | None, right: int | None) -> int | None:
    if left == _EITHER:
        return right
    return left if right in (left, _EITHER) else None


def _of_call(tree: ast.Call, odd: set[str]) -> int | None:
    name = ast.unparse(tree.func)
    if name.endswith(".to") and isinstance(tree.func, ast.Attribute):
        return _turned(tree.func.value, odd)
    if name in ("tl.sum", "tl.reshape"):
        return _turned(tree.args[0], odd)
    if name == "tl.abs":
        return None if _turned(tree.args[0], odd) is None else 0
    if name == "tl.where" and _turned(tree.args[0], odd) == 0:
        return _same(_turned(tree.args[1], odd), _turned(tree.args[2], odd))
    return None


def nothing_beyond(lines: list[str], at: int, places: frozenset[str]) -> bool:
    """Return whether what a sum's mask keeps out is 0 there already.

    Loads give 0 beyond the columns; so does a product with such, a sum of such, and what stands where a column is the
    one that an index names. places: inputs that hold indices, none of which points beyond the columns.
    """
    found = re.search(r"tl\.where\(\w*mask, (\w+), 0(?:\.0)?\)", lines[at])
    return found is not None and _Beyond(made_of(lines, at), places).nothing(found[1])


def nothing_beyond_rows(lines: list[str], at: int) -> bool:
    """Return whether what is added up along rows is 0 beyond them already."""
    found = re.search(r"tl\.where\(row_mask, \w+ \+ (\w+), \w+\)", lines[at])
    return found is not None and _Beyond(made_of(lines, at), frozenset(), "row_mask").nothing(found[1])


_ZERO_OF_ZERO = frozenset({"_tanh", "tl.abs", "tl.sqrt_rn", "tl.maximum", "tl.minimum", "tl.sin"})
_QUOTIENTS = frozenset({"_ratio", "_quotient", "tl.div_rn"})


class _Beyond:
    """What values are beyond the columns of a kernel, or by another mask beyond its rows."""

    def __init__(self, made: Mapping[str, str], places: frozenset[str], mask: str = "column_mask") -> None:
        self.made, self.places, self.mask = made, places, mask

    def nothing(self, name: str) -> bool:
        """Return whether a value is 0 there."""
        said = self.made.get(name, "")
        tree = parsed(said)
        return tree is not None and self._nothing(tree)

    def _nothing(self, tree: ast.expr) -> bool:
        if isinstance(tree, ast.Constant):
            return tree.value == 0
        if isinstance(tree, ast.Name):
            return self.nothing(tree.id)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return self._nothing(tree.operand)
        if isinstance(tree, ast.BinOp):
            if isinstance(tree.op, ast.Div):
                return self._nothing(tree.left) and self._of_row(tree.right)
            both = [self._nothing(tree.left), self._nothing(tree.right)]
            return any(both) if isinstance(tree.op, ast.Mult) else isinstance(tree.op, ast.Add | ast.Sub) and all(both)
        return isinstance(tree, ast.Call) and self._called(tree)

    def _of_row(self, tree: ast.expr, inside: tuple[str, ...] = ()) -> bool:
        """Return whether a value is one number for a whole row.

        Where that is 0 or no number, a quotient by it is none at the row's own columns either, nor is their sum. Rows
        beyond the last have such numbers where others have none.
        """
        if self.mask == "row_mask":
            return False
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        for name in names & self.made.keys():
            said = self.made[name]
            if re.match(r"tl\.sum\(.*, 1\)\[:, None\]$|_row_max\(.*\)$", said):
                continue
            made = None if name in inside or "column" in name + said else parsed(said)
            if made is None or not self._of_row(made, (*inside, name)):
                return False
        return True

    def _called(self, tree: ast.Call) -> bool:
        name = ast.unparse(tree.func)
        if (converted := _converted(tree)) is not None:
            return self._nothing(converted)
        if name == "tl.load":
            given = {k.arg: ast.unparse(k.value) for k in tree.keywords}
            mask = given.get("mask", "")
            return given.get("other") == "0" and self.mask in (mask, *self.made.get(mask, "").split(" & "))
        if name in _ZERO_OF_ZERO:
            return all(self._nothing(each) for each in tree.args)
        if name in _QUOTIENTS:
            return self._nothing(tree.args[0]) and self._of_row(tree.args[1])
        return name == "tl.where" and self._chosen(*tree.args)

    def _chosen(self, where: ast.expr, one: ast.expr, other: ast.expr) -> bool:
        if self._never(where):
            return self._nothing(other)
        return (self._always(where) or self._nothing(other)) and self._nothing(one)

    def _never(self, tree: ast.expr) -> bool:
        """Return whether a condition holds nowhere there."""
        if isinstance(tree, ast.Name) and tree.id in self.made:
            made = parsed(self.made[tree.id])
            return made is not None and self._never(made)
        if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitAnd):
            return self._never(tree.left) or self._never(tree.right)
        if isinstance(tree, ast.Call) and (converted := _converted(tree)) is not None:
            return self._never(converted)
        return isinstance(tree, ast.Compare) and len(tree.ops) == 1 and self._never_holds(tree)

    def _never_holds(self, tree: ast.Compare) -> bool:
        left, right = tree.left, tree.comparators[0]
        if isinstance(tree.ops[0], ast.NotEq) and ast.unparse(right) in ("0", "0.0"):
            return self._never(left) or self._nothing(left)
        loaded = LOADED.match(self.made.get(ast.unparse(right), ""))
        is_place = loaded is not None and loaded[1] in self.places
        return isinstance(tree.ops[0], ast.Eq) and ast.unparse(left) == "column" and is_place

    def _always(self, tree: ast.expr) -> bool:
        """Return whether a condition holds everywhere there: that something is 0 which is."""
        if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.Eq):
            return False
        return ast.unparse(tree.comparators[0]) in ("0", "0.0") and self._nothing(tree.left)


def scaled_away(lines: list[str], at: int) -> bool:
    """Return whether what a running sum begins with is scaled by the exponential of −∞ before anything is added."""
    name = lines[at].strip().partition(" = ")[0]
    beginnings = {
        k
        for k, said in made_of(lines, min(at + 8, len(lines) - 1)).items()
        if re.match(r"tl\.full\(.*, -float\('inf'\), ", said)
    }
    uses = [line.strip().partition(" = ")[2] for line in after(lines, at)]
    uses = [use.replace(f"{name} == 0.0", "") for use in uses if re.search(rf"\b{name}\b", use)]
    scaled = [re.sub(rf"\b{name} \* (?:_exp|tl\.exp)\((\w+) - \w+\)", r"\1", use) for use in uses]
    return bool(uses) and all(
        not re.search(rf"\b{name}\b", use) and beginnings & set(re.findall(r"\w+", use)) for use in scaled
    )


def counted_by_rows(lines: list[str], at: int) -> bool:
    """Return whether columns are added to rows before both are multiplied: with one of 64 bits the sum has 64 bits."""
    ways = [line for line in after(lines, at) if "_ptr + " in line]
    rest = [re.sub(r"\(\(?row\w*( \* \w+\))? \+ column\w*\)", "", line) for line in ways]
    return bool(ways) and not any(re.search(r"\bcolumn(?!_mask)", line) for line in rest)


def estimated_again(lines: list[str], at: int) -> bool:
    """Return whether a line is of a mean's first estimate or its correction: the second estimate corrects the first."""
    name = lines[at].strip().partition(" = ")[0]
    end = end_of(lines, at)
    made = made_of(lines, end)
    for mended, said in made.items():
        found = re.match(r"(\w+) \+ (\w+)$", said)
        if found is None or not re.match(rf"\w+ - {found[1]}$", _gap(made, found[2])):
            continue
        gap = _before(made, found[2])
        if name in {mended, *gap, *_before(made, found[1])}:
            others = set(made) - {mended} - gap - _before(made, found[1])
            used = {n for n in others if re.search(rf"\b{name}\b", made[n])}
            return name == mended or not used
    return False


def _gap(made: Mapping[str, str], name: str) -> str:
    """Return the difference that a sum of differences is made of; "" where it is none."""
    for each in _before(made, name):
        if re.match(r"\w+ - \w+$", made.get(each, "")):
            return made[each]
    return ""


def _before(made: Mapping[str, str], name: str) -> set[str]:
    """Return a name, and all names that it is made of up to loads."""
    found, todo = set[str](), [name]
    while todo:
        each = todo.pop()
        if each in made and each not in found and "tl.load(" not in made[each] and "tl.arange(" not in made[each]:
            found.add(each)
            todo += re.findall(r"\b[a-z]\w*_\d+\w*", made[each])
    return found


def factor_of_one(lines: Sequence[str], at: int) -> bool:
    """Return whether a line is a product with 1."""
    return re.fullmatch(r"1\.0 \* \w+|\w+ \* 1\.0", said_of(lines[at])[1]) is not None


def picked_elsewhere(lines: list[str], at: int) -> bool:
    """Return whether another number is chosen wherever a load's guard is off, whatever was computed of it."""
    name, said = said_of(lines[at])
    guard = re.search(r"mask=(\w+) & (\w+), other", said)
    if guard is None or not _only_where(after(lines, at), name, guard[2]):
        return False
    begin, end = kernel_of(lines, at)
    made = made_of(lines, min(end, len(lines) - 1))
    ends = re.fullmatch(r"(\(\w+\)) < (\d+)", made.get(guard[2], ""))
    rest = [n for n, other in made.items() if ends and other == f"{ends[1]} >= {ends[2]}"]
    whole = [said.replace(guard[0], f"mask={guard[1]}{mask}, other") for mask in ("", *(f" & {n}" for n in rest))]
    return any(said_of(line)[1] in whole for line in lines[begin:end])  # there is a number to be read


def _only_where(rest: Sequence[str], name: str, guard: str) -> bool:
    """Return whether all that is made of a value element by element ends where a condition chooses it."""
    pairs = [line.strip().partition(" = ") for line in rest]
    uses = [(pair[0], pair[2] or pair[0]) for pair in pairs if re.search(rf"\b{name}\b", pair[2] or pair[0])]
    for target, said in uses:
        chosen = re.fullmatch(rf"tl\.where\({guard}, (\w+), (\w+)\)", said)
        if chosen is not None and chosen[1] == name and chosen[2] != name:
            continue
        plain = re.fullmatch(r"\w+ [-+*/] \w+|-\w+|tl\.(?:cos|sin|exp|abs)\(\w+\)", said)
        if plain is None or not _only_where(rest, target, guard):
            return False
    return bool(uses)


def never_met(lines: list[str], at: int) -> bool:
    """Return whether indices are compared with one that none of them is: another condition of every use ends before."""
    name, said = said_of(lines[at])
    found = re.fullmatch(r"\((\w+) \+ (\d+)\) < (\d+)", said)
    if found is None:
        return False
    ends = rf"\(?{found[1]}\)? < {int(found[3]) - int(found[2])}"
    known = {n for n, other in made_of(lines, at).items() if re.fullmatch(ends, other)}
    uses = [line.strip().partition(" = ")[2] for line in after(lines, at) if re.search(rf"\b{name}\b", line)]
    both = [re.fullmatch(rf"(\w+) & {name}", use) for use in uses]
    return bool(uses) and all(each is not None and each[1] in known for each in both)
