"""Recordings of Triton 3.6: sums as Proton's viewer makes them, and a tree and a trace of one run that agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.proton.make import summed
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, scan
from tracemine.rows.table import flags

FIXTURES = Path(__file__).parents[3] / "fixtures" / "proton"
US = 1_000


def _tree(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FIXTURES / f"{name}.hatchet").read_text())[:1]
    return found


def _inclusive(nodes: list[dict[str, Any]], above: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Return the time of each scope with all in it, by its path: the viewer's `time (inc)`."""
    found: dict[tuple[str, ...], int] = {}
    for node in nodes:
        path = (*above, node["frame"]["name"])
        if node["children"]:
            found[path[1:]] = node["metrics"].get("time (ns)", 0) + summed(node["children"])
            found |= _inclusive(node["children"], path)
    return found


@pytest.mark.parametrize("name", ["run", "captured"])
def test_totals_are_the_viewers(name: str) -> None:
    timeline = open_trace(FIXTURES / f"{name}.hatchet")
    total = sum(timeline.activities["dur_ns"].to_pylist())
    assert abs(total - summed(_tree(name))) <= US
    by_scope: dict[str, int] = {}
    for module, dur in zip(*(timeline.activities[each].to_pylist() for each in ("module", "dur_ns")), strict=True):
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            by_scope[".".join(parts[:depth])] = by_scope.get(".".join(parts[:depth]), 0) + dur
    expected = {
        ".".join(p for p in path if p != "<captured_at>"): ns for path, ns in _inclusive(_tree(name)).items() if path
    }
    assert by_scope
    for scope, ns in by_scope.items():
        assert abs(ns - expected[scope]) <= US, scope


def test_a_tree_and_a_trace_of_one_run_agree() -> None:
    tree, trace = (open_trace(FIXTURES / name) for name in ("run.hatchet", "run.chrome_trace"))
    of_tree = {(row["name"], row["module"]): (row["dur_ns"], row["calls"]) for row in tree.activities.to_pylist()}
    of_trace: dict[tuple[str, str], tuple[int, int]] = {}
    for row in trace.activities.to_pylist():
        ns, calls = of_trace.get((row["name"], row["module"]), (0, 0))
        of_trace[row["name"], row["module"]] = ns + row["dur_ns"], calls + 1
    assert set(of_tree) == set(of_trace)
    for place, (ns, calls) in of_tree.items():
        assert calls == of_trace[place][1]
        assert abs(ns - of_trace[place][0]) <= US


def test_what_the_kernels_state_is_believed_and_the_gpu_is_told() -> None:
    timeline = open_trace(FIXTURES / "run.hatchet")
    stated = {row["name"]: row["stated_bytes"] for row in timeline.activities.to_pylist() if row["stated_bytes"]}
    tensor = 2048 * 4096 * 2  # bytes
    assert stated == {"rms_norm_kernel": 3 * 2 * tensor, "silu_mul_kernel": 3 * 3 * tensor}
    assert scan(FIXTURES / "run.hatchet").trace.gpu == "NVIDIA H200 SXM"


def test_a_graphs_kernels_are_in_the_scope_of_its_replay() -> None:
    for name, scope in (("run", "step.replay"), ("captured", "step.replay.capture")):
        timeline = open_trace(FIXTURES / f"{name}.chrome_trace")
        assert timeline.activities["module"].to_pylist().count(scope) == 18  # six of each step


def test_a_first_kernel_far_off_is_no_damage() -> None:
    """Its launch took 42 ms, as it loaded what the hooks need."""
    timeline = open_trace(FIXTURES / "run.chrome_trace")
    assert not timeline.meta.ingest.unusable
    assert not timeline.meta.ingest.doubts


def test_no_chain_goes_from_a_step_into_the_next() -> None:
    timeline = open_trace(FIXTURES / "run.chrome_trace")
    rows = analysed(timeline).rows["activities"]
    chain = rows.columns["chain"].values.tolist()  # type: ignore[union-attr]
    norms = [at for at, name in enumerate(timeline.activities["name"].to_pylist()) if name == "rms_norm_kernel"]
    assert len(norms) == 3
    for begin in norms[1:]:
        assert set(chain[:begin]).isdisjoint(chain[begin:])


def test_kernels_of_pytorch_are_links_of_a_chain_and_tritons_are_not() -> None:
    timeline = open_trace(FIXTURES / "run.chrome_trace")
    by_hand = flags(analysed(timeline).rows["activities"], "handwritten")
    names = timeline.activities["name"].to_pylist()
    assert {names[at] for at in by_hand.nonzero()[0].tolist()} >= {"rms_norm_kernel", "silu_mul_kernel"}
    assert not [name for name, own in zip(names, by_hand.tolist(), strict=True) if own and name.startswith("_Z")]


@pytest.mark.parametrize("name", ["run", "captured"])
def test_steps_of_kernels_alone_are_passes_through_their_scopes(name: str) -> None:
    """The first one took 42 ms, as its kernels were loaded, and tells nothing of what a step takes."""
    step = scan(FIXTURES / f"{name}.chrome_trace").summary.per_step
    assert step is not None
    assert (step.source, step.count) == ("repeating kernels", 2)
    assert 0.3e6 < step.span_ns < 0.5e6
    assert [(each.number, each.why) for each in step.apart] == [(0, "slow")]
