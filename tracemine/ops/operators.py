"""The operator table: what an aten operator is, what it is called with, which storage it shares and what it writes.

`table.json` is made by tools/generate_ops.py from torch's own schemas; `custom.toml` is written by hand for operators
of other libraries, and `names.toml` for names of which only the class is known. All are read on the first question, so
importing this module costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.ops.custom import custom_signatures
from tracemine.ops.facts import CLASSES
from tracemine.ops.patterns import PatternRow, pattern_rows

TABLE_SCHEMA = 2
_MOST_LATER = 3  # arguments that a release may have appended to a schema since a trace was made
_LONGEST_NAME = 512  # longer names are no operators; they are classed by their start


class Argument(msgspec.Struct, frozen=True):
    """One argument: its name and its type as torch's schemas write it (`Tensor`, `Tensor?`, `Tensor[]`, `Scalar`).

    >>> [a.name for a in overload_of("aten::_softmax", "").arguments if not a.has_default]
    ['self', 'dim', 'half_to_float']
    """

    name: str
    type: str
    has_default: bool = False  # whether a call may leave it out

    @property
    def is_tensor(self) -> bool:
        """A tensor, an optional tensor, or a list of either.

        >>> Argument("indices", "Tensor?[]").is_tensor, Argument("alpha", "Scalar").is_tensor
        (True, False)
        """
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """A list of any length.

        >>> Argument("tensors", "Tensor[]").is_list
        True
        """
        return self.type.endswith(("[]", "[]?"))

    @property
    def is_optional(self) -> bool:
        """None is allowed for it, or in it.

        >>> Argument("bias", "Tensor?").is_optional
        True
        """
        return "?" in self.type


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """One overload. All positions count the arguments from 0, in the order in which profilers record them."""

    name: str  # "" for the default overload
    op_class: str
    arguments: tuple[Argument, ...]
    positional: int  # so many arguments come first; the rest are keyword-only
    outputs: tuple[str, ...]  # types
    aliases: tuple[int | None, ...]  # per output: the argument whose storage it shares, or may share
    mutates: tuple[int, ...]  # arguments whose elements are written
    overwrites: tuple[int, ...]  # those of them whose old elements are not read: out=, copy_, fill_
    likes: tuple[int | None, ...] = ()  # of another library's, per output: the argument whose shape and dtype it has

    @property
    def tensors(self) -> tuple[int, ...]:
        """Positions of the tensor arguments.

        >>> lookup("aten::linear").overloads[0].tensors
        (0, 1, 2)
        """
        return tuple(i for i, argument in enumerate(self.arguments) if argument.is_tensor)


class Operator(msgspec.Struct, frozen=True):
    """One operator by name, with every overload it has. No overloads: only the class is known."""

    name: str
    op_class: str
    overloads: tuple[Overload, ...]

    def pick(self, input_types: Sequence[str]) -> Overload | None:
        """Return the overload that was called, by the recorded type of each input; None where that does not tell.

        Profilers record one entry an argument, defaults included: a dtype for a tensor, `TensorList`, `Scalar`,
        `ScalarList`, or "" for None, strings and whatever else. Overloads that differ only in what the table
        says nothing about count as one. Without recorded types pass (), which works where there is no choice.

        >>> lookup("aten::add").pick(["float", "float", "Scalar"]).name
        'Tensor'
        >>> lookup("aten::max").pick(["float", "Scalar", "Scalar"]).op_class
        'reduction'
        >>> lookup("aten::_foreach_div_").pick(["TensorList", ""]).name
        'ScalarList'
        """
        fitting = [o for o in self.overloads if not input_types or _fits(o, input_types)]
        facts = {(o.op_class, o.outputs, o.aliases, o.mutates, o.overwrites) for o in fitting}
        if len(facts) != 1:
            return None
        likely = (o for o in fitting if not _undefined(o, input_types)) if len(fitting) > 1 else ()
        return next(iter(likely), fitting[0])

    def called(self, input_types: Sequence[str]) -> Overload | None:
        """Return as `pick`, also of a record with fewer inputs: a later release may have appended arguments.

        >>> lookup("aten::add").called(["float", "float"]).name
        'Tensor'
        """
        records = ((*input_types, *("",) * later) for later in range(_MOST_LATER + 1))
        found = next(filter(None, map(self.pick, records)), None)
        return None if found is None or len(found.arguments) < len(input_types) else found


def lookup(name: str) -> Operator | None:
    """Return the operator of this name; None where neither torch's registry nor the hand-written table knows it.

    A name with an overload (`aten::mul.Tensor`) gives the operator with that overload alone.

    >>> lookup("aten::mul").op_class
    'pointwise'
    >>> [o.name for o in lookup("aten::mul.Tensor").overloads]
    ['Tensor']
    >>> lookup("aten::no_such_operator") is None
    True
    """
    return _lookup(name[:_LONGEST_NAME])


def overload_of(operator: str, name: str | None) -> Overload | None:
    """Return an overload by its own name, "" of the default; None where it is not known or in no table.

    >>> [a.name for a in overload_of("aten::mul", "Scalar").arguments]
    ['self', 'other']
    >>> overload_of("aten::mul", "no_such_overload") is None
    True
    """
    found = lookup(operator)
    return None if found is None else next((each for each in found.overloads if each.name == name), None)


def op_class(names: Iterable[str]) -> list[str | None]:
    """Return class of each name, None where it is not known. Meant for a column's dictionary: once a distinct name.

    >>> op_class(["aten::mm", "aten::relu_", "my annotation"])
    ['gemm', 'pointwise', None]
    """
    found = map(lookup, names)
    return [None if operator is None else operator.op_class for operator in found]


def is_view(name: str) -> bool:
    """Return whether the operator only gives a view of its input's storage (reshape may copy; its copy is a child).

    >>> is_view("aten::transpose"), is_view("aten::contiguous"), is_view("aten::relu_")
    (True, False, False)
    """
    operator = lookup(name)
    return operator is not None and operator.op_class == "view"


def table_version() -> str:
    """Return the torch release whose schemas the table holds.

    >>> table_version()
    '2.13.0'
    """
    return str(_table()["torch"])


def operator_names() -> Iterable[str]:
    """Return every name in the generated table, sorted."""
    return _operators().keys()


@cache
def _table() -> dict[str, Any]:
    """Return table.json. An operator is [class, overload ...]; an overload is [name, arguments, outputs(, class)].

    Arguments are "type name" joined by commas; a lone `*` ends the positional ones; `!` after the type marks a
    written one, `=` an overwritten one; `=` after the name one that has a default. Outputs are types; `@n` after the
    type: shares storage with argument n.
    """
    return msgspec.json.decode(Path(__file__).with_name("table.json").read_bytes(), type=dict[str, Any])


def _operators() -> dict[str, list[Any]]:
    operators: dict[str, list[Any]] = _table()["operators"]
    return operators


@cache
def name_rows() -> tuple[PatternRow, ...]:
    """Return every row of names.toml: names that torch does not register, or no longer does, matched as a whole."""
    rows = pattern_rows("names.toml", "name", "op_class")
    assert all(row.says in CLASSES for row in rows)  # noqa: S101  (our own data; tests check it too)
    return rows


@cache
def _in_some_row() -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return what a name begins with, or has in it, that a pattern of `name_rows` may fit."""
    patterns = [row.pattern for row in name_rows()]
    texts = {text for pattern in patterns for text in pattern.contains}
    begins = tuple({text for pattern in patterns for text in pattern.begins})
    return begins, re.compile("|".join(map(re.escape, sorted(texts))) or "(?!)")


@lru_cache(maxsize=1 << 14)
def _lookup(name: str) -> Operator | None:
    entry = _operators().get(name)
    if entry is not None:
        return Operator(name, entry[0], tuple(_overload(entry[0], *fields) for fields in entry[1:]))
    base, _, overload_name = name.partition(".")
    if base in _operators():
        operator = _lookup(base)
        assert operator is not None  # noqa: S101  (it is in the table)
        wanted = "" if overload_name == "default" else overload_name
        chosen = tuple(o for o in operator.overloads if o.name == wanted)
        return replace(operator, op_class=chosen[0].op_class, overloads=chosen) if chosen else operator
    custom = custom_signatures(name)
    if custom:
        return Operator(
            name,
            custom[0].op_class,
            tuple(replace(_overload(s.op_class, "", s.arguments, s.outputs), likes=s.likes) for s in custom),
        )
    said = _said_by_row(name)
    return None if said is None else Operator(name, said, ())


def _said_by_row(name: str) -> str | None:
    begins, contains = _in_some_row()
    if not (name.startswith(begins) or contains.search(name)):  # as of most names that programs give
        return None
    return next((row.says for row in name_rows() if row.pattern.fullmatch(name)), None)


def _overload(default_class: str, name: str, arguments: str, outputs: str, own_class: str | None = None) -> Overload:
    """Unpack one overload from the table's text."""
    taken: list[Argument] = []
    mutates: list[int] = []
    overwrites: list[int] = []
    positional: int | None = None
    for text in arguments.split(",") if arguments else ():
        if text == "*":
            positional = len(taken)
            continue
        kind, argument_name = text.split(" ")
        if kind.endswith(("!", "=")):
            mutates.append(len(taken))
            if kind.endswith("="):
                overwrites.append(len(taken))
            kind = kind[:-1]
        taken.append(Argument(argument_name.removesuffix("="), kind, argument_name.endswith("=")))
    returned = [text.partition("@") for text in outputs.split(",")] if outputs else []
    return Overload(
        name=name,
        op_class=own_class or default_class,
        arguments=tuple(taken),
        positional=len(taken) if positional is None else positional,
        outputs=tuple(kind for kind, _, _ in returned),
        aliases=tuple(int(place) if place else None for _, _, place in returned),
        mutates=tuple(mutates),
        overwrites=tuple(overwrites),
    )


# What profilers record instead of a dtype, and the argument types it can mean. "" means any type.
_RECORDED_LISTS = frozenset({"TensorList", "GenericList"})
_RECORDED_SCALARS = frozenset(
    {"Scalar", "ScalarList", "Int", "Bool", "Double", "String", "IntList", "DoubleList", "Device"}
)


# These are always recorded, tensors unless they are undefined. Long lists of numbers, say, are not.
_ALWAYS_RECORDED = frozenset({"Tensor", "Tensor[]", "Scalar"})


def _undefined(overload: Overload, input_types: Sequence[str]) -> bool:
    """Return whether the overload would have been called with something undefined for a tensor or a number."""
    return any(not t and a.type in _ALWAYS_RECORDED for a, t in zip(overload.arguments, input_types, strict=False))


def _fits(overload: Overload, input_types: Sequence[str]) -> bool:
    """Return whether inputs recorded so can be this overload's arguments."""
    if len(overload.arguments) != len(input_types):
        return False
    for place, (argument, recorded) in enumerate(zip(overload.arguments, input_types, strict=True)):
        if recorded in _RECORDED_SCALARS:
            fits = not argument.is_tensor
            if recorded in ("Scalar", "ScalarList"):  # the two are distinguished as they are written
                fits = fits and argument.is_list == (recorded == "ScalarList")
        elif recorded in _RECORDED_LISTS:
            fits = argument.is_list if recorded == "GenericList" else argument.is_list and argument.is_tensor
        elif recorded:
            # A Python number is recorded as a 0-dim tensor of type double or long int where a tensor was wanted.
            fits = argument.is_tensor and not argument.is_list
        else:  # None, or what is not recorded; None is not given for out=
            fits = place < overload.positional or place not in overload.overwrites
        if not fits:
            return False
    return True
