"""Findings as tables say what the findings say, and join with the timeline's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import msgspec
import pyarrow.parquet as pq
import pytest

from tests.report.scans import EMPTY, HOSTILE_STRINGS, LITTLE, NORM, SCAN, VERIFIED, hostile
from tracemine import pipeline
from tracemine.findings.record import Scan
from tracemine.findings.tables import FINDINGS, OCCURRENCES, findings_table, occurrences_table

FIXTURES = Path(__file__).parents[2] / "fixtures"
Run = Callable[..., tuple[int, str, str]]


def test_a_row_says_what_its_finding_says() -> None:
    rows = findings_table(SCAN).to_pylist()
    assert [row["fingerprint"] for row in rows] == [finding.fingerprint for finding in SCAN.findings]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    norm = rows[SCAN.findings.index(NORM)]
    assert (
        norm
        | {
            "trace": "runs/decoder.json.gz",
            "gpu_saving_low_ns": 310_000,
            "gpu_saving_ns": 412_000,
            "gpu_saving_high_ns": 520_000,
            "per_step_saving_ns": 19_000,
            "step_saving_share": 0.0038,
            "traffic_before_bytes": 672_000_000,
            "file": "/opt/lib/transformers/models/llama/modeling_llama.py",
            "line": 71,
            "line_begins_function": True,
            "variants": 2,
            "ops": list(NORM.ops),
            "verdict_level": None,
        }
        == norm
    )


def test_what_is_not_recorded_is_null_and_never_zero() -> None:
    gap = next(row for row in findings_table(SCAN).to_pylist() if row["rule"] == "launch_gap")
    for name in ("fused_ns", "traffic_before_bytes", "flops", "file", "line", "shapes", "module", "verdict_eager_ns"):
        assert gap[name] is None
    assert gap["gpu_saving_ns"] == 0  # this is known


def test_what_a_report_does_not_show_is_marked() -> None:
    shown = {row["fingerprint"]: row["reported"] for row in findings_table(SCAN).to_pylist()}
    assert [mark for mark, reported in shown.items() if not reported] == [LITTLE.fingerprint]


def test_a_verdict_is_beside_what_was_predicted() -> None:
    levels = [row["verdict_level"] for row in findings_table(VERIFIED).to_pylist()]
    assert any(level is not None for level in levels)


@pytest.mark.parametrize("scan", [EMPTY, SCAN, VERIFIED, *map(hostile, HOSTILE_STRINGS)])
def test_tables_are_of_their_schema_and_whole(scan: Scan) -> None:
    for table, of in ((findings_table(scan), FINDINGS), (occurrences_table(scan), OCCURRENCES)):
        assert table.schema == of.schema
        table.validate(full=True)
        for field in of.schema:
            assert field.nullable or not table[field.name].null_count


def test_occurrences_are_of_the_variants_in_their_order() -> None:
    variants = tuple(msgspec.structs.replace(one, occurrences=1) for one in NORM.variants)
    norm = msgspec.structs.replace(NORM, occurrences=2, variants=variants)
    rows = occurrences_table(msgspec.structs.replace(SCAN, findings=(norm,))).to_pylist()
    assert [(row["variant"], row["occurrence"], row["position"], row["activity_row"]) for row in rows] == [
        *((0, 0, 0, 12), (0, 0, 1, 13), (0, 0, 2, 14)),
        *((1, 1, 0, 52), (1, 1, 1, 53), (1, 1, 2, 54)),
    ]
    assert [row["variant_fingerprint"] for row in rows[::3]] == [one.identity.finding for one in variants]


def test_an_occurrence_without_an_activity_is_counted_all_the_same() -> None:
    gap = next(finding for finding in SCAN.findings if finding.rule == "launch_gap")
    assert gap.activities == ((),)
    rows = occurrences_table(msgspec.structs.replace(SCAN, findings=(gap,))).to_pylist()
    assert [(row["occurrence"], row["activity_row"]) for row in rows] == [(0, None)]


def test_a_number_beyond_64_bits_is_an_error_and_not_another_number() -> None:
    scan = msgspec.structs.replace(SCAN, findings=(msgspec.structs.replace(NORM, flops=1 << 63),))
    with pytest.raises(OverflowError):
        findings_table(scan)


@pytest.mark.parametrize("trace", ["captures/decoder_prefill", "captures/convnet_train", "nsys/block_train.sqlite"])
def test_occurrences_add_up_to_what_their_findings_measured(trace: str, tmp_path: Path) -> None:
    analysis = pipeline.analyse(FIXTURES / trace)
    found = pipeline.mined(analysis)
    pipeline.write_tables(analysis, found, tmp_path / "out")
    query = """
        select f.fingerprint, any_value(f.measured_ns), sum(a.dur_ns), count(distinct o.occurrence)
        from 'findings.parquet' f join 'occurrences.parquet' o using (fingerprint)
        join 'activities.parquet' a on a.row = o.activity_row
        where f.fused_ns is not null group by f.fingerprint"""
    for name in ("findings", "occurrences", "activities"):
        query = query.replace(f"'{name}.parquet'", f"'{tmp_path}/out/{name}.parquet'")
    answer = duckdb.sql(query)
    assert answer is not None
    rows = answer.fetchall()
    assert {row[0]: row[3] for row in rows} == {f.fingerprint: f.occurrences for f in found.findings if f.fused_ns}
    assert rows
    for fingerprint, measured_ns, activities_ns, _ in rows:
        assert measured_ns == activities_ns, fingerprint


def test_scan_keeps_the_trace_and_its_findings_and_prints_its_report(run: Run, tmp_path: Path) -> None:
    trace = FIXTURES / "captures" / "chain"
    code, out, err = run("scan", trace, "--format", "json", "--parquet", tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    stored = pq.read_table(tmp_path / "out" / "findings.parquet")
    assert stored["fingerprint"].to_pylist() == [one["fingerprint"] for one in json.loads(out)["findings"]]
    again, out_again, _ = run("scan", tmp_path / "out", "--format", "json", "--parquet", tmp_path / "out", "--quiet")
    assert again == 0
    same = {"trace": None, "warnings": None}
    assert json.loads(out_again) | same == json.loads(out) | same
    assert pq.read_table(tmp_path / "out" / "findings.parquet").drop(["trace"]) == stored.drop(["trace"])


def test_the_tables_are_of_one_trace(run: Run, tmp_path: Path) -> None:
    code, out, err = run("scan", FIXTURES / "captures", "--parquet", tmp_path / "out", "--quiet")
    assert (code, out) == (2, "")
    assert "--parquet: belongs to one trace, and 5 are named" in err
    assert not (tmp_path / "out").exists()


def test_what_else_lies_in_the_folder_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    code, _, err = run("scan", FIXTURES / "captures" / "chain", "--parquet", tmp_path / "out", "--quiet")
    assert code == 2
    assert "exists and is not a timeline directory" in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_pandas_is_not_loaded_to_write_tables(tmp_path: Path) -> None:
    arguments = ["scan", "fixtures/captures/chain", "--parquet", str(tmp_path / "out"), "-o", str(tmp_path / "text")]
    code = f"import sys; from tracemine.cli import main; main({arguments}); print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FIXTURES.parent, check=True)
    assert done.stdout == "False\n"
