"""A browser for tests of the HTML report: the chromium of the system, driven by Playwright.

Where TRACEMINE_BROWSER=required, what is missing is an error; elsewhere these tests are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("TRACEMINE_BROWSER") == "required"


def _missing(what: str) -> Any:
    if REQUIRED:
        pytest.fail(f"TRACEMINE_BROWSER=required, and {what}")
    pytest.skip(what)


_kept: list[Any] = []  # the page of the browser that runs: a new one is a new process, and takes four times as long


# Not one for the session: while its loop runs, nothing else of this process can run one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for the tests of a module."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed: pip install -e '.[dev]'")
    executable = shutil.which("chromium")
    if executable is None:
        _missing("there is no chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        # As root, as in a container, chromium's own sandbox does not start.
        found = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield found
        _kept.clear()
        found.close()


@dataclass
class Opened:
    """A page that is open, and what went wrong in it."""

    page: Any
    file: Path
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._heard = {
            "console": lambda message: self.errors.append(message.text),
            "pageerror": lambda error: self.errors.append(str(error)),
            "dialog": lambda dialog: self.errors.append(dialog.message),
            "request": lambda request: self.requests.append(request.url.partition("#")[0]),
        }
        for event, hear in self._heard.items():
            self.page.on(event, hear)

    def end(self) -> None:
        """Hear no more: the next test opens its file in the same page."""
        for event, hear in self._heard.items():
            self.page.remove_listener(event, hear)

    def check(self) -> None:
        """Nothing was logged, and nothing but the file itself was asked for."""
        assert self.errors == []
        assert self.requests == [self.file.as_uri()]


@pytest.fixture
def show(browser: Any) -> Iterator[Any]:
    """Opens a file, one at a time; at the end nothing may have been logged or asked for."""
    opened: list[Opened] = []

    def call(file: Path, *, width: int = 1200, scheme: str = "light") -> Opened:
        page = _kept[0] if _kept else browser.new_page()
        _kept[:] = [page]
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media="null", color_scheme=scheme)
        page.mouse.move(0, 0)
        opened.append(one := Opened(page, file))
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=20_000)
        return one

    yield call
    for one in opened:
        one.end()
    for one in opened:
        one.check()
