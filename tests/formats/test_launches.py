"""Launches of recordings without correlation ids: by the External id that activities and calls repeat."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_scanner import FIXTURES
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

Event = dict[str, Any]


def _mutated(tmp_path: Path, name: str, change: Callable[[Event, Event], None]) -> Timeline:
    """Return a fixture after `change(event, args)` of each of its events."""
    trace = json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))
    for event in trace["traceEvents"]:
        if isinstance(event.get("args"), dict):
            change(event, event["args"])
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    return open_trace(path)


def _owners(timeline: Timeline) -> list[int | None]:
    found: list[int | None] = timeline.activities["op_row"].to_pylist()
    return found


@pytest.mark.parametrize("name", ["chain", "convnet_train", "decoder_decode", "triton_kernel", "decoder_decode_graph"])
def test_without_correlation_ids_every_activity_has_the_owner_that_it_had(tmp_path: Path, name: str) -> None:
    without = _mutated(tmp_path, name, lambda event, args: args.pop("correlation", None))
    assert without.activities["correlation"].null_count == without.activities.num_rows
    assert _owners(without) == _owners(open_trace(FIXTURES / f"{name}.json.gz"))


def test_without_either_id_nothing_is_owned_and_the_note_claims_no_more_than_that(tmp_path: Path) -> None:
    def stripped(event: Event, args: Event) -> None:
        args.pop("correlation", None)
        if event.get("cat") != "cpu_op":
            args.pop("External id", None)

    found = _mutated(tmp_path, "decoder_decode", stripped)
    assert set(_owners(found)) == {None}
    assert any("no recorded call is known to have launched them" in warning for warning in found.meta.ingest.warnings)


def test_an_external_id_does_not_tie_a_kernel_to_a_launch_that_came_later(tmp_path: Path) -> None:
    """Near miss: some exports repeat a number that has nothing to do with the call."""

    def early(event: Event, args: Event) -> None:
        args.pop("correlation", None)
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["ts"] = float(event["ts"]) - 60_000_000

    assert set(_owners(_mutated(tmp_path, "decoder_decode", early))) == {None}


def test_where_there_are_correlation_ids_external_ids_tie_no_launch(tmp_path: Path) -> None:
    """Near miss: an activity whose launch was not recorded stays without one."""
    lost: list[int] = []

    def one_lost(event: Event, args: Event) -> None:
        if event.get("cat") == "cuda_runtime" and "LaunchKernel" in event["name"] and not lost:
            lost.append(args.pop("correlation"))

    found = _mutated(tmp_path, "decoder_decode", one_lost)
    assert found.activities["launch_row"].null_count == 1
