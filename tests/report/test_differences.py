"""Differences as they are drawn: golden files, and one whose every string was chosen by an attacker."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from tests.comparison.build import RECORDED, US, gap, item, side
from tests.report.test_html import Parsed
from tracemine import diff, scan
from tracemine.comparison import Difference, compared
from tracemine.comparison.compare import with_accepted
from tracemine.report import Drawing, render_difference
from tracemine.report.html.diff_page import kernel_table

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
A, B, C, D, E, F = (digit * 16 for digit in "abcdef")
EVIL = "\x1b[2J|<img src=x onerror=alert(1)>@everyone `x` \u202e#1\nnext"


def ordinary() -> Difference:
    """One of each status but `same`, and two of that."""
    before = side(
        item(A, 150, ("aten::pow",), title="Unfused RMSNorm: LlamaRMSNorm", rule="rmsnorm_unfused", module="L.N_*"),
        item(B, 60, ("aten::copy_",), title="A copy from pageable memory", source="train.py:44 main"),
        item(C, 50, ("aten::cat",), title="Rotary embedding", module="A_*", shapes=("[1, 64]",)),
        item(D, 40, ("aten::add",), title="Chain"),
        item(E, 20, title="Another chain"),
        gap(F, 380, ("aten::mm",), title="The device waits for the host"),
        alone_us=(800, 900, 950),
    )
    after = side(
        item(B, 90, ("aten::copy_",), title="A copy from pageable memory", source="train.py:44 main"),
        item(C, 70, ("aten::cat",), title="Rotary embedding", module="A_*", shapes=("[4, 64]",)),
        item(E, 20, title="Another chain"),
        item("1" * 16, 30, ("aten::exp",), title="Softmax run as separate operators", rule="softmax_unfused"),
        gap(F, 180, ("aten::mm",), title="The device waits for the host"),
        gpu={"aten::copy_": 90, "aten::cat": 70, "aten::add": 40, "aten::mul": 20, "aten::exp": 30},
        recorded=replace(RECORDED, torch="2.11"),
        alone_us=(700, 750, 800),
        span_ns=800 * US,
        gpu_busy_ns=500 * US,
    )
    return with_accepted(compared(before, after), {B: "until the loader is rewritten"})


def evil() -> Difference:
    one = item(A, 100, (EVIL,), title=EVIL, rule=EVIL, module=EVIL, source=EVIL, shapes=(EVIL,), dtype=EVIL)
    two = item(A, 200, (EVIL,), title=EVIL, rule=EVIL, module=EVIL, source=EVIL, shapes=("other" + EVIL,))
    about: dict[str, Any] = {"trace": EVIL, "format": EVIL, "recorded": replace(RECORDED, torch=EVIL)}
    found = compared(side(one, name=EVIL, **about), side(two, name="other" + EVIL))
    return with_accepted(found, {A: EVIL})


def drawn(form: str, found: Difference, **options: object) -> str:
    out = StringIO()
    render_difference(form, found, out, Drawing(**options))  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "form", "options"),
    [
        ("diff_100.txt", "text", {}),
        ("diff_80.txt", "text", {"width": 80, "top": 2}),
        ("diff_color.txt", "text", {"color": True}),
        ("diff.md", "markdown", {"top": None}),
        ("diff.json", "json", {}),
    ],
)
def test_a_difference_is_drawn_as_it_is_kept(
    name: str, form: str, options: dict[str, object], golden: Callable[[str, str], None]
) -> None:
    golden(name, drawn(form, ordinary(), **options))


def test_an_ordinary_difference_has_every_status() -> None:
    assert set(ordinary().counts) == {"new", "worse", "fixed", "improved", "moved", "unknown", "same"}


@pytest.mark.parametrize("form", ["text", "markdown", "json", "html"])
def test_nothing_that_a_trace_says_is_acted_on(form: str) -> None:
    text = drawn(form, evil(), top=None)
    assert "\x1b" not in text
    assert "\u202e" not in text
    if form == "html":
        assert set(Parsed(text).elements) <= set(Parsed(drawn(form, ordinary())).elements)
    if form == "markdown":
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        inner = [child for token in tokens for child in token.children or ()]
        markup = {child.content for child in inner if child.type == "html_inline"}
        assert markup <= {"<br>"}
        assert {token.content.split("<summary>")[0].strip() for token in tokens if token.type == "html_block"} <= {
            "<details>",
            "</details>",
        }
        assert not {"image", "link_open"} & {child.type for child in inner}
        assert not any("@everyone" in child.content for child in inner if child.type == "text")
        assert all(line.count("|") - line.count("\\|") in (5, 7) for line in text.splitlines() if line.startswith("| "))


@pytest.mark.parametrize("form", ["text", "markdown", "json", "html"])
def test_a_difference_of_nothing_is_drawn(form: str) -> None:
    text = drawn(form, compared(side(), side()))
    assert "no findings on either side" in text or form == "json"


def test_no_line_of_text_is_wider_than_the_terminal() -> None:
    for width in (60, 80, 120):
        assert max(map(len, drawn("text", evil(), width=width).splitlines())) <= width


@pytest.mark.parametrize(
    ("basis", "word"), [("estimated", "estimated"), ("recorded", "measured"), ("captured", "measured")]
)
def test_what_rests_on_estimated_steps_is_not_called_measured(basis: str, word: str) -> None:
    found = " ".join(drawn("text", replace(ordinary(), basis=basis)).split())
    assert found.count("; estimated: ") == (word == "estimated")
    assert "less a step without the profiler" in found


def test_the_page_has_every_change_and_says_what_it_is_not_shown() -> None:
    found = ordinary()
    texts = " ".join(Parsed(drawn("html", found)).texts)
    for change in found.changes:
        assert change.title in texts and change.status in texts
    assert "Kernels stand side by side where both traces are at hand" in texts


def test_rows_of_two_tables_are_joined_by_their_names() -> None:
    both = ("decoder_prefill.json.gz", "decoder_prefill_compiled.json.gz")
    before, after = (scan(FIXTURES / name).top("kernel") for name in both)
    table = kernel_table(before, after)
    differences = [float(row[3].sorts) for row in table.rows]
    assert [abs(each) for each in differences] == sorted(map(abs, differences), reverse=True)
    whole = after.gpu_time_ns / after.steps - before.gpu_time_ns / before.steps
    assert sum(differences) == pytest.approx(whole, rel=0.01)
    for row in table.rows:
        assert float(row[2].sorts) - float(row[1].sorts) == pytest.approx(float(row[3].sorts))
    gone = next(row for row in table.rows if row[0].text == "elementwise (mul)")
    assert (gone[2].text, gone[3].text[0], gone[3].mark) == ("–", "−", "better")


def test_what_does_not_compare_has_no_tables(tmp_path: Path) -> None:
    decoder, other = (scan(FIXTURES / name) for name in ("decoder_prefill.json.gz", "convnet_train.json.gz"))
    refused, compares = diff(decoder, other).to_html(tmp_path / "diff.html"), diff(decoder, decoder).to_html()
    assert (tmp_path / "diff.html").read_text("utf-8") == refused
    assert "nothing compares: the programs have nothing in common" in refused
    assert 'id="by-kernel"' not in refused and 'id="by-kernel"' in compares
    assert [compares.count(f'id="tracemine-trace-{side}"') for side in ("before", "after")] == [1, 1]
