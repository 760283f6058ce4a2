"""The marker `tracemine` and the fixture `tracemine_step`, in test suites of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tracemine
from tracemine.errors import UsageError
from tracemine.recording.files import Capture
from tracemine.testing import message as step_message
from tracemine.testing import plugin
from tracemine.testing.limits import StepLimits, limits_of
from tracemine.testing.message import LINES, MeasuredStep, message

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
DECODER = ROOT / "fixtures/captures/decoder_prefill"


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


FAST = 'import pytest, time\n@pytest.mark.tracemine(device="cpu", steps=1, warmup=1, timed=2, {})\ndef test_it(): {}\n'
# Where a GPU is, a capture times three steps more, and a test that needs one is not skipped.
WITHOUT_GPU = pytest.mark.skipif(has_gpu(), reason="a GPU is here: says what happens without one")


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load once what a recording loads: pytester takes new modules away after each run, and torch bears that once."""
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[dev]'")
    limits = limits_of((), {"step_ms": 1e6, "device": "cpu", "steps": 1, "warmup": 0, "timed": 1})
    step_message.measured(lambda: None, limits, tmp_path_factory.mktemp("loads") / "step")


def ran(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    """Run a test file with this plug-in alone, whatever is installed, and no settings of a folder above."""
    pytester.makepyfile(code)
    pytester.makeini("[pytest]")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_inprocess(
            "-p", plugin.__name__, "-p", "no:cacheprovider", "--strict-markers", *options
        )


def test_the_entry_point_names_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"tracemine": plugin.__name__}


def test_where_it_is_not_used_it_costs_nothing() -> None:
    code = (
        "import sys, pytest; before = {*sys.modules}; import tracemine.testing.plugin; print(*{*sys.modules} - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    new = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in new if not name.startswith("tracemine")} == set()
    assert len(new) < 8, new


@WITHOUT_GPU
def test_the_guide_s_example_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    page = (ROOT / "docs/guide/pytest.md").read_text("utf-8")
    example = re.search(r"<!-- suite -->\n```python\n(.*?)```", page, re.S)
    assert example is not None
    done = ran(pytester, example[1], "-rs")
    done.assert_outcomes(passed=2, skipped=1)
    done.stdout.fnmatch_lines(["*torch sees no GPU here*"])


def test_a_step_that_is_too_slow_fails_with_its_time(pytester: pytest.Pytester) -> None:
    done = ran(pytester, FAST.format("step_ms=0.5", "time.sleep(0.002)"))
    done.assert_outcomes(failed=1)
    done.stdout.re_match_lines([r"step [\d.]+ ms > step_ms=0\.5 \(unprofiled, median of 2\)"])
    assert "raceback" not in done.stdout.str()


def test_a_step_that_is_fast_enough_passes_and_is_kept_for_junit(pytester: pytest.Pytester) -> None:
    ran(pytester, FAST.format("step_ms=2000", "time.sleep(0.001)"), "--junitxml=out.xml").assert_outcomes(passed=1)
    kept = re.search(r'name="tracemine_step_ms" value="([\d.]+)"', (pytester.path / "out.xml").read_text())
    assert kept is not None and 1 <= float(kept[1]) < 2000


@WITHOUT_GPU
def test_the_body_runs_once_a_step_and_its_fixtures_are_made_once(pytester: pytest.Pytester) -> None:
    code = """
        import pytest
        made, steps = [], []

        @pytest.fixture(params=[1, 2])
        def given(request):
            made.append(request.param)
            return request.param

        class TestIn:
            @pytest.mark.tracemine(step_ms=2000, device="cpu", steps=2, warmup=1, timed=3)
            def test_it(self, given, tmp_path):
                steps.append(given)

        def test_after():
            assert (made, steps) == ([1, 2], [1] * 7 + [2] * 7)
    """
    ran(pytester, code).assert_outcomes(passed=3)


def test_an_error_of_the_body_is_the_test_s_own(pytester: pytest.Pytester) -> None:
    done = ran(pytester, FAST.format("step_ms=2000", "assert 1 == 2"))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*assert 1 == 2*"])
    ran(pytester, FAST.format("step_ms=2000", "pytest.skip('no data')")).assert_outcomes(skipped=1)


@WITHOUT_GPU
def test_a_marked_test_with_the_fixture_runs_once(pytester: pytest.Pytester) -> None:
    code = """
        import pytest, time
        runs, steps = [], []

        @pytest.mark.tracemine(step_ms=2000, device="cpu", steps=1, warmup=0, timed=1)
        def test_it(tracemine_step):
            runs.append(0)
            assert tracemine_step(lambda: steps.append(0)) is None
            assert (len(runs), len(steps)) == (1, 2)

        def test_over(tracemine_step):
            tracemine_step(lambda: time.sleep(0.002), step_ms=0.1, device="cpu", steps=1, warmup=0, timed=1)
    """
    done = ran(pytester, code)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.re_match_lines([r"step .* > step_ms=0\.1"])


@pytest.mark.parametrize(
    ("given", "body", "says"),
    [
        ("5, step_ms=1", "pass", "limits are given by name"),
        ("steps_ms=1", "pass", "there is no limit 'steps_ms'"),
        ("step_ms=0", "pass", "step_ms=0: milliseconds are needed"),
        ("device='cpu'", "pass", "no limit is given"),
        ("device='cpu', max_findings=0", "pass", "findings are about a GPU"),
    ],
)
def test_a_wrong_limit_is_one_line(pytester: pytest.Pytester, given: str, body: str, says: str) -> None:
    done = ran(pytester, f"import pytest\n@pytest.mark.tracemine({given})\ndef test_it(): {body}\n")
    assert done.parseoutcomes().get("errors") == 1
    done.stdout.fnmatch_lines([f"*tracemine: {says}*"])
    done.stdout.no_fnmatch_line("*During handling*")


@pytest.mark.parametrize(
    "code",
    [
        "@pytest.mark.tracemine(step_ms=1)\nasync def test_it(): pass",
        "class TestIt(unittest.TestCase):\n    @pytest.mark.tracemine(step_ms=1)\n    def test_it(self): pass",
    ],
)
def test_what_is_no_plain_function_says_so(pytester: pytest.Pytester, code: str) -> None:
    done = ran(pytester, f"import pytest, unittest\n{code}\n")
    assert done.parseoutcomes().get("errors") == 1
    done.stdout.fnmatch_lines(["*tracemine: *function*"])


def test_without_torch_a_marked_test_is_skipped(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    done = ran(pytester, FAST.format("step_ms=1", "assert False"), "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*needs torch, which cannot be imported here*"])


def test_findings_fail_a_test_on_a_gpu(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_message, "lacking", lambda device: "")
    monkeypatch.setattr(step_message, "measured", lambda step, limits, folder: recorded())
    code = "import pytest\n@pytest.mark.tracemine(max_findings={})\ndef test_it(): pass\n"
    done = ran(pytester, code.format(1))
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*findings > max_findings=1", "*RMSNorm*record.py*", "*more: tracemine explain *"])
    ran(pytester, code.format(9)).assert_outcomes(passed=1)


# --- what is said -----------------------------------------------------------------------------------------------------


def recorded(step_ns: int = 14_100_000, trace: Path | str = DECODER, **changes: Any) -> MeasuredStep:
    """What a step took, of a recording of a GPU."""
    facts: dict[str, Any] = {
        "tracemine": "0", "torch": "2.13", "cuda": None, "hip": None, "driver": None, "python": "3.11",
        "gpus": ("H200",), "execution_trace": None, "gpu_activities": 9, "steps": 3, "steps_asked": 3,
        "warmup": 3, "timed": 10,
        "stacks": True, "memory": False, "alone_step_ns": step_ns, "alone_step_p10_ns": 13_900_000,
        "alone_step_p90_ns": 14_400_000, "host_step_ns": None, "recorded_step_ns": None, "slowdown": None,
    }  # fmt: skip
    return MeasuredStep(
        Capture(**(facts | changes)), Path("/tmp/a folder/step"), tracemine.scan(trace, min_saving="0ns")
    )


def test_a_slow_step_is_said_with_its_causes() -> None:
    lines = message(StepLimits(step_ms=12), recorded()).splitlines()
    assert lines[0] == "step 14.1 ms > step_ms=12 (unprofiled, median of 10, 13.9–14.4 ms)"
    assert lines[-1].endswith("'/tmp/a folder/step'")
    assert 4 < len(lines) <= LINES
    assert message(StepLimits(step_ms=14.1), recorded()) == ""


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (StepLimits(severity="high"), "> max_findings=0 of severity=high"),
        (StepLimits(rule=("rmsnorm_*",)), "1 finding > max_findings=0 of rule=rmsnorm_*"),
        (StepLimits(max_findings=1, severity="low"), "> max_findings=1 of severity=low"),
        (StepLimits(rule=("no_such_rule",)), ""),
        (StepLimits(max_findings=99), ""),
    ],
)
def test_findings_count_by_severity_and_rule(limits: StepLimits, says: str) -> None:
    said = message(limits, recorded())
    assert says in said.partition("\n")[0]
    assert bool(said) == bool(says)


def test_a_recording_without_a_gpu_passes_no_count_of_findings(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::neg","ts":1,"dur":2,"pid":1,"tid":1}]}'
    )
    assert "cannot be counted" in message(StepLimits(max_findings=0), recorded(trace=tmp_path / "t.json"))


@pytest.mark.parametrize(
    "given",
    [
        {"step_ms": True}, {"step_ms": float("nan")}, {"step_ms": "12"}, {"max_findings": -1}, {"max_findings": 1.0},
        {"severity": "worst"}, {"step_ms": 1, "device": "tpu"}, {"step_ms": 1, "steps": 0}, {"step_ms": 1, "timed": 0},
    ],
)  # fmt: skip
def test_what_is_no_limit_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        limits_of((), given)
