"""The HTML report in a browser: sorted, filtered, zoomed, in both themes, on a phone; no request, no error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tracemine
from tests.browser.conftest import Opened
from tests.report.scans import NORM, SCAN, VERIFIED, hostile
from tests.report.test_html import drawn, picture
from tracemine.findings.record import Scan
from tracemine.report.picture import Activities, Picture

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = [
    *sorted(path for path in (FIXTURES / "captures").iterdir() if path.is_dir()),
    *sorted((FIXTURES / "kineto").glob("*.gz")),
    *sorted((FIXTURES / "nsys").glob("*.sqlite")),
]
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>"
MOST_BYTES, MOST_SECONDS = 15_000_000, 3.0
Show = Callable[..., Opened]


@pytest.fixture(scope="module")
def prefill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a decoder: four findings, two of them with one rule's severity."""
    file = tmp_path_factory.mktemp("reports") / "prefill.html"
    tracemine.scan(FIXTURES / "captures" / "decoder_prefill").to_html(file)
    return file


def shown(page: Any) -> list[str]:
    """Ranks of the findings in the table, as they stand there."""
    return [row.get_attribute("data-rank") for row in page.query_selector_all(".findings tbody tr:not([hidden])")]


def view(page: Any) -> tuple[float, float]:
    """From where to where the timeline is shown, nanoseconds."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    begin, end = page.get_attribute("#canvas", "data-view").split()
    return float(begin), float(end)


def test_columns_sort_both_ways(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    assert shown(page) == ["1", "2", "3", "4"]
    page.click("[data-sort=gpu]")
    gpu = [int(row.get_attribute("data-gpu")) for row in page.query_selector_all(".findings tbody tr")]
    assert gpu == sorted(gpu, reverse=True)
    assert page.get_attribute("th:has([data-sort=gpu])", "aria-sort") == "descending"
    page.click("[data-sort=gpu]")
    assert [int(row.get_attribute("data-gpu")) for row in page.query_selector_all(".findings tbody tr")] == gpu[::-1]
    page.focus("[data-sort=title]")
    page.keyboard.press("Enter")
    titles = [row.get_attribute("data-title") for row in page.query_selector_all(".findings tbody tr")]
    assert titles == sorted(titles)


def test_findings_are_filtered_by_rule_severity_and_text(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    page.select_option("#rule", "launch_gap")
    assert shown(page) == ["3"]
    assert page.inner_text("#count") == "1 of 4 findings"
    page.select_option("#rule", "")
    page.select_option("#severity", "medium")
    assert shown(page) == ["3", "4"]
    assert page.is_hidden("details.finding >> nth=0")
    page.select_option("#severity", "")
    page.fill("#text", "ROTARY")
    assert shown(page) == ["2"]
    page.fill("#text", "no finding has this")
    assert shown(page) == []
    page.fill("#text", "")
    assert shown(page) == ["1", "2", "3", "4"]


def test_the_timeline_zooms_and_moves_by_wheel_dragging_and_keys(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    whole = view(page)
    box = page.query_selector("#canvas").bounding_box()
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 30)
    page.mouse.wheel(0, -300)
    zoomed = view(page)
    assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
    page.mouse.down()
    page.mouse.move(middle + 100, box["y"] + 30)
    page.mouse.up()
    dragged = view(page)
    assert dragged[0] < zoomed[0]
    assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0])
    page.focus("#canvas")
    page.keyboard.press("+")
    nearer = view(page)
    assert nearer[1] - nearer[0] == pytest.approx((dragged[1] - dragged[0]) / 2)
    page.keyboard.press("ArrowRight")
    assert view(page)[0] > nearer[0]
    page.keyboard.press("0")
    assert view(page) == whole
    page.click("[data-do=in]")
    assert view(page)[1] < whole[1]


def test_a_finding_shows_its_occurrences_in_the_timeline(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    page.select_option("#selected", index=1)
    view(page)
    assert page.get_attribute("#canvas", "data-spans") == "10"
    page.click("[data-do=next]")
    first = view(page)
    assert "occurrence 1 of 10" in page.inner_text("#under")
    page.focus("#canvas")
    page.keyboard.press("n")
    assert view(page)[0] > first[0]
    page.select_option("#selected", "")
    view(page)
    assert page.get_attribute("#canvas", "data-spans") == "0"


def test_a_link_to_a_finding_opens_it(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    mark = page.query_selector(".findings tbody tr:nth-child(2)").get_attribute("data-finding")
    page.click(f".findings a[href='#{mark}']")
    page.wait_for_selector(f"details[id='{mark}'][open]")
    page.goto(prefill.as_uri() + f"#{mark}")
    page.wait_for_selector(f"details[id='{mark}'][open]")
    assert page.is_visible(f"details[id='{mark}'] .flow")


def test_a_fix_is_copied_whole(show: Show, prefill: Path) -> None:
    opened = show(prefill)
    page = opened.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".findings a >> nth=0")
    code = page.query_selector("details[open] .copied code").text_content()
    page.click("details[open] .copy >> nth=0")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == code
    assert "def " in code


def test_a_script_in_a_name_is_shown_as_text(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "attack.html"
    file.write_text(drawn(hostile(ATTACK), picture(ATTACK)), encoding="utf-8")
    page = show(file).page
    assert ATTACK in page.inner_text(".findings tbody")
    assert page.query_selector("img") is None
    page.focus("#canvas")
    box = page.query_selector("#canvas").bounding_box()
    page.mouse.move(box["x"] + 130, box["y"] + box["height"] - 10)
    assert ATTACK in page.inner_text("#under")


def test_what_a_page_would_load_is_refused_by_its_policy(browser: Any, tmp_path: Path) -> None:
    """If a text did reach the page as markup, it would still run and load nothing."""
    file = tmp_path / "broken.html"
    text = drawn(SCAN).replace("<main>", f"<main>{ATTACK}<p style='color: red'>x</p>")
    file.write_text(text, encoding="utf-8")
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.on("dialog", lambda dialog: pytest.fail("a script ran"))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert len([line for line in refused if "Content Security Policy" in line]) >= 3
    page.close()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_every_recording_fits_each_width_and_theme(path: Path, show: Show, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    tracemine.scan(path).to_html(file)
    page = show(file).page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # opens all findings
    for width, scheme in ((1200, "light"), (1200, "dark"), (360, "light")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert light == (scheme == "light")


def test_on_a_phone_the_operators_of_a_dataflow_are_in_sight(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    page.set_viewport_size({"width": 390, "height": 800})
    page.click("details.finding > summary >> nth=0")
    page.wait_for_function("document.querySelector('details[open] .scrolls:has(.flow)').scrollLeft > 0")
    box = page.query_selector("details[open] .flow .box").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_idle_time_does_not_dazzle_in_the_dark(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    light, dark = (
        page.evaluate("getComputedStyle(document.querySelector('.bar .idle rect')).fill")
        for scheme in ("light", "dark")
        if page.emulate_media(color_scheme=scheme) is None
    )
    assert (light, dark) == ("rgb(238, 238, 238)", "rgb(58, 65, 72)")


def test_where_a_finding_is_has_a_line_each_for_source_and_module(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    tracemine.scan(FIXTURES / "kineto" / "compiled_islands.json.gz").to_html(file)
    page = show(file).page
    assert page.inner_text(".findings .place >> nth=0").split("\n") == [
        "compiled_models.py:48",
        "OptimizedModule_*.Router_*",
    ]
    tracemine.scan(FIXTURES / "nsys" / "block_graph_whole.sqlite").to_html(file)
    assert show(file).page.inner_text(".findings .place >> nth=0") == "–"


def test_the_theme_can_be_changed_and_is_kept_nowhere(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.inner_text("#theme") == "Light theme"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert page.evaluate("document.cookie + localStorage.length") == "0"


def test_paper_has_every_finding_whole(show: Show, prefill: Path) -> None:
    page = show(prefill).page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert all(one.get_attribute("open") is not None for one in page.query_selector_all("details.finding"))
    assert page.is_hidden("#filter")


def test_verdicts_and_pages_without_a_trace_are_drawn(show: Show, tmp_path: Path) -> None:
    file = tmp_path / "verdicts.html"
    file.write_text(drawn(VERIFIED), encoding="utf-8")
    page = show(file).page
    assert page.query_selector("#canvas") is None
    page.click(f".findings a[href='#{NORM.fingerprint}']")
    assert page.is_visible("text=Predicted and measured >> nth=0")


def test_without_scripts_all_findings_can_be_read(show: Show, prefill: Path, browser: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(prefill.as_uri())
    assert page.is_visible("text=scripts are switched off")
    page.click("details.finding > summary >> nth=0")
    assert page.is_visible("details.finding[open] h3 >> nth=0")
    page.close()


def many(count: int) -> Picture:
    """So many activities on four streams of two devices, with gaps, of 200 kernels with long names."""
    dice = np.random.default_rng(7)
    gap = dice.integers(0, 5_000, count)
    dur = dice.integers(500, 60_000, count)
    lane = dice.integers(0, 4, count)
    start = np.zeros(count, np.int64)
    for each in range(4):
        rows = np.flatnonzero(lane == each)
        start[rows] = np.cumsum(gap[rows] + dur[rows]) - dur[rows]
    order = np.argsort(start, kind="stable")
    return Picture(
        activities=Activities(
            begin_ns=10**18,
            base_ns=0,
            start_ns=start[order],
            dur_ns=dur[order],
            lane=lane[order],
            lanes=((0, 7), (0, 20), (1, 7), (1, 20)),
            name=dice.integers(0, 200, count),
            names=tuple(f"void at::native::kernel_{number}<{'float, ' * 60}>" for number in range(200)),
            part=dice.integers(0, 7, count),
            steps=(),
        ),
        dataflow={},
        roofline=None,
    )


def with_many_occurrences(count: int) -> Scan:
    """A scan of so many activities, of which every seventh begins an occurrence of one finding."""
    occurrences = tuple((row, row + 1, row + 2) for row in range(0, count - 3, 7))
    finding = msgspec.structs.replace(NORM, activities=occurrences, variants=())
    return msgspec.structs.replace(SCAN, findings=(finding,))


def test_a_hundred_thousand_activities_are_small_and_quick(show: Show, tmp_path: Path) -> None:
    count = 100_000
    scan = with_many_occurrences(count)
    file = tmp_path / "many.html"
    file.write_text(drawn(scan, many(count)), encoding="utf-8")
    assert file.stat().st_size <= MOST_BYTES
    begun = time.perf_counter()
    page = show(file).page
    page.select_option("#selected", index=1)
    for _ in range(4):
        page.click("[data-do=in]")
    view(page)
    page.click("[data-do=next]")
    begin, end = view(page)
    assert time.perf_counter() - begun <= MOST_SECONDS
    assert end - begin < 10_000_000
    assert page.get_attribute("#canvas", "data-spans") == str(len(scan.findings[0].activities))
