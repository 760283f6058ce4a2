"""A folder to begin a rule with: every TODO is to be filled in, and lint names those that are left."""

from __future__ import annotations

from pathlib import Path

from tracemine.errors import Location, UsageError
from tracemine.files import make_folder, write_file, writing
from tracemine.matching.load import check_id, rules_directory
from tracemine.matching.rule import SAVINGS
from tracemine.tables import table_beside

_TEXTS = table_beside(__file__, "scaffold.toml")
_RULE: str = _TEXTS["rule"]
_CASES: str = _TEXTS["cases"]


def new_rule(name: str, directory: Path) -> Path:
    """Write a rule's folder to begin with. Return it.

    Raises UsageError for a name that is none, that a rule of tracemine has, or whose folder is there.
    """
    folder = directory / name
    check_id(name)
    if (rules_directory() / name).is_dir():
        raise UsageError(f"tracemine has a rule {name!r}", hint=f"tracemine rules show {name}")
    if folder.exists():
        raise UsageError("is there already", where=Location(str(folder)), hint="name another rule, or another --in")
    with writing(folder):
        make_folder(folder)
    write_file(folder / "rule.toml", _RULE.format(savings=", ".join(SAVINGS)))
    write_file(folder / "cases.md", _CASES)
    return folder
