"""Pictures of HTML reports, to be looked at: of each file in both themes and at phone width, a finding open, in pieces.

python tools/screenshots.py OUT report.html …    draws files
python tools/screenshots.py OUT                  scans all fixtures first
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tracemine import scan

ROOT = Path(__file__).parents[1]
PIECE = 1600  # pixels: longer pictures cannot be read
VIEWS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (390, "light")}


def fixtures() -> list[Path]:
    """Recordings that are drawn: one a format and kind."""
    kinds = (ROOT / "fixtures" / kind for kind in ("captures", "memory"))
    folders = [path for kind in kinds for path in kind.iterdir() if path.is_dir()]
    return sorted(
        [*folders, *(ROOT / "fixtures" / "kineto").glob("*.gz"), *(ROOT / "fixtures" / "nsys").glob("*.sqlite")]
    )


def drawn(out: Path) -> list[Path]:
    """A report of each fixture."""
    made = []
    for path in fixtures():
        file = out / f"{path.parent.name}_{path.name.partition('.')[0]}.html"
        scan(path).to_html(file)
        made.append(file)
    return made


def main(out: Path, files: list[Path]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for file in files or drawn(out):
            for name, (width, scheme) in VIEWS.items():
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
                shoot(page, file, out / f"{file.stem}_{name}.png")
                page.close()
        browser.close()


def shoot(page: Page, file: Path, to: Path) -> None:
    page.goto(file.resolve().as_uri())
    page.wait_for_selector("html[data-ready]")
    if found := page.query_selector_all("details.finding > summary"):
        found[0].click()
    page.evaluate("scrollTo(0, 0)")
    width, height = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    for number, top in enumerate(range(0, height, PIECE), 1):
        clip = {"x": 0, "y": top, "width": width, "height": min(PIECE, height - top)}
        page.screenshot(path=to.with_stem(f"{to.stem}_{number}"), full_page=True, clip=clip)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
