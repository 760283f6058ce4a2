"""Labelled programs of benchmarks/programs: their fixes compute the same, and their labels are where they say."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def labelled(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("programs.labelled")


@pytest.fixture
def thirty(labelled: Any) -> Any:
    return labelled.known()[0]


NAMES = [
    *("user_histories", "dense_experts", "heads_apart", "overlapping_tiles", "rolling_features", "averaged_weights"),
    *("query_pairs", "rounded_weights", "padded_texts", "mixture_density"),
    *("loss_of_each_part", "guarded_loss", "masked_words", "pageable_features", "longest_text", "anchors_made"),
    *("decode_until", "features_on_host", "evaluated_each", "codebook"),
    *("lstm_tagger", "gru_classifier", "gated_scan", "vocabulary_loss", "item_embeddings", "encoder_in_float32"),
    *("late_interaction", "relative_positions", "adam_one_by_one", "grown_cache"),
    *("equal_layers", "library_lstm", "biased_by_library", "well_trained", "copied_ahead"),
    *("served_encoder", "served_pictures", "served_ranker"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_program_computes_the_same(labelled: Any, name: str) -> None:
    program = labelled.by_name()[name]
    original = _computed(program)
    assert len(original) >= 2
    for mine, theirs in zip(original, _computed(program, fixed=True), strict=True):
        assert mine.shape == theirs.shape
        assert float((mine - theirs).abs().max()) <= 2e-3 * max(float(mine.abs().max()), 1e-3)
    other = _computed(program, seed=1)
    assert any(a.shape != b.shape or not a.allclose(b, rtol=1e-2) for a, b in zip(original, other, strict=True))


def test_there_are_thirty_in_three_families_each_with_one_main_cause(labelled: Any, thirty: Any) -> None:
    families = [program.family for program in thirty]
    assert [families.count(name) for name in ("loops", "waits", "models")] == [10, 10, 10]
    for program in thirty:
        assert sum(label.main for label in labelled.labels_of(program)) == 1, program.name
    assert [program.name for group in labelled.known() for program in group] == NAMES


def test_each_family_has_some_that_are_held_out(labelled: Any, thirty: Any) -> None:
    apart = labelled.held_out(thirty)
    held = [program.family for program in thirty if program.name in apart]
    assert sorted(held.count(name) for name in ("loops", "waits", "models")) == [3, 3, 4]
    assert labelled.held_out(thirty[::-1]) == apart


def test_there_are_near_misses_and_graphs_that_work_and_that_do_not(labelled: Any, thirty: Any) -> None:
    near = [
        label for group in labelled.known() for p in group for label in labelled.labels_of(p) if label.sort == "near"
    ]
    assert len(near) >= 15
    for trial in labelled.TRIALS:
        works = [not labelled.expected(program, trial) for program in thirty]
        assert works.count(True) >= 12
    assert sum(bool(labelled.expected(program, "capture")) for program in thirty) >= 12


def test_a_label_stands_in_the_table_and_its_lines_are_its_statement(labelled: Any) -> None:
    kinds = tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"]
    program = labelled.by_name()["lstm_tagger"]
    source = (ROOT / "benchmarks/programs/labelled_models.py").read_text("utf-8").splitlines()
    for each in labelled.by_name().values():
        assert {label.kind for label in labelled.labels_of(each)} <= set(kinds)
    loop = next(label for label in labelled.labels_of(program) if label.main)
    assert source[loop.lines.start - 1].strip().startswith("for at in range(length):")
    assert source[loop.lines.stop - 2].strip() == "said.append(hidden)"
    inner = next(label for label in labelled.labels_of(program) if label.kind == "input_projection_in_loop")
    assert len(inner.lines) == 1
    assert inner.lines.start in loop.lines


def test_findings_are_counted_as_found_missed_and_invented(labelled: Any) -> None:
    program = labelled.by_name()["lstm_tagger"]
    kinds = tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"]
    loop = next(label for label in labelled.labels_of(program) if label.main)

    def finding(rule: str, line: int | None) -> Any:
        frames = [] if line is None else [SimpleNamespace(file="labelled_models.py", line=line)]
        return SimpleNamespace(rule=rule, source=frames)

    at = loop.lines.start
    reported = [finding("launch_gap", None), finding("recurrence_unfused", at), finding("host_sync", at)]
    said = labelled.judged(reported, program, False, kinds)
    assert said["found"] == {"recurrence_unfused"}
    assert said["wanted"] - said["found"] == {"input_projection_in_loop"}
    assert said["invented"] == [("host_sync", [at])]
    assert said["rank"] == 2
    elsewhere = labelled.judged([finding("recurrence_unfused", at - 3)], program, False, kinds)
    assert (elsewhere["found"], len(elsewhere["invented"])) == (set(), 1)
    fixed = labelled.judged([finding("recurrence_unfused", None)], program, True, kinds)
    assert (fixed["wanted"], fixed["invented"]) == (set(), [("recurrence_unfused", [])])


def _computed(program: Any, fixed: bool = False, seed: int = 0) -> list[Any]:
    """Return what three steps give, and what they leave behind: tensors and their gradients."""
    import torch

    with torch.random.fork_rng(), torch.set_grad_enabled(program.training):
        torch.manual_seed(seed)
        with torch.device("cpu"):
            built = program.make(fixed=fixed, dtype=torch.float32, **program.small)
        outputs = [built.step().detach().clone() for _ in range(3)]
        left = [each.detach() for each in built.tensors]
        left += [each.grad for each in built.tensors if each.grad is not None]
    return [each.to_dense().double() if each.is_sparse else each.double() for each in (*outputs, *left)]
