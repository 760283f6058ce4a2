"""Labelled recordings of JAX: what must be found first, and what must not be said; skipped without them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.causes.xla_recordings import classes_us
from tracemine.findings import Scan
from tracemine.pipeline import Analysis, analyse, mined

FOLDER = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "")) / "jax"
pytestmark = pytest.mark.skipif(
    "TRACEMINE_COMPAT_TRACES" not in os.environ or not FOLDER.is_dir(), reason="no recordings at hand"
)
# Median step before the profiler was started, ms.
ALONE = {
    "train_spelled": 15.64,
    "train_cudnn": 10.90,
    "eager_chain": 5.10,
    "sync_each": 1.91,
    "scan_lstm": 3.93,
    "data_parallel": 5.01,
}


@cache
def read(name: str) -> Analysis:
    return analyse(FOLDER / name / "host.xplane.pb.gz")


@cache
def scanned(name: str) -> Scan:
    return mined(read(name))


def per_step_us(scan: Scan, rule: str, what: str) -> tuple[float, float, float]:
    found = [getattr(finding, what) for finding in scan.findings if finding.rule == rule]
    if what == "measured_ns":
        return (sum(found) / scan.trace.steps / 1000,) * 3
    per_step = [finding.per_step for finding in scan.findings if finding.rule == rule]
    ends = [(one.step_saving_ns.low, one.step_saving_ns.mid, one.step_saving_ns.high) for one in per_step if one]
    low, mid, high = map(sum, zip(*ends, strict=True))  # none: an error
    return low / 1000, mid / 1000, high / 1000


def test_n1_every_kernel_of_a_replayed_step_has_its_instruction() -> None:
    analysis = read("train_spelled")
    activities = analysis.timeline.activities
    assert (activities.num_rows, activities["op_row"].null_count) == (798, 0)
    assert analysis.timeline.instructions.num_rows == 3 * 244
    reads, edges = analysis.dataflow.reads, analysis.dataflow.edges
    assert len(np.unique(edges.read)) == 3 * 397  # of each array that is read one or more
    assert (reads.evidence[edges.read] == 2).all()
    found = classes_us(analysis)
    assert {name: round(us, 1) for name, us in found.items() if us} == {
        "product": 23_597.1,
        "reduction": 12_796.4,
        "elementwise": 5_904.5,
        "movement": 2_879.9,
    }


@pytest.mark.parametrize(
    ("name", "owned", "others"),
    [
        ("train_cudnn", 699, 0),
        ("scan_lstm", 4_617, 0),
        ("data_parallel", 3_120, 0),
        ("eager_chain", 264, 60),
        ("sync_each", 96, 24),
    ],
)
def test_n7_and_others_are_joined(name: str, owned: int, others: int) -> None:
    column = read(name).timeline.activities["op_row"]
    assert (len(column) - column.null_count, column.null_count) == (owned, others)


def test_n2_attention_is_found_first_and_saves_what_it_did() -> None:
    scan = scanned("train_spelled")
    assert scan.findings[0].rule == "xla_attention_unfused"
    assert per_step_us(scan, "xla_attention_unfused", "measured_ns")[1] == pytest.approx(5_698, rel=0.03)
    low, mid, high = per_step_us(scan, "xla_attention_unfused", "step_saving_ns")
    assert low < 4_738 < high
    assert abs(mid - 4_738) < 0.08 * 15_640
    assert 'implementation="cudnn"' in scan.findings[0].fix
    assert not [finding for finding in scan.findings if finding.rule.endswith("launch_gap")]


def test_n3_the_control_has_nothing_but_its_loss() -> None:
    scan = scanned("train_cudnn")
    assert {finding.rule for finding in scan.findings} <= {"xla_dense_scatter", "host_sync"}
    assert per_step_us(scan, "xla_dense_scatter", "step_saving_ns")[1] <= 961


def test_n4_a_step_that_is_not_jitted_is_found_first() -> None:
    scan = scanned("eager_chain")
    first = scan.findings[0]
    assert first.rule == "xla_op_by_op"
    assert "jax.jit" in first.fix
    assert scan.summary.per_step is not None
    unprofiled = scan.summary.per_step.unprofiled_ns
    assert unprofiled is not None
    assert unprofiled.mid == pytest.approx(5_100_000, rel=0.2)  # and not the 9.7 ms that were recorded
    assert per_step_us(scan, first.rule, "step_saving_ns")[1] < unprofiled.mid / 1000


def test_n5_the_wait_for_a_value_is_found_first() -> None:
    scan = scanned("sync_each")
    assert scan.findings[0].rule == "host_sync"
    assert not {finding.rule for finding in scan.findings} & {"xla_float32_product", "pageable_copy"}


def test_n6_the_loop_is_found_first_and_gaps_of_the_recording_are_not_sold() -> None:
    scan = scanned("scan_lstm")
    assert scan.findings[0].rule == "xla_scan_small"
    assert "lax.scan" in scan.findings[0].fix
    gaps = [per_step_us(scan, finding.rule, "step_saving_ns")[1] for finding in scan.findings if not finding.on_gpu]
    assert sum(gaps) <= 380


def test_n7_only_the_uncovered_part_of_collectives_costs() -> None:
    scan = scanned("data_parallel")
    costs = [one.per_step.measured_ns for one in scan.findings if one.rule == "communication_exposed" and one.per_step]
    cost = sum(costs) / 4_000  # GPUs, in microseconds
    assert 475 <= cost <= 504
    assert not [warning for warning in scan.warnings if "straggler" in warning or "slow rank" in warning]


@pytest.mark.parametrize("name", ALONE)
def test_n9_no_fix_speaks_of_torch(name: str) -> None:
    scan = scanned(name)
    assert scan.trace.gpu == "NVIDIA H100 80GB HBM3"
    for finding in scan.findings:
        assert "torch" not in finding.fix, finding.rule


@pytest.mark.parametrize("name", ALONE)
def test_no_saving_is_above_what_the_kernels_took(name: str) -> None:
    for finding in scanned(name).findings:
        if finding.on_gpu:
            assert finding.gpu_saving_ns.high <= finding.measured_ns, finding.rule
