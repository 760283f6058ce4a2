"""What to do about a finding, in one line, and how much of that there is to write: read off its printed fix."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracemine.documents.words import blocks, first_sentence
from tracemine.patterns import deferred

_WORDS = 20  # characters of a sentence that says something
_FEW = 2  # statements, of which the first says what to do
_LINES = 2  # of a screen, for what to do
_COMPILES, _SETTING = " = torch.compile(", deferred(r"[\w.]+\.\w+ = \w+")
_MADE = deferred(r"(?P<names>\w+(?:, \w+)*) = ")  # by a statement that may stand on one line with others


def effort(fix: str) -> int | None:
    """Return how many lines of code a fix prints first, without comments and blank ones; None: it prints none.

    >>> effort("Do this:\\n\\n    a = 1  # one\\n    # or\\n    b = 2"), effort("Look at it.")
    (2, None)
    """
    *_, code = _lead(fix)
    return sum(1 for _ in _uncommented(code)) if code else None


def next_step(fix: str, width: int) -> str:
    """Return what to do, no wider than that as far as it can be: the sentence that leads up to code, and the code.

    Where both are too wide, a statement or two are shown alone, and of longer code the sentence does. What the first
    makes for the second is shown with it.

    >>> next_step("Fill all at once:\\n\\n    fill(tensors)     # no loop", 80)
    'Fill all at once: fill(tensors)'
    >>> next_step("Fill all at once:\\n\\n    fill(tensors)     # no loop", 20)
    'fill(tensors)'
    >>> next_step("Do it:\\n\\n    both = list(tensors)\\n    fill(both)", 40)
    'both = list(tensors); fill(both)'
    >>> next_step("Look at the line, and take what it does out of the loop. Or not.", 80)
    'Look at the line, and take what it does out of the loop'
    """
    sentence, leads, code = _lead(fix)
    said = list(_statements(code))
    if not said or (sentence and (_is_block(code) or len(said) > _FEW)):
        return sentence
    step = said[-1] if _SETTING.fullmatch(said[0]) and _COMPILES in said[-1] else said[0]
    written = next((one for one in code.splitlines() if step in one), step)
    whole = re.sub(r"\s{2,}#", "  #", written).strip()
    if "#" not in whole and _goes_on(said) and len(both := "; ".join(said)) <= _LINES * width:
        return both
    tried = (f"{sentence}: {step}" if leads else whole, whole, step)
    return next((text for text in tried if len(text) <= width), step)


def _goes_on(said: list[str]) -> bool:
    """Return whether the second of two statements, each on one line, uses what the first makes."""
    made = [_MADE.match(one) for one in said]
    if len(said) != _FEW or made[0] is None or not (made[1] or re.match(r"[\w.]+\(", said[1])):
        return False
    names = made[0]["names"].split(", ")
    anew = made[1] is not None and not {*names}.isdisjoint(made[1]["names"].split(", "))
    return not anew and any(re.search(rf"\b{name}\b", said[1]) for name in names)


def statements(fix: str) -> tuple[str, ...]:
    """Return the statements of the code that a fix prints first, each on one line, without comments."""
    return tuple(_statements(_lead(fix)[2]))


def _lead(fix: str) -> tuple[str, bool, str]:
    r"""Return the sentence that says what to do, whether it leads up to code, and that code.

    Where a paragraph leads up to code that is its last sentence, unless that is a word or two; else its first, or the
    first of all.

    >>> _lead("It is slow. Call it once a step:\n\n    f()"), _lead("Call it once. Then go.\n\n    f()")
    (('Call it once a step', True, 'f()'), ('Call it once', False, 'f()'))
    """
    first = before = ""
    for is_code, text in blocks(fix):
        if is_code:
            leads = before.endswith(":")
            last = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", before)[-1]
            said = last if leads and len(last) >= _WORDS else first_sentence(before)
            said = said if len(said) >= _WORDS else first_sentence(first)
            return said.rstrip(".:"), leads, text
        first = first or text
        before = text if not before or text.endswith(":") else before
    return first_sentence(before).rstrip("."), False, ""


def _is_block(code: str) -> bool:
    """Return whether code goes on below a line that ends with a colon: a function, a loop."""
    lines = list(_uncommented(code))
    return any(one.endswith(":") for one in lines) and len(lines) > _FEW


def _uncommented(code: str) -> Iterator[str]:
    for one in code.splitlines():
        if text := re.sub(r"(^|\s\s)\s*#.*$", "", one).rstrip():
            yield text


def _statements(code: str) -> Iterator[str]:
    """Yield statements, each on one line: with what its brackets hold, a decorator with what it decorates; no import.

    >>> list(_statements("import a\\nb = f(\\n    1, 2)\\n@c\\ndef d(): ..."))
    ['b = f(1, 2)', '@c def d(): ...']
    """
    whole = ""
    for one in _uncommented(code):
        text = one.strip()
        glue = "" if not whole or whole.endswith(("(", "[", "{")) else " "
        whole += glue + text
        if whole.startswith("@") and glue == "" and text == whole:
            continue
        if sum(map(whole.count, "([{")) > sum(map(whole.count, ")]}")) or whole.endswith(":"):
            continue
        if not whole.startswith(("import ", "from ")):
            yield whole
        whole = ""
    if whole:
        yield whole
