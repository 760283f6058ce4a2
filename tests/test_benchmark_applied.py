"""Steps that `apply` is judged by: what a finding advises fits, alone and with others, and computes the same."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tracemine.apply.edits import edited

ROOT = Path(__file__).parents[1]
NAMES = sorted(f.stem for f in (ROOT / "benchmarks" / "programs" / "steps").glob("*.py") if f.stem != "sizes")


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "programs" / "steps")  # where `sizes` is
    return importlib.import_module("programs.applied_edits")


def numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from numbers(each)
    else:
        yield torch.as_tensor(value).detach().double()


def computed(folder: Path, name: str) -> list[Any]:
    spec = importlib.util.spec_from_file_location(f"step_{name}", folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    step = module.build()
    torch.manual_seed(1)
    found = list(numbers([step.run(batch) for batch in step.batches]))
    pairs = step.parameters() if hasattr(step, "parameters") else ()
    return found + [parameter.detach().double() for _, parameter in pairs]


@pytest.mark.parametrize("name", NAMES)
def test_changes_compute_the_same_alone_and_together(advised: Any, name: str, tmp_path: Path) -> None:
    before, diffs = computed(advised.STEPS, name), []
    for key, edit in advised.EDITS.get(name, {}).items():
        diffs.append(tmp_path / f"{key}.diff")
        diffs[-1].write_text(advised.diff_of(name, edit.changes), "utf-8")
    for chosen in [*([diff] for diff in diffs), diffs]:
        with edited(advised.STEPS, chosen) as (folder, refused):
            assert refused == ""
            after = computed(folder, name)
        assert len(after) == len(before)
        assert all(torch.allclose(a, b, atol=2e-3, rtol=2e-3) for a, b in zip(before, after, strict=True)), chosen


def test_all_steps_but_the_one_for_faults_have_changes_of_rules_that_there_are(advised: Any) -> None:
    assert {*NAMES} == {*advised.EDITS, "plain"}
    rules = {rule for edits in advised.EDITS.values() for edit in edits.values() for rule in edit.rules}
    assert [rule for rule in rules if not (ROOT / "rules" / rule).is_dir()] == []


def test_faults_and_what_does_nothing_fit(advised: Any) -> None:
    for changes in (*(changes for _, _, changes in advised.FAULTS.values()), *advised.NOTHING.values()):
        assert advised.diff_of("plain", changes).startswith("--- a/plain.py")
    with pytest.raises(ValueError, match="is there 0 times"):
        advised.diff_of("plain", [("nowhere", "")])
