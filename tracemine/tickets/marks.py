"""The hidden lines by which a ticket is found again, in a body of Markdown.

    <!-- tracemine: decoder/80c2800cc9860f75 -->
    <!-- tracemine-also: decoder/1e8ccff5fdca1f02 -->
    <!-- tracemine-state: 3 saves 236000 of 292365 a step -->
    (the text)
    <!-- tracemine-end -->

In the first line `redacted` stands behind the key of a ticket with pseudonyms. A line counts where it is a whole line.
Nothing that a trace says can be one: the text is written by markdown.py, which lets no `<!--` through. What people
write before and after these lines is kept.
"""

from __future__ import annotations

import re
from typing import Literal

from tracemine.errors import UsageError
from tracemine.patterns import deferred
from tracemine.tickets.record import Figures, TicketMark

MOST_ALIASES = 8
_PROJECT = deferred(r"[A-Za-z0-9](?:[A-Za-z0-9._]|-(?!-)){0,62}", re.ASCII)
_IDENTITY = deferred(r"[0-9a-f]{16}", re.ASCII)
_KEY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}/[0-9a-f]{16}"
_LINE = deferred(rf"^<!-- tracemine: ({_KEY})( redacted)? -->[ \t]*\r?$", re.MULTILINE)
_ALSO = deferred(rf"^<!-- tracemine-also: ({_KEY}(?: {_KEY})*) -->[ \t]*\r?$", re.MULTILINE)
_STATE = deferred(
    r"^<!-- tracemine-state: (\d{1,9})(?: saves (\d{1,24}) of (\d{1,24}) a (step|trace|fleet))? -->[ \t]*\r?$",
    re.MULTILINE,
)
_OF: dict[str, Literal["step", "trace", "fleet"]] = {"step": "step", "trace": "trace", "fleet": "fleet"}
END_LINE = "<!-- tracemine-end -->"  # at the end of a ticket's text
_KEPT = "Tracemine kept what follows: the hidden line that ends its own text was deleted here."
_END = deferred(rf"^{END_LINE}[ \t]*\r?$", re.MULTILINE)
_COMMENT = deferred(rf"^<!-- tracemine-comment: ({_KEY}) (\d{{1,9}}) -->[ \t]*\r?$", re.MULTILINE)


def key_of(project: str, identity: str) -> str:
    """Return the key of a finding of a project. Raises UsageError where either is none.

    >>> key_of("decoder", "80c2800cc9860f75")
    'decoder/80c2800cc9860f75'
    """
    check_project(project)
    if not _IDENTITY.fullmatch(identity):
        raise UsageError(f"a finding's identity has 16 hex digits, and {identity[:40]!a} has not")
    return f"{project}/{identity}"


def check_project(project: str) -> None:
    """Raises UsageError for a label that cannot stand in a key."""
    if not _PROJECT.fullmatch(project):
        raise UsageError(
            f"--project: {project[:80]!r} is no label",
            hint="a label has up to 63 letters, digits, dots, underscores and single hyphens, and begins with neither",
        )


def mark_lines(mark: TicketMark) -> str:
    """Return the lines at the beginning of a ticket's text.

    >>> print(mark_lines(TicketMark("decoder/80c2800cc9860f75", (), Figures(236_000, 292_365, "step"), 3)))
    <!-- tracemine: decoder/80c2800cc9860f75 -->
    <!-- tracemine-state: 3 saves 236000 of 292365 a step -->
    """
    lines = [f"<!-- tracemine: {mark.key}{' redacted' * mark.redacted} -->"]
    if mark.aliases:
        lines.append(f"<!-- tracemine-also: {' '.join(mark.aliases)} -->")
    return "\n".join([*lines, _state_line(mark)])


def _state_line(mark: TicketMark) -> str:
    figures = mark.figures
    says = f" saves {figures.saving_ns} of {figures.measured_ns} a {figures.of}" if figures else ""
    return f"<!-- tracemine-state: {mark.revision}{says} -->"


def mark_in(body: str) -> TicketMark | None:
    """Return the mark that a body carries; None: it is no ticket of ours."""
    found = _LINE.search(body)
    if found is None:
        return None
    ours = body[found.start() :]
    also, state = _ALSO.search(ours), _STATE.search(ours)
    figures = None
    if state is not None and state[2] is not None:
        figures = Figures(int(state[2]), int(state[3]), _OF[state[4]])
    return TicketMark(
        key=found[1],
        aliases=tuple(also[1].split(" "))[:MOST_ALIASES] if also else (),
        figures=figures,
        revision=int(state[1]) if state else 0,
        redacted=found[2] is not None,
    )


def with_text(body: str, text: str) -> str:
    """Return `body` with our lines, from the mark to the end, replaced; people's own lines around them stay.

    Where someone deleted the last of our lines, it is unknown where ours end: all that stood below the mark is kept
    below a line that says so.

    >>> with_text("Mine.\\n\\n<!-- tracemine: a/80c2800cc9860f75 -->\\nold\\n<!-- tracemine-end -->\\n\\nToo.", "new")
    'Mine.\\n\\nnew\\n\\nToo.'
    >>> with_text("<!-- tracemine: a/80c2800cc9860f75 -->\\n<!-- tracemine-state: 1 -->\\nold\\n\\nToo.", "new")[5:]
    'Tracemine kept what follows: the hidden line that ends its own text was deleted here.\\n\\nold\\n\\nToo.\\n'
    """
    begin = _LINE.search(body)
    if begin is None:
        return text + "\n"
    end = _END.search(body, begin.end())
    if end is None:
        below = _STATE.sub("", _ALSO.sub("", body[begin.end() :])).strip("\r\n")
        return (
            f"{body[: begin.start()]}{text}\n\n{_KEPT}\n\n{below}\n" if below else body[: begin.start()] + text + "\n"
        )
    return body[: begin.start()] + text + body[end.end() :]


def with_state(body: str, mark: TicketMark) -> str:
    """Return `body` with another revision and other figures, and nothing else changed.

    >>> old = "<!-- tracemine: a/80c2800cc9860f75 -->\\r\\n<!-- tracemine-state: 1 -->\\r\\ntext"
    >>> with_state(old, TicketMark("a/80c2800cc9860f75", revision=2))
    '<!-- tracemine: a/80c2800cc9860f75 -->\\r\\n<!-- tracemine-state: 2 -->\\r\\ntext'
    """
    begin = _LINE.search(body)
    if begin is None:
        return body
    state = _STATE.search(body, begin.end())
    if state is None:
        return f"{body[: begin.end()]}\n{_state_line(mark)}{body[begin.end() :]}"
    line_end = "\r" if state[0].endswith("\r") else ""
    return body[: state.start()] + _state_line(mark) + line_end + body[state.end() :]


def comment_line(key: str, revision: int) -> str:
    """Return the hidden line of a comment: what was written to which ticket."""
    return f"<!-- tracemine-comment: {key} {revision} -->"


def comment_in(body: str, key: str) -> int | None:
    """Return which revision a comment is about; None: it is no comment of ours on this ticket."""
    found = _COMMENT.search(body)
    return int(found[2]) if found is not None and found[1] == key else None
