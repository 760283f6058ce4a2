"""The report as one HTML file: it needs no network, and a browser runs nothing in it but the script that lies here.

Everything of a trace reaches the page by Jinja2's autoescaping, or as data in which no character is markup. The policy
that the page states (Content-Security-Policy) allows this script and this style by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TextIO

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from tracemine.report.escape import line, spans
from tracemine.report.html.data import findings_json
from tracemine.report.html.page import mark, page
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Scan, Source
    from tracemine.report import Drawing

__all__ = ["fragment", "page_text", "render", "render_all"]

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
    """Write the whole page, with all findings; with all that a picture has, where there is one."""
    render_all([(scan, options)], out)


def render_all(given: Sequence[tuple[Scan, Drawing]], out: TextIO) -> None:
    """Write one page of several scans, one below the other."""
    shown = page([(scan, options.picture, options.frames) for scan, options in given])
    findings = findings_json(scan for scan, _ in given)
    out.write(page_text("page.html", ("page.js", "timeline.js", "report.js"), page=shown, findings_json=findings))


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


def fragment(scan: Scan, frames: Mapping[str, Source]) -> str:
    """Return the first screen of a scan with a row for all findings, for a page that another program makes."""
    return _environment().get_template("fragment.html").render(trace=page([(scan, None, frames)]).traces[0])


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
    environment.filters |= {"prose": _prose, "code": _code, "mark": mark, "breaks": _breaks}
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
