"""What an HTML report of 100,000 activities takes: its bytes, and the seconds until it can be used in a browser.

    python -m benchmarks page [--activities 100000] [--repeat 3]

The page is one of made-up activities on four streams of two GPUs, with one finding of 14,286 occurrences. The clock
runs from the call that opens the file until a finding is chosen, the timeline is zoomed in four times, and the next
occurrence is drawn. Needs chromium and Playwright. The aims: 15 MB, 3 s.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.browser.test_report import MOST_BYTES, MOST_SECONDS, many, with_many_occurrences
from tests.report.test_html import drawn


def used(browser: Browser, file: Path) -> tuple[float, float]:
    """Return the seconds until a page is drawn, and until it was used."""
    page = browser.new_page()
    begun = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    ready = time.perf_counter() - begun
    page.click("details.finding > summary >> nth=0")
    for _ in range(4):
        page.click("[data-do=in]")
    page.click("[data-do=next]")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - begun
    page.close()
    return ready, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--activities", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "many.html"
        file.write_text(drawn(with_many_occurrences(options.activities), many(options.activities)), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        times = [used(browser, file) for _ in range(options.repeat)]
        browser.close()
        count = file.stat().st_size
    ready, seconds = (min(each) for each in zip(*times, strict=True))
    print(
        f"{options.activities:,} activities: {count / 1e6:.1f} MB (at most {MOST_BYTES / 1e6:g}), "
        f"drawn in {ready:.1f} s, used in {seconds:.1f} s (at most {MOST_SECONDS:g})"
    )
    return int(count > MOST_BYTES or seconds > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
