"""What is compiled side by side before it is timed alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.verify.test_verdict import ran
from tracemine.verify import ahead, alone, findings
from tracemine.verify.ahead import Ahead, at_once, compilers
from tracemine.verify.findings import How

ROOT = Path(__file__).parents[2]
DECODE = ROOT / "fixtures" / "captures" / "decoder_decode"


class Runs:
    """Stands in for `alone.run`: notes who is run how."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str | None]] = []
        self.lock = threading.Lock()

    def __call__(
        self,
        text: str,
        options: Sequence[str],
        limit_s: float,
        *,
        environment: Mapping[str, str] | None = None,
        **words: Any,
    ) -> Any:
        with self.lock:
            folder = None if environment is None else environment["TORCHINDUCTOR_CACHE_DIR"]
            self.notes.append((text, options[0], folder))
        return "it ended with 1" if options[0] == "--compile-only" else ran()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()
    monkeypatch.setattr(alone, "run", found)
    monkeypatch.setattr(ahead, "at_once", lambda: 2)
    monkeypatch.setattr(findings, "at_once", lambda: 2)
    monkeypatch.setattr("tracemine.verify.proof.sandbox.Sandbox.prove", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.verify.proof.sandbox.Sandbox.answer", lambda *_: "not asked for")
    return found


def test_every_file_is_compiled_before_it_is_timed_and_two_are_never_timed_at_once(runs: Runs) -> None:
    pytest.importorskip("triton")
    from tracemine.cli.verify import _read

    flow, groups, scan = _read(DECODE, None, (), quiet=True, given=None)
    some = findings.fusable(scan.findings)[:3]
    verdicts = list(findings.verify(some, flow, groups, How(gpu="GPU")))
    assert [v.level for v in verdicts] == ["L5"] * 3  # what could not be compiled ahead is timed all the same
    orders = [option for _, option, _ in runs.notes]
    assert orders == ["--compile-only"] * 2 + ["--json"] * 2 + ["--compile-only", "--json"]
    assert {text for text, option, _ in runs.notes if option == "--json"} == {v.source for v in verdicts}
    (folder,) = {folder for _, _, folder in runs.notes}
    assert folder is not None
    assert not Path(folder).parent.exists()


def test_what_was_chosen_while_others_worked_is_forgotten_and_what_was_compiled_is_not(runs: Runs) -> None:
    with Ahead(1.0) as found:
        cache = Path(found.environment["TORCHINDUCTOR_CACHE_DIR"]) / "ab"
        cache.mkdir(parents=True)
        (cache / "kernel.py").touch()
        (cache / "kernel.best_config").touch()
        found.start(["a", "b", "c"])
        found.wait()
        assert [path.name for path in cache.iterdir()] == ["kernel.py"]
    assert sorted(text for text, _, _ in runs.notes) == ["a", "b", "c"]
    assert not cache.exists()


def test_without_a_gpu_nothing_is_compiled_ahead() -> None:
    with compilers(None, 1.0) as found:
        assert found is None


@pytest.mark.parametrize(("cores", "abreast"), [(None, 1), (1, 1), (2, 1), (4, 2), (16, 8), (256, 8)])
def test_so_many_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch, cores: int | None, abreast: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert at_once() == abreast
