"""Hold the code and its documentation to one language and to a size that a person can read: see docs/glossary.md."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.modules import nodes

ROOT = Path(__file__).parents[1]
CODE = sorted((ROOT / "tracemine").rglob("*.py"))
PROSE = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "reference" / "findings.md",
]
PROSE += sorted(path for folder in ("guide", "internals") for path in (ROOT / "docs" / folder).glob("*.md"))

# Words that earlier versions used for what the field calls integer, producer, consumer, dataflow, NaN, mutant.
OLD = re.compile(
    r"whole numbers?|somebody|nobody|who reads what|a number that is none|told[ _]apart|\bspoiled\b", re.IGNORECASE
)
# Variables whose names say nothing of what they hold, for every thousand lines: the count may only fall.
VAGUE, MOST_VAGUE = {"found", "one", "each", "other"}, 19
# With these a docstring of a function names what comes back, where a verb says what is done: the count may only fall.
NO_VERBS, MOST_WITHOUT = {"The", "A", "An", "What", "Whether", "Of", "One", "Which", "How", "Where", "For", "Who"}, 67
LONGEST_MODULE, LONGEST_SENTENCE, LONGEST_PAGE = 400, 40, 2000
LONGEST, MOST_DECISIONS = 60, 12
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.comprehension, ast.match_case)
LONG = {"fusion.traffic:traffic_of"}  # longer than the longest
MOST_BRANCHED = 25  # functions that decide more, which pyproject.toml names with why


def functions() -> Iterator[tuple[str, int, int]]:
    """Name, lines and decisions of each function; those inside another count by themselves."""
    for path in CODE:
        module = ".".join(path.relative_to(ROOT / "tracemine").with_suffix("").parts)
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                yield f"{module}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, sum(map(is_branch, own(node)))


def is_branch(node: ast.AST) -> bool:
    return isinstance(node, BRANCHES)


def own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from own(child)


def sentences(text: str) -> Iterator[str]:
    plain = re.sub(r"```.*?```|^\|.*$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|^[-#*] ", plain, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?:])\s+", paragraph)


def test_no_word_of_the_old_language_is_left() -> None:
    left = {str(path.relative_to(ROOT)): OLD.findall(path.read_text("utf-8")) for path in (*CODE, *PROSE)}
    assert not {path: words for path, words in left.items() if words}


def test_an_old_word_would_be_noticed() -> None:
    assert OLD.findall("Nobody knows who reads what: a whole number.") == ["Nobody", "who reads what", "whole number"]


def test_names_that_say_nothing_become_fewer() -> None:
    texts = [path.read_text("utf-8") for path in CODE]
    names = [node for path in CODE for node in nodes(path) if isinstance(node, ast.Name)]
    vague = sum(node.id in VAGUE and isinstance(node.ctx, ast.Store) for node in names)
    share = 1000 * vague / sum(text.count("\n") for text in texts)
    assert MOST_VAGUE - 1 < share <= MOST_VAGUE, "lower MOST_VAGUE where it fell"


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    documented = [
        node for path in CODE for node in nodes(path) if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
    ]
    without = [node.name for node in documented if not is_property(node) and first_word(node) in NO_VERBS]
    assert len(without) <= MOST_WITHOUT, without


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)


def first_word(node: ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").split()[0].rstrip(",")


def test_functions_and_modules_fit_in_a_head() -> None:
    assert not [path for path in CODE if path.read_text("utf-8").count("\n") > LONGEST_MODULE]
    measured = list(functions())
    assert {name for name, lines, _ in measured if lines > LONGEST} == LONG
    named = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["house"]["over-12-decisions"]
    assert {f"tracemine.{name}" for name, _, decisions in measured if decisions > MOST_DECISIONS} == {*named}
    assert len(named) <= MOST_BRANCHED


def test_sentences_and_pages_are_short() -> None:
    texts = {path: path.read_text("utf-8") for path in PROSE}
    assert not [path for path, text in texts.items() if len(text.split()) > LONGEST_PAGE]
    assert not [one for text in texts.values() for one in sentences(text) if len(one.split()) > LONGEST_SENTENCE]
