"""Pictures of HTML reports, to be looked at: python -m tests.browser.screenshots FOLDER [TRACE...].

Each trace, all fixtures by default, gives FOLDER/NAME-VIEW.png: light, dark, and dark at a phone's width, with every
finding open. A page wider than its window is said, and fails the call.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import tracemine
from tests.browser.test_report import RECORDINGS

_VIEWS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (390, "dark")}
_OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def main(folder: Path, traces: list[Path]) -> int:
    """Write the pictures. Return how many pages are wider than their window."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # As root, as in a container, chromium's own sandbox does not start.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        wide = sum(_taken(browser, trace, folder) for trace in traces)
        browser.close()
    return wide


def _taken(browser: Any, trace: Path, folder: Path) -> int:
    name = f"{trace.parent.name}-{trace.name.split('.')[0]}"
    file = folder / f"{name}.html"
    tracemine.scan(trace).to_html(file)
    wide = 0
    for view, (width, scheme) in _VIEWS.items():
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]")
        page.evaluate(_OPEN)
        page.screenshot(path=folder / f"{name}-{view}.png", full_page=True)
        beyond = page.evaluate(_TOO_WIDE)
        if beyond > 0:
            print(f"{name}, {view}: {beyond} pixels wider than the window")
        wide += beyond > 0
        page.close()
    return wide


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]] or RECORDINGS)))
