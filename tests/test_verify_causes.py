"""The tables of the scripts that verify fixes of labelled programs, and say which fusions are verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.proofs import catalogue_rows, verify_causes

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


def row(**change: Any) -> dict[str, Any]:
    found = {
        "key": "a b 0", "program": "a", "cause": "attention", "rule": "b", "level": "L5", "says": "", "refused": None,
        "way": "flash", "unfixed_ns": 1000, "predicted_ns": [500, 700, 800], "eager_ns": 1000, "fixed_ns": 400,
        "compiled_ns": None,
    }  # fmt: skip
    return found | change


def test_the_error_is_a_share_of_the_unfixed_time_and_only_right_rows_count() -> None:
    slower = row(fixed_ns=1100, level="L3")
    longer = row(eager_ns=2000, fixed_ns=800, traced_ns=1000)  # run again it takes twice as long as in the trace
    rows = [row(), slower, longer, row(level="L0", fixed_ns=None, says="why", refused="not rebuilt: x")]
    lines = list(verify_causes.summary(rows))
    assert lines[0] == "4 findings of 1 programs; 3 right and timed"
    assert lines[1] == (
        "mean error 46.7 % of the unfixed time; sign right in 2 of 3; intervals are 30 % of it wide in the median"
    )
    assert lines[2] == "the interval holds what was measured in 1 of 3 (33 %)"
    assert lines[3].endswith("in 2 of 3 (67 %)")
    assert lines[4] == "1 not timed, attention: not rebuilt: x"
    assert sum(line.startswith("| a |") for line in verify_causes.table(rows)) == 3


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row(key="c"))[:40])
    assert [r["key"] for r in verify_causes.kept(path)] == ["a b 0"]
    assert verify_causes.kept(tmp_path / "none") == []


def test_a_fusion_counts_where_it_is_right_and_faster() -> None:
    (fusion,) = [each for each in catalogue_rows.ROWS if each.number == 21]
    causes = [row(), row(level="L3"), row(cause="tf32")]
    assert catalogue_rows.verified(fusion, [], [], causes) == [("flash in a", "L5", 2.5)]
    library = [{"stem": fusion.stems[0], "name": "llama", "level": "L1", "eager_ns": 2, "fused_ns": 1}]
    assert catalogue_rows.verified(fusion, [], library, []) == []
    chain = {"name": "rope", "size": "large", "dtype": "bfloat16", "level": "L3", "eager_ns": 2, "fused_ns": 1}
    assert catalogue_rows.of_catalogue([chain], "rope") is None
    small = chain | {"level": "L4", "size": "small"}
    assert catalogue_rows.of_catalogue([chain, small, small | {"size": "medium"}], "rope") == small | {"size": "medium"}


def test_enough_fusions_are_verified_and_every_other_says_why() -> None:
    names = ("verify_catalogue.json", "verify_library.json")
    catalogue, library = (json.loads((RESULTS / "h200" / name).read_text())["rows"] for name in names)
    causes = verify_causes.kept(RESULTS / "h100" / "verify_causes.jsonl")
    lines = list(catalogue_rows.table(catalogue, library, causes))
    assert [each.number for each in catalogue_rows.ROWS] == [*range(1, 36)]
    assert int(lines[-1].split()[0]) >= catalogue_rows.WANTED
    assert all(each.why_not or each.chains or each.stems for each in catalogue_rows.ROWS)
    kept = (RESULTS / "catalogue_rows.md").read_text()
    assert kept == "\n".join([catalogue_rows.HEAD, *lines]) + "\n"
