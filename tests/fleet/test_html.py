"""The fleet's report as a page: what it says, that nothing of a data set is markup, and how a browser shows it."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.browser.conftest import Opened, browser, show
from tests.fleet.test_report import Made, made
from tests.report.test_html import ATTACKS, Parsed
from tracemine.cli import main
from tracemine.fleet.html import days_figure, page, render
from tracemine.fleet.report import GROUPS, DayShare, report

__all__ = ["browser", "made", "show"]  # fixtures


def drawn(made: Made) -> str:
    out = StringIO()
    render(report(made.dataset.uri, price=2, by=GROUPS), out)
    return out.getvalue()


def test_the_page_says_what_the_report_says(made: Made) -> None:
    shown = page(report(made.dataset.uri, hours={"llama": 100, "vit": 10}, price=2, by=GROUPS))
    assert shown.name == "2 jobs, 4 traces"
    assert shown.causes is not None
    assert [[cell.text for cell in row][:2] for row in shown.causes.rows] == [
        ["16.0 (8.0 to 32.0)", "32"],
        ["3.0 (1.5 to 6.0)", "6"],
    ]
    assert [table.title for table in (*shown.groups, *shown.rest)] == [
        "By job", "By GPU", "By day", "The same finding in several jobs", "What is gone", "Predicted and measured",
        "Not counted: 1",
    ]  # fmt: skip
    assert [cell.text for cell in shown.rest[2].rows[0]] == [
        "llama",
        "2026-11-21 → 2026-11-22",
        "1",
        "100 ns",
        "50 ns",
        "1.00 µs → 950 ns",
    ]


def test_all_fixes_together_never_save_a_step_twice(made: Made) -> None:
    made.run("greedy", "2026-11-22", {"gap": 0.9, "norm": 0.8}, step_saving_ns=1800, step_saving_high_ns=9999)
    together = report(made.dataset.uri, hours={"greedy": 10}).together
    assert together.gpu_hours == pytest.approx(9) and together.gpu_hours_high == pytest.approx(10)  # of 2 steps of 1 µs


def test_nothing_of_a_data_set_is_markup(made: Made) -> None:
    plain = {name for name, _ in Parsed(drawn(made)).elements}
    for number, attack in enumerate(ATTACKS):
        about = {"model": attack, "gpu": attack, "uri": f"{number}{attack}"}
        made.run(f"{number}{attack}", "2026-11-22", {f"{number}{attack}": 0.5}, **about)
        made.run("x", "2026-11-22", {}, status="refused", message=f"{number}{attack}", uri=f"x{number}{attack}")
    found = Parsed(drawn(made))
    assert {name for name, _ in found.elements} == plain
    assert not [names for _, names in found.elements if any(name.startswith("on") for name in names)]
    (policy,) = [value for name, value in found.values if name == "content" and value.startswith("default-src")]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_a_day_is_a_bar_of_its_causes_and_the_least_are_together() -> None:
    given = [
        DayShare(day=f"2026-11-{day:02}", traces=3, rule=f"r{rule}", share=0.1 / (1 + rule))
        for day in range(1, 3)
        for rule in range(9)
    ]
    figure = days_figure([*given, DayShare(day="2026-11-03", traces=1, rule="", share=0)])
    assert figure.names == ("r0", "r1", "r2", "r3", "r4", "r5", "other causes")
    first, _, empty = figure.days
    assert len(first.pieces) == 7 and not empty.pieces
    assert sum(piece.height for piece in first.pieces) == pytest.approx(figure.bottom - first.pieces[-1].y, abs=0.5)
    assert first.cells[0] == "3" and first.cells[-1] == f"{0.1 / 7 + 0.1 / 8 + 0.1 / 9:.1%}"


def test_an_empty_data_set_is_a_page(tmp_path: Path) -> None:
    assert "Nothing worth fixing was found" in drawn(Made(tmp_path / "set"))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_a_browser_shows_it_and_sorts_it(
    show: Callable[..., Opened], made: Made, tmp_path: Path, width: int, scheme: str
) -> None:
    made.run("vit", "2026-11-22", {}, status="refused", uri="nightly/job00/2026-11-01/rank1.json.gz",
             message="is JSON, but not a trace: traceEvents is no list")  # fmt: skip
    assert main(["fleet", "report", made.dataset.uri, "-f", "html", "-o", str(tmp_path / "fleet.html")]) == 0
    opened = show(tmp_path / "fleet.html", width=width, scheme=scheme).page
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tables = opened.locator("table.sorted")
    assert tables.count() > 3
    assert tables.evaluate_all("all => all.every(one => one.offsetWidth <= one.parentElement.clientWidth)")
    if width > 1000:
        rules = "#causes ~ div tbody tr td:nth-child(2) code"
        by_jobs = "section[aria-labelledby=causes] [data-sort='2']"
        for order in (["gap", "cast"], ["cast", "gap"]):
            opened.click(by_jobs)
            assert opened.locator(rules).all_inner_texts() == order
        assert opened.inner_text("#theme") == ("Light theme" if scheme == "dark" else "Dark theme")
        opened.click("#theme")
        assert opened.inner_text("#theme") == ("Dark theme" if scheme == "dark" else "Light theme")
