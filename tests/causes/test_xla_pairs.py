"""Programs of JAX recorded on an H200, with one cause and without: what is said of them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.programs.jax_score import LABELS, gpu_savings, scanned
from tracemine.findings import Scan
from tracemine.findings.grouping import one_kernel_fixes

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "jax"
ROWS = {
    (row["program"], row["variant"]): row["step_ms"] for row in json.loads((FOLDER / "pairs.json").read_text())["rows"]
}
# The product has no fixed form, and the form of the pictures that was tried is slower.
CAUSES = LABELS["seen"]
HELD = [program for program in CAUSES if program not in ("tall_product", "pictures")]
UNSEEN = FOLDER.with_name("jax_unseen")


def recorded(program: str, variant: str) -> Scan:
    return scanned(FOLDER / program / f"{variant}.xplane.pb.xz")


def step_ns(scan: Scan) -> int:
    unprofiled = None if scan.summary.per_step is None else scan.summary.per_step.unprofiled_ns
    assert unprofiled is not None
    return unprofiled.mid


@pytest.mark.parametrize("program", HELD)
def test_a_cause_is_found_first_and_saves_what_it_did(program: str) -> None:
    rule = CAUSES[program]
    scan = recorded(program, "before")
    assert scan.findings[0].rule == rule
    own = scan.findings[0].per_step
    assert own is not None
    won = 1 - ROWS[program, "after"] / ROWS[program, "before"]
    low, high = (each / step_ns(scan) for each in (own.step_saving_ns.low, own.step_saving_ns.high))
    assert low <= won <= high


def test_copies_around_convolutions_save_what_they_took_of_the_gpu() -> None:
    """Of steps that the host paces: their medians differ by more than the copies take, in either direction."""
    low, mid, high, won = gpu_savings(recorded("pictures", "before"), recorded("pictures", "after"), "xla_layout_copy")
    assert low <= won <= high
    assert abs(mid - won) <= 1


CLEAN = [name for name, variant in ROWS if variant == "clean"]
FIXED = [("attention_train", "after"), ("highest", "after"), ("odd_vocabulary", "after"), ("loss_scatter", "after")]


@pytest.mark.parametrize(("program", "variant"), [*((name, "clean") for name in CLEAN), *FIXED])
def test_nothing_of_three_percent_is_said_where_nothing_is_left(program: str, variant: str) -> None:
    scan = recorded(program, variant)
    said = [one for one in scan.findings if one.per_step and one.per_step.step_saving_ns.mid >= 0.03 * step_ns(scan)]
    assert not said


def test_places_are_the_programs_own_and_no_kernel_is_offered() -> None:
    """JAX's files are between a call and its wait, and a line stands once; what XLA compiled is not generated here."""
    scan = recorded("asked_each", "before")
    assert scan.findings[0].title == "Host waits (float(), np.asarray()): jax_pairs.py run"
    assert not [line for finding in scan.findings for line in finding.source if "jax/" in line.file]
    loop = recorded("scan_lstm", "before")
    assert not any(one_kernel_fixes(finding) for finding in loop.findings)
    for finding in loop.findings:
        assert all(one != other for one, other in pairwise(finding.source))


@pytest.mark.parametrize("program", LABELS["unseen"])
def test_programs_that_no_rule_was_written_by(program: str) -> None:
    """Found by GPU work: a saving of the step is of the host's too, which is timed apart from what was recorded."""
    rule = LABELS["unseen"][program]
    scan = scanned(UNSEEN / program / f"{'before' if rule else 'clean'}.xplane.pb.xz")
    said = {
        one.rule for one in scan.findings if one.per_step and one.per_step.step_saving_ns.mid >= 0.03 * step_ns(scan)
    }
    assert said <= {rule, "launch_gap"}
    if rule and rule != "host_sync":
        assert rule in said
        _, mid, _, won = gpu_savings(scan, scanned(UNSEEN / program / "after.xplane.pb.xz"), rule)
        assert abs(mid - won) <= 13


QUANTISED = {
    ("int8_weights", "before"): "xla_weight_dequantised",
    ("int8_decode", "before"): "xla_weight_dequantised",
    ("int8_island", "before"): "xla_quantised_product",
    ("int8_island", "transposed"): "xla_weight_transposed",
    ("int8_rounded", "before"): "xla_quantised_product",
    ("float8_island", "before"): "xla_quantised_product",
    ("int8_some_rows", "before"): "xla_weight_transposed",
    ("int8_large", "before"): "xla_weight_transposed",
}


@pytest.mark.parametrize(("program", "variant"), QUANTISED)
def test_what_is_quantised_in_vain_is_said_first(program: str, variant: str) -> None:
    assert recorded(program, variant).findings[0].rule == QUANTISED[program, variant]


@pytest.mark.parametrize("program", ["int8_weights", "int8_decode", "int8_rounded"])
def test_nothing_of_that_is_said_of_what_is_not_quantised(program: str) -> None:
    found = {finding.rule for finding in recorded(program, "after").findings}
    assert not found & {*QUANTISED.values(), "xla_quantised_round_trip"}


@pytest.mark.parametrize("program", ["int8_decode", "int8_some_rows", "int8_large", "float8_island"])
def test_quantised_operands_save_of_gpu_work_what_their_fix_did(program: str) -> None:
    before, after = recorded(program, "before"), recorded(program, "after")
    low, mid, high, won = gpu_savings(before, after, LABELS["quantised"][program])
    assert low - 1 <= won <= high + 1  # a point more: the product reads a little faster besides
    assert abs(mid - won) <= 11
