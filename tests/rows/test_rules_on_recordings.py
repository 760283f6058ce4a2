"""The built-in rules on the project's own recordings, and on public traces where they are at hand."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.rows.test_gaps import column
from tracemine.causes import CAUSES, columns_of, load_rules
from tracemine.formats import open_trace
from tracemine.matching import mine
from tracemine.matching.rule import of_producer
from tracemine.rows import Rows, row_sets
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
PUBLIC = os.environ.get("TRACEMINE_COMPAT_TRACES")


@cache
def rows_of_trace(path: Path) -> tuple[Timeline, dict[str, Rows]]:
    timeline = open_trace(path)
    return timeline, row_sets(timeline, columns=columns_of(CAUSES))


def lengths(path: Path) -> dict[str, list[int]]:
    """How many rows each match of each rule covers; but for those that are held against what the device reaches."""
    rules = [rule for rule in of_producer(load_rules(), "torch") if rule.saving != "reach_rate"]
    matches = mine(rows_of_trace(path)[1], rules)
    return {found.rule.id: np.diff(found.offsets).tolist() for found in matches}


def public(name: str) -> Path:
    if PUBLIC is None:
        pytest.skip("TRACEMINE_COMPAT_TRACES does not say where the public traces are")
    return Path(PUBLIC) / "kineto" / name


def test_the_chain_is_found_once_a_step() -> None:
    assert lengths(FIXTURES / "chain.json.gz")["memory_bound_chain"] == [4, 4]


@pytest.mark.parametrize("recording", ["decoder_prefill", "decoder_decode"])
def test_two_layers_have_five_norms_and_two_rotations_a_step(recording: str) -> None:
    found = lengths(FIXTURES / f"{recording}.json.gz")
    assert found["rmsnorm_unfused"] == [8] * 10
    assert found["rotary_unfused"] == [10] * 4


def test_of_a_graph_replay_only_chains_are_found_and_no_gap_is_blamed_on_the_host() -> None:
    found = lengths(FIXTURES / "decoder_decode_graph.json.gz")
    assert {rule for rule, matches in found.items() if matches} == {"memory_bound_chain"}


def test_what_torch_compile_has_fused_is_left_alone() -> None:
    found = lengths(FIXTURES / "decoder_prefill_compiled.json.gz")
    assert {rule for rule, matches in found.items() if matches} == {"launch_gap"}


def test_in_four_matrix_products_there_is_nothing_to_find() -> None:
    assert not any(lengths(FIXTURES / "clean_gemms.json.gz").values())


def test_the_training_steps_pageable_copies_are_found_and_the_waits_that_they_cause() -> None:
    found = lengths(FIXTURES / "convnet_train.json.gz")
    assert found["pageable_copy"] == [1, 1]
    assert found["host_sync"] == [1, 1, 1]


def test_an_item_that_a_host_far_behind_hardly_waits_for_is_not_blamed() -> None:
    _, rows = rows_of_trace(FIXTURES / "convnet_train.json.gz")
    gaps = rows["gaps"]
    named = list(zip(*(column(gaps, name) for name in ("sync", "blocked_ns", "cause", "dur_ns")), strict=True))
    waited = [(blocked, cause, dur) for sync, blocked, cause, dur in named if sync is not None and blocked < 10_000]
    assert waited
    assert all(cause == "host_bound" and dur > 10 * blocked for blocked, cause, dur in waited)


RECORDINGS = sorted(FIXTURES.glob("*.json.gz"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_gaps_add_up_to_what_is_not_busy(path: Path) -> None:
    timeline, rows = rows_of_trace(path)
    table = timeline.activities.to_pylist()
    busy, until = 0, table[0]["start_ns"]
    for each in table:  # one device, in order of start
        end = each["start_ns"] + each["dur_ns"]
        busy += max(0, end - max(until, each["start_ns"]))
        until = max(until, end)
    assert {each["device"] for each in table} == {0}
    assert sum(column(rows["gaps"], "dur_ns")) == until - table[0]["start_ns"] - busy


def test_qwens_norms_and_rotations_are_found_once_a_layer_where_launches_were_recorded() -> None:
    path = public("tracelens_h100_qwen1.5-0.5b.json.gz")
    found = lengths(path)
    assert found["rmsnorm_unfused"] == [8] * (24 * 2 + 1)
    assert found["rotary_unfused"] == [10] * 24
    _, rows = rows_of_trace(path)
    matches = next(m for m in mine(rows, load_rules()) if m.rule.id == "rmsnorm_unfused")
    activities = rows["activities"]
    for name in ("shape", "module", "source"):
        values = column(activities, name)
        assert all(values[row] is not None for row in matches.rows.tolist()), name


def test_a_vision_transformer_that_waits_for_the_host_is_one_stretch() -> None:
    path = public("tracelens_h100_vit-nsfw.json.gz")
    found = lengths(path)
    assert max(found["launch_gap"]) == 147
    gaps = rows_of_trace(path)[1]["gaps"]
    late = sum(d for d, c in zip(column(gaps, "dur_ns"), column(gaps, "cause"), strict=True) if c == "host_bound")
    assert late > 0.8 * 7_559_844, "84% of the span is idle"


def test_a_training_loop_that_reads_its_batches_itself_stalls_once_a_step() -> None:
    path = public("kineto_resnet50_nw0_a.json.gz")  # num_workers=0
    rows = rows_of_trace(path)[1]
    stalls = next(found for found in mine(rows, load_rules()) if found.rule.id == "data_loading")
    idle = column(rows["gaps"], "dur_ns")
    assert sum(idle[row] > 40_000_000 for row in stalls.rows.tolist()) == 5


def test_a_decoder_whose_kernel_stood_launched_for_half_a_second_is_not_blamed_on_the_host() -> None:
    found = lengths(public("tracelens_sglang_qwen3-8b_decode.json.gz"))
    gaps = rows_of_trace(public("tracelens_sglang_qwen3-8b_decode.json.gz"))[1]["gaps"]
    longest = int(np.argmax(column(gaps, "dur_ns")))
    assert column(gaps, "cause")[longest] == "event_wait"
    assert not found["host_stall"]
