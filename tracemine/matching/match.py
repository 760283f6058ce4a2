"""Matching rules against row sets: each row becomes one byte, a partition a run of bytes, and `re` does the rest.

A graph pattern is graph_match's; of a rule that has both, the row pattern is for where it is not known, or a guess,
what is read.

A row's byte encodes the set of variables it satisfies, so definitions may overlap; byte 0 is a row that satisfies
none, and also what is put between partitions, because no match can cross it. Nothing here loops over rows in Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.errors import Location, RuleError
from tracemine.matching.define import category_holds, column_holds
from tracemine.matching.graph_joins import Found, none_found
from tracemine.matching.graph_match import find_in_graph
from tracemine.matching.graph_pattern import GraphPattern
from tracemine.matching.measures import Bytes, measured
from tracemine.matching.nearest import nearest
from tracemine.matching.pattern import Node, Pattern, Step, may_match
from tracemine.matching.rule import ColumnTest, Matches, Rule
from tracemine.matching.shared import Shared
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows


def search_regex(
    pattern: Pattern, alphabet: Mapping[str, bytes], *, overlapping_matches: bool = False
) -> re.Pattern[bytes]:
    """Finds matches: one group around the whole. `alphabet` has each variable's bytes; byte 0 is no variable's.

    >>> from tracemine.matching.pattern import checked, parse
    >>> regex = search_regex(checked(parse("a b?")), {"a": b"\\x01", "b": b"\\x02"})
    >>> regex.findall(b"\\x01\\x02\\x00\\x01")
    [b'\\x01\\x02', b'\\x01']
    """
    body = b"(" + _regex(pattern.tree, pattern, alphabet, b"") + b")"
    return re.compile(b"(?=" + body + b")" if overlapping_matches else body, re.DOTALL)


def binding_regex(pattern: Pattern, alphabet: Mapping[str, bytes]) -> re.Pattern[bytes]:
    """Return a regex that matches exactly the rows of one match: group n + 1 has the rows of step n.

    The parse it finds is the search's own: the search took the first parse, in order of preference, that succeeded; an
    earlier one of the same length would have succeeded there too.
    """
    return re.compile(_regex(pattern.tree, pattern, alphabet, b"("), re.DOTALL)


def _regex(node: Node, pattern: Pattern, alphabet: Mapping[str, bytes], group: bytes) -> bytes:
    if isinstance(node, Step):
        step = _step_regex(node, pattern, alphabet[node.variable])
        return group + step + b")" if group else step
    parts = [_regex(part, pattern, alphabet, group) for part in node.parts]
    return b"(?:" + b"|".join(parts) + b")" if node.one_of else b"".join(parts)


def _step_regex(step: Step, pattern: Pattern, letters: bytes) -> bytes:
    rows = _class(letters)
    hold = b"+" if step.number in pattern.possessive else b""
    if step.number in pattern.anchored:
        # Not between two rows of the run. After the first row, so that `re` still skips to rows that may start a match.
        run = rows + b"(?<!" + rows + rows + b")" + rows + b"{%d,}+" % max(step.low - 1, 0)
        return run if step.low else b"(?:" + run + b")?"
    if step.high == step.low:
        return rows if step.low == 1 else rows + b"{%d}" % step.low
    if step.low == 0:
        counts = b"*" if step.high is None else b"?" if step.high == 1 else b"{0,%d}" % step.high
        return rows + counts + hold
    # The first row apart: `re` skips quickly to a row that may start a match only where that row is not repeated.
    more = b"" if step.high is None else b"%d" % (step.high - 1)
    return rows + rows + b"{%d,%s}" % (step.low - 1, more) + hold


def _class(letters: bytes) -> bytes:
    if not letters:
        return rb"[^\x00-\xff]"  # no row of these satisfies the variable
    return b"[" + b"".join(b"\\x%02x" % letter for letter in letters) + b"]"


BLOCK_ROWS: Final = 1 << 18  # rows symbolised, and bytes searched, at a time: what a core's cache holds
_LETTERS: Final = 256


def mine(rows_by_kind: Mapping[str, Rows], rules: Iterable[Rule]) -> list[Matches]:
    """Return all matches of every rule that is not deprecated, lower priority number first, ties by id.

    Raises RuleError where a rule reads a row set or column that is not there.

    >>> mine({}, ())
    []
    """
    shared = {kind: Shared(rows) for kind, rows in rows_by_kind.items()}
    found = []
    for rule in sorted(rules, key=lambda rule: (rule.priority, rule.id)):
        if rule.status == "deprecated":
            continue
        if rule.rows not in rows_by_kind:
            raise RuleError(
                f"there are no rows of {rule.rows!r} here",
                where=Location(rule.where.path, rule.where.line, "rows"),
                hint=f"there are: {', '.join(rows_by_kind)}",
            )
        found.append(find(rule, rows_by_kind[rule.rows], shared[rule.rows]))
    return found


def find(rule: Rule, rows: Rows, shared: Shared | None = None, *, without: BoolArray | None = None) -> Matches:
    """Return all matches of one rule; `shared` is what other rules have asked of the rows, where it is at hand.

    Rows that `without` marks satisfy no variable: they stay where they are, and no match crosses them.

    Raises RuleError where the rule reads a column that the rows do not have, or has so many variables that the rows
    satisfy more than 255 different sets of them.
    """
    _check_columns(rule, rows)
    shared = shared or Shared(rows)
    part = none_found(0)
    for graph_pattern in rule.match:
        part = _merged(part, _in_graph(rule, graph_pattern, shared, _with(without, part.rows, rows.count)))
    if rule.pattern is not None:
        by_order = _in_rows(rule, rule.pattern, shared, _with(without, part.rows, rows.count))
        part = _merged(part, _not_told(by_order, rows)) if rule.match else by_order
    measures, unknown = measured(rule, rows, part.rows, part.offsets, part.variables)
    evidence = part.evidence if rule.match else None
    return Matches(rule, part.rows, part.offsets, part.variables, measures, unknown, part.left_out, evidence)


def _in_graph(rule: Rule, pattern: GraphPattern, shared: Shared, without: BoolArray | None) -> Found:
    found = find_in_graph(pattern, rule.define, shared.rows, rule.partition_by, without=without, shared=shared)
    names = rule.variables
    place = np.array([names.index(name) for name in pattern.variables], np.uint8)
    found = replace(found, variables=place[found.variables])
    return _without_what_stays(rule, found, shared) if rule.stays else found


def _without_what_stays(rule: Rule, part: Found, shared: Shared) -> Found:
    """Return matches without the rows that have a label of `stays`, or that a variable of it binds; those of which
    nothing is left are none.
    """
    goes = np.ones(len(part.rows), np.bool_)
    for name in rule.stays if len(part.rows) else ():
        if name in rule.define:
            goes &= ~shared.passed(rule.define[name])[part.rows]
        elif name in rule.variables:  # of a rule that lacks a condition its variable may be left out, too
            goes &= part.variables != rule.variables.index(name)
    offsets = np.concatenate(([0], np.cumsum(goes)))[part.offsets]
    left = np.diff(offsets) > 0
    offsets = np.append(offsets[:-1][left], offsets[-1])
    return Found(part.rows[goes], offsets, part.variables[goes], part.evidence[left], part.left_out)


def _with(without: BoolArray | None, rows: IntArray, count: int) -> BoolArray | None:
    if not len(rows):
        return without
    found = np.zeros(count, np.bool_) if without is None else without.copy()
    found[rows] = True
    return found


def _not_told(part: Found, rows: Rows) -> Found:
    """Return matches by name and order, without those whose reads are all known: there the graph has decided."""
    if rows.graph is None or len(part.offsets) < 2:
        return part
    told = np.append(rows.graph.told, False)[rows.graph.activity_node[part.rows]]
    return part.take(np.flatnonzero(~np.logical_and.reduceat(told, part.offsets[:-1])))


def _merged(one: Found, other: Found) -> Found:
    """Return the matches of both, by their first rows."""
    if not len(one.rows) or not len(other.rows):
        few = one if len(one.rows) else other
        return replace(few, left_out=one.left_out + other.left_out)
    both = Found(
        np.concatenate((one.rows, other.rows)),
        np.concatenate((one.offsets, other.offsets[1:] + one.offsets[-1])),
        np.concatenate((one.variables, other.variables)),
        np.concatenate((one.evidence, other.evidence)),
        one.left_out + other.left_out,
    )
    return both.take(np.argsort(both.rows[both.offsets[:-1]], kind="stable"))


def _in_rows(rule: Rule, pattern: Pattern, shared: Shared, without: BoolArray | None) -> Found:
    arrangement = shared.arrangement(rule.partition_by, rule.order_by)
    define = rule.row_define
    if not may_match(pattern.tree, lambda variable: shared.may_pass(define[variable])):
        return none_found(arrangement.left_out)
    symbols, sets = _symbols(rule, define, shared.rows)
    alphabet = {
        variable: bytes(letter for letter, bound in sets.items() if bound >> bit & 1)
        for bit, variable in enumerate(define)
    }
    if not may_match(pattern.tree, lambda variable: bool(alphabet[variable])):
        return none_found(arrangement.left_out)
    if without is not None:
        symbols = np.where(without, np.uint8(0), symbols)
    if arrangement.order is not None:
        symbols = symbols[arrangement.order]
    starts, lengths, texts = _spans(rule, pattern, symbols, arrangement.bounds, alphabet)

    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    positions = np.arange(offsets[-1], dtype=np.int64)
    positions += np.repeat(starts - offsets[:-1], lengths)
    matched = positions if arrangement.order is None else arrangement.order[positions].astype(np.int64, copy=False)
    variables = _bindings(rule, pattern, symbols, positions, sets, alphabet, texts)
    by_name = np.full(len(starts), -1, np.int8)
    return Found(matched, offsets, variables, by_name, arrangement.left_out)


def _check_columns(rule: Rule, rows: Rows) -> None:
    for column in rule.columns:
        if column not in rows.columns:
            raise RuleError(
                f"the {rows.kind} rows have no column {column!r}", where=rule.where, hint=nearest(column, rows.columns)
            )


# --- partitions ------------------------------------------------------------------------------------------------------


# --- rows to bytes ---------------------------------------------------------------------------------------------------


def _symbols(rule: Rule, define: Mapping[str, tuple[ColumnTest, ...]], rows: Rows) -> tuple[Bytes, dict[int, int]]:
    """Return one byte a row, and for each byte the set of variables it encodes, as bits in define's order."""
    variables = list(define.items())
    symbols, sets = _eight(variables[:8], rows)
    for first in range(8, len(variables), 8):
        more, more_sets = _eight(variables[first : first + 8], rows)
        pairs = symbols.astype(np.uint16) << np.uint16(8) | more
        present = np.flatnonzero(np.bincount(pairs, minlength=1 << 16)).tolist()
        joined = sorted({0, *(sets[pair >> 8] | more_sets[pair & 255] << first for pair in present)})
        if len(joined) > _LETTERS:
            raise RuleError(
                f"the rows satisfy more than {_LETTERS - 1} different sets of its {len(variables)} variables; "
                "no more can be distinguished",
                where=Location(rule.where.path, rule.where.line, "define"),
                hint="define fewer variables, or variables that no row satisfies two of",
            )
        letter_of = {bound: letter for letter, bound in enumerate(joined)}
        table = np.zeros(1 << 16, np.uint8)
        for pair in present:
            table[pair] = letter_of[sets[pair >> 8] | more_sets[pair & 255] << first]
        symbols, sets = table[pairs], dict(enumerate(joined))
    return symbols, sets


def _eight(variables: Sequence[tuple[str, tuple[ColumnTest, ...]]], rows: Rows) -> tuple[Bytes, dict[int, int]]:
    """Return as _symbols for at most eight variables: the byte is the set."""
    every = (1 << len(variables)) - 1
    tests = [(1 << bit, test) for bit, (_, tests) in enumerate(variables) for test in tests]
    tables = _tables(tests, rows, every)
    compared = [(bit, test, rows.columns[test.column]) for bit, test in tests]
    compared = [(bit, test, column) for bit, test, column in compared if not isinstance(column, Categories)]

    symbols = np.empty(rows.count, np.uint8)
    seen = np.zeros(_LETTERS, np.bool_)
    for start in range(0, rows.count, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, rows.count))
        letters = np.full(block.stop - start, every, np.uint8)
        for category, table in tables:
            letters &= table[category.codes[block]]
        for bit, test, column in compared:
            passed = column_holds(test, column, block).view(np.uint8)
            letters &= passed * np.uint8(bit) | np.uint8(every ^ bit)
        symbols[block] = letters
        seen[letters] = True
    return symbols, {letter: letter for letter in np.flatnonzero(seen).tolist()}


def _tables(tests: Sequence[tuple[int, ColumnTest]], rows: Rows, every: int) -> list[tuple[Categories, Bytes]]:
    """Return for each column of categories that tests name the byte of each code: the bits whose tests hold."""
    tables: list[tuple[Categories, Bytes]] = []
    for name in dict.fromkeys(test.column for _, test in tests):
        column = rows.columns[name]
        if isinstance(column, Categories):
            table = np.full(len(column.values) + 1, every, np.uint8)
            for bit, test in tests:
                if test.column == name:
                    table[~category_holds(test, column)] &= every ^ bit
            tables.append((column, table))
    return tables


# --- bytes to spans --------------------------------------------------------------------------------------------------


def _spans(
    rule: Rule, pattern: Pattern, symbols: Bytes, bounds: IntArray, alphabet: Mapping[str, bytes]
) -> tuple[IntArray, IntArray, list[bytes]]:
    """Return where matches start, their lengths, and their bytes (only where a byte may be bound by two variables).

    One split by the pattern's own group gives text, match, text, match, … as bytes, and their lengths give the spans:
    about three times faster than asking each match for its span.
    """
    overlapping = rule.overlapping_matches
    regex = search_regex(pattern, alphabet, overlapping_matches=overlapping)
    keep = not _one_variable_a_byte(alphabet)
    inner = bounds[1:-1]
    data = (np.insert(symbols, inner, 0) if len(inner) else symbols).tobytes()
    all_starts, all_lengths, texts = [], [], []
    for at, text in _chunks(data):
        pieces = regex.split(text)
        if len(pieces) == 1:
            continue
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        # Where matches may overlap they are seen and not consumed: only the text between their starts counts.
        starts = np.cumsum(lengths[0:-1:2]) if overlapping else np.cumsum(lengths)[0:-1:2]
        all_starts.append(starts + at)
        all_lengths.append(lengths[1::2])
        if keep:
            texts.extend(pieces[1::2])
    none = np.empty(0, np.int64)
    starts = np.concatenate([none, *all_starts])
    # Before partition i stand i bytes that are no row.
    starts -= np.searchsorted(inner + np.arange(len(inner)), starts)
    return starts, np.concatenate([none, *all_lengths]), texts


def _chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the text in pieces that end after a byte 0, where no match can be cut, so that few exist at a time."""
    start = 0
    while start < len(data):
        cut = data.find(b"\0", start + BLOCK_ROWS) + 1 or len(data)
        yield start, data[start:cut]
        start = cut


# --- which variable bound each row -----------------------------------------------------------------------------------


def _one_variable_a_byte(alphabet: Mapping[str, bytes]) -> bool:
    letters = b"".join(alphabet.values())
    return len(set(letters)) == len(letters)


def _bindings(
    rule: Rule,
    pattern: Pattern,
    symbols: Bytes,
    positions: IntArray,
    sets: Mapping[int, int],
    alphabet: Mapping[str, bytes],
    texts: Sequence[bytes],
) -> Bytes:
    """Return for each matched row the position in define of its variable."""
    if _one_variable_a_byte(alphabet):
        table = np.zeros(_LETTERS, np.uint8)
        for letter, bound in sets.items():
            table[letter] = max(bound.bit_length() - 1, 0)
        return table[symbols[positions]]
    # Equal bytes are bound the same way: each distinct match is parsed once.
    regex = binding_regex(pattern, alphabet)
    names = list(alphabet)
    bits = [names.index(step.variable) for step in pattern.steps]
    parsed: dict[bytes, bytes] = {}
    for text in dict.fromkeys(texts):
        found = regex.fullmatch(text)
        if found is None:
            raise AssertionError(f"rule {rule.id}: a match that its own pattern does not match")
        names_of = bytearray(len(text))
        for step, bit in enumerate(bits, 1):
            start, end = found.span(step)
            if end - start == 1:
                names_of[start] = bit
            elif end > start:
                names_of[start:end] = bytes((bit,)) * (end - start)
        parsed[text] = bytes(names_of)
    return np.frombuffer(b"".join(map(parsed.__getitem__, texts)), np.uint8)


# --- measures --------------------------------------------------------------------------------------------------------
