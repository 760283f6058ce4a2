"""Source diffs, applied to a copy of the user's source that a process imports in its place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tracemine.programs import program, run

_LEFT_OUT = shutil.ignore_patterns(".*", "venv", "__pycache__", "node_modules", "*.pt", "*.safetensors")
_MOST_FILES = 20_000
_LIMIT_S = 60.0


@contextmanager
def edited(source: Path, diffs: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Give the folder to import from, and why not where a diff does not fit: a copy, gone at the end.

    Without diffs it is the folder itself.
    """
    if not diffs:
        yield source, ""
    elif sum(1 for _ in source.rglob("*")) > _MOST_FILES:
        yield source, f"{source} holds more than {_MOST_FILES:,} files: give the folder of the program alone"
    else:
        with tempfile.TemporaryDirectory(prefix="tracemine-source-") as made:
            copy = Path(shutil.copytree(source, Path(made) / "source", ignore=_LEFT_OUT, symlinks=True))
            yield copy, "; ".join(why for diff in diffs if (why := _refusal(copy, diff)))


def _refusal(folder: Path, diff: Path) -> str:
    """Apply a diff; return why it does not fit, "" where it does."""
    git = program("git")
    if git is None:
        return "git is not installed, which applies diffs"
    done = run((git, "-C", str(folder), "apply", "--whitespace=nowarn", str(diff)), _LIMIT_S)
    said = done.stderr.strip().splitlines() or ["git did not apply it"]
    return f"{diff.name}: {said[0][:200]}" if done.returncode else ""
