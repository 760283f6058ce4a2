"""What commands read and find in a trace, worked out once in a process, for tests of what is then said of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tracemine.timeline import TABLES

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
MOST = 24  # recordings that a process keeps, those last asked for
# Of tests of what is said of findings, or done about them. How they are found, others test, each anew.
SAID = (
    *("tests/api/", "tests/browser/", "tests/cli/", "tests/comparison/", "tests/doctor/", "tests/fix/", "tests/mcp/"),
    *("tests/report/", "tests/tickets/", "tests/top/", "tests/verdicts/", "tests/verify/", "tests/test_docs.py"),
    *("tests/test_guide.py", "tests/test_redaction.py", "tests/test_same_meaning.py", "tests/test_schemas.py"),
    "tests/test_units.py",
)


def once(analyse: Callable[..., Any], mined: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What stands in for `analyse` and `mined` of tracemine/pipeline.py: a file that is written anew is read anew."""
    analyses: dict[str, Any] = {}
    scans: list[tuple[Any, Any, Any]] = []

    def analyse_once(path: Path | str, *, progress: object = None, **named: Any) -> Any:
        status = os.stat(path)  # noqa: PTH116 - a path may be a text
        key = f"{path} {status.st_ino} {status.st_mtime_ns} {status.st_size} {sorted(named.items())}"
        if key not in analyses:
            analyses[key] = analyse(path, **named)
        return analyses[key]

    def mined_once(analysis: Any, options: Any = None) -> Any:
        for known, asked, found in scans:
            if known is analysis and asked == options:
                return found
        scans.append((analysis, options, mined(analysis, options)))
        return scans[-1][2]

    return analyse_once, mined_once


def once_a_content(mined: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in for `mined`, for tests of how a trace is read: of a copy of a trace the same is found."""
    scans: list[tuple[Any, Any, Any]] = []

    def same(one: Any, other: Any) -> bool:
        return all(getattr(one.timeline, name).equals(getattr(other.timeline, name)) for name in TABLES)

    def mined_once(analysis: Any, options: Any = None) -> Any:
        for known, asked, found in scans:
            if asked == options and known.reports == analysis.reports and same(known, analysis):
                about = {"path": analysis.path, "execution_trace": analysis.execution_trace}
                return replace(found, trace=replace(found.trace, **about))
        scans.append((analysis, options, mined(analysis, options)))
        return scans[-1][2]

    return mined_once


class Kept:
    """The same for all tests of a process, of this project's recordings alone, while nothing in between is patched."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline, self._analyse, self._mined = pipeline, pipeline.analyse, pipeline.mined
        self._kept: dict[tuple[object, ...], tuple[Any, list[tuple[object, Any]]]] = {}
        self._alive: dict[int, object] = {}

    def analyse(self, path: Any, *, progress: Any = None, **named: Any) -> Any:
        """Instead of the pipeline's."""
        place = os.path.realpath(path) if isinstance(path, str | Path) and "\0" not in str(path) else ""
        if any((progress, *named.values())) or not place.startswith(f"{FIXTURES}{os.sep}"):
            return self._analyse(path, progress=progress, **named)
        key = (type(path), str(path), place, *self._parts())
        kept = self._kept.pop(key, None) or (self._analyse(path), [])
        self._kept[key] = kept
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        return kept[0]

    def mined(self, analysis: Any, options: Any = None) -> Any:
        """Instead of the pipeline's."""
        scans = next((scans for one, scans in self._kept.values() if one is analysis), None)
        if scans is None:
            return self._mined(analysis, options)
        asked = (options, self._pipeline.of_this_user(), *self._parts())
        found = next((scan for known, scan in scans if known == asked), None)
        if found is None:
            found = self._mined(analysis, options)
            scans.append((asked, found))
        return found

    def _parts(self) -> tuple[int, ...]:
        """What the pipeline calls, and the causes and plugins that it knows, by identities, which stay theirs."""
        own = vars(self._pipeline)
        found = [own["known"](), *(it for name, it in own.items() if callable(it) and name not in ("analyse", "mined"))]
        self._alive |= {id(it): it for it in found}
        return tuple(map(id, found))
