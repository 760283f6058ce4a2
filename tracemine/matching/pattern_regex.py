"""Write a pattern as regular expressions over bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tracemine.matching.pattern import Node, Pattern, Step


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
