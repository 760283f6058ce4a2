"""The report as one HTML file: it needs no network, and a browser runs nothing in it but the script that lies here.

Everything of a trace reaches the page by Jinja2's autoescaping, or as data in which no character is markup. The policy
that the page states (Content-Security-Policy) allows this script and this style by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TextIO

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from tracemine.documents.words import blocks
from tracemine.report.escape import line, spans
from tracemine.report.html.data import findings_json, not_drawn, trace_json
from tracemine.report.html.page import mark, page
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Scan
    from tracemine.report import Drawing

__all__ = ["fragment", "page_text", "render"]

MOST_ROWS = 20  # of a fragment
_LONGEST = 4_000  # characters of a text
# Okabe and Ito's, which colour-blind readers tell apart.
_COLOURS = {
    "products": "#56b4e9",
    "attention": "#cc79a7",
    "memory_bound": "#f0e442",
    "optimizer": "#009e73",
    "other": "#bbbbbb",
    "copies": "#e69f00",
    "communication": "#d55e00",
    "idle": "#eeeeee",
}
_LONGEST_LINE = 1_000  # of code


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the whole page, with all findings; with timeline, dataflow and roofline where there is a picture."""
    picture = options.picture
    why_not = "" if picture is None else not_drawn(picture.activities)
    drawn = picture is not None and not why_not
    text = page_text(
        "page.html",
        ("page.js", "report.js"),
        page=page(scan, picture, why_not),
        findings_json=Markup(findings_json(scan)),  # noqa: S704 - no character of it is markup
        trace_json=Markup(trace_json(picture.activities)) if drawn and picture is not None else None,  # noqa: S704
    )
    out.write(text)


def page_text(template: str, scripts: Sequence[str], **given: Any) -> str:
    """Return a page of a template that extends frame.html. given: what it draws; `page` has a name and a version."""
    style, script = _text("style.css"), "".join(map(_text, scripts))
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=_hash(style),
            script_hash=_hash(script),
            **given,
        )
    )


def fragment(scan: Scan) -> str:
    """Return the head of a scan and a table of its findings, for a page that another program makes."""
    shown = page(scan, None, "")
    return _environment().get_template("fragment.html").render(page=shown)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"prose": _prose, "code": _code, "blocks": blocks, "mark": mark, "breaks": _breaks}
    environment.globals |= {"count_text": count_text, "most_rows": MOST_ROWS, "colours": _COLOURS}
    return environment


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text("utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _shown(value: Any) -> Any:
    """Return a text of a trace without any character that is not seen; it is escaped behind this."""
    return line(value, _LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Markup:
    """Return a sentence whose `code` is marked as such.

    >>> print(_prose("Call `f<T>`."))
    Call <code>f&lt;T&gt;</code>.
    """
    parts = (
        Markup("<code>{}</code>").format(part) if is_code else escape(part)
        for is_code, part in spans(line(text, _LONGEST))
    )
    return Markup("").join(parts)


def _breaks(text: str) -> Markup:
    """Return the name of a module or a file, which may break behind dots, but not before a file's ending.

    >>> print(_breaks("Net_*.Block_*"), _breaks("net.py:7"))
    Net_*.<wbr>Block_* net.py:7
    """
    return Markup(".<wbr>").join(re.split(r"\.(?!\w+:\d)", line(text, _LONGEST)))


def _code(text: str) -> Markup:
    """Return lines of code as text."""
    return Markup("\n").join(escape(line(one, _LONGEST_LINE)) for one in text.splitlines())
