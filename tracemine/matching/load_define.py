"""Read the variables of a rule and what they test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracemine.matching.define import RELATIONS, impossible, regex_problem
from tracemine.matching.nearest import nearest
from tracemine.matching.rule import ColumnTest, Value
from tracemine.matching.rule_file import RuleFile, toml_type
from tracemine.patterns import deferred
from tracemine.rows.table import ColumnDoc

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
