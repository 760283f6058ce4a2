"""rules/<id>/rule.toml → Rule, or a RuleError that names file, line and key and says what would be right.

A rule is data: it is read, checked against the tables below, and never evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from tracemine.errors import Location, RuleError, UsageError
from tracemine.matching.advice import Advice, FactDoc
from tracemine.matching.define import exclusive
from tracemine.matching.graph_parse import parse_graph
from tracemine.matching.graph_pattern import GraphPattern
from tracemine.matching.nearest import nearest
from tracemine.matching.parsed import parsed_rule
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
)
from tracemine.matching.rule_file import RuleFile, define_of, toml_type
from tracemine.patterns import deferred
from tracemine.rows.table import ColumnDoc
from tracemine.timeline import PRODUCERS


class Vocabulary(Struct, frozen=True, eq=False):
    """What rules may name: the columns of each row set, and the facts that advice asks for."""

    columns: Mapping[str, Sequence[ColumnDoc]]
    facts: Mapping[str, FactDoc]


DEFAULT_PRIORITY: Final = 100
_ID = deferred(r"[a-z][a-z0-9_]*")
_MEASURE = deferred(r"\s*(\w+)\s*\(([^()]*)\)\s*")
# What rule.toml may say: all of a rule but what its folder and the rows' documentation say.
_KEYS = tuple(name for name in Rule.__struct_fields__ if name not in ("id", "where", "docs"))
_DEFAULT_PARTITION = ("device", "stream")  # as far as the row set has them: a gap is a device's, not a stream's
_DEFAULT_ORDER = ("start_ns",)
_DEFAULT_GROUP = ("ops", "shapes", "dtype", "module")


def rules_directory() -> Path:
    """Return the rules that come with tracemine: inside the package when installed, next to it in a checkout.

    >>> rules_directory().name in ("rules", "_rules")
    True
    """
    package = Path(__file__).parent.parent
    installed = package / "_rules"
    return installed if installed.is_dir() else package.parent / "rules"


def load_rules(*directories: str | Path, vocabulary: Vocabulary) -> tuple[Rule, ...]:
    """Return the built-in rules and those in further directories, in the order in which they claim: priority, then id.

    A directory holds one folder a rule, or is itself one. Raises RuleError for a rule that cannot be used or an id
    that is there twice, UsageError for a directory that is not there or holds no rule.
    """
    folders: list[Path] = []
    for directory in map(Path, directories):
        if not directory.is_dir():
            raise UsageError("there is no such directory", where=Location(str(directory)))
        found = _rule_folders(directory)
        if not found:
            raise UsageError(
                "the directory holds no rule", where=Location(str(directory)), hint="a rule is DIR/<id>/rule.toml"
            )
        folders += found
    rules = {rule.id: rule for rule in _built_in(vocabulary)}
    for folder in folders:
        rule = load_rule(folder, vocabulary)
        if rule.id in rules:
            raise RuleError(
                f"a rule named {rule.id!r} is already in {rules[rule.id].folder}",
                where=rule.where,
                hint="rename the folder: an id names one rule",
            )
        rules[rule.id] = rule
    return tuple(sorted(rules.values(), key=lambda rule: (rule.priority, rule.id)))


def _built_in(vocabulary: Vocabulary) -> Sequence[Rule]:
    directory = rules_directory()
    folders = _rule_folders(directory) if directory.is_dir() else []
    return _loaded_once(tuple(map(_stamp, folders)), vocabulary)


def _stamp(folder: Path) -> tuple[Path, int, int]:
    """Return a folder with a rule, and what shows a change of its file."""
    at = (folder / "rule.toml").stat()
    return folder, at.st_mtime_ns, at.st_size


@lru_cache(maxsize=16)
def _loaded_once(stamps: tuple[tuple[Path, int, int], ...], vocabulary: Vocabulary) -> tuple[Rule, ...]:
    """Return the rules in these folders, once a process."""
    return tuple(parsed_rule(folder, vocabulary.columns) or load_rule(folder, vocabulary) for folder, *_ in stamps)


def _rule_folders(directory: Path) -> list[Path]:
    if (directory / "rule.toml").is_file():
        return [directory]
    return sorted(path.parent for path in directory.glob("*/rule.toml"))


def check_id(name: str) -> None:
    """Raises UsageError for a name that no rule can have."""
    if not _ID.fullmatch(name):
        raise UsageError(f"{name[:100]!a} is not a valid id", hint="an id is small letters, digits, _")


def load_rule(folder: str | Path, vocabulary: Vocabulary) -> Rule:
    """Load one folder of rules/. Raises RuleError."""
    path = Path(folder) / "rule.toml"
    file = RuleFile(path)
    name = path.resolve().parent.name
    if not _ID.fullmatch(name):
        raise RuleError(
            f"the folder's name {name!r} is no id", where=Location(str(path)), hint="an id is small letters, digits, _"
        )
    file.only(_KEYS, file.data)
    rows = file.choice("rows", tuple(vocabulary.columns), "activities")
    columns = {column.name: column for column in vocabulary.columns[rows]}
    define = define_of(file, columns)
    after_match = file.choice("after_match", AFTER_MATCH, SKIP_PAST_LAST_ROW)
    saving = file.choice("saving", SAVINGS)
    match = _match(file, define, rows, after_match) if "match" in file.data else ()
    pattern = _pattern(file, define, after_match) if "pattern" in file.data or not match else None
    variables = _all_used(file, define, pattern, match)
    return Rule(
        id=name,
        title=file.text("title"),
        task=file.text("task") if "task" in file.data else None,
        what=file.text("what"),
        why=file.text("why"),
        fix=file.text("fix"),
        advice=_advice(file, vocabulary.facts),
        limits=tuple(file.texts("limits", ())),
        false_positives=tuple(file.texts("false_positives", ())),
        references=tuple(file.texts("references", ())),
        needs=tuple(file.texts("needs", ())),
        producers=file.choices("producers", PRODUCERS, ("torch",)),
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
        docs=tuple(vocabulary.columns[rows]),
        unprofiled_gte_ns=_unprofiled_gte_ns(file, rows),
    )


def _unprofiled_gte_ns(file: RuleFile, rows: str) -> int:
    """Return the least that a match lasts unprofiled; only gaps have such a length."""
    least = file.whole("unprofiled_gte_ns", 0)
    if least and rows != "gaps":
        raise file.wrong("unprofiled_gte_ns", f"rows are {rows}; only gaps are estimated unprofiled", "leave it out")
    return least


def _stays(file: RuleFile, match: tuple[GraphPattern, ...]) -> tuple[str, ...]:
    """Return labels of the graph patterns; something that has none of them is in each."""
    stays = file.choices("stays", dict.fromkeys(name for each in match for name in (*each.labels, *each.variables)), ())
    if stays and any(set(each.labels) <= set(stays) for each in match):
        raise file.wrong("stays", "nothing is left of a match", "leave out a label of what goes")
    return stays


def _left(file: RuleFile) -> tuple[float, float, float]:
    """Return the share of what was matched that stays: three numbers from 0 to 1, low, mid and high."""
    shares = file.value("left", list, "a list of three shares: low, mid and high")
    numbers = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares)
    if not numbers or len(shares) != 3 or not 0 <= shares[0] <= shares[1] <= shares[2] <= 1:
        raise file.wrong("left", "these are no three rising shares from 0 to 1", "left = [0.0, 0.1, 0.5]")
    low, mid, high = map(float, shares)
    return low, mid, high


def _advice(file: RuleFile, facts: Mapping[str, FactDoc]) -> tuple[Advice, ...]:
    """Return the texts with conditions, each `[[advice]]` in order."""
    tables = file.value("advice", list, "a list of tables, each `[[advice]]`", [])
    return tuple(_one_advice(file, table, facts) for table in tables)


def _one_advice(file: RuleFile, table: object, facts: Mapping[str, FactDoc]) -> Advice:
    if not isinstance(table, dict):
        raise file.wrong("advice", f"this is {toml_type(table)}; it must be a table", "write [[advice]]")
    file.only(("when", "text", "call", "title", "task"), table, "advice.")
    when, call = table.get("when"), table.get("call")
    text = _said(file, table, "text", "an advice has a text")
    if not isinstance(when, dict) or not when:
        raise file.wrong("advice.when", "an advice says when it fits", "when = { compiled = true }")
    file.only(tuple(facts), when, "advice.when.")
    if call is not None and call not in CALLS:
        raise file.wrong("advice.call", f"{call!r} is none of its values", nearest(str(call), tuple(CALLS)))
    keys = ("title", "task")
    title, task = (_said(file, table, key, f"this is no {key}") if key in table else None for key in keys)
    wanted = {name: _wanted(file, name, value, facts[name]) for name, value in when.items()}
    return Advice(wanted, text, call, title, task)


def _said(file: RuleFile, table: Mapping[str, object], key: str, wrong: str) -> str:
    text = table.get(key)
    if not isinstance(text, str) or not text.strip():
        raise file.wrong(f"advice.{key}", wrong, f'{key} = "…"')
    return text.strip()


def _wanted(file: RuleFile, name: str, value: object, fact: FactDoc) -> bool | tuple[str, ...]:
    """Return what a condition asks of a fact: that it holds or not, or that it is one of several texts."""
    if isinstance(value, bool):
        return value
    key, values = f"advice.when.{name}", [value] if isinstance(value, str) else value
    texts = isinstance(values, list) and values and all(isinstance(value, str) for value in values)
    if not fact.text or not texts:
        kind = "true, false, a string, or a list of strings" if fact.text else "true or false"
        raise file.wrong(key, f"this is {toml_type(value)}; it must be {kind}")
    assert isinstance(values, list)  # noqa: S101 - as asked above
    for one in values:
        if fact.values is not None and one not in fact.values:
            raise file.wrong(key, f"{one!r} is none of its values", nearest(one, fact.values))
    return tuple(values)


# --- pattern, order, measures ----------------------------------------------------------------------------------------


def _pattern(file: RuleFile, define: Mapping[str, tuple[ColumnTest, ...]], after_match: str) -> Pattern:
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
    file: RuleFile, define: Mapping[str, tuple[ColumnTest, ...]], rows: str, after_match: str
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
    file: RuleFile,
    define: Mapping[str, tuple[ColumnTest, ...]],
    pattern: Pattern | None,
    match: tuple[GraphPattern, ...],
) -> tuple[str, ...]:
    """Return what can bind a row. Raises RuleError for what define names and no pattern uses."""
    by_row = () if pattern is None else variables(pattern.tree)
    used = dict.fromkeys([*by_row, *(label for each in match for label in each.labels)])
    for variable in define:
        if variable not in used:
            raise file.wrong(
                f"define.{variable}", f"the pattern does not use {variable!r}", f"the pattern uses: {', '.join(used)}"
            )
    by_name = [name for name in define if name in by_row]
    return tuple(dict.fromkeys([*by_name, *(name for each in match for name in each.variables)]))


def _order_by(file: RuleFile, columns: Mapping[str, ColumnDoc]) -> tuple[str, ...]:
    order_by = file.choices("order_by", columns, _DEFAULT_ORDER)
    for name in order_by:
        if columns[name].kind != "numbers":
            raise file.wrong("order_by", f"{name!r} holds {columns[name].kind}, which have no order")
    if not order_by:
        raise file.wrong("order_by", "this list is empty: a pattern needs an order")
    return order_by


def _measures(file: RuleFile, define: Sequence[str], columns: Mapping[str, ColumnDoc]) -> tuple[Measure, ...]:
    return tuple(
        _measure(file, f"measures.{name}", name, text, define, columns) for name, text in file.table("measures").items()
    )


def _measure(
    file: RuleFile, key: str, name: str, text: object, define: Sequence[str], columns: Mapping[str, ColumnDoc]
) -> Measure:
    if not isinstance(text, str):
        raise file.wrong(key, f'this is {toml_type(text)}; it must be a string such as "sum(a.dur_ns)"')
    found = _MEASURE.fullmatch(text)
    if found is None:
        raise file.wrong(key, f"{text!r} is no measure", 'write "count(a, b)" or "sum(a.dur_ns, b.dur_ns)"')
    function = found[1]
    if function not in MEASURE_FUNCTIONS:
        raise file.wrong(key, f"there is no measure {function!r}", nearest(function, MEASURE_FUNCTIONS))
    arguments = [_argument(file, key, function, part.strip(), define, columns) for part in found[2].split(",")]
    names, read = zip(*arguments, strict=True)
    if len(set(read)) > 1:
        raise file.wrong(key, f"it reads {len(set(read))} columns; a measure reads one", "write one measure a column")
    if len(set(names)) < len(names):
        raise file.wrong(key, "it names a variable twice")
    return Measure(name, function, names, read[0] or None)


def _argument(
    file: RuleFile, key: str, function: str, argument: str, define: Sequence[str], columns: Mapping[str, ColumnDoc]
) -> tuple[str, str]:
    """Return the variable and the column ("": none) that an argument of a measure names."""
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
    return variable, column
