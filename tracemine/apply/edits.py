"""Source diffs, applied to a copy of the user's source that a process imports in its place."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import unified_diff
from pathlib import Path
from zlib import crc32

_LEFT_OUT = shutil.ignore_patterns(".*", "venv", "__pycache__", "node_modules", "*.pt", "*.safetensors")
_LINE = re.compile(r"(?<=\n)")  # `splitlines` takes a form feed for an end too
_MOST_FILES = 20_000
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


class DoesNotFit(Exception):
    """A diff is for another source than this."""


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
        with tempfile.TemporaryDirectory(prefix="tracemine-source-", ignore_cleanup_errors=True) as made:
            copy = Path(shutil.copytree(source, Path(made) / "source", ignore=_LEFT_OUT, symlinks=True))
            yield copy, "; ".join(why for diff in diffs if (why := _refusal(copy, diff)))


def mark_of(source: Path) -> str:
    """Return a mark of a folder's Python files: another one where a file has changed."""
    mark = 0
    for folder, folders, files in os.walk(source):
        folders[:] = sorted({*folders} - _LEFT_OUT(folder, folders))
        for path in (Path(folder, name) for name in sorted(files) if name.endswith(".py")):
            with suppress(OSError):
                if not path.is_file():  # a device or a pipe
                    continue
                mark = crc32(path.read_bytes(), crc32(str(path.relative_to(source)).encode(), mark))
    return f"{mark:08x}"


def patch(source: Path, diffs: Sequence[Path]) -> str:
    """Return diffs that are applied one after another as one."""
    found = list[str]()
    with edited(source, diffs) as (copy, _):
        for name in sorted({name for diff in diffs for name, _ in _files_of(diff.read_text("utf-8"))}):
            files = [folder / name for folder in (source, copy)]
            texts = [_lines(file.read_text("utf-8")) if file.exists() else [] for file in files]
            found += unified_diff(texts[0], texts[1], f"a/{name}", f"b/{name}")
    return "".join(found)


def _refusal(folder: Path, diff: Path) -> str:
    """Apply a diff; return why it does not fit, "" where it does."""
    try:
        for file, hunks in _files_of(diff.read_text("utf-8")):
            path = (folder / file).resolve()
            if not path.is_relative_to(folder.resolve()):
                return f"{diff.name}: {file} lies outside the source"
            lines = _lines(path.read_text("utf-8")) if path.exists() else []
            for place, old, new in reversed(hunks):  # from the end on, that places stay
                at = _place_of(lines, old, place)
                lines[at : at + len(old)] = new
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(lines), "utf-8")
    except (OSError, ValueError, DoesNotFit) as error:
        return f"{diff.name}: {error}"
    return ""


Hunk = tuple[int, list[str], list[str]]


def _files_of(text: str) -> Iterator[tuple[str, list[Hunk]]]:
    """Yield each file that a unified diff changes, and its hunks: from which line on, old lines, new lines."""
    file, hunks, wanted = "", list[Hunk](), 0
    for line in _lines(text):
        if not line.strip("\r\n") and hunks and len(hunks[-1][1]) < wanted:
            line = f" {line}"  # an editor took the blank in front of an empty line
        if line.startswith("+++ "):
            if hunks:
                yield file, hunks
            file, hunks = line[4:].split("\t")[0].strip().removeprefix("b/"), []
        elif begun := _HUNK.match(line):
            hunks.append((int(begun[1]) - 1, [], []))
            wanted = int(begun[2] or 1)
        elif hunks and line[0] in " +-" and not line.startswith("--- "):
            for sign, kept in (("-", hunks[-1][1]), ("+", hunks[-1][2])):
                if line[0] in (" ", sign):
                    kept.append(line[1:])
    if not hunks:
        raise DoesNotFit("it is no unified diff")
    yield file, hunks


def _lines(text: str) -> list[str]:
    return [line for line in _LINE.split(text) if line]


def _place_of(lines: Sequence[str], old: Sequence[str], place: int) -> int:
    """Return where old lines are, next to where they are said to be. Raises DoesNotFit."""
    if not old:
        return place + 1  # lines that come after that one, with nothing around them
    found = [at for at in range(len(lines) - len(old) + 1) if list(lines[at : at + len(old)]) == list(old)]
    if not found:
        raise DoesNotFit(f"line {place + 1} is not as in the diff")
    return min(found, key=lambda at: abs(at - place))
