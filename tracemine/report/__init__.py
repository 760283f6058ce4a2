"""Reports: a scan in, text out. A report draws what it is handed; it reads no file and decides nothing.

To add one: a module here with `render(scan, out, options)`, its name in REPORTS, a golden file. One of another package
is found by its entry point (tracemine/plugins.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

from tracemine import plugins
from tracemine.errors import TracemineError, UsageError
from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.findings.record import Scan, Source
    from tracemine.report.picture import Picture
    from tracemine.verdicts.verdict import Verdicts

# What programs ask of single reports: whoever only scans does not wait for what words and draws.
__getattr__ = on_demand(__name__, {name: f"{__name__}.{name}" for name in ("escape", "overlay")})

REPORTS = ("text", "json", "markdown", "html")
PERFETTO = "perfetto"  # what scan draws over the trace's own file, for ui.perfetto.dev: no text
PICTURED = frozenset({"html"})  # of these, that draw more of a trace than its findings, and all traces on one page
VERDICT_REPORTS = {"text": "verdicts", "json": "json"}  # of what `verify` came to: the module that draws each

# Of what `diff` came to.
DIFF_REPORTS = {"text": "diff_text", "json": "json", "markdown": "diff_markdown", "html": "html.diff_page"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How to draw: at most `top` findings (None: all), `width` columns, and whether colours may be used.

    picture: what is drawn of the trace besides its findings; None: nothing is at hand. whole: as a text the list of
    findings, not the first screen alone. frames: the user's own lines of findings that hold none, by fingerprint.
    sides: of a difference, what was scanned before and after; none: the difference alone is at hand.
    """

    top: int | None = 10
    width: int = 100
    color: bool = False
    picture: Picture | None = None
    whole: bool = True
    frames: Mapping[str, Source] = field(default_factory=dict)
    sides: Sequence[tuple[Scan, Picture | None]] = ()


def render(name: str, scan: Scan, out: TextIO, options: Drawing | None = None) -> None:
    """Write the report `name` of a scan to `out`.

    The module is imported here, so that a program which asks for JSON does not wait for what draws on terminals.

    Raises UsageError where there is no such report, TracemineError where it is another package's and fails.
    """
    renderer(name)(scan, out, options or Drawing())


def render_page(name: str, drawn: Sequence[tuple[Scan, Drawing]], out: TextIO) -> None:
    """Write the one page of a report of PICTURED: of a scan, or of several."""
    import_module(f"{__name__}.{name}").render_all(drawn, out)


def fragment(scan: Scan, picture: Picture | None = None) -> str:
    """Return the first screen of a scan as a piece of HTML, for a notebook's cell."""
    made: str = import_module(f"{__name__}.html").fragment(scan, {} if picture is None else picture.frames)
    return made


def renderer(name: str) -> Callable[..., Any]:
    """Return what draws the report `name`: ours, or that of the plug-in of this name. Errors as `render`.

    >>> renderer("json").__module__
    'tracemine.report.json'
    """
    if name in REPORTS:
        found: Callable[..., Any] = import_module(f"{__name__}.{name}").render
        return found
    known = plugins.plugins(plugins.REPORTS)
    named = [plugin for plugin in known if plugin.name == name]
    if not named:
        names = dict.fromkeys((*REPORTS, *(plugin.name for plugin in known)))
        raise UsageError(f"there is no report {name!r}", hint=f"there are: {', '.join(names)}")
    if len(named) > 1:
        of = " and ".join(plugin.distribution for plugin in named)
        raise UsageError(f"there are several reports {name!r}: of {of}", hint="uninstall one of them")
    return _guarded(named[0])


def _guarded(plugin: plugins.Plugin) -> Callable[..., Any]:
    """Return the report of another package, whose every failure names it."""
    drawn = plugin.load()
    if not callable(drawn):
        raise plugin.error("is no function render(scan, out, options)")

    def render(scan: Scan, out: TextIO, options: Drawing) -> None:
        try:
            drawn(scan, out, options)
        except TracemineError:
            raise
        except Exception as error:
            raise plugin.error("failed", error) from error

    return render


def render_verdicts(name: str, verdicts: Verdicts, out: TextIO, options: Drawing | None = None) -> None:
    """Write the report `name` of verdicts to `out`; as in `render`."""
    import_module(f"{__name__}.{VERDICT_REPORTS[name]}").render(verdicts, out, options or Drawing())


def render_difference(name: str, difference: Difference, out: TextIO, options: Drawing | None = None) -> None:
    """Write the report `name` of a difference to `out`; as in `render`."""
    import_module(f"{__name__}.{DIFF_REPORTS[name]}").render(difference, out, options or Drawing())
