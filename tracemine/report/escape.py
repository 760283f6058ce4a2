"""Text from a trace made harmless for where it is put. A trace is something a stranger mails you: a kernel may be
called anything, an escape sequence that clears the screen or a mention that mails a whole company included.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

from tracemine.patterns import deferred

# Categories of characters that a reader does not see and a terminal or browser may act on: controls, format characters
# (bidirectional overrides and zero-width ones among them), lone surrogates, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SPACES = str.maketrans(dict.fromkeys("\t\n\r\v\f\x85\u2028\u2029", " "))

# A demangled template name can fill a screen; what it says of itself is at its beginning and end.
LONGEST = 400

_CODE_SPAN = deferred(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_MARKDOWN = deferred(r"([\\`*_{}\[\]<>|~$!^])")
# Each of these makes a link, a mention or a reference without any markup; U+200B in between keeps it text.
_AUTOMATIC = (
    (deferred(r"@(?=\w)"), "@&#8203;"),
    (deferred(r"(?<!&)#(?=\d)"), "#&#8203;"),
    (deferred(r"(?i)\b(gh-)(?=\d)"), r"\1&#8203;"),
    (deferred(r"(?i)(:)(?=//)"), r"\1&#8203;"),
    (deferred(r"(?i)\b(www|mailto|xmpp)(?=[.:])"), r"\1&#8203;"),
)
_TAG = deferred(r"<(?=[a-zA-Z/!?])(?!https?://[^\s<>]*>)")
_FENCE = deferred(r"^(```|~~~)")
_BLOCK = deferred(r"^(\d{0,9})([-+=#.)])(?=\s|$|[-+=#])")  # a list's item, a heading, a rule


def line(text: str, longest: int = LONGEST) -> str:
    """Return `text` on one line, every invisible character shown as U+FFFD.

    >>> line("relu\\x1b[2J\\nkernel")
    'relu\N{REPLACEMENT CHARACTER}[2J kernel'
    >>> line("a" * 50, longest=9)
    'aaaa…aaaa'
    """
    text = shorten(text, longest).translate(_SPACES)
    if text.isascii() and text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNSEEN else c for c in text)


def shorten(text: str, longest: int) -> str:
    """Return the beginning and the end of `text` with "…" between them where it has more than `longest` characters.

    >>> shorten("void at::native::elementwise_kernel<4>", 20)
    'void at::n…kernel<4>'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def code(text: str) -> str:
    """Return a Markdown code span: nothing in it is markup, a link or a mention.

    >>> code("a`b"), code("<b>@all</b>")
    ('``a`b``', '`<b>@all</b>`')
    """
    text = line(text).strip()
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def code_cell(text: str) -> str:
    """Return a code span for a table's cell: there a pipe ends the cell even inside code.

    >>> print(code_cell("a|b"))
    `a\\|b`
    """
    return code(text).replace("|", "\\|")


def fenced(text: str, language: str, longest: int = 1_000) -> str:
    """Return lines of code in a Markdown fence that nothing in them can close. longest: characters of a line.

    >>> print(fenced("a = '```'", "python"))
    ````python
    a = '```'
    ````
    """
    lines = [line(one, longest) for one in text.splitlines()]
    fence = "`" * max(3, 1 + max((len(run) for one in lines for run in re.findall("`+", one)), default=0))
    return "\n".join([f"{fence}{language}", *lines, fence])


def prose(text: str) -> str:
    """Return a sentence as Markdown: its `code` stays code, everything else is text and nothing but text.

    >>> prose("Call `torch.compile`, *not* <b>this</b>, @everyone")
    'Call `torch.compile`, \\\\*not\\\\* \\\\<b\\\\>this\\\\</b\\\\>, @&#8203;everyone'
    """
    parts = (code(part) if is_code else _plain(part) for is_code, part in spans(line(text, longest=4000).strip()))
    return _BLOCK.sub(r"\1\\\2", "".join(parts))


def spans(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a sentence, (is code, text) each.

    >>> list(spans("Call `torch.compile`."))
    [(False, 'Call '), (True, 'torch.compile'), (False, '.')]
    """
    end = 0
    for span in _CODE_SPAN.finditer(text):
        yield False, text[end : span.start()]
        yield True, span[2]
        end = span.end()
    yield False, text[end:]


def prose_cell(text: str) -> str:
    """Return a sentence for a table's cell.

    >>> print(prose_cell("a|b, `c|d`"))
    a\\|b, `c\\|d`
    """
    return re.sub(r"(?<!\\)\|", r"\\|", prose(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Return a Markdown table of cells that are harmless already. numbers: columns that stand at the right.

    >>> print(table(("", "ns"), [("a", "1")], {1}))
    |  | ns |
    |---|--:|
    | a | 1 |
    """
    below = "".join("--:|" if at in numbers else "---|" for at in range(len(heads)))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{below}", *(f"| {' | '.join(row)} |" for row in rows)])


def without_html(text: str) -> str:
    """Return a line of Markdown that its author wrote: markup stays, but for HTML, images and the fence of a block.

    >>> print(without_html("*Do* <b>this</b>, see <https://example.org> ![a](b)"))
    *Do* &lt;b>this&lt;/b>, see <https://example.org> !\\[a](b)
    """
    text = _TAG.sub("&lt;", line(text, longest=4000)).replace("![", "!\\[")
    return _FENCE.sub(r"\\\1", text)


def json_text(text: str) -> str:
    """Return JSON with the characters escaped that a terminal may act on: the same value, safe to print.

    >>> json_text('"\\x9b2J"')
    '"\\\\u009b2J"'
    """
    return _UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# Inside JSON these can only stand in strings. Left out: format characters beyond the basic plane (tags), which
# terminals do not act on.
_UNSEEN_IN_JSON = deferred("[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def _plain(text: str) -> str:
    text = _MARKDOWN.sub(r"\\\1", text.replace("&", "&amp;"))
    for pattern, replacement in _AUTOMATIC:
        text = pattern.sub(replacement, text)
    return text
