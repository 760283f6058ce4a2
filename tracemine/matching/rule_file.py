"""Read a rule's TOML with a location for every error."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from tracemine.errors import InputError, Location, RuleError
from tracemine.files import read_file
from tracemine.matching.define import RELATIONS, impossible, regex_problem
from tracemine.matching.nearest import nearest
from tracemine.matching.rule import ColumnTest, Value
from tracemine.patterns import deferred
from tracemine.rows.table import ColumnDoc

RULE_SIZE_LIMIT: Final = 1 << 20  # bytes of a rule.toml
_TOML_TYPES = {bool: "a boolean", int: "an integer", float: "a decimal number", str: "a string", list: "a list"}
T = TypeVar("T")


class RuleFile:
    """A rule.toml's values, each read with its type; knows the line of every key."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        try:
            raw = read_file(path, RULE_SIZE_LIMIT)
            self.content = raw.decode()
        except InputError as error:
            raise RuleError(error.message, where=error.where, hint=error.hint) from None
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            raise RuleError("the file is not UTF-8", where=Location(self.path, line)) from None
        try:
            self.data: dict[str, Any] = tomllib.loads(self.content)
        except (ValueError, RecursionError) as error:  # no TOML, or a number of too many digits
            found = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
            end = self.content.rstrip().count("\n") + 1
            message = str(error)[: found.start()] if found else str(error).removesuffix(" (at end of document)")
            place = f", column {found[2]}" if found else ""
            where = Location(self.path, int(found[1]) if found else end)
            raise RuleError(f"this is not TOML{place}: {message}", where=where) from None

    def wrong(self, key: str, message: str, hint: str | None = None) -> RuleError:
        return RuleError(message, where=Location(self.path, key_line(self.content, key), key), hint=hint)

    def only(self, allowed: Iterable[str], table: Mapping[str, Any], prefix: str = "") -> None:
        allowed = list(allowed)
        for key in table:
            if key not in allowed:
                raise self.wrong(f"{prefix}{key}", "a rule has no such key", nearest(key, allowed))

    def value(self, key: str, kind: type[T], kind_text: str, default: T | None = None) -> T:
        if key not in self.data:
            if default is None:
                raise RuleError(f"the key {key!r} is missing", where=Location(self.path), hint=f"it is {kind_text}")
            return default
        value = self.data[key]
        if type(value) is not kind:
            raise self.wrong(key, f"this is {toml_type(value)}; it must be {kind_text}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.value(key, str, "a string", default)
        if not value.strip():
            raise self.wrong(key, "this is empty", "say it in a sentence")
        return value.strip()

    def whole(self, key: str, default: int) -> int:
        return self.value(key, int, "an integer", default)

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.value(key, str, "one of " + ", ".join(f'"{name}"' for name in allowed), default)
        if value not in allowed:
            raise self.wrong(key, f"{value!r} is none of its values", nearest(value, allowed))
        return value

    def texts(self, key: str, default: Iterable[str]) -> list[str]:
        values = self.value(key, list, "a list of strings", list(default))
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(key, f"this list has {toml_type(value)} in it; it must be a list of strings")
        return values

    def choices(self, key: str, allowed: Iterable[str], default: Iterable[str]) -> tuple[str, ...]:
        values = self.texts(key, default)
        allowed = list(allowed)
        for value in values:
            if value not in allowed:
                raise self.wrong(key, f"{value!r} is none of its values", nearest(value, allowed))
            if values.count(value) > 1:
                raise self.wrong(key, f"{value!r} is in the list twice")
        return tuple(values)

    def table(self, key: str) -> dict[str, Any]:
        return self.value(key, dict, "a table", {})


def toml_type(value: object) -> str:
    """Return what a TOML value is, in words.

    >>> toml_type(True), toml_type({}), toml_type([1])
    ('a boolean', 'a table', 'a list')
    """
    return "a table" if isinstance(value, dict) else _TOML_TYPES.get(type(value), "a date or time")


def key_line(content: str, key: str) -> int | None:
    """Return the line (1-based) where a dotted key stands in TOML text, or else the nearest key around it.

    >>> key_line('title = "x"\\n[define]\\nbias = { op = "add" }', "define.bias.op")
    3
    """
    wanted = key.split(".")
    header: list[str] = []
    best, best_line = 0, None
    inside: str | None = None  # the quotes of a text that goes on over lines
    for number, line in enumerate(content.splitlines(), 1):
        if inside is not None:
            if inside in line:
                inside = None
            continue
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2:
                inside = quotes
        found = re.match(r"\s*(?:\[+([^\[\]]+)\]+|([\w.\-\"' ]+?)\s*=)", line)
        if found is None:
            continue
        names = [part.strip(" \"'") for part in (found[1] or found[2]).split(".")]
        if found[1]:
            header = names
        else:
            names = header + names
        if len(names) > best and names == wanted[: len(names)]:
            best, best_line = len(names), number
    return best_line


VARIABLE_LIMIT: Final = 64
_NAME = deferred(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE_TYPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "numbers": ((int, float), "a number"),
    "categories": ((str,), "a string"),
    "flags": ((bool,), "true or false"),
}


def define_of(file: RuleFile, columns: Mapping[str, ColumnDoc]) -> dict[str, tuple[ColumnTest, ...]]:
    table = file.table("define")
    if len(table) > VARIABLE_LIMIT:
        raise file.wrong("define", f"{len(table)} variables; at most {VARIABLE_LIMIT} are offered")
    define = {}
    for variable, tests in table.items():
        key = f"define.{variable}"
        if not _NAME.fullmatch(variable):
            raise file.wrong(key, f"{variable!r} is no variable's name", "a name is letters, digits and _")
        if not isinstance(tests, dict):
            raise file.wrong(key, f"this is {toml_type(tests)}; it must be a table of tests, {{ column = value }}")
        define[variable] = tuple(
            test for column, value in tests.items() for test in tests_of(file, key, column, value, columns)
        )
        for column in tests:
            if impossible(test for test in define[variable] if test.column == column):
                raise file.wrong(f"{key}.{column}", "no value passes all of these tests")
    return define


def tests_of(
    file: RuleFile, variable_key: str, column: str, value: object, columns: Mapping[str, ColumnDoc]
) -> list[ColumnTest]:
    key = f"{variable_key}.{column}"
    if column not in columns:
        raise file.wrong(key, f"the rows have no column {column!r}", nearest(column, columns))
    relations = value if isinstance(value, dict) else {"is": value}
    if not relations:
        raise file.wrong(key, "this table has no test", f"the tests are: {', '.join(RELATIONS)}")
    return [
        _test(file, key if relations is not value else f"{key}.{relation}", columns[column], relation, operand)
        for relation, operand in relations.items()
    ]


def _test(file: RuleFile, key: str, column: ColumnDoc, relation: str, operand: object) -> ColumnTest:
    if relation not in RELATIONS:
        raise file.wrong(key, f"there is no test {relation!r}", f"the tests are: {', '.join(RELATIONS)}")
    known = RELATIONS[relation]
    if column.kind not in known.kinds:
        offered = [name for name, other in RELATIONS.items() if column.kind in other.kinds]
        raise file.wrong(
            key, f"{relation!r} cannot test {column.name}, which holds {column.kind}", f"use {' or '.join(offered)}"
        )
    many = known.many and column.kind != "flags"
    if isinstance(operand, list) and not many:
        raise file.wrong(key, "this is a list; it must be one value")
    operands: list[object] = operand if isinstance(operand, list) else [operand]
    if not operands:
        raise file.wrong(key, "this list is empty: nothing would pass")
    values = tuple(_operand(file, key, column, relation, value, many=many) for value in operands)
    if relation == "re":
        problem = regex_problem(str(values[0]))
        if problem is not None:
            raise file.wrong(key, problem)
    return ColumnTest(column.name, relation, values)


def _operand(file: RuleFile, key: str, column: ColumnDoc, relation: str, value: object, *, many: bool) -> Value:
    types, words = _VALUE_TYPES[column.kind]
    if type(value) not in types:
        more = ", or a list of them" if many else ""
        raise file.wrong(key, f"this is {toml_type(value)}; {column.name} is compared with {words}{more}")
    if value != value:  # NaN is the value that is not itself
        raise file.wrong(key, "nothing compares with nan")
    if relation == "contains" and not value:
        raise file.wrong(key, "every text contains the empty one")
    return value  # type: ignore[return-value]  # its type is one of _VALUE_TYPES
