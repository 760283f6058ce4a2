"""For all tests: Triton interprets, and no clock is set; and golden files, what a report prints, kept as a file.

Renew them with `pytest --renew-golden`, then read the diff.
"""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import analysed, forked, screens
from tracemine.cli import main
from tracemine.findings.contract import raises

os.environ["XDG_DATA_HOME"] = str(Path(__file__).parent / "no data")  # calibrations of whoever runs the tests
os.environ["TRITON_INTERPRET"] = "1"  # triton asks when it is imported, by whichever test comes first


def unset_where_empty(environment: MutableMapping[str, str], name: str) -> None:
    """Take a variable out of an environment where it is set to nothing: as a path that is the current folder."""
    if not environment.get(name):
        environment.pop(name, None)


unset_where_empty(os.environ, "TRACEMINE_COMPAT_TRACES")  # the tests' modules ask for it when they are imported
settings.register_profile("busy", deadline=None)  # an example takes 200 ms where other programs are running
settings.load_profile("busy")
forked.fork_workers(forked.place)  # those that need torch take seconds to begin
forked.run_folder()  # made by the process that ends last, where a run has several
GOLDEN = Path(__file__).parent / "golden"
# With a test of half a minute: at the end, the other processes of a run would wait for it.
LONGEST = ("tests/test_contributing.py", "tests/walks/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--long", action="store_true", help="many times as many random attacks")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in another order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first; a test that counts on what another left behind fails in some order."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: the collector need not look through them, as it does again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure() -> None:
    """At the end it does: libraries say what was left behind."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What attacks and walks were tried, where there were any; workers send theirs with their reports."""
    from tests.attack.harness import table

    tallies: dict[str, Counter[str]] = {}
    walks: list[str] = []
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if getattr(report, "when", None) == "teardown":
            for name, (kind, told) in report.user_properties:
                if name == "attack":
                    tallies.setdefault(kind, Counter()).update(told)
                elif name == "walk":
                    walks += [kind, *told]
    for title, lines in (("attacks", table(tallies) if tallies else []), ("walks", walks)):
        if lines:
            terminalreporter.section(title)
            terminalreporter.write("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def interpreted() -> None:
    """Triton's interpreter as `validate` runs it, for tests that call generated kernels in this process."""
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    from tracemine.validate import interpreter

    interpreter.install()  # type: ignore[no-untyped-call]  # what patches Triton has no types


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Any]:
    """The scan and first screen of a trace, for tests that look at what they say: made once in a run."""
    read = screens.read_once(folder_of_run(tmp_path_factory))
    return lambda path: read(path).measured


@pytest.fixture(scope="session")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], screens.Reading]:
    """What a trace gives where it is read and scanned, for tests of many traces: once in a run."""
    return screens.read_once(folder_of_run(tmp_path_factory))


@pytest.fixture(scope="session")
def gpu_events(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], screens.Events]:
    """What the standard library reads of a Kineto file's GPU events: once in a run."""
    return screens.events_once(folder_of_run(tmp_path_factory))


@pytest.fixture(scope="session")
def waiting_programs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What is told of the recorded programs that wait for the device: once in a run."""
    from benchmarks.answers.waits import ARCHIVE

    found: list[Any] = screens.told_once(folder_of_run(tmp_path_factory))(ARCHIVE)
    return found


@pytest.fixture
def analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands that one test runs on the same traces: what they read and find there is worked out once."""
    from tracemine import pipeline

    for name, stands_in in zip(("analyse", "mined"), analysed.once(pipeline.analyse, pipeline.mined), strict=True):
        monkeypatch.setattr(pipeline, name, stands_in)


@pytest.fixture(autouse=True)
def analysed_in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test is of what is said of findings: what there is to say of a recording is worked out once."""
    if request.node.nodeid.startswith(analysed.SAID):
        kept = _kept()
        monkeypatch.setattr("tracemine.pipeline.analyse", kept.analyse)
        monkeypatch.setattr("tracemine.pipeline.mined", kept.mined)


@cache
def _kept() -> analysed.Kept:
    from tracemine import pipeline

    return analysed.Kept(pipeline)


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """The folder of temporary files that all processes of a run share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(autouse=True)
def contract() -> Iterator[None]:
    """Figures that cannot be are an error in every test."""
    with raises():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of this name, or writes it with --renew-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--renew-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is not there: pytest --renew-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: pytest --renew-golden writes it"

    return compare


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(one) for one in arguments])
        return (code, *capsys.readouterr())

    return call
