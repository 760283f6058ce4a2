"""What pytest loads: the marker `tracemine` and the fixture `tracemine_step`. What runs a step is imported with one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from tracemine.api.report import Report
    from tracemine.errors import TracemineError

_MARK, _FIXTURE, _FOLDERS = "tracemine", "tracemine_step", "tmp_path_factory"
_MARKER = (
    "tracemine(step_ms, max_findings, severity, rule, device='cuda', steps=3, warmup=3, timed=10): the test's body is "
    "one step; it is run several times, recorded, and fails where it is slower or has more findings"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Ask for a folder where a marked test runs."""
    names = getattr(item, "fixturenames", None)
    if names is not None and _FOLDERS not in names and item.get_closest_marker(_MARK) is not None:
        names.append(_FOLDERS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a marked test where torch or a GPU is missing, before its fixtures ask for them; fail one that cannot be."""
    if item.get_closest_marker(_MARK) is None:
        return
    if wrong := _unfit(item):
        pytest.fail(f"tracemine: {wrong}", pytrace=False)
    _skip_without(_limits(item, {}).device)


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Run a marked test's body as one step, several times. With the fixture the test says itself what a step is."""
    if pyfuncitem.get_closest_marker(_MARK) is None or _FIXTURE in pyfuncitem.fixturenames:
        yield
        return
    body, folders = pyfuncitem.obj, cast("pytest.TempPathFactory", pyfuncitem.funcargs[_FOLDERS])

    def steps(**given: Any) -> None:
        __tracebackhide__ = _hides
        _judged(pyfuncitem, lambda: body(**given), {}, folders)

    pyfuncitem.obj = steps
    yield
    pyfuncitem.obj = body


@pytest.fixture
def tracemine_step(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Report | None]:
    """Run a function as one step, several times, and fail where it exceeds limits: those of the marker, and its own.

        def test_step(tracemine_step):
            tracemine_step(lambda: train_step(batch), step_ms=12, max_findings=0)

    Returns the report, or None on a CPU.
    """

    def judge(step: Callable[[], object], **limits: Any) -> Report | None:
        return _judged(request.node, step, limits, tmp_path_factory)

    return judge


def _hides(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether our frames are left out: not where they are all that there are."""
    return not error.errisinstance(pytest.fail.Exception)


def _judged(
    item: pytest.Item, step: Callable[[], object], more: dict[str, Any], folders: pytest.TempPathFactory
) -> Report | None:
    __tracebackhide__ = _hides
    limits = _limits(item, more)
    _skip_without(limits.device)
    from tracemine.errors import TracemineError
    from tracemine.testing.message import measured, message

    wrong = ""
    try:
        found = measured(step, limits, folders.mktemp("tracemine") / "step")
    except TracemineError as error:
        wrong = _text(error)
    if wrong:  # outside of the handler: pytest prints what it handles too
        pytest.fail(wrong, pytrace=False)
    item.user_properties += found.properties
    if text := message(limits, found):
        pytest.fail(text, pytrace=False)
    return found.report


def _text(error: TracemineError) -> str:
    return f"tracemine: {error.message}" + (f" ({error.hint})" if error.hint else "")


def _limits(item: pytest.Item, more: dict[str, Any]) -> Any:
    """Return the limits of a test: its marker's, nearest first, and those of a call over them."""
    from tracemine.errors import UsageError
    from tracemine.testing.limits import limits_of

    marker = item.get_closest_marker(_MARK)
    try:
        return limits_of(() if marker is None else marker.args, {**({} if marker is None else marker.kwargs), **more})
    except UsageError as error:
        wrong = _text(error)
    pytest.fail(wrong, pytrace=False)


def _unfit(item: pytest.Item) -> str:
    """Return why a test's body cannot be run as a step; "" where it can."""
    bases = getattr(getattr(item, "cls", None), "__mro__", ())
    if any((base.__module__, base.__name__) == ("unittest.case", "TestCase") for base in bases):
        return "the marker does nothing for a unittest.TestCase: write the test as a function"
    body = getattr(item, "obj", None)
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body) or inspect.isgeneratorfunction(body):
        return "a step is a plain function, and this is a coroutine or a generator: run it inside of one"
    return ""


def _skip_without(device: str) -> None:
    from tracemine.testing.message import lacking

    if why := lacking(device):
        pytest.skip(f"tracemine: {why}")
