"""What a data set says over all jobs, held against figures summed up by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tracemine.cli import main
from tracemine.columns import of_values
from tracemine.errors import InputError, UsageError
from tracemine.fleet.dataset import FLEET_FINDINGS, RUNS, Dataset, Generation
from tracemine.fleet.report import hours_of, report
from tracemine.fleet.text import render
from tracemine.report import Drawing
from tracemine.timeline import TableSchema

_DEFAULTS: Mapping[pa.DataType, Any] = {
    pa.string(): "", pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): True, pa.list_(pa.string()): [],
}  # fmt: skip


def table(of: TableSchema, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of a table; what they do not give is null, or nothing where it may not be null."""
    arrays = [
        of_values([row.get(c.name, None if c.null is not None else _DEFAULTS[c.type]) for row in rows], c.type)
        for c in of.columns
    ]
    return pa.Table.from_arrays(arrays, schema=of.schema)


class Made:
    """A data set in the making."""

    def __init__(self, folder: Path) -> None:
        self.dataset = Dataset(str(folder))
        self.dataset.begin(Generation(digest="d", tracemine="0", options={}))
        self._count = 0

    def run(self, job: str, day: str, shares: Mapping[str, float], **about: Any) -> None:
        """A scanned trace; shares: of its steps, by rule, what a finding saves."""
        self._count += 1
        key = f"{self._count:032}"
        own = {"key": key, "generation": 1}
        row = own | {"uri": f"{job}/{key}", "content_sha256": key, "job": job, "status": "scanned", "steps": 2}
        row |= {"size_bytes": 10, "span_ns": 2000, "unprofiled_step_ns": 1000} | about
        findings = [
            own
            | {"fingerprint": f"{rule:0<16}", "rule": rule, "title": rule.title(), "step_saving_share": share}
            | {"step_saving_low_ns": 500, "step_saving_ns": 1000, "step_saving_high_ns": 2000}
            | {"per_step_saving_ns": int(1000 * share)}
            for rule, share in shares.items()
        ]
        tables = {"runs": table(RUNS, [row]), "findings": table(FLEET_FINDINGS, findings)}
        self.dataset.write(day, key, tables)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    found = Made(tmp_path / "set")
    found.run("llama", "2026-11-21", {"gap": 0.4, "norm": 0.1})
    found.run("llama", "2026-11-22", {"gap": 0.2}, gpu="H100")
    found.run("llama", "2026-11-22", {"gap": 0.1}, gpu="H100", unprofiled_step_ns=900)
    found.run("vit", "2026-11-22", {"gap": 0.1, "cast": 0.3}, gpu="H200")
    found.run("vit", "2026-11-22", {"gap": 0.9}, content_sha256="3".zfill(32), uri="vit/zcopy", status="refused",
              message="vit/zcopy: is empty")  # fmt: skip
    return found


def test_a_cause_costs_its_share_of_each_jobs_hours(made: Made) -> None:
    found = report(made.dataset.uri, hours={"llama": 100, "vit": 10}, price=2)
    assert [(one.rule, one.jobs, one.traces) for one in found.causes] == [("gap", 2, 3), ("cast", 1, 1)]
    gap, cast = found.causes
    assert gap.gpu_hours == pytest.approx(100 * 0.15 + 10 * 0.1)  # the newest day, the mean of its traces
    assert (gap.gpu_hours_low, gap.gpu_hours_high) == pytest.approx((gap.gpu_hours / 2, gap.gpu_hours * 2))
    assert cast.gpu_hours == pytest.approx(3) and cast.cost == pytest.approx(6)
    assert (gap.worst_job, gap.fingerprint) == ("llama", "gap0000000000000")
    assert found.totals.gpu_hours == 110 and not found.totals.assumed


def test_hours_that_are_not_given_are_spread_evenly(made: Made) -> None:
    found = report(made.dataset.uri)
    assert found.totals.assumed and found.totals.gpu_hours == 1000
    assert found.causes[0].gpu_hours == pytest.approx(500 * 0.3)  # cast, in one of two jobs
    assert found.causes[0].cost is None


def test_causes_never_save_more_than_there_is(made: Made) -> None:
    made.run("greedy", "2026-11-22", {"gap": 0.9, "norm": 0.8})
    found = report(made.dataset.uri, hours={"greedy": 10})
    assert all(one.gpu_hours_high <= 10 for one in found.causes)


def test_what_is_gone_is_told_with_the_steps_before_and_after(made: Made) -> None:
    (gone,) = report(made.dataset.uri).gone
    assert (gone.job, gone.rule, gone.last_day, gone.next_day) == ("llama", "norm", "2026-11-21", "2026-11-22")
    assert (gone.said_ns, gone.step_before_ns, gone.step_after_ns) == (100, 1000, 950)


def test_the_same_content_counts_once_and_a_failure_is_told(made: Made) -> None:
    made.run("vit", "2026-11-22", {"gap": 0.9}, content_sha256="4".zfill(32), uri="vit/zz")
    found = report(made.dataset.uri)
    assert (found.totals.traces, found.totals.duplicates, found.totals.not_scanned) == (4, 1, 1)
    assert [(one.message, one.traces) for one in found.failures] == [("is empty", 1)]


def test_a_file_in_two_jobs_is_a_sample_of_each_and_copies_in_one_job_count_once(made: Made) -> None:
    same = {"content_sha256": "5".zfill(32)}
    for job, day, name in (("a", "2026-11-22", "z"), ("a", "2026-11-21", "b"), ("b", "2026-11-22", "c")):
        made.run(job, day, {"gap": 0.5}, uri=f"{name}/copy", **same)
    found = report(made.dataset.uri, hours={"a": 10, "b": 100})
    (gap,) = found.causes
    assert gap.gpu_hours == pytest.approx(55) and gap.jobs == 4  # llama and vit have no hours
    assert found.totals.duplicates == 1
    assert {one.name for one in found.groups["job"]} == {"a", "b", "llama", "vit"}
    assert [one.traces for one in report(made.dataset.uri, by=("day",)).groups["day"]] == [
        4,
        2,
    ]  # a's of the earlier day


def test_a_trace_in_which_nothing_ran_is_told_and_is_no_sample_of_its_job(made: Made) -> None:
    before = report(made.dataset.uri, hours={"vit": 10})
    made.run("vit", "2026-11-23", {}, activities=0)
    found = report(made.dataset.uri, hours={"vit": 10})
    assert found.causes == before.causes and found.totals.traces == before.totals.traces
    assert (found.totals.without_activities, found.totals.not_scanned) == (1, 1)
    assert [(one.status, one.message.partition(":")[0]) for one in found.failures] == [
        ("refused", "is empty"), ("scanned", "no kernel or copy is in it"),
    ]  # fmt: skip


@pytest.mark.parametrize("by", ["job", "model", "gpu", "day"])
def test_groups_are_of_all_that_counts(made: Made, by: str) -> None:
    found = report(made.dataset.uri, by=(by,)).groups[by]
    names = {"job": ["vit", "llama"], "model": [""], "gpu": ["H200", "H100"], "day": ["2026-11-22", "2026-11-21"]}
    assert [one.name for one in found] == names[by]
    assert sum(one.traces for one in found) == (4 if by == "day" else 3)
    assert found[0].largest in ("cast", "gap")


def test_an_empty_data_set_and_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data set"):
        report(str(tmp_path / "none"))
    empty = Made(tmp_path / "set")
    found = report(empty.dataset.uri)
    assert (found.totals.traces, found.causes) == (0, ())


def test_hours_are_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "hours.csv"
    file.write_text("job,gpu_hours,team\nllama,12.5,a\nvit,3,b\n")
    assert hours_of(file) == {"llama": 12.5, "vit": 3.0}
    for text in ("job,hours\nllama,3\n", "job,gpu_hours\nllama,many\n", "job,gpu_hours\nllama,-1\n"):
        file.write_text(text)
        with pytest.raises(InputError, match="hours"):
            hours_of(file)


def test_a_group_that_is_none_is_refused(made: Made) -> None:
    with pytest.raises(UsageError, match="--by"):
        report(made.dataset.uri, by=("job_name; drop table runs",))


def test_what_is_drawn_holds_escapes_as_text(made: Made) -> None:
    made.run("\x1b[31mred", "2026-11-22", {"[bold]gap": 0.5})
    out = StringIO()
    render(report(made.dataset.uri, price=2), out, Drawing(width=140, color=False))
    assert "\x1b" not in out.getvalue() and "[bold]gap" in out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_names_can_be_copied_whole_from_a_terminal(made: Made, width: int) -> None:
    made.run("llama_70b_pretraining", "2026-11-22", {"memory_bound_chain": 0.5})
    made.run("b", "2026-11-22", {}, status="refused", uri="s3://nightly/llama_70b_pretraining/2026-11-22/rank0.json.gz",
             message="is cut off before its first complete event")  # fmt: skip
    out = StringIO()
    render(report(made.dataset.uri, price=2, top=20), out, Drawing(width=width, color=False))
    text = out.getvalue()
    assert all(len(line.rstrip()) <= width for line in text.splitlines()) and "…" not in text
    assert all(name in text for name in ("memory_bound_chain", "norm000000000000"))
    assert "All fixes together save" in text


def test_what_is_gone_and_was_said_to_save_nothing_of_the_step_is_not_held_against_it(made: Made) -> None:
    assert [one.said_ns for one in report(made.dataset.uri).changes] == [100]
    made.run("quiet", "2026-11-21", {"gap": 0.0})
    made.run("quiet", "2026-11-22", {})
    found = report(made.dataset.uri)
    assert [one.said_ns for one in found.changes] == [100] and "quiet" in {one.job for one in found.gone}


def test_the_command_line_prints_both(made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["fleet", "report", made.dataset.uri, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["jobs"] == 2
    assert main(["fleet", "report", made.dataset.uri, "--by", "gpu", "-o", str(tmp_path / "r.txt")]) == 0
    text = (tmp_path / "r.txt").read_text()
    assert "What costs most" in text and "By gpu" in text and "Gone since" in text
    for wrong in (["--by", "x"], ["--price", "-1"], ["--top", "-1"], ["--format", "pdf"]):
        assert main(["fleet", "report", made.dataset.uri, *wrong]) == 2
