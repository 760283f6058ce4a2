"""What commands read and find in a trace, worked out once in a process, for those that one test runs on one trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


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
