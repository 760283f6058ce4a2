"""Weights that are dequantised in each step, whoever hands them over; and whole numbers that are none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.dispatched import dispatched
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined, scan

WIDTH, HALF = 256, torch.bfloat16
Program = Callable[..., Any]


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "x": torch.randn(64, WIDTH, dtype=HALF),
        "packed": torch.randint(-127, 127, (WIDTH, WIDTH), dtype=torch.int8),
        "scale": torch.rand(WIDTH, 1, dtype=HALF),
    }


def function_s_argument(x: Any, packed: Any, scale: Any) -> Any:
    for _ in range(4):
        x = torch.relu(x @ (packed.to(HALF) * scale).t())
    return x


def of_linear(x: Any, packed: Any, scale: Any) -> Any:
    return torch.relu(F.linear(x, packed.to(HALF) * scale))


def two_in_a_byte(x: Any, packed: Any, scale: Any) -> Any:
    low, high = packed & 15, packed >> 4
    return torch.relu(x @ ((torch.stack((low, high), 1).flatten(0, 1)[:WIDTH].to(HALF) - 8) * scale))


def found(program: Program, *more: Any) -> list[Finding]:
    findings = mined(analysed(dispatched(program, *tensors().values(), *more))).findings
    return [one for one in findings if one.rule == "loop_invariant"]


@pytest.mark.parametrize("program", [function_s_argument, of_linear, two_in_a_byte])
def test_a_weight_that_is_unpacked_in_each_step_is_no_chain_to_fuse(program: Program) -> None:
    (finding,) = found(program)
    assert "dequantised" in finding.title
    assert "two bytes an element" in finding.fix  # what keeping it costs
    assert 0.9 * finding.measured_ns <= finding.gpu_saving_ns.mid


def quantised_here(x: Any, packed: Any, scale: Any) -> Any:
    """Activations that are quantised, and dequantised for the product."""
    narrow = (x / scale[:64]).round().to(torch.int8)
    return torch.relu(x @ (narrow.to(HALF) * scale[:64]).t())


def cached(x: Any, packed: Any, scale: Any) -> Any:
    """Keys in a cache to which each step writes."""
    packed[:64].copy_(x.to(torch.int8))
    return torch.relu(x @ (packed.to(HALF) * scale).t())


def image(x: Any, packed: Any, scale: Any) -> Any:
    """What is scaled by a number is a picture."""
    return torch.relu(x @ (packed.to(HALF) / 255))


def looked_up(x: Any, packed: Any, scale: Any) -> Any:
    """Whole numbers that say where to read."""
    table = scale.expand(WIDTH, WIDTH).contiguous()
    return torch.relu(x @ F.embedding(packed[0].int().clamp(min=0), table))


def first_factor(x: Any, packed: Any, scale: Any) -> Any:
    """An input that comes in narrow numbers, such as quantised sound: what is multiplied by the weight."""
    return torch.relu((packed.to(HALF) * scale) @ x.t())


@pytest.mark.parametrize("program", [quantised_here, cached, image, looked_up, first_factor])
def test_narrow_numbers_that_are_no_weight_are_not_told(program: Program) -> None:
    assert not [one for one in found(program) if "dequantised" in one.title]


def test_what_follows_the_product_is_not_constant() -> None:
    """The same input lies in the same memory in each step: it is an input all the same."""
    (finding,) = found(function_s_argument)
    assert set(finding.ops) == {"aten::copy_", "aten::mul"}


RECORDED = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "quantised"
Events = list[dict[str, Any]]


def by_a_number(events: Events) -> Events:
    """A picture is divided by a number, and no tensor scales it."""
    for event in events:
        if event.get("name") == "aten::mul":
            event["args"] |= {
                "Input Dims": [event["args"]["Input Dims"][0], []],
                "Input type": ["c10::BFloat16", "double"],
            }
    return events


def whole_numbers(events: Events) -> Events:
    """They may say where to read."""
    return [json.loads(json.dumps(event).replace("signed char", "long int")) for event in events]


def one_step(events: Events) -> Events:
    """It says nothing of the next."""
    mark = next(event for event in events if event.get("name") == "ProfilerStep#2")
    return [event for event in events if event is not mark and float(event.get("ts", 0)) < float(mark["ts"])]


def as_input(events: Events) -> Events:
    """What is unpacked is the first factor."""
    for event in events:
        if event.get("name") in ("aten::mm", "aten::linear", "aten::matmul"):
            for name in ("Input Dims", "Input type", "Input Strides"):
                event["args"][name] = event["args"][name][::-1]
    return events


def as_recorded(events: Events) -> Events:
    return events


@pytest.mark.parametrize(
    ("edit", "told"), [(as_recorded, 1), (by_a_number, 0), (whole_numbers, 0), (one_step, 0), (as_input, 0)]
)
def test_without_an_execution_trace_types_and_places_tell(
    tmp_path: Path, edit: Callable[[Events], Events], told: int
) -> None:
    trace = json.loads(gzip.decompress((RECORDED / "weight_dequantised_before.json.gz").read_bytes()))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace | {"traceEvents": edit(trace["traceEvents"])}), encoding="utf-8")
    findings = [one for one in scan(path).findings if "dequantised" in one.title]
    assert len(findings) == told
    assert all(one.evidence != "proven" for one in findings)
