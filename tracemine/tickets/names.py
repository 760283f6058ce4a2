"""Names as a ticket may say them: no absolute path, so no user's folder; and, where asked for, pseudonyms.

A file under site-packages keeps its path from there, any other that has an absolute path keeps its name alone. A
pseudonym is the same in every ticket of a project. It is no encryption: who guesses the name can check the guess.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any

from tracemine.patterns import deferred
from tracemine.tickets.document import Block, Bullets, Code, Folded, Paragraph, Run, TicketTable

_PACKAGES = deferred(r".*[\\/](?:site|dist)-packages[\\/]")
_STANDARD = deferred(r".*[\\/]lib(?:64)?[\\/]python[\d.]+[\\/]")
_ABSOLUTE = deferred(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?[\\/]|^[A-Za-z]:|^~")
_HOMES = deferred(r"(?i)(?:^|[\\/])(?:home|users|root|\.\.)(?:[\\/]|$)|^\.\.?[\\/]")
# In a sentence: what begins at a root, and goes on through folders without spaces, but for a user's folder, whose name
# may have them.
_HOME_IN_TEXT = deferred(r"(?i)(?<![\w.])(?:[a-z]:)?[\\/]+(?:home|users)[\\/]+[^\\/\n\"'`<>|]{1,64}(?=[\\/])")
_PATH_IN_TEXT = deferred(
    r"(?<![\w./\\-])(?:file:/{0,2})?(?:[A-Za-z]:[\\/]|\\\\|~[\w.-]*[\\/]|(?:\.{1,2}[\\/])+|/)"
    r"(?:[^\s\\/:*?\"'<>|`,;()\[\]{}]+[\\/]+)+[^\s\\/:*?\"'<>|`,;()\[\]{}]*"
)
EVERYONES = frozenset({"forward", "__call__", "<lambda>", "<module>", "?"})  # functions whose names say nothing
_HELD = {Paragraph: "runs", Bullets: "items", Folded: "blocks", TicketTable: "rows"}  # what a block is made of
_SHORTEST_NAME = 4  # characters of a name that is looked for in sentences


def file_name(path: str) -> str:
    """Return a file without the folders that say whose machine it was on.

    >>> file_name("/home/x/env/lib/python3.12/site-packages/transformers/models/llama.py")
    'transformers/models/llama.py'
    >>> file_name("/home/x/train.py"), file_name("C:\\\\Users\\\\x\\\\train.py"), file_name("models/llama.py")
    ('train.py', 'train.py', 'models/llama.py')
    """
    for root in (_PACKAGES, _STANDARD):
        if found := root.match(path):
            return path[found.end() :].replace("\\", "/")
    if _ABSOLUTE.search(path) or _HOMES.search(path):
        return re.split(r"[\\/]", path.rstrip("\\/"))[-1] or "?"
    return path.replace("\\", "/")


def without_paths(text: str) -> str:
    """Return a sentence in which each absolute path is a file's name.

    >>> without_paths("read /home/x y/a/b.py, and 3 FLOP/byte at https://example.org/a/b")
    'read b.py, and 3 FLOP/byte at https://example.org/a/b'
    """
    text = _HOME_IN_TEXT.sub("/~", text)
    return _PATH_IN_TEXT.sub(lambda found: file_name(found[0]), text)


@dataclass(frozen=True, slots=True)
class ShownNames:
    """What a project's tickets call modules, files and functions; as they are called, unless `redact`."""

    project: str
    redact: bool = False

    def module(self, name: str) -> str:
        """Return the path of a module, `*` and all."""
        if not self.redact:
            return without_paths(name)
        return ".".join(part if set(part) <= set("*_") else self._pseudonym("Module", part) for part in name.split("."))

    def file(self, path: str) -> str:
        """Return a file's name, and of a package's file the path within it."""
        name = file_name(path)
        if not self.redact:
            return name
        *_, ending = name.rpartition(".") if "." in name else ("",)
        return self._pseudonym("file", name) + (f".{ending}" if ending in ("py", "pyx", "cpp", "cu") else "")

    def function(self, name: str) -> str:
        """Return a function's name."""
        return self._pseudonym("function", name) if self.redact and name not in EVERYONES else name

    def job(self, name: str) -> str:
        """Return the name of a job or a model."""
        return self._pseudonym("Job", name) if self.redact else name

    def blocks(self, blocks: tuple[Block, ...], hidden: frozenset[str]) -> tuple[Block, ...]:
        """Return the blocks without paths, and, where asked for, with pseudonyms for `hidden` names in sentences."""
        return tuple(self._told(block, hidden) for block in blocks)

    def text(self, text: str, hidden: frozenset[str]) -> str:
        """Return a sentence, or code, as `blocks`."""
        text = without_paths(text)
        if self.redact:
            for name in sorted(hidden, key=len, reverse=True):
                if len(name) >= _SHORTEST_NAME:
                    text = re.sub(
                        rf"(?<!\w){re.escape(name)}(?!\w)", lambda found: self._pseudonym("Name", found[0]), text
                    )
        return text

    def _pseudonym(self, kind: str, name: str) -> str:
        digest = hashlib.sha256(f"{self.project}\0{name}".encode("utf-8", "replace")).hexdigest()
        return f"{kind}_{digest[:6]}"

    def _told(self, part: Any, hidden: frozenset[str]) -> Any:
        """Return blocks, or what they hold, as `blocks`."""
        if isinstance(part, tuple):
            return tuple(self._told(one, hidden) for one in part)
        if isinstance(part, Run | Code):
            return replace(part, text=self.text(part.text, hidden))
        held = _HELD[type(part)]
        return replace(part, **{held: self._told(getattr(part, held), hidden)})
