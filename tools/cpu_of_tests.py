"""CPU seconds per test file, test and fixture: `python -m pytest -n auto -p tools.cpu_of_tests`.

Wall time on a shared machine says little. Processes that a test starts or uses count with it; where several processes
run tests, one that all use (tests/forked.py) with what the process tests that began it. A fixture's seconds are
part of those of the test that first wants it, and leave out the fixtures that it wants itself. A line a test is
appended to the file that TRACEMINE_CPU_OF_TESTS names, as soon as the test ended.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

TOP = 40  # lines a table
_PROPERTY = "cpu"
_STALE_S = 0.05
_running = [-1.0, 0.0]  # when the children that run were asked, and their CPU seconds then
_inner: list[float] = []  # CPU seconds of the fixtures within each fixture that is being made
_fixtures: Counter[str] = Counter()  # CPU seconds per fixture since the last report


def cpu_s() -> float:
    """Return the CPU seconds of this process, of the children that run, and of those that were waited for.

    Those that run are asked again after a twentieth of a second: to ask takes half a millisecond, and most tests less.
    """
    asked_s, running_s = _running
    if (now_s := time.monotonic()) - asked_s > _STALE_S:
        running_s = sum(map(_child_s, _children(os.getpid())))
        _running[:] = now_s, running_s
    return _own_s() + running_s


def _own_s() -> float:
    """CPU seconds of this process and of the children that were waited for."""
    return sum(os.times()[:4])


def _children(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
    except OSError:  # it ended, or this is no Linux
        return []


def _child_s(process: str) -> float:
    try:
        ticks = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[11:15]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") + sum(map(_child_s, _children(int(process))))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    spent_s = _own_s if fixturedef.scope == "function" else cpu_s  # of most, children that run are not worth the asking
    _inner.append(0.0)
    start_s = spent_s()
    try:
        return (yield)
    finally:
        took_s = spent_s() - start_s
        _fixtures[f"{fixturedef.baseid}::{fixturedef.argname}"] += took_s - _inner.pop()
        if _inner:
            _inner[-1] += took_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_START] = cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        fixtures = {name: took_s for name, took_s in _fixtures.items() if took_s > 0.005}
        _fixtures.clear()
        took_s = cpu_s() - item.stash[_START]
        report.user_properties.append((_PROPERTY, (took_s, fixtures)))
        if path := os.environ.get("TRACEMINE_CPU_OF_TESTS"):
            with Path(path).open("a", encoding="utf-8") as kept:
                kept.write(f"{took_s:.2f} {item.nodeid}\n")
    return report


_START = pytest.StashKey[float]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    fixtures: Counter[str] = Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        for name, told in getattr(report, "user_properties", ()):
            if name == _PROPERTY:
                files[report.nodeid.partition("::")[0]] += told[0]
                tests[report.nodeid] += told[0]
                fixtures.update(told[1])
    terminalreporter.section("CPU seconds")
    terminalreporter.write_line(f"{sum(files.values()):8.1f} all tests")
    for title, counted in (("file", files), ("test", tests), ("fixture", fixtures)):
        terminalreporter.write_line(f"per {title}:")
        for name, took_s in counted.most_common(TOP):
            terminalreporter.write_line(f"{took_s:8.1f} {name}")
