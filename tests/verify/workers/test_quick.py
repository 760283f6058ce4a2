"""`verify --quick`: processes begin early, each file is timed as soon as it is compiled, what is known is not again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.verdicts.test_verdict import ran
from tracemine.verify import pipeline
from tracemine.verify.pipeline import How
from tracemine.verify.workers import quick
from tracemine.verify.workers.quick import LEFT_OUT, Quick, Runner, graph_key, kept_in

ROOT = Path(__file__).parents[3]
DECODE = ROOT / "fixtures" / "captures" / "decoder_decode"
FILE = '"""A chain of one trace."""\n\nCHECK = Reproduction(file=__file__, fingerprint="0", title="A chain", ulp=1.0)\n'


class Machine:
    """Stands in for `Runner.run`: notes what is asked, and says what a GPU of a name would."""

    def __init__(self) -> None:
        self.name, self.asked, self.lock = "GPU", list[tuple[str, str, dict[str, Any]]](), threading.Lock()
        self.answer: Any = ran()

    def __call__(self, runner: Runner, text: str, function: str, limit_s: float, **options: Any) -> Any:
        if "get_device_name" in text:
            return {"gpu": self.name, "with": ["2.11", "3.6"]} if function == "results" else {}
        with self.lock:
            self.asked.append((text, function, options))
        return self.answer if function == "results" else {}

    def functions(self) -> list[str]:
        return [function for _, function, _ in self.asked]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine()
    monkeypatch.setattr(Runner, "run", lambda *given, **named: found(*given, **named))
    monkeypatch.setattr(quick, "at_once", lambda: 2)
    yield found


def test_a_file_is_compiled_then_timed_without_torch_compile_and_never_again(machine: Machine, tmp_path: Path) -> None:
    for _ in range(2):
        with Quick(tmp_path) as quick:
            assert quick.gpu == "GPU"
            quick.start([FILE])
            found = quick.timed(FILE)
            assert isinstance(found, dict)
            assert found["times"] == ran()["times"]
    assert machine.functions() == ["compile_only", "results"]
    assert all(options["compiles"] == () for *_, options in machine.asked)


def test_another_gpu_another_torch_or_another_graph_is_not_known(machine: Machine, tmp_path: Path) -> None:
    for name, text in (("GPU", FILE), ("another", FILE), ("GPU", FILE.replace("ulp=1.0", "ulp=2.0"))):
        machine.name = name
        with Quick(tmp_path) as quick:
            quick.timed(text)
    assert machine.functions() == ["results"] * 3
    assert len(list(tmp_path.iterdir())) == 3
    assert graph_key(FILE, ("GPU", "2.11")) != graph_key(FILE, ("GPU", "2.12"))


def test_the_same_graph_of_another_finding_is_known() -> None:
    other = FILE.replace("one trace", "another trace").replace('"0"', '"1"').replace("A chain", "Another chain")
    assert other != FILE
    assert graph_key(other, ("GPU",)) == graph_key(FILE, ("GPU",))


def test_what_failed_is_tried_again_and_what_lies_damaged_is_made_anew(machine: Machine, tmp_path: Path) -> None:
    machine.answer = "the GPU took longer than 60 s"
    with Quick(tmp_path) as quick:
        assert [quick.timed(FILE), quick.timed(FILE)] == [machine.answer] * 2
        machine.answer = ran()
        assert isinstance(quick.timed(FILE), dict)
        next(tmp_path.iterdir()).write_text("[")
        assert isinstance(quick.timed(FILE), dict)
    assert machine.functions() == ["results"] * 4


def test_where_nothing_can_be_kept_all_the_same_is_said(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Quick(tmp_path / "file") as quick:
        assert isinstance(quick.timed(FILE), dict)


def test_without_a_gpu_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Runner, "run", lambda *_, **__: "this needs a GPU, and torch finds none")
    with Quick(tmp_path) as quick:
        assert quick.gpu is None


def test_verdicts_are_those_of_eager_and_the_kernel_and_no_cpu_validates(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from tracemine.pipeline import analyse, mined

    times = {**ran()["times"], "compile_failed": None}
    for judged in times["judged"].values():
        judged.pop("compiled", None)
    times["samples"] = {
        state: {n: s for n, s in each.items() if n != "compiled"} for state, each in times["samples"].items()
    }
    machine.answer = {**ran(), "times": times}
    validated: list[object] = []
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *given: validated.append(given))
    analysis = analyse(DECODE)
    some = pipeline.fusable(mined(analysis).findings)[:3]
    with Quick(tmp_path) as quick:
        how = How(gpu="GPU", quick=quick)
        verdicts = list(pipeline.verify(some, analysis.dataflow, analysis.groups, how))
    assert [v.level for v in verdicts] == ["L4"] * 3
    assert all(f"L2: {LEFT_OUT}" in v.not_tested for v in verdicts)
    assert all(any(text.startswith("L5: torch.compile was left out") for text in v.not_tested) for v in verdicts)
    assert validated == []
    assert machine.functions().count("results") == 3


def test_results_are_kept_in_the_users_cache() -> None:
    assert (
        kept_in({"XDG_CACHE_HOME": "here"}) == Path("~/.cache/tracemine/verified").expanduser()
    )  # not a folder of its own
    assert kept_in(os.environ).parts[-2:] == ("tracemine", "verified")
