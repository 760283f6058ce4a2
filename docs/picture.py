"""Draw a report as a terminal shows it, for README.md and the site: docs/assets/report.svg."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

import tracemine
from tracemine.report import Drawing, render

TRACE = "fixtures/kineto/decoder_prefill.json.gz"
COLUMNS, LINES = 100, 30
WIDEST = 112  # of a line of code, which is not broken
# Rich's own template loads a font from elsewhere; this one takes a font that the reader has.
_FRAME = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace; line-height: {line_height}px; \
white-space: pre; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def picture() -> str:
    """Return the first lines of a fixture's report as SVG."""
    drawn = io.StringIO()
    with contextlib.chdir(Path(__file__).resolve().parents[1]):
        render("text", tracemine.scan(TRACE).scan, drawn, Drawing(width=COLUMNS, color=True, whole=False))
    console = Console(file=io.StringIO(), record=True, width=WIDEST)
    console.print(Text.from_ansi("\n".join(drawn.getvalue().splitlines()[:LINES])))
    return console.export_svg(
        title=f"tracemine scan {TRACE}", theme=SVG_EXPORT_THEME, code_format=_FRAME, unique_id="report"
    )
