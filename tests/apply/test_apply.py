"""Variants of a step on a CPU: faults that are planted in its source, each named and rolled back."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tracemine.apply.asked import AskedShares
from tracemine.apply.record import Applied
from tracemine.apply.run import applied
from tracemine.apply.table import table
from tracemine.apply.variants import edit_name

MODEL = Path(__file__).with_name("model.py")
FAULTS = {
    "output": ("loss = out.pow(2).mean()", "loss = out.pow(2).mean() * 1.001", "wrong", "output of batch 0"),
    "backward": ("return gradient * 2", "return gradient * 2.002", "wrong", "gradient of 3.bias, batch 0"),
    "second_shape": (
        "out = Scaled.apply(model(batch))",
        "out = Scaled.apply(model(batch[:9]))",
        "wrong",
        "output of batch 1",
    ),
    "slower": ("pause(PAUSE_S)", "pause(PAUSE_S * 1.04)", "slower", ""),
    "leaks": ("pause(PAUSE_S)", "held.append(torch.ones(1 << 20)); pause(PAUSE_S)", "wrong", "leaks"),
    "crashes": ("pause(PAUSE_S)", "import os; os.kill(os.getpid(), 11)", "failed", "SIGSEGV"),
    "raises": ("return loss.detach()", "return loss.detach() + missing", "failed", "NameError"),
}
FASTER = {"faster": ("pause(PAUSE_S)", "pause(PAUSE_S / 2)"), "faster_too": ("pause(REST_S)", "pause(0)")}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.read_text("utf-8"), "utf-8")
    return folder


def test_each_planted_fault_is_named_and_rolled_back_and_what_is_faster_stays(source: Path, tmp_path: Path) -> None:
    changes = {name: (before, after) for name, (before, after, *_) in FAULTS.items()} | FASTER
    names, run = _applied(source, tmp_path, changes)
    found = {name: next(tried for tried in run.alone if tried.variants == (names[name],)) for name in names}
    for name, (_, _, said, why) in FAULTS.items():
        assert (found[name].said, why in found[name].why) == (said, True), (name, found[name])
        assert found[name].level is None
    faster = found["faster"]
    assert (faster.said, faster.level) == ("faster", "L7")
    assert faster.timed
    assert faster.timed.low < faster.timed.ratio < faster.timed.high < 0.8
    (both,) = run.together
    assert both.timed
    assert (both.said, run.best) == ("faster", (names["faster"], names["faster_too"]))
    assert both.timed.ratio < faster.timed.ratio


@pytest.mark.skipif("not config.getoption('--long')", reason="ten processes: --long")
def test_what_does_nothing_is_no_difference(source: Path, tmp_path: Path) -> None:
    changes = {f"nothing{k}": ("held: list", f"unused{k} = 0\nheld: list") for k in range(10)}
    _, run = _applied(source, tmp_path, changes)
    assert sum(tried.said == "no difference" for tried in run.alone) >= 9


def _applied(source: Path, folder: Path, changes: Mapping[str, tuple[str, str]]) -> tuple[dict[str, str], Applied]:
    """Try changes of the model's source; return the variants' names, and what came of it."""
    names = {name: edit_name(_diff(folder / f"{name}.diff", *change)) for name, change in changes.items()}
    run = applied("model:build", source, {name: AskedShares({}) for name in names.values()})
    print("\n".join(table(run)))
    return names, run


def _diff(file: Path, before: str, after: str) -> Path:
    old = MODEL.read_text("utf-8")
    assert before in old
    new = old.replace(before, after).splitlines(keepends=True)
    diff = difflib.unified_diff(old.splitlines(keepends=True), new, "a/model.py", "b/model.py")
    file.write_text("".join(diff), "utf-8")
    return file
