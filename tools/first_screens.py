"""Print the first screen of every fixture, or of all traces below given folders, and say which are too large.

    python tools/first_screens.py                 of all fixtures
    python tools/first_screens.py --brief DIR …   a line a trace: lines, columns, rows without a line of the user's

Exit code 1 where one has more than 24 lines or 100 columns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.cells import cell_len  # noqa: E402

from tracemine.documents.own_code import DeeperFrames  # noqa: E402
from tracemine.documents.screen import Screen, first_screen  # noqa: E402
from tracemine.errors import TracemineError  # noqa: E402
from tracemine.findings import Scan  # noqa: E402
from tracemine.formats.discover import traces  # noqa: E402
from tracemine.pipeline import Analysis, analyse, mined  # noqa: E402
from tracemine.report import Drawing, render  # noqa: E402

MOST_LINES, MOST_COLUMNS = 24, 100


@dataclass(frozen=True)
class Measured:
    """The screen of a trace: its text and its size, and the scan that it shows."""

    path: Path
    scan: Scan
    text: str
    screen: Screen
    stacks: bool

    @property
    def lines(self) -> int:
        """Of the text."""
        return len(self.text.splitlines())

    @property
    def columns(self) -> int:
        """Of the widest line."""
        return max(map(cell_len, self.text.splitlines()), default=0)

    @property
    def over(self) -> bool:
        """Whether it is no screen."""
        return self.lines > MOST_LINES or self.columns > MOST_COLUMNS

    @property
    def lineless(self) -> bool:
        """Whether stacks were recorded, and a row names none of the user's lines."""
        return self.stacks and bool(self.screen.rows) and not self.screen.own


def measured(path: Path) -> Measured:
    """The first screen of a trace, as `tracemine scan` prints it. Raises TracemineError where it cannot be read."""
    analysis = analyse(path)
    return shown(path, analysis, mined(analysis))


def shown(path: Path, analysis: Analysis, scan: Scan) -> Measured:
    """The first screen of a trace that was scanned."""
    frames = DeeperFrames(scan, analysis.timeline)
    out = StringIO()
    render("text", scan, out, Drawing(width=MOST_COLUMNS, whole=False, frames=frames))
    stacks = scan.recorded is not None and scan.recorded.stacks and analysis.timeline.stacks.num_rows > 0
    return Measured(path, scan, out.getvalue(), first_screen(scan, frames), stacks)


def every(places: Sequence[str]) -> Iterator[Path]:
    """Every trace below some folders, each once."""
    seen: set[Path] = set()
    for place in places:
        for path in traces(place, None):
            if path not in seen and not isinstance(path, TracemineError):
                seen.add(path)
                yield path


def main(arguments: Sequence[str]) -> int:
    """Print the screens, or a line each, and a sum."""
    brief, places = "--brief" in arguments, [one for one in arguments if one != "--brief"]
    count = over = lineless = 0
    for path in every(places or [str(ROOT / "fixtures")]):
        try:
            one = measured(path)
        except TracemineError as error:
            print(f"{path}: {error}")
            continue
        count, over, lineless = count + 1, over + one.over, lineless + one.lineless
        if not brief:
            print(f"\n{one.text}")
        marks = f"{' OVER' if one.over else ''}{' no line of the user' if one.lineless else ''}"
        print(f"{one.lines:>3} lines {one.columns:>4} columns {len(one.screen.rows)} rows  {path}{marks}")
    print(f"{count} screens, {over} over {MOST_LINES} × {MOST_COLUMNS}, {lineless} with stacks and no line of the user")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
