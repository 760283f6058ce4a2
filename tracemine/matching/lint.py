"""What a rule must have beyond what loading checks: one short function a check, listed in CHECKS.

A check returns the problems it sees, each a sentence; the rule can be used all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from tracemine.errors import Location
from tracemine.files import read_file
from tracemine.matching.advice import INSERTED, PLACEHOLDER, Advice, advised, when_text
from tracemine.matching.cases import CaseResult, RuleCase, read_cases, run_case
from tracemine.matching.rule import ColumnTest, Rule
from tracemine.matching.rule_file import RULE_SIZE_LIMIT, key_line
from tracemine.ops import lookup
from tracemine.ops.infer.library import OPERATIONS
from tracemine.ops.operators import operator_names
from tracemine.patterns import deferred
from tracemine.rows.library import KINDS_OF_CAUSE

_ATEN: Final = "aten::"
# Columns with an operator, and what they leave out
_NAMED_BY: Final[Mapping[str, str]] = {"operation": _ATEN, "op": ""}
# What takes calls of one kind alone, by how a text names it; and operators of another kind that it takes the place of.
_TAKES: Final[tuple[tuple[re.Pattern[str], str, frozenset[str]], ...]] = (
    (deferred(r"channels_last|cudnn\.(benchmark|allow_tf32)|MIOPEN"), "convolution", frozenset()),
    (deferred(r"blas_library|TUNABLEOP|matmul_precision|cuda\.matmul"), "product", frozenset()),
    (deferred(r"sdpa_kernel|scaled_dot_product_attention|flex_attention"), "attention", frozenset({"bmm", "baddbmm"})),
)
# A text that has another call made in place of what was found says how to make that.
_MAKES: Final[Mapping[str, re.Pattern[str]]] = {"product": deferred(r"torch\.bmm\(|F\.linear\(")}
_LAYOUT, _TAKEN_WITH = "channels_last", "PYTORCH_MIOPEN_SUGGEST_NHWC"


def misfits(rule: Rule) -> Iterator[str]:
    """Yield what the rule's texts name that cannot take an operator that it finds, once each."""
    seen = set[tuple[str, str]]()
    for kind in sorted(_kinds(rule)):
        for operator in _operators(kind):
            for amd in (False, True):
                text = advised(rule.advice, rule.fix, {"call_class": kind, "operation": operator, "amd": amd})
                for named in _unfit(text, kind, operator, amd=amd):
                    if (named, kind) not in seen:
                        seen.add((named, kind))
                        yield f"{named!r} is advised of {operator} ({kind}), which it cannot take"


def _unfit(text: str, kind: str, operator: str, *, amd: bool) -> Iterator[str]:
    made = {each for each, pattern in _MAKES.items() if pattern.search(text)}
    for pattern, taken, besides in _TAKES:
        found = pattern.search(text)
        if found is not None and taken not in {kind, *made} and operator not in besides:
            yield found[0]
    if amd and kind == "convolution" and _LAYOUT in text and _TAKEN_WITH not in text:
        yield f"{_LAYOUT} without {_TAKEN_WITH}"


@cache
def _operators(kind: str) -> tuple[str, ...]:
    """Return every operator of a kind, without its namespace.

    >>> "addmm" in _operators("product"), "convolution_backward" in _operators("convolution")
    (True, True)
    """
    names = [name for name in operator_names() if name.startswith(_ATEN) and _kind(name) == kind]
    return tuple(name.removeprefix(_ATEN) for name in names)


def _kind(operator: str) -> str | None:
    known = lookup(operator)
    return None if known is None else OPERATIONS.get(known.op_class)


def _kinds(rule: Rule) -> frozenset[str]:
    """Return the kinds of calls that a rule finds; none where what it finds is more than calls."""
    each = [_kinds_of(tests) for tests in rule.define.values()]
    return frozenset().union(*each) if all(each) else frozenset()


def _kinds_of(tests: tuple[ColumnTest, ...]) -> frozenset[str]:
    for test in tests:
        values = [str(value) for value in test.values] if test.relation == "is" else []
        if test.column == "call_cause":
            return frozenset(kind for cause in values for kind in KINDS_OF_CAUSE.get(cause, ()))
        if test.column in _NAMED_BY:
            kinds = (_kind(_NAMED_BY[test.column] + name) for name in values)
            return frozenset(kind for kind in kinds if kind is not None)
    return frozenset()


_TODO: Final = "TODO"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a rule lacks: the check's name, the place, and a sentence."""

    rule: str
    check: str
    where: Location
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.check}]"


@dataclass(frozen=True, slots=True)
class _Linted:
    """What the checks look at; read once."""

    rule: Rule
    content: str  # of rule.toml
    cases: tuple[RuleCase, ...]
    results: tuple[CaseResult, ...]


_Found = Iterator[tuple[str | None, str]]  # key of rule.toml (None: cases.md), sentence
_Check = Callable[[_Linted], _Found]


def lint(rule: Rule) -> tuple[Problem, ...]:
    """Return every problem of one rule, in the order of CHECKS. Raises RuleError where cases.md cannot be read."""
    cases = read_cases(rule)
    content = read_file(rule.folder / "rule.toml", RULE_SIZE_LIMIT).decode()
    linted = _Linted(rule, content, cases, tuple(run_case(rule, case) for case in cases))
    return tuple(
        Problem(rule.id, check.__name__, _place(linted, key), message)
        for check in CHECKS
        for key, message in check(linted)
    )


def _place(linted: _Linted, key: str | None) -> Location:
    if key is None:
        return Location(str(linted.rule.folder / "cases.md"))
    return Location(linted.rule.where.path, key_line(linted.content, key), key)


# --- the checks ------------------------------------------------------------------------------------------------------


def a_case_matches(linted: _Linted) -> _Found:
    if not any(case.matching and not case.known_miss for case in linted.cases):
        yield None, "no case shows what the rule finds"


def a_case_is_a_near_miss(linted: _Linted) -> _Found:
    if not any(not case.matching for case in linted.cases):
        yield None, "no case shows what looks similar and is not found: a table whose expect column is blank"


def every_case_passes(linted: _Linted) -> _Found:
    for result in linted.results:
        for problem in result.problems:
            yield None, f"{result.heading}: {problem}"


def every_variable_is_shown(linted: _Linted) -> _Found:
    shown = {variable for case in linted.cases for expected in case.expected for variable in expected}
    for variable in linted.rule.found:
        if linted.cases and variable not in shown:
            key = f"define.{variable}" if variable in linted.rule.define else "match"
            yield key, f"no case expects {variable!r}"


def headings_differ(linted: _Linted) -> _Found:
    headings = [case.heading for case in linted.cases]
    for heading in dict.fromkeys(headings):
        if headings.count(heading) > 1:
            yield None, f"{heading!r} heads more than one case"


def a_stable_rule_knows_its_limits(linted: _Linted) -> _Found:
    if linted.rule.status == "stable":
        for key in ("limits", "false_positives"):
            if not getattr(linted.rule, key):
                yield key, f"a stable rule says its {key.replace('_', ' ')}"


def texts_say_different_things(linted: _Linted) -> _Found:
    seen: dict[str, str] = {}
    for key in ("title", "what", "why", "fix"):
        text = re.sub(r"\W+", " ", getattr(linted.rule, key)).strip().casefold()
        if text in seen:
            yield key, f"{key} says the same as {seen[text]}"
        seen.setdefault(text, key)


def texts_are_sentences(linted: _Linted) -> _Found:
    for key in ("what", "why"):  # a fix may end with code
        if not getattr(linted.rule, key).endswith((".", "!", "?", "`")):
            yield key, f"{key} does not end like a sentence"
    if linted.rule.title.endswith("."):
        yield "title", "a title has no full stop"


def advice_can_be_reached(linted: _Linted) -> _Found:
    """Yield an advice that asks for no more than one before it never counts; braces other than the placeholder stay."""
    before: list[Advice] = []
    for one in linted.rule.advice:
        earlier = next((each for each in before if each.when.items() <= one.when.items()), None)
        if earlier is not None:
            yield "advice.when", f"{when_text(one.when)}: never counts, what fits it fits {when_text(earlier.when)} too"
        before.append(one)
    named = (_without_names(one) for one in linted.rule.advice)
    for text in (linted.rule.fix, *named):
        for found in re.findall(r"\{[a-z_]*\}", text.replace(PLACEHOLDER, "")):
            if found != "{}":
                yield "fix", f"{found} is no placeholder: there is {PLACEHOLDER}"


def _without_names(advice: Advice) -> str:
    """Return the text without placeholders of what it asks for: one of several classes, a function that is known."""
    text = advice.text
    for name, wanted in advice.when.items():
        text = text.replace(f"{{{name}}}", "") if isinstance(wanted, tuple) else text
    for name, place in INSERTED.items():
        text = text.replace(place, "") if advice.when.get(name) is True else text
    return text


def advice_fits_every_call(linted: _Linted) -> _Found:
    """Yield what a text names that cannot take a product, a convolution or an attention that the rule finds."""
    for message in misfits(linted.rule):
        yield "fix", message


def nothing_is_left_to_do(linted: _Linted) -> _Found:
    """Yield what `rules new` wrote and was not filled in."""
    rule = linted.rule
    for key in ("title", "what", "why", "fix", "limits", "false_positives"):
        if _TODO in str(getattr(rule, key)):
            yield key, f"{key} has a {_TODO}"
    for variable, tests in rule.define.items():
        if any(_TODO in str(value) for test in tests for value in test.values):
            yield f"define.{variable}", f"{variable!r} has a {_TODO}"


def lists_hold_text(linted: _Linted) -> _Found:
    for key in ("limits", "false_positives", "references", "needs"):
        if not all(text.strip() for text in getattr(linted.rule, key)):
            yield key, f"{key} has an empty entry"


def references_are_addresses(linted: _Linted) -> _Found:
    for reference in linted.rule.references:
        if not re.fullmatch(r"https?://[^\s/]+\.[^\s]+", reference):
            yield "references", f"{reference!r} is no http address"


def repetition_is_bounded_or_explained(linted: _Linted) -> _Found:
    """Yield the reason is a comment at the pattern's line or right above it."""
    steps = () if linted.rule.pattern is None else linted.rule.pattern.steps
    unbounded = [str(step) for step in steps if step.high is None]
    line = key_line(linted.content, "pattern")
    if unbounded and line is not None:
        lines = linted.content.splitlines()
        here, above = lines[line - 1], lines[line - 2].strip() if line > 1 else ""
        if "#" not in here and not above.startswith("#"):
            yield "pattern", f"{', '.join(unbounded)} has no bound: give one, or the reason in a comment at the pattern"


CHECKS: Final[Sequence[_Check]] = (
    a_case_matches,
    a_case_is_a_near_miss,
    every_case_passes,
    every_variable_is_shown,
    headings_differ,
    a_stable_rule_knows_its_limits,
    texts_say_different_things,
    texts_are_sentences,
    advice_can_be_reached,
    advice_fits_every_call,
    nothing_is_left_to_do,
    lists_hold_text,
    references_are_addresses,
    repetition_is_bounded_or_explained,
)
