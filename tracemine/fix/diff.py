"""From a finding to a unified diff of the user's source, and the modules that it may import, each one file.

Files outside the folder that is given are not looked at.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from tracemine.errors import TracemineError
from tracemine.files import read_file
from tracemine.files.reading import path_in
from tracemine.findings.grouping import of_torch
from tracemine.findings.record import Finding, Source
from tracemine.fix.edits import edited
from tracemine.fix.place import Place, Refused
from tracemine.rows.user_frames import is_own
from tracemine.verify.repro.standalone import file_text, module_text

MOST_BYTES = 4_000_000  # of a file
_FARTHER = frozenset({"channels_last", "loader_ahead"})  # what they change stands further out than the finding's line
_NAME = re.compile(r"[\w./+-]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def source_diff(finding: Finding, root: Path, edits: Sequence[str]) -> tuple[str, list[str]]:
    """Return the changes of the lines that a finding names, in files of a folder.

    A unified diff that `git apply` takes, "" where there is none; and why not, a reason a line.
    """
    own = [source for source in finding.source if is_own(source.file)]
    if not own:
        how = ": record with `with_stack=True`" if of_torch(finding.ops) else ""
        return "", [f"no line of your own is recorded{how}"]
    refused: list[str] = []
    for at, source in enumerate(own):
        names = [name for name in edits if at == 0 or name in _FARTHER]
        if not names:
            break
        try:
            text, more = _changed(finding, source, root, names)
        except Refused as why:
            refused.append(f"{source.file}:{source.line}: {why}")
            continue
        return text, more
    return "", refused


def _changed(finding: Finding, source: Source, root: Path, names: Sequence[str]) -> tuple[str, list[str]]:
    name = path_in(root, source.file)
    if name is None:
        raise Refused(f"it does not lie under {root}")
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise Refused("it is a link that leads out of the folder")
    if not _NAME.fullmatch(name):
        raise Refused("its name has characters that a diff would have to quote")
    try:
        text = read_file(path, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError, TracemineError) as error:
        raise Refused(f"it cannot be read: {str(error)[:80]}") from None
    if _CONTROLS.search(text.replace("\r\n", "\n")):
        raise Refused("it holds control characters")
    new, more = edited(Place(text, source, finding), names)
    try:
        ast.parse(new)
    except (SyntaxError, ValueError):
        raise Refused("what came of it does not parse") from None
    page = page_of(new)
    made = "" if page is None or page_of(text) is not None else _new(f"{page}.py", page_text(page))
    return _unified(text, new, name) + made, more


def _new(name: str, text: str) -> str:
    """Return the diff of a file that is not there yet: at the top of the folder, where its import finds it."""
    return "".join(difflib.unified_diff([], _lines(text), "/dev/null", f"b/{name}"))


def _unified(old: str, new: str, name: str) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"(?<=\n)", text) if line]


# By the file's name its parts, the last of which says what it is.
PAGES: Final[Mapping[str, Sequence[str]]] = {
    "linear_losses": ("verify/gpu/strips.py", "verify/gpu/linear_losses.py"),
    "vocabulary_max": ("verify/gpu/strips.py", "verify/gpu/vocabulary_max.py"),
}


def page_of(advice: str) -> str | None:
    """Return the page that a text of advice imports from; None: it names none.

    >>> page_of("from linear_losses import linear_cross_entropy")
    'linear_losses'
    """
    return next((name for name in PAGES if f"from {name} import " in advice), None)


def page_text(name: str) -> str:
    """Return the text of a page."""
    *rest, last = PAGES[name]
    source = resources.files("tracemine").joinpath(last).read_text("utf-8")
    body, imports = module_text(last)
    says = ast.get_docstring(ast.parse(source)) or ""
    return file_text(says, (), body, embeds={"Strips": rest}, imports=imports, tools=())
