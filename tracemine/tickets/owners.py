"""Whose code a line is, by GitHub's CODEOWNERS.

Rules as GitHub's documentation, "About code owners", has them: gitignore's patterns without `!`, `[a-z]` and `\\#`; the
last that matches counts, and one without owners takes them away. Unlike gitignore's, `docs/*` is what lies in docs, and
nothing further down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tracemine.errors import InputError, Location, UsageError
from tracemine.files import read_file
from tracemine.files.reading import path_in
from tracemine.patterns import deferred
from tracemine.tickets.record import Filing

_PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")  # the first that is there counts
_LARGEST_BYTES = 3 << 20  # GitHub takes no larger one
_LONGEST_PATTERN, _MOST_STARS = 1_000, 16
_OWNER = deferred(r"@[A-Za-z0-9][A-Za-z0-9_-]*(?:/[A-Za-z0-9._-]+)?|[^\s@]+@[^\s@]+\.[^\s@]+")
_NO_PATTERN = deferred(r"^!|\[|\*{3}")
_PIECE = deferred(r"\*+|\?|\\.|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CodeOwners:
    """Patterns of a repository's files, and who owns what matches them."""

    root: Path
    rules: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]

    def of(self, recorded: str) -> tuple[str, ...]:
        """Return the owners of a file as a trace names it; none of one outside the repository."""
        path = path_in(self.root, recorded)
        return () if path is None else self.of_path(path)

    def filing(self, filing: Filing, recorded: str | None) -> Filing:
        """Return how a ticket about a line is filed: for the file's owners, where it has any."""
        whom = () if recorded is None else self.of(recorded)
        return replace(filing, assignees=whom) if whom else filing

    def of_path(self, path: str) -> tuple[str, ...]:
        """Return the owners of a path from the repository's root: those of the last pattern that matches."""
        return next((owners for pattern, owners in reversed(self.rules) if pattern.fullmatch(path)), ())


def read_owners(path: Path) -> CodeOwners:
    """Return the owners that a file names, or the file of a repository whose folder is given.

    Raises UsageError where a folder has none; InputError where the file cannot be read as one.
    """
    file = path
    if path.is_dir():
        file = next((path / place for place in _PLACES if (path / place).is_file()), path / _PLACES[0])
        if not file.is_file():
            raise UsageError(f"--codeowners: {path} has none of {', '.join(_PLACES)}", hint="name the file itself")
    folder = file.absolute().parent
    root = folder.parent if folder.name in (".github", "docs") else folder
    try:
        text = read_file(file, _LARGEST_BYTES).decode()
    except UnicodeDecodeError:
        raise InputError("is no CODEOWNERS file: it is no text", where=Location(str(file))) from None
    return CodeOwners(root, tuple(owner_rules(text)))


def owner_rules(text: str) -> Iterator[tuple[re.Pattern[str], tuple[str, ...]]]:
    r"""Yield pattern and owners of each line; as on GitHub, a line that is not valid is passed over.

    >>> [owners for _, owners in owner_rules("*.py @ann @org/gpu # us\n/src/\n!no @bob\n*.c no-mail")]
    [('@ann', '@org/gpu'), ()]
    """
    for line in text.splitlines():
        pattern, *owners = re.split(r"(?<!\\)\s+", re.sub(r"(?:^|\s)#.*", "", line).strip())
        if pattern and all(_OWNER.fullmatch(one) for one in owners):
            found = matcher(pattern.replace("\\ ", " "))
            if found is not None:
                yield found, tuple(owners)


def matcher(pattern: str) -> re.Pattern[str] | None:
    """Return what matches all paths that a pattern means; None where it is none.

    >>> every = ("docs/a.md", "docs/old/b.md", "src/docs/c.md")
    >>> [[path for path in every if matcher(one).fullmatch(path)] for one in ("docs/*", "/docs/", "docs/")]
    [['docs/a.md'], ['docs/a.md', 'docs/old/b.md'], ['docs/a.md', 'docs/old/b.md', 'src/docs/c.md']]
    """
    body = pattern.strip("/")
    if not body or _NO_PATTERN.search(pattern) or pattern.count("*") > _MOST_STARS or len(pattern) > _LONGEST_PATTERN:
        return None
    parts = body.split("/")
    if len(parts) == 1 and not pattern.startswith("/"):
        parts.insert(0, "**")
    if pattern.endswith("/"):
        parts.append("**")
    *outer, last = parts
    text = "".join("(?:.*/)?" if part == "**" else f"{_segment(part)}/" for part in outer)
    text += ".+" if last == "**" else _segment(last) + ("" if last == "*" else "(?:/.*)?")
    return re.compile(text, re.DOTALL)


def _segment(part: str) -> str:
    """Return a pattern of a path's part. Stars that follow another are one."""
    found = []
    for piece in _PIECE.findall(part):
        if piece[0] == "*":
            found.append("[^/]+" if piece == part else "[^/]*")
        else:
            found.append("[^/]" if piece == "?" else re.escape(piece[-1]))
    return "".join(found)
