"""Kernels around matrix products are right on a CPU, and wrong ones are caught."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')

import torch

from tests.codegen.products import PRODUCTS, codes, gate, head
from tracemine.codegen import Graph
from tracemine.validate import numerics
from tracemine.validate.downsize import tried
from tracemine.validate.input_domains import scales_of_codes
from tracemine.validate.mutants import MUTATIONS_OF_PRODUCTS
from tracemine.validate.record import Validation
from tracemine.validate.sandbox import Sandbox, make_job


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(600.0) as found:
        yield found


@pytest.mark.parametrize(
    ("graph", "planted"),
    [
        (codes(16, 14336, 4096), (r"(along|down)_mask = .*", r"\1_mask = \1 >= 0")),
        (gate(2048, 14336, 4096), (r"(product_2 = tl\.dot\(.*), product_2\b", r"\1, product_1")),
        (head(), (r"range\(0, n(\d), KBLOCK\)", r"range(0, n\1 - KBLOCK, KBLOCK)")),
    ],
)
def test_kernels_are_right_and_a_planted_fault_is_caught(
    sandbox: Sandbox, graph: Graph, planted: tuple[str, str]
) -> None:
    small = tried(graph)
    job = make_job(small.small, mutants=False, recorded=small.recorded)
    wrong = re.sub(*planted, job.source, count=1)
    assert wrong != job.source
    job = msgspec.structs.replace(job, mutants=(("planted", "", wrong, None, None),))
    found = sandbox.answer(msgspec.json.encode(job))
    assert isinstance(found, Validation), found
    assert found.faults == ()
    assert found.mutants[0].killed_by is not None


def test_each_kind_of_mistake_changes_some_kernel() -> None:
    texts = [make_job(small.small, mutants=False, recorded=small.recorded).source for small in map(tried, PRODUCTS)]
    lines = [line for text in texts for line in text.split("\n")]
    unused = [m.name for m in MUTATIONS_OF_PRODUCTS if not any(re.search(m.pattern, line) for line in lines)]
    assert unused == []


def test_sums_of_whole_numbers_are_exact() -> None:
    truth = torch.tensor([3.0, -250.0, 1000.5, 70_000.0], dtype=torch.float64)
    assert numerics.inexact(truth.to(torch.bfloat16), truth) is None
    assert numerics.inexact(torch.tensor([4.0, -250.0, 0.0, 70_144.0], dtype=torch.bfloat16), truth) is not None


def test_scales_of_codes_are_known_by_what_they_scale() -> None:
    assert scales_of_codes(codes(16)) == {"scale"}
    assert scales_of_codes(gate(64, 64, 64)) == frozenset()
