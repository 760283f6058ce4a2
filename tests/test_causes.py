"""Programs with labelled causes: labels and programs agree, fixes change no result, and the score counts errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.answers.score_causes import BACKWARD, FOUND_AS, Told, causes_of, lines, overall, savings, score
from benchmarks.causes import check
from benchmarks.causes.program import SPLIT, Label, Program, Step, labels
from tests import forked
from tracemine.programs import environment

ROOT = Path(__file__).parents[1]
KNOWN = {
    "with_it": Label("with_it", "build", "tf32", 1, "has it", causes=["tf32"], where="a product"),
    "near": Label("near", "build", "tf32", 1, "looks like it", near_miss_of="tf32"),
    "good": Label("good", "build", "none", 1, "has none"),
}
RIGHT = {"with_it": Told({"tf32": ["float32_product"]}, {}, 0), "near": Told({}, {}, 0), "good": Told({}, {}, 0)}


def test_every_program_runs_and_its_fixes_change_no_result_and_labels_agree_with_programs() -> None:
    done = forked.run(forked.TORCH, [], file=ROOT / "benchmarks/causes/check.py", cwd=ROOT, env=environment())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count(" s\n") == len(labels())


def test_each_part_holds_half_of_the_programs_of_each_kind() -> None:
    for part in SPLIT:
        assert {label.drawn for label in labels([part]).values()} == {part}


@pytest.mark.parametrize("name", ["a fix that changes the result", "a fix that fails", "a step that gives nothing"])
def test_what_is_wrong_with_a_program_is_told(name: str) -> None:
    def make(fixed: bool) -> Step:
        x = torch.ones(4)
        if "fails" in name and fixed:
            raise ValueError(name)
        return lambda: None if "nothing" in name else x * (1.1 if fixed else 1.0)

    assert list(check.disagreements(Program("planted", "build", make, training=False, fixable=True)))


def test_a_fix_that_gives_the_same_is_not_told() -> None:
    def make(fixed: bool) -> Step:
        x = torch.ones(4)
        return lambda: x + x if fixed else x * 2

    assert not list(check.disagreements(Program("planted", "build", make, training=False, fixable=True)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"number": 2}, "belongs into held"),
        ({"part": "held"}, "its label in held"),
        ({"fixes": ["tf32"]}, "names fixes"),
        ({"causes": ["float64"]}, "neither has its kind's cause"),
        ({"near_miss_of": "tf32"}, "near miss of what it has"),
        ({"kind": "none"}, "of no kind and has causes"),
    ],
)
def test_a_label_that_does_not_agree_with_its_program_is_told(change: dict[str, Any], word: str) -> None:
    program = Program("with_it", "build", lambda: lambda: None, training=False, fixable=False)
    told = {"with_it": KNOWN["with_it"]}
    assert not list(check.unlabelled([program], told))
    wrong = check.unlabelled([program], {"with_it": dataclasses.replace(told["with_it"], **change)})
    assert any(word in line for line in wrong)


def test_a_label_without_a_program_and_a_program_without_a_label_are_told() -> None:
    program = Program("other", "build", lambda: lambda: None, training=False, fixable=False)
    assert list(check.unlabelled([program], {"with_it": KNOWN["with_it"]})) == [
        "with_it: a label without a program",
        "other: a program without a label",
    ]


def test_all_right_is_a_precision_and_recall_of_one() -> None:
    total = overall(score(KNOWN, RIGHT))
    assert (total.precision, total.recall) == (1.0, 1.0)


@pytest.mark.parametrize("name", ["near", "good"])
def test_a_cause_that_is_told_where_it_is_not_lowers_the_precision_and_is_named(name: str) -> None:
    told = RIGHT | {name: Told({"tf32": ["float32_product"]}, {}, 0)}
    rows = score(KNOWN, told)
    assert (overall(rows).precision, overall(rows).recall) == (0.5, 1.0)
    assert any(f"told wrongly: tf32 in {name}, by float32_product" in line for line in lines(KNOWN, told, rows))


def test_a_cause_that_is_not_told_lowers_the_recall_and_is_named() -> None:
    told = RIGHT | {"with_it": Told({}, {}, 0)}
    rows = score(KNOWN, told)
    assert (overall(rows).precision, overall(rows).recall) == (None, 0.0)
    assert "missed: tf32 in with_it: a product" in lines(KNOWN, told, rows)


def test_another_cause_than_the_label_has_is_a_miss_and_a_false_one() -> None:
    rows = score(KNOWN, RIGHT | {"with_it": Told({"float64": ["float64_product"]}, {}, 0)})
    assert (overall(rows).precision, overall(rows).recall) == (0.0, 0.0)


def test_a_cause_that_may_be_told_as_well_counts_neither_way() -> None:
    known = KNOWN | {"good": dataclasses.replace(KNOWN["good"], accept=["tf32"])}
    total = overall(score(known, RIGHT | {"good": Told({"tf32": ["float32_product"]}, {}, 0)}))
    assert (total.precision, total.recall) == (1.0, 1.0)


def test_a_program_that_was_not_recorded_counts_for_nothing_and_is_named() -> None:
    told = {name: one for name, one in RIGHT.items() if name != "with_it"}
    rows = score(KNOWN, told)
    assert (overall(rows).precision, overall(rows).recall) == (None, None)
    assert "not recorded: with_it" in lines(KNOWN, told, rows)


def test_what_fixes_are_said_to_save_stands_beside_what_they_saved(tmp_path: Path) -> None:
    for name, after in (("with_it", 7_000_000), ("near", 10_500_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "step.json").write_text(f'{{"step_ns": 10000000, "after_ns": {after}}}')
    told = {
        "with_it": Told({"tf32": ["float32_product"]}, {"tf32": (1_000_000, 2_500_000, 4_000_000)}, 6_000_000),
        "near": Told({"tf32": ["float32_product"]}, {"tf32": (3_000_000, 4_000_000, 5_000_000)}, 4_000_000),
    }
    (tmp_path / "with_it" / "compiled.json").write_text('{"compiled_ns": 3500000}')
    text = "\n".join(savings({"with_it": ["tf32"], "near": ["tf32"]}, told, tmp_path))
    assert "| with_it | tf32 | 10000 | 2500 (1000 to 4000) | 3000 | -5.0 | yes | 6000 | 6500 |" in text
    assert "| near | tf32 | 10000 | 4000 (3000 to 5000) | -500 | +45.0 | no | 4000 | – |" in text
    assert "torch.compile is faster in 1; all findings say no more than 5 points less in 1" in text
    (tmp_path / "near" / "compiled.json").write_text('{"compiled_ns": 2000000}')
    text = "\n".join(savings({"with_it": ["tf32"], "near": ["tf32"]}, told, tmp_path))
    assert "torch.compile is faster in 2; all findings say no more than 5 points less in 1" in text
    assert "2: mean error 25.0 points of the step, 1 within 10" in text
    assert "sign right in 1, 1 in the interval" in text


def test_what_a_rule_is_said_to_tell_of_is_a_cause_of_some_label() -> None:
    causes = {cause for label in labels().values() for cause in label.causes}
    assert {cause for cause in FOUND_AS.values() if cause} | set(BACKWARD.values()) <= causes


def test_a_rule_that_is_not_known_is_an_error_and_no_silence() -> None:
    assert causes_of("optimizer_unfused", "optimizer_unfused", ()) == ["optimizer"]
    assert causes_of("launch_gap", "launch_gap", ()) == []
    with pytest.raises(KeyError):
        causes_of("new_rule", "new_cause", ())
