"""What an HTML report takes: its bytes, and the seconds until it can be used in a browser.

    python -m benchmarks page [--activities 100000] [--repeat 3] [TRACE ...]

A page of made-up activities on four streams of two GPUs, as many spans of the host, and one finding of 14,286
occurrences; and of each trace that is named. The clock runs from the call that opens the file until a finding is open,
the timeline is zoomed in four times, and the next occurrence is drawn. Needs chromium and Playwright. The aims: 15 MB,
3 s.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.browser.test_report import MOST_BYTES, MOST_SECONDS, many, with_many_occurrences
from tests.report.test_html import drawn
from tracemine import scan


def used(browser: Browser, file: Path) -> tuple[float, float]:
    """Return the seconds until a page is drawn, and until it was used."""
    page = browser.new_page()
    begun = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    ready = time.perf_counter() - begun
    if page.query_selector("details.finding"):
        page.click("details.finding > summary >> nth=0")
    for _ in range(4):
        page.click("[data-do=in]")
    if page.is_visible("[data-do=next]"):
        page.click("[data-do=next]")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - begun
    page.close()
    return ready, seconds


def contents(trace: Path) -> int:
    """Return the bytes of a trace, unpacked."""
    return len(gzip.decompress(trace.read_bytes())) if trace.suffix == ".gz" else trace.stat().st_size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", metavar="TRACE", nargs="*", type=Path)
    parser.add_argument("--activities", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = {f"{options.activities:,} activities": Path(folder) / "many.html"}
        made = drawn(with_many_occurrences(options.activities), many(options.activities))
        pages[f"{options.activities:,} activities"].write_text(made, encoding="utf-8")
        for number, trace in enumerate(options.traces):
            name = f"{trace.name}, {contents(trace) / 1e6:.0f} MB of JSON"
            pages[name] = Path(folder) / f"{number}.html"
            scan(trace).to_html(pages[name])
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, file in pages.items():
            ready, seconds = map(min, zip(*(used(browser, file) for _ in range(options.repeat)), strict=True))
            count = file.stat().st_size
            print(
                f"{name}: {count / 1e6:.1f} MB (at most {MOST_BYTES / 1e6:g}), "
                f"drawn in {ready:.1f} s, used in {seconds:.1f} s (at most {MOST_SECONDS:g})"
            )
            missed |= count > MOST_BYTES or seconds > MOST_SECONDS
        browser.close()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
