"""The rules that come with tracemine as they are once read and checked: parsed.jsonl, a line each.

To read and check them all takes as long as many a scan. `docs/generate.py` writes the file; a line of it holds as long
as the rule.toml that it was made of is as it was, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tracemine.errors import Location
from tracemine.matching.rule import Rule
from tracemine.rows.table import ColumnDoc
from tracemine.tables import stamp_of

PLACE: Final = Path(__file__).with_name("parsed.jsonl")


_Line = tuple[str, Rule]  # of the file: stamp_of rule.toml, and the rule


def text_of_rules(rules: Iterable[Rule]) -> str:
    """Return what the file holds for these rules, read from their rule.toml, by id."""
    lines = [
        msgspec.json.encode((stamp_of(Path(rule.where.path).read_bytes()), replace(rule, where=Location(""), docs=())))
        for rule in sorted(rules, key=lambda rule: rule.id)
    ]
    return b"".join(line + b"\n" for line in lines).decode()


def parsed_rule(folder: Path, columns: Mapping[str, Sequence[ColumnDoc]]) -> Rule | None:
    """Return the rule in a folder; None where what was parsed is not what its rule.toml says.

    columns: of each row set, which the file does not hold: nine tenths of it would be the same ones again and again.
    """
    (stamp, rule), path = _kept().get(folder.name, ("", None)), folder / "rule.toml"
    if rule is None or stamp != stamp_of(path.read_bytes()):
        return None
    return replace(rule, where=Location(str(path)), docs=tuple(columns[rule.rows]))


@cache
def _kept() -> dict[str, _Line]:
    try:
        lines = msgspec.json.Decoder(_Line).decode_lines(PLACE.read_bytes())
    except (OSError, msgspec.MsgspecError):  # not there, or of another version
        return {}
    return {line[1].id: line for line in lines}
