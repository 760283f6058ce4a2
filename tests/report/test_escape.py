"""Escaping, against the renderers that it is for."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tracemine.report.escape import code, code_cell, json_text, line, prose

NASTY = st.text(alphabet=st.sampled_from("ab `|\\*_[]()<>#@!~&;:/.-+=1\n\t\x1b\u202e\u2028é漢"), max_size=40)


@given(NASTY)
def test_a_code_span_shows_its_text_and_is_one_span(text: str) -> None:
    shown = line(text).strip()
    tokens = MarkdownIt("commonmark").renderInline(f"a {code(text)} b")
    if shown:
        inside = tokens.removeprefix("a <code>").removesuffix("</code> b")
        plain = inside.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
        assert plain == shown
    else:
        assert tokens == "a  b"


@given(NASTY)
def test_a_cell_of_code_is_one_cell(text: str) -> None:
    html = MarkdownIt("commonmark").enable("table").render(f"| h | i |\n|---|---|\n| {code_cell(text)} | end |")
    assert html.count("<td>") == 2
    assert "<td>end</td>" in html


@given(NASTY)
def test_prose_has_no_markup_but_code(text: str) -> None:
    html = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(prose(text))
    for tag in ("<em", "<strong", "<a", "<img", "<h", "<ul", "<ol", "<li", "<blockquote", "<hr", "<s>", "<b", "<table"):
        assert tag not in html


@given(st.text(max_size=30))
def test_a_line_is_one_line_of_what_can_be_seen(text: str) -> None:
    assert len(line(text).splitlines()) <= 1
    assert len(line(text)) == len(text)


@given(st.text(max_size=30))
def test_a_line_that_is_escaped_again_stays_as_it_is(text: str) -> None:
    assert line(line(text)) == line(text)


def test_json_stays_the_same_value() -> None:
    text = "\x7f\x9b\u202e\u200b\ufeff é 漢"
    assert json.loads(json_text(json.dumps(text, ensure_ascii=False))) == text
    assert json_text(json.dumps(text, ensure_ascii=False)).isprintable()
