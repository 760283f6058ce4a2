"""Programs of JAX recorded on an H200, with one cause and without: what is said of them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from tracemine import pipeline
from tracemine.findings import Scan

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "jax"
ROWS = {
    (row["program"], row["variant"]): row["step_ms"] for row in json.loads((FOLDER / "pairs.json").read_text())["rows"]
}
# Why each is slow.
CAUSES = {
    "attention_train": "xla_attention_unfused",
    "attention_forward": "xla_attention_unfused",
    "op_by_op": "xla_op_by_op",
    "op_by_op_loss": "xla_op_by_op",
    "highest": "xla_float32_product",
    "odd_vocabulary": "xla_odd_product",
    "loss_scatter": "xla_dense_scatter",
    "scan_lstm": "xla_scan_small",
    "scan_filter": "xla_scan_small",
    "asked_each": "host_sync",
}
# Its host then launches ahead, which is another finding's: gaps between launches.
MORE = {"asked_each": 0.05}


def scanned(program: str, variant: str, folder: Path) -> Scan:
    raw = folder / "host.xplane.pb"
    raw.write_bytes(lzma.decompress((FOLDER / program / f"{variant}.xplane.pb.xz").read_bytes()))
    return pipeline.scan(raw)


def step_ns(scan: Scan) -> int:
    unprofiled = None if scan.summary.per_step is None else scan.summary.per_step.unprofiled_ns
    assert unprofiled is not None
    return unprofiled.mid


@pytest.mark.parametrize("program", CAUSES)
def test_a_cause_is_found_first_and_saves_what_it_did(program: str, tmp_path: Path) -> None:
    rule = CAUSES[program]
    scan = scanned(program, "before", tmp_path)
    assert scan.findings[0].rule == rule
    own = scan.findings[0].per_step
    assert own is not None
    won = 1 - ROWS[program, "after"] / ROWS[program, "before"]
    low, high = (each / step_ns(scan) for each in (own.step_saving_ns.low, own.step_saving_ns.high))
    assert low <= won <= high + MORE.get(program, 0.0)


CLEAN = [name for name, variant in ROWS if variant == "clean"]
FIXED = [("attention_train", "after"), ("highest", "after"), ("odd_vocabulary", "after"), ("loss_scatter", "after")]


@pytest.mark.parametrize(("program", "variant"), [*((name, "clean") for name in CLEAN), *FIXED])
def test_nothing_of_three_percent_is_said_where_nothing_is_left(program: str, variant: str, tmp_path: Path) -> None:
    scan = scanned(program, variant, tmp_path)
    said = [one for one in scan.findings if one.per_step and one.per_step.step_saving_ns.mid >= 0.03 * step_ns(scan)]
    assert not said
