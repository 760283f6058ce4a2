"""Reports: a scan in, text out. A report draws what it is handed; it reads no file and decides nothing.

To add one: a module here with `render(scan, out, options)`, its name in REPORTS, a golden file.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.findings.record import Scan
    from tracemine.verdicts.verdict import Verdicts

REPORTS = (
    "text",
    "json",
    "markdown",
)
VERDICT_REPORTS = {"text": "verdicts", "json": "json"}  # of what `verify` came to: the module that draws each

DIFF_REPORTS = {"text": "diff_text", "json": "json", "markdown": "diff_markdown"}  # of what `diff` came to


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to draw: at most `top` findings (None: all), `width` columns, and whether colours may be used."""

    top: int | None = 10
    width: int = 100
    color: bool = False


def render(name: str, scan: Scan, out: TextIO, options: Options | None = None) -> None:
    """Write the report `name` of a scan to `out`.

    The module is imported here, so that a program which asks for JSON does not wait for what draws on terminals.
    """
    import_module(f"{__name__}.{name}").render(scan, out, options or Options())


def render_verdicts(name: str, verdicts: Verdicts, out: TextIO, options: Options | None = None) -> None:
    """Write the report `name` of verdicts to `out`; as in `render`."""
    import_module(f"{__name__}.{VERDICT_REPORTS[name]}").render(verdicts, out, options or Options())


def render_difference(name: str, difference: Difference, out: TextIO, options: Options | None = None) -> None:
    """Write the report `name` of a difference to `out`; as in `render`."""
    import_module(f"{__name__}.{DIFF_REPORTS[name]}").render(difference, out, options or Options())
