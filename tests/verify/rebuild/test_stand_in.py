"""A stand-in, recorded on a CPU, is read, mined and rebuilt as a GPU's recording is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.recordings.stand_in import record
from benchmarks.recordings.stand_in_models import Model
from tracemine.codegen.triton.source import generate
from tracemine.findings import Scan
from tracemine.flow.record import Flow
from tracemine.fusion import Groups
from tracemine.pipeline import analyse, mined
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.rebuilder import Rebuilder


def gated() -> Callable[[], torch.Tensor]:
    """A product, what is to be one kernel, and a product: with numbers and a half, which a CPU casts first."""
    first, last = torch.nn.Linear(256, 256), torch.nn.Linear(256, 8).bfloat16()
    inputs, gate, shift = torch.randn(512, 256), torch.randn(512, 256), torch.randn(256).half()
    return lambda: last(
        (F.gelu(first(inputs), approximate="tanh") * gate + shift).mul(torch.tensor(2.0).log()).bfloat16()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(Model("gated", gated), tmp_path_factory.mktemp("stand_in"))


@pytest.fixture(scope="module")
def read(folder: Path) -> tuple[Flow, Groups, Scan]:
    analysis = analyse(folder)
    return analysis.dataflow, analysis.groups, mined(analysis)


def test_what_lies_between_two_products_is_one_finding_and_has_a_kernel(read: tuple[Flow, Groups, Scan]) -> None:
    flow, groups, scan = read
    (finding,) = fusable(scan.findings)
    # Two steps; on a busy machine one may be spread over more than a hundred times its own time.
    assert len(finding.activities) + scan.dropped.get("spread_out", 0) == 2
    graph = Rebuilder(flow, groups).rebuild(finding.activities[0], "chain").graph
    names = [call.operator.removeprefix("aten::") for call in graph.calls]
    assert names == ["gelu", "mul", "add", "mul", "_to_copy"]
    assert [one.spec.shape for one in graph.inputs] == [(512, 256), (512, 256), (256,)]
    assert "def " in generate(graph).text


def test_an_operator_that_launches_has_one_kernel_that_was_given_its_name(folder: Path) -> None:
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    kernels: list[dict[str, Any]] = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 2 * 7  # two products and the five between, in two steps
    called = {event["args"]["External id"]: event["name"] for event in events if event.get("cat") == "cpu_op"}
    assert {called[one["args"]["External id"]] for one in kernels} == {
        *("aten::addmm", "aten::gelu", "aten::mul", "aten::add", "aten::copy_")
    }
    ends = [(one["ts"], one["ts"] + one["dur"]) for one in kernels]
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_convolutions_add_their_bias_apart_and_dropout_is_one_operator_only_while_it_is_recorded(
    tmp_path: Path,
) -> None:
    images, convolve = torch.randn(1, 3, 16, 16), torch.nn.Conv2d(3, 8, 3)
    kept = F.conv2d, F.dropout
    out = record(Model("convolution", lambda: lambda: F.dropout(convolve(images), 0.5)), tmp_path)
    assert (F.conv2d, F.dropout) == kept
    nodes = json.loads(gzip.decompress((out / "et.json.gz").read_bytes()))["nodes"]
    names = [node["name"] for node in nodes if node["name"].startswith("aten::")]
    assert {"aten::cudnn_convolution", "aten::add_", "aten::native_dropout"} <= set(names)
    assert not {"aten::mkldnn_convolution", "aten::bernoulli_"} & set(names)
