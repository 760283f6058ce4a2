"""A step of two ranks: what each computes is compared, and none waits for one that failed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

from tracemine.apply.compare import computed_in, faults
from tracemine.apply.questions import RANKS, Checked, TrialJob
from tracemine.apply.ranks import RankFailed, Ranks, together
from tracemine.processes import Process, worker

HERE = str(Path(__file__).parent)


def job(folder: Path, name: str, *, first: bool = False) -> TrialJob:
    start, out = str(folder / "start.pt"), str(folder / f"{name}.pt")
    return TrialJob(entry="ranked:build", folder=HERE, start=start, out=out, first=first, curve=4, ranks=2)


def test_ranks_answer_as_one_and_what_each_computes_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Process(worker(RANKS), {}) as process:
        line = process.ask(msgspec.json.encode(job(tmp_path, "base", first=True)), 600)
        said = msgspec.json.decode(line, type=Checked)
        assert (said.error, len(said.losses)) == (None, 4)
        for _ in range(2):  # each rank is asked once a question, or the next answer is another's
            assert int(process.ask(b"3", 600)) > 0
    base = computed_in(tmp_path / "base.pt")
    own, theirs = base["output of batch 0"], base["output of batch 0 of rank 1"]
    assert own[1] != theirs[1]  # of other rows
    gradients = {name: value for name, value in base.items() if name.startswith("gradient of ")}
    assert len(gradients) == 2 * 2 * 4  # of ranks, batches, parameters
    for name, (_, value) in gradients.items():
        if "rank" not in name:
            assert value.equal(gradients[f"{name} of rank 1"][1])  # their mean

    monkeypatch.setenv("PLANTED", "wrong")
    with ExitStack() as stack:
        assert Ranks(2, stack).begin(job(tmp_path, "wrong")).error is None
    wrong = faults(base, computed_in(tmp_path / "wrong.pt"), [base])
    assert any(fault.startswith("gradient of ") for fault in wrong) or wrong[-1].endswith("others")
    assert not [fault for fault in wrong if fault.startswith("output of batch 0:")]  # that is the first rank's own
    assert faults(base, base, [base]) == []


@pytest.mark.parametrize(("planted", "says"), [("raises", "rank 1: ValueError: no"), ("crashes", "rank 0: ended with")])
def test_a_rank_that_fails_is_named_and_no_other_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, says: str
) -> None:
    monkeypatch.setenv("PLANTED", planted)
    with ExitStack() as stack:
        ranks = Ranks(2, stack)
        error = ranks.begin(job(tmp_path, "base", first=True)).error
        assert error is not None
        assert error.startswith(says)
        with pytest.raises(RankFailed, match="SIGKILL"):
            ranks.ask(b"1")


def test_the_slowest_rank_is_the_step_and_the_mean_of_losses_its_loss() -> None:
    first = Checked(step_ns=4, peak_bytes=9, free_bytes=7, losses=(1.0, 2.0))
    both = together([first, Checked(step_ns=5, peak_bytes=8, free_bytes=6, losses=(3.0, None))])
    assert (both.step_ns, both.peak_bytes, both.free_bytes, both.losses) == (5, 9, 6, (2.0, None))
