"""Causes of other packages: whole, or left out with a note, and never in a folder of rules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.findings.build import kernel, timeline_of
from tracemine.causes import CAUSES, known, load_rules
from tracemine.errors import TracemineError
from tracemine.findings.record import Scan
from tracemine.pipeline import analysed, mined

RULE = """
title = "A fill that is copied over"
status = "experimental"
what = "A fill, and a copy of as many elements right behind it."
why = "What was filled is never read."
fix = "Leave the fill out."
priority = 1
saving = "remove"
left = [0.0, 0.0, 0.0]
partition_by = ["device", "stream"]
pattern = "fill copy"

[define]
fill = { filled_first = true }
copy = { op = "aten::copy_" }

[[advice]]
when = { refilled = true }
text = "Allocate with torch.empty."
"""
ROOM = """
from pathlib import Path
import numpy as np
from tracemine.causes import Cause
from tracemine.findings.context import AdviceFacts
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import FactDoc
from tracemine.perfmodel import Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import ColumnDoc, Columns, Flags, category

def derive(sources, activities):
    return {"filled_first": Flags(category(activities, "op").among("aten::fill_"))}

def estimate(context, rule, matrix):
    fill, copy = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    return on_gpu(context, matrix, Estimate(after_ns=outwards(copy, copy, copy), assumptions=("the copy stays",)))

def facts(context, rule, classes, named):
    return {"refilled": True}

CAUSE = Cause(
    rule="fill_copied_over",
    folder=Path(__file__).parent / "rules" / "fill_copied_over",
    columns=Columns(docs=(ColumnDoc("filled_first", "flags", "a fill"),), derive=derive),
    estimate=estimate,
    facts=AdviceFacts({"refilled": FactDoc("it is filled again")}, facts),
)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with a cause into a folder on `sys.path`, as pip does."""

    def put(room: str = ROOM, rule: str = RULE, name: str = "fill_copied_over") -> None:
        package, about = tmp_path / "own_causes", tmp_path / "own_causes-1.5.dist-info"
        (package / "rules" / name).mkdir(parents=True)
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-causes\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(f"[tracemine.causes]\n{name} = own_causes:CAUSE\n")
        (package / "__init__.py").write_text(room)
        (package / "rules" / name / "rule.toml").write_text(rule)
        monkeypatch.syspath_prepend(str(tmp_path))

    sys.modules.pop("own_causes", None)
    return put


def scanned() -> Scan:
    run = [kernel(0, 90_000, "aten::fill_"), kernel(90_500, 70_000, "aten::copy_")]
    return mined(analysed(timeline_of(run)))


def test_a_package_brings_a_whole_cause(install: Install) -> None:
    assert "fill_copied_over" not in {rule.id for rule in load_rules()}
    install()
    assert "fill_copied_over" in {rule.id for rule in load_rules()}
    found = scanned()
    (finding,) = [one for one in found.findings if one.rule == "fill_copied_over"]
    assert finding.fused_ns is not None
    assert finding.fused_ns.mid == 70_000
    assert "the copy stays" in finding.assumptions
    assert finding.fix == "Allocate with torch.empty."
    assert not [each for each in found.warnings if "left out: the cause" in each]


BROKEN = {
    "that cannot be imported": (ROOM + "import nowhere_to_be_found\n", RULE, "cannot be loaded: ModuleNotFoundError"),
    "that is none": ("CAUSE = 7\n", RULE, "is no tracemine.causes.Cause of this name with its rule's folder"),
    "of another name": (ROOM.replace('rule="fill', 'rule="full'), RULE, "is no tracemine.causes.Cause of this name"),
    "without a rule": (ROOM.replace("    folder=", "    folder=None and "), RULE, "with its rule's folder"),
    "with a damaged rule": (ROOM, RULE.replace("filled_first", "filled_last"), "has no rule that can be used"),
    "with a column of ours": (ROOM.replace('"filled_first"', '"sweep"'), RULE, "brings what is there already: sweep"),
    "with a fact of ours": (ROOM.replace('"refilled"', '"training"'), RULE, "brings what is there already: training"),
    "that prices other rules": (ROOM.replace("estimate=estimate", 'savings={"fuse": estimate}'), RULE, "other rules"),
}  # fmt: skip


@pytest.mark.parametrize(("room", "rule", "says"), BROKEN.values(), ids=BROKEN)
def test_a_cause_that_cannot_be_used_is_left_out_and_said(install: Install, room: str, rule: str, says: str) -> None:
    install(room, rule)
    (note,) = known().notes
    assert note.startswith("left out: the cause 'fill_copied_over' of own-causes 1.5 ")
    assert says in note
    assert known().causes == CAUSES
    found = scanned()
    assert note in found.warnings
    assert "fill_copied_over" not in {one.rule for one in found.findings}


def test_a_rule_of_ours_is_never_another_packages(install: Install) -> None:
    install(ROOM.replace("fill_copied_over", "launch_gap"), name="launch_gap")
    assert known().notes == ("left out: the cause 'launch_gap' of own-causes 1.5 is there already",)


@pytest.mark.parametrize("function", ["derive", "estimate", "facts"])
def test_what_fails_later_names_the_package(install: Install, function: str) -> None:
    begin = ROOM.index(f"def {function}(")
    signature = ROOM[begin : ROOM.index("\n", begin)]
    install(ROOM.replace(signature, f"{signature}\n    1 / 0"))
    with pytest.raises(TracemineError, match=r"the cause 'fill_copied_over' of own-causes 1\.5 failed: ZeroDivision"):
        scanned()


def test_a_folder_of_rules_brings_no_python(tmp_path: Path) -> None:
    folder, planted = tmp_path / "rules" / "fill_copied_over", tmp_path / "ran"
    folder.mkdir(parents=True)
    plain = RULE.replace("filled_first = true", 'op = "aten::fill_"')
    (folder / "rule.toml").write_text(plain[: plain.index("[[advice]]")])
    for name in ("__init__.py", "columns.py", "estimate.py", "fix.py", "conftest.py"):
        (folder / name).write_text(f"open({str(planted)!r}, 'w')\n" + ROOM)
    assert "fill_copied_over" in {rule.id for rule in load_rules(tmp_path / "rules")}
    assert not planted.exists()
    assert known().causes == CAUSES
