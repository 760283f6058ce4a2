"""What the environment of the tests says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import unset_where_empty

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("before", "after"), [({"A": ""}, {}), ({}, {}), ({"A": "."}, {"A": "."}), ({"B": ""}, {"B": ""})]
)
def test_a_variable_that_is_empty_counts_as_an_unset_one(before: dict[str, str], after: dict[str, str]) -> None:
    unset_where_empty(before, "A")
    assert before == after


def test_no_traces_are_looked_for_in_the_current_folder() -> None:
    script = "import os, tests.conftest; print('TRACEMINE_COMPAT_TRACES' in os.environ)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACEMINE_COMPAT_TRACES": ""}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_nothing_of_a_test_has_threads_that_wait_for_each_other() -> None:
    torch = pytest.importorskip("torch")
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])  # whoever runs the tests may say another
