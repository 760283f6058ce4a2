"""The marker on a GPU: what a suite says of steps that are too slow, and of findings. Skips where no GPU is."""

from __future__ import annotations

import pytest

from tests.testing.test_plugin import has_gpu, ran
from tracemine.testing.message import LINES

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.skipif(not has_gpu(), reason="needs a CUDA device")

SUITE = """
import pytest, torch

@pytest.fixture
def model():
    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).cuda()

def norm(x):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)

@pytest.mark.tracemine(step_ms=5000)
def test_fast_enough(model):
    model(torch.rand(8, 64, device="cuda")).sum().backward()

@pytest.mark.tracemine(step_ms=0.01)
def test_too_slow(model):
    model(torch.rand(8, 64, device="cuda")).sum().backward()

@pytest.mark.tracemine(max_findings=0)
def test_chain():
    x = torch.rand(8192, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(8):
        x = norm(x) * 1.5 + 1

@pytest.mark.tracemine(rule="host_sync")
def test_no_sync(model):
    for _ in range(30):
        model(torch.rand(8, 64, device="cuda")).sum().item()

@pytest.mark.tracemine(rule="host_sync")
def test_without_a_sync(model):
    model(torch.rand(8, 64, device="cuda")).sum()
"""


def test_slow_steps_and_findings_fail_with_the_users_line(pytester: pytest.Pytester) -> None:
    done = ran(pytester, SUITE)
    done.assert_outcomes(passed=2, failed=3)
    said = done.stdout.str()
    done.stdout.fnmatch_lines(
        ["step * > step_ms=0.01 *", "*1 finding > max_findings=0", "*1 finding > max_findings=0 of rule=host_sync"]
    )
    done.stdout.fnmatch_lines(["*.py:* norm", "*more: tracemine explain *"])
    for part in said.split("more: ")[:-1]:
        assert len(part.rpartition("____\n")[2].splitlines()) <= LINES
