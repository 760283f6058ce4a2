"""rules/<id>/rule.toml → Rule, or a RuleError that names file, line and key and says what would be right.

A rule is data: it is read, checked against the tables below, and never evaluated.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from tracemine.errors import InputError, Location, RuleError, UsageError
from tracemine.files import read_file
from tracemine.matching.advice import FLAGS, TEXTS, Advice
from tracemine.matching.define import RELATIONS, exclusive, impossible, regex_problem
from tracemine.matching.graph_pattern import GraphPattern, parse_graph
from tracemine.matching.nearest import nearest
from tracemine.matching.pattern import Pattern, PatternError, checked, parse, variables
from tracemine.matching.rule import (
    AFTER_MATCH,
    CALLS,
    GROUP_BY,
    MEASURE_FUNCTIONS,
    SAVINGS,
    SKIP_PAST_LAST_ROW,
    SKIP_TO_NEXT_ROW,
    STATUSES,
    ColumnTest,
    Measure,
    Rule,
    Value,
)
from tracemine.rows import ROW_DOCS
from tracemine.rows.table import ColumnDoc

RowDocs = Mapping[str, Sequence[ColumnDoc]]

DEFAULT_PRIORITY: Final = 100
VARIABLE_LIMIT: Final = 64
RULE_SIZE_LIMIT: Final = 1 << 20  # bytes of a rule.toml
_ID = re.compile(r"[a-z][a-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MEASURE = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*")
_KEYS = (
    *("title", "status", "what", "why", "fix", "limits", "false_positives", "references", "needs", "rows"),
    *(
        "priority",
        "saving",
        "left",
        "call",
        "group_by",
        "partition_by",
        "order_by",
        "pattern",
        "match",
        "stays",
        "after_match",
        "define",
        "measures",
    ),
    "advice",
)
_DEFAULT_PARTITION = ("device", "stream")  # as far as the row set has them: a gap is a device's, not a stream's
_DEFAULT_ORDER = ("start_ns",)
_DEFAULT_GROUP = ("ops", "shapes", "dtype", "module")
_VALUE_TYPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "numbers": ((int, float), "a number"),
    "categories": ((str,), "a string"),
    "flags": ((bool,), "true or false"),
}
_TOML_TYPES = {bool: "a boolean", int: "a whole number", float: "a decimal number", str: "a string", list: "a list"}
T = TypeVar("T")


def rules_directory() -> Path:
    """The rules that come with tracemine: inside the package when installed, beside it in a checkout.

    >>> rules_directory().name in ("rules", "_rules")
    True
    """
    package = Path(__file__).parent.parent
    installed = package / "_rules"
    return installed if installed.is_dir() else package.parent / "rules"


def load_rules(*directories: str | Path, docs: RowDocs = ROW_DOCS) -> tuple[Rule, ...]:
    """The built-in rules and those in further directories, in the order in which they claim: priority, then id.

    A directory holds one folder a rule, or is itself one. Raises RuleError for a rule that cannot be used or an id
    that is there twice, UsageError for a directory that is not there or holds no rule.

    >>> all(rule.title for rule in load_rules())
    True
    """
    built_in = rules_directory()
    folders = _rule_folders(built_in) if built_in.is_dir() else []
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise UsageError("there is no such directory", where=Location(str(directory)))
        found = _rule_folders(directory)
        if not found:
            raise UsageError(
                "the directory holds no rule", where=Location(str(directory)), hint="a rule is DIR/<id>/rule.toml"
            )
        folders += found
    rules: dict[str, Rule] = {}
    for folder in folders:
        rule = load_rule(folder, docs)
        if rule.id in rules:
            raise RuleError(
                f"a rule named {rule.id!r} is already in {rules[rule.id].folder}",
                where=rule.where,
                hint="rename the folder: an id names one rule",
            )
        rules[rule.id] = rule
    return tuple(sorted(rules.values(), key=lambda rule: (rule.priority, rule.id)))


def _rule_folders(directory: Path) -> list[Path]:
    if (directory / "rule.toml").is_file():
        return [directory]
    return sorted(path.parent for path in directory.glob("*/rule.toml"))


def load_rule(folder: str | Path, docs: RowDocs = ROW_DOCS) -> Rule:
    """One folder of rules/. Raises RuleError."""
    path = Path(folder) / "rule.toml"
    file = _RuleFile(path)
    name = path.resolve().parent.name
    if not _ID.fullmatch(name):
        raise RuleError(
            f"the folder's name {name!r} is no id", where=Location(str(path)), hint="an id is small letters, digits, _"
        )
    file.only(_KEYS, file.data)
    rows = file.choice("rows", tuple(docs), "activities")
    columns = {column.name: column for column in docs[rows]}
    define = _define(file, columns)
    after_match = file.choice("after_match", AFTER_MATCH, SKIP_PAST_LAST_ROW)
    saving = file.choice("saving", SAVINGS)
    match = _match(file, define, rows, after_match) if "match" in file.data else ()
    pattern = _pattern(file, define, after_match) if "pattern" in file.data or not match else None
    variables = _all_used(file, define, pattern, match)
    return Rule(
        id=name,
        title=file.text("title"),
        what=file.text("what"),
        why=file.text("why"),
        fix=file.text("fix"),
        advice=_advice(file),
        limits=tuple(file.texts("limits", ())),
        false_positives=tuple(file.texts("false_positives", ())),
        references=tuple(file.texts("references", ())),
        needs=tuple(file.texts("needs", ())),
        status=file.choice("status", STATUSES),
        rows=rows,
        priority=file.whole("priority", DEFAULT_PRIORITY),
        saving=saving,
        left=_left(file) if saving == "remove" or (saving == "fuse" and "left" in file.data) else None,
        call=file.choice("call", tuple(CALLS), "nothing" if saving == "remove" else "compiled"),
        group_by=file.choices("group_by", GROUP_BY, _DEFAULT_GROUP),
        partition_by=file.choices("partition_by", columns, [c for c in _DEFAULT_PARTITION if c in columns]),
        order_by=_order_by(file, columns),
        pattern=pattern,
        match=match,
        stays=_stays(file, match),
        after_match=after_match,
        define=define,
        measures=_measures(file, variables, columns),
        where=Location(str(path)),
    )


def _stays(file: _RuleFile, match: tuple[GraphPattern, ...]) -> tuple[str, ...]:
    """Labels of the graph patterns; something that has none of them is in each."""
    stays = file.choices("stays", dict.fromkeys(label for each in match for label in each.labels), ())
    if stays and any(set(each.labels) <= set(stays) for each in match):
        raise file.wrong("stays", "nothing is left of a match", "leave out a label of what goes")
    return stays


def _left(file: _RuleFile) -> tuple[float, float, float]:
    """The share of what was matched that stays: three numbers from 0 to 1, low, mid and high."""
    shares = file.value("left", list, "a list of three shares: low, mid and high")
    numbers = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
    if not numbers or len(shares) != 3 or not 0 <= shares[0] <= shares[1] <= shares[2] <= 1:
        raise file.wrong("left", "these are no three rising shares from 0 to 1", "left = [0.0, 0.1, 0.5]")
    low, mid, high = map(float, shares)
    return low, mid, high


def _advice(file: _RuleFile) -> tuple[Advice, ...]:
    """The texts with conditions, each `[[advice]]` in order."""
    found = []
    for table in file.value("advice", list, "a list of tables, each `[[advice]]`", []):
        if not isinstance(table, dict):
            raise file.wrong("advice", f"this is {toml_type(table)}; it must be a table", "write [[advice]]")
        file.only(("when", "text", "call", "title"), table, "advice.")
        text, when, call, title = (table.get(key) for key in ("text", "when", "call", "title"))
        if not isinstance(text, str) or not text.strip():
            raise file.wrong("advice.text", "an advice has a text", 'text = "…"')
        if not isinstance(when, dict) or not when:
            raise file.wrong("advice.when", "an advice says when it fits", "when = { compiled = true }")
        file.only((*FLAGS, *TEXTS), when, "advice.when.")
        if call is not None and call not in CALLS:
            raise file.wrong("advice.call", f"{call!r} is none of its values", nearest(str(call), tuple(CALLS)))
        if title is not None and (not isinstance(title, str) or not title.strip()):
            raise file.wrong("advice.title", "this is no title", 'title = "…"')
        wanted = {name: _wanted(file, name, value) for name, value in when.items()}
        found.append(Advice(wanted, text.strip(), call, None if title is None else title.strip()))
    return tuple(found)


def _wanted(file: _RuleFile, name: str, value: object) -> bool | tuple[str, ...]:
    """What a condition asks of a fact: that it holds or not, or that it is one of several texts."""
    if isinstance(value, bool):
        return value
    key, values = f"advice.when.{name}", [value] if isinstance(value, str) else value
    texts = isinstance(values, list) and values and all(isinstance(one, str) for one in values)
    if name in FLAGS or not texts:
        kind = "true or false" if name in FLAGS else "true, false, a string, or a list of strings"
        raise file.wrong(key, f"this is {toml_type(value)}; it must be {kind}")
    assert isinstance(values, list)  # noqa: S101 - as asked above
    known = TEXTS[name][1]
    for one in values:
        if known is not None and one not in known:
            raise file.wrong(key, f"{one!r} is none of its values", nearest(one, known))
    return tuple(values)


# --- reading with a place for every error ----------------------------------------------------------------------------


class _RuleFile:
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
        except (tomllib.TOMLDecodeError, RecursionError) as error:
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
        return self.value(key, int, "a whole number", default)

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
    """What a TOML value is, in words.

    >>> toml_type(True), toml_type({}), toml_type([1])
    ('a boolean', 'a table', 'a list')
    """
    return "a table" if isinstance(value, dict) else _TOML_TYPES.get(type(value), "a date or time")


def key_line(content: str, key: str) -> int | None:
    """The line (1-based) where a dotted key stands in TOML text, or else the nearest key around it.

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


# --- define ----------------------------------------------------------------------------------------------------------


def _define(file: _RuleFile, columns: Mapping[str, ColumnDoc]) -> dict[str, tuple[ColumnTest, ...]]:
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
            test for column, value in tests.items() for test in _tests(file, key, column, value, columns)
        )
        for column in tests:
            if impossible(test for test in define[variable] if test.column == column):
                raise file.wrong(f"{key}.{column}", "no value passes all of these tests")
    return define


def _tests(
    file: _RuleFile, variable_key: str, column: str, value: object, columns: Mapping[str, ColumnDoc]
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


def _test(file: _RuleFile, key: str, column: ColumnDoc, relation: str, operand: object) -> ColumnTest:
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
    types, words = _VALUE_TYPES[column.kind]
    values: list[Value] = []
    for value in operands:
        if type(value) not in types:
            more = ", or a list of them" if many else ""
            raise file.wrong(key, f"this is {toml_type(value)}; {column.name} is compared with {words}{more}")
        if value != value:  # NaN is the value that is not itself
            raise file.wrong(key, "nothing compares with nan")
        if relation == "contains" and not value:
            raise file.wrong(key, "every text contains the empty one")
        values.append(value)  # type: ignore[arg-type]  # its type is one of _VALUE_TYPES
    if relation == "re":
        problem = regex_problem(str(values[0]))
        if problem is not None:
            raise file.wrong(key, problem)
    return ColumnTest(column.name, relation, tuple(values))


# --- pattern, order, measures ----------------------------------------------------------------------------------------


def _pattern(file: _RuleFile, define: Mapping[str, tuple[ColumnTest, ...]], after_match: str) -> Pattern:
    text = file.text("pattern")

    def apart(one: str, other: str) -> bool:
        return exclusive(define[one], define[other])

    try:
        tree = parse(text)
        used = variables(tree)
        for variable in used:
            if variable not in define:
                raise file.wrong(
                    "pattern",
                    f"the pattern uses {variable!r}, which define does not name",
                    f"define names: {', '.join(define)}" if define else "add a [define] table",
                )
        overlapping = after_match == SKIP_TO_NEXT_ROW
        pattern = checked(tree, text=text, exclusive=apart, overlapping_matches=overlapping)
    except PatternError as error:
        raise file.wrong("pattern", error.message, error.hint) from None
    return pattern


def _match(
    file: _RuleFile, define: Mapping[str, tuple[ColumnTest, ...]], rows: str, after_match: str
) -> tuple[GraphPattern, ...]:
    if rows != "activities":
        raise file.wrong("match", f"the rows are {rows}: only operators read what others wrote", 'rows = "activities"')
    if after_match != SKIP_PAST_LAST_ROW:
        raise file.wrong("after_match", "matches of a graph pattern do not overlap", f'it is "{SKIP_PAST_LAST_ROW}"')
    texts = file.texts("match", ()) if isinstance(file.data["match"], list) else [file.text("match")]
    if not texts:
        raise file.wrong("match", "this list is empty", "write a graph pattern, or none")
    try:
        return tuple(parse_graph(text, tuple(define)) for text in texts)
    except PatternError as error:
        raise file.wrong("match", error.message, error.hint) from None


def _all_used(
    file: _RuleFile,
    define: Mapping[str, tuple[ColumnTest, ...]],
    pattern: Pattern | None,
    match: tuple[GraphPattern, ...],
) -> tuple[str, ...]:
    """What can bind a row. Raises RuleError for what define names and no pattern uses."""
    by_row = () if pattern is None else variables(pattern.tree)
    used = dict.fromkeys([*by_row, *(label for each in match for label in each.labels)])
    for variable in define:
        if variable not in used:
            raise file.wrong(
                f"define.{variable}", f"the pattern does not use {variable!r}", f"the pattern uses: {', '.join(used)}"
            )
    by_name = [name for name in define if name in by_row]
    return tuple(dict.fromkeys([*by_name, *(name for each in match for name in each.variables)]))


def _order_by(file: _RuleFile, columns: Mapping[str, ColumnDoc]) -> tuple[str, ...]:
    order_by = file.choices("order_by", columns, _DEFAULT_ORDER)
    for name in order_by:
        if columns[name].kind != "numbers":
            raise file.wrong("order_by", f"{name!r} holds {columns[name].kind}, which have no order")
    if not order_by:
        raise file.wrong("order_by", "this list is empty: a pattern needs an order")
    return order_by


def _measures(file: _RuleFile, define: Sequence[str], columns: Mapping[str, ColumnDoc]) -> tuple[Measure, ...]:
    return tuple(
        _measure(file, f"measures.{name}", name, text, define, columns) for name, text in file.table("measures").items()
    )


def _measure(
    file: _RuleFile,
    key: str,
    name: str,
    text: object,
    define: Sequence[str],
    columns: Mapping[str, ColumnDoc],
) -> Measure:
    if not isinstance(text, str):
        raise file.wrong(key, f'this is {toml_type(text)}; it must be a string such as "sum(a.dur_ns)"')
    found = _MEASURE.fullmatch(text)
    if found is None:
        raise file.wrong(key, f"{text!r} is no measure", 'write "count(a, b)" or "sum(a.dur_ns, b.dur_ns)"')
    function = found[1]
    if function not in MEASURE_FUNCTIONS:
        raise file.wrong(key, f"there is no measure {function!r}", nearest(function, MEASURE_FUNCTIONS))
    names, read = [], []
    for argument in (part.strip() for part in found[2].split(",")):
        variable, dot, column = argument.partition(".")
        if variable not in define:
            raise file.wrong(key, f"{variable!r} is not defined", f"define names: {', '.join(define)}")
        if function == "count" and dot:
            raise file.wrong(key, f"count takes variables, not {argument!r}", f"write count({variable})")
        if function != "count" and not dot:
            raise file.wrong(key, f"{function} takes a column of {variable!r}", f"write {function}({variable}.dur_ns)")
        if dot and column not in columns:
            raise file.wrong(key, f"the rows have no column {column!r}", nearest(column, columns))
        if dot and columns[column].kind != "numbers":
            raise file.wrong(key, f"{column!r} holds {columns[column].kind}; a measure needs numbers")
        names.append(variable)
        read.append(column)
    if len(set(read)) > 1:
        raise file.wrong(key, f"it reads {len(set(read))} columns; a measure reads one", "write one measure a column")
    if len(set(names)) < len(names):
        raise file.wrong(key, "it names a variable twice")
    return Measure(name, function, tuple(names), read[0] or None)
