"""Which of its inputs an operator writes, by its schema and by the operator table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from tracemine.ops import Overload, is_custom, lookup
from tracemine.patterns import deferred

_MARK = deferred(r"Tensor\([^()!]*!")  # Tensor(a!), Tensor(a!)[], Tensor($0! -> )
_OPEN, _CLOSE = "([", ")]"
# An operator that says by an argument whether it writes what its schema does not mark: running statistics.
_SWITCHES = frozenset({"training", "train", "use_input_stats"})


class Effects(Struct, frozen=True):
    """Positions of inputs, counted as execution traces count them."""

    mutates: frozenset[int]
    overwrites: frozenset[int]  # those of `mutates` whose old content is not read
    switched: frozenset[int]  # those of `mutates` that are written only where the input at `switch` is true
    switch: int | None
    shares: bool  # a collective: outputs that share an input's storage are written, whatever the schema marks
    mute: bool = False  # another library's, in no table, which marks nothing: it may write whatever it takes


NO_EFFECTS = Effects(frozenset(), frozenset(), frozenset(), None, False)


@lru_cache(maxsize=1 << 14)
def effects(schema: str) -> Effects:
    """Return what an operator of this schema writes in place.

    >>> effects("aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)").overwrites
    frozenset({3})
    >>> effects("aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)").overwrites
    frozenset()
    """
    name, _, rest = schema.partition("(")
    arguments = [a for a in _arguments(rest) if a != "*"]
    marked = {position for position, argument in enumerate(arguments) if _MARK.match(argument)}
    base, _, overload_name = name.partition(".")
    operator = lookup(base)
    overloads = operator.overloads if operator is not None else ()
    same = (o for o in overloads if o.name == overload_name and len(o.arguments) == len(arguments))
    overload = next(same, None)
    if overload is None:
        collective = operator is not None and operator.op_class == "collective"
        mute = is_custom(name) and not marked
        return Effects(frozenset(marked), frozenset(), frozenset(), None, collective, mute)
    return _of_table(overload, marked)


def _of_table(overload: Overload, marked: set[int]) -> Effects:
    switch = next((at for at, argument in enumerate(overload.arguments) if argument.name in _SWITCHES), None)
    unmarked = set(overload.mutates) - marked
    return Effects(
        frozenset(marked | set(overload.mutates)),
        frozenset(overload.overwrites),
        frozenset(unmarked if switch is not None else ()),
        switch,
        overload.op_class == "collective",
    )


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a schema, from behind its opening bracket to the bracket that closes it."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        if depth == 0 and letter in ",)":
            if text[begin:at].strip():
                yield text[begin:at].strip()
            begin = at + 1
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
            if depth < 0:
                return
