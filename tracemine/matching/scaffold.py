"""A folder to begin a rule with: every TODO is to be filled in, and lint names those that are left."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tracemine.errors import Location, UsageError
from tracemine.files import make_folder, write_file, writing
from tracemine.matching.load import check_id, rules_directory
from tracemine.matching.rule import SAVINGS

_RULE: Final = """\
title = "TODO: what is found, in one line without a full stop"
status = "experimental"
what = "TODO: which kernels, and how they lie to each other."
why = "TODO: why that is slow."
fix = \"\"\"
TODO: what to write instead, with code:

    y = faster(x)\"\"\"
limits = ["TODO: what it does not find, or does not look at."]
false_positives = ["TODO: what it finds although nothing is wrong."]
references = []
needs = ["ops"]  # also "shapes", where a test asks for them
producers = ["torch"]  # also "xla", "tensorrt", "onnxruntime": whose recordings it is looked for in
priority = 150  # of rules that want the same rows the smaller one claims them
saving = "fuse"  # one of {savings}

partition_by = ["device", "stream", "segment"]
pattern = "first second"

[define]
first = {{ kind = "kernel", op = "aten::TODO_first" }}
second = {{ kind = "kernel", op = "aten::TODO_second", gap_ns.lt = 20_000 }}

[measures]
measured_ns = "sum(first.dur_ns, second.dur_ns)"
"""
_CASES: Final = """\
## One follows the other

| kind   | op                | dur_ns | gap_ns | expect |
|--------|-------------------|--------|--------|--------|
| kernel | aten::TODO_first  | 9000   | 900    | first  |
| kernel | aten::TODO_second | 7000   | 900    | second |

## Near miss: the host did something else in between

| kind   | op                | dur_ns | gap_ns | expect |
|--------|-------------------|--------|--------|--------|
| kernel | aten::TODO_first  | 9000   | 900    |        |
| kernel | aten::TODO_second | 7000   | 45000  |        |
"""


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
