"""Tickets over a fleet: one a finding, with what it costs all jobs; found again, updated, not closed by absence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.test_report import Made, made
from tests.tickets.build import github, jira
from tests.tickets.server import running
from tracemine.errors import UsageError
from tracemine.fleet.tickets import tickets_of
from tracemine.tickets import Figures, TicketDraft, settle
from tracemine.tickets.markdown import body
from tracemine.tickets.marks import mark_in
from tracemine.tickets.record import NS_AN_HOUR

__all__ = ["made"]  # the fixture
HOURS = {"llama": 100.0, "vit": 10.0}
GAP, NORM, CAST = (f"fleet/{name:0<16}" for name in ("a0", "b0", "c0"))
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def jobs(tmp_path: Path) -> Made:
    """A gap in two jobs, a cast in one, a norm that is gone, and what is too small."""
    fleet = Made(tmp_path / "set")
    fleet.run("llama", "2026-11-20", {"a0": 0.4, "b0": 0.1})
    fleet.run("llama", "2026-11-22", {"a0": 0.1}, gpu="H100")
    fleet.run("llama", "2026-11-22", {"a0": 0.2, "d0": 0.0}, gpu="H100", uri="s3://k:s3cret@perf/llama/r.json?secret=x")
    fleet.run("vit", "2026-11-22", {"a0": 0.1, "c0": 0.3}, gpu="H200", model="vit-l")
    return fleet


def text(draft: TicketDraft) -> str:
    return body(draft)


def test_a_finding_has_one_ticket_however_many_jobs_have_it(jobs: Made) -> None:
    found = tickets_of(jobs.dataset.uri, "fleet", hours=HOURS, price=2.5)
    gap, cast = found.drafts
    assert (gap.mark.key, cast.mark.key) == (GAP, CAST)
    assert gap.mark.figures == Figures(round((100 * 0.15 + 10 * 0.1) * NS_AN_HOUR), 110 * NS_AN_HOUR, "fleet")
    assert gap.title == "A0: −16.0 GPU-hours in 2 jobs"
    said = text(gap)
    assert "Saves **16.0 GPU-hours** (8.0 to 32.0) of the 110.0 that 2 jobs with it take: 40.00 at 2.50" in said
    assert "| `llama` | 15.0 | 15.0% | 2 |" in said and "| `vit` | 1.0 | 10.0% | 1 |" in said
    assert "seen first on 2026-11-20, last on 2026-11-22" in said and "2 GPUs: `H100, H200`" in said
    assert "assumed" not in said and "1 model: `vit-l`" in said


def test_the_trace_that_shows_it_is_that_in_which_it_costs_most_and_names_no_secret(jobs: Made) -> None:
    gap, _ = tickets_of(jobs.dataset.uri, "fleet", hours=HOURS).drafts
    assert "tracemine explain a000000000000000 s3://perf/llama/r.json" in text(gap)
    assert "s3cret" not in text(gap) and "secret=x" not in text(gap)


def test_what_is_gone_or_too_small_gets_none(jobs: Made) -> None:
    found = tickets_of(jobs.dataset.uri, "fleet")
    assert found.others == {NORM: "gone", f"fleet/{'d0':0<16}": "too small"}
    assert "GPU-hours are assumed: 1,000" in text(found.drafts[0])


def test_figures_are_read_back_off_a_ticket(jobs: Made) -> None:
    for draft in tickets_of(jobs.dataset.uri, "fleet", hours={"llama": 1e12}).drafts:
        assert mark_in(body(draft)) == draft.mark


def test_redacted_tickets_name_no_job_model_trace_or_module(jobs: Made) -> None:
    jobs.run("secretjob", "2026-11-22", {"a0": 0.5}, model="secretmodel", uri="/home/ann/secretjob/secret.json")
    plain = "".join(text(one) + one.title for one in tickets_of(jobs.dataset.uri, "fleet").drafts)
    assert "secretjob" in plain and "secretmodel" in plain and "ann" not in plain
    drafts = tickets_of(jobs.dataset.uri, "fleet", redact=True).drafts
    said = "".join(text(one) + one.title for one in drafts)
    assert not [name for name in ("secret", "llama", "vit-l", "perf", str(jobs.dataset.uri)) if name in said]
    assert all(one.mark.redacted for one in drafts) and "`Job_" in said


@pytest.mark.parametrize("name", ["github", "jira"])
def test_a_ticket_is_found_again_updated_and_not_closed_by_absence(name: str, jobs: Made, tmp_path: Path) -> None:
    with running() as world, github(world) if name == "github" else jira(world) as service:

        def run(hours: dict[str, float] = HOURS) -> list[str]:
            found = tickets_of(jobs.dataset.uri, "fleet", hours=hours)
            return [one.kind for one in settle(found, service, apply=True, locks=tmp_path / "locks")]

        assert run() == ["create", "create"]
        assert run() == ["leave", "leave"]
        assert run({"llama": 105.0, "vit": 10.0}) == ["leave", "leave"]  # moved by less than a tenth
        assert run({"llama": 200.0, "vit": 10.0}) == ["update", "leave"]
        jobs.run("vit", "2026-11-23", {"a0": 0.1}, gpu="H200")  # the cast is gone
        found = tickets_of(jobs.dataset.uri, "fleet", hours={"llama": 200.0, "vit": 10.0})
        kept, gone = settle(found, service)
        assert (kept.kind, gone.kind, gone.key) == ("leave", "leave", CAST)
        assert gone.why == "no job has it any more: fixed, or not recorded; close it if it is fixed"
        assert [one["state"] for one in world.issues] == ["open", "open"]
    assert not world.violations


def test_the_command_changes_nothing_before_it_is_told_to(
    jobs: Made, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", "t0ken-of-tests")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with running() as world:
        where = ("--project", "fleet", "--github", "you/model", "--github-url", world.address)
        code, out, err = run("fleet", "tickets", jobs.dataset.uri, *where)
        assert (code, err) == (0, "nothing was changed: --apply does it\n")
        assert out.splitlines()[-2].startswith("create  C0: −150.0 GPU-hours in 1 job")
        assert not world.issues
        _, out, _ = run("fleet", "tickets", jobs.dataset.uri, *where, "--label", "perf", "--finding", 2)
        assert out.splitlines()[-1].startswith("create  A0: ") and out.endswith(" · label perf\n")
        assert (
            run("fleet", "tickets", jobs.dataset.uri, *where, "--finding", "c")[1].splitlines()[-1][:10] == "create  C0"
        )
        assert run("fleet", "tickets", jobs.dataset.uri, *where, "--apply", "--max", 1)[0] == 0
        assert len(world.issues) == 1
    code, out, _ = run("fleet", "tickets", jobs.dataset.uri, "--project", "fleet", "--out", tmp_path / "out")
    assert code == 0 and len(out.splitlines()) == 2 == len(list((tmp_path / "out").iterdir()))


def test_wrong_calls_are_refused(jobs: Made, run: Run) -> None:
    with pytest.raises(UsageError, match="--project"):
        tickets_of(jobs.dataset.uri, "two words")
    assert run("fleet", "tickets", jobs.dataset.uri, "--project", "fleet")[2].startswith("where to?")
    files = ("fleet", "tickets", jobs.dataset.uri, "--project", "fleet", "--out", "x")
    assert run(*files, "--finding", "9")[2].startswith("--finding: 0 findings begin with '9'")
    assert run(*files, "--label", "perf")[2].startswith("--label, --assignee, --milestone, --codeowners: are of a")
    assert run("fleet", "tickets", jobs.dataset.uri, "--project", "fleet", "--out", "x", "--price", "-1")[0] == 2
