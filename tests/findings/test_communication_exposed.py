"""Exposed communication, as one rank sees it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.findings.record import Finding, Scan
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.timeline import RecordedDevice
from tracemine.units import Threshold

GEMM, GATHER = "sm90_xmma_gemm_bf16", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
US, STEP_US = 1_000, 10_000


def _steps(
    *,
    gather_us: tuple[int, ...] = (400, 400, 400, 400),
    beside_us: int = 0,
    elements: int | None = None,
    ranks: int | None = 8,
    stream: int = 23,
    gpu: str = "NVIDIA H100 80GB HBM3",
    copy: bool = False,
    types: list[str] | None = None,
) -> Trace:
    """Four steps of all-gathers, each before a product of 600 µs that begins so long before its end."""
    trace = Trace(devices=(RecordedDevice(ordinal=0, name=gpu, sm_count=132),))
    for number in range(4):
        begin = 1_000_000 + number * STEP_US * US
        step = trace.step(begin, STEP_US * US, number)
        at = begin + 50 * US
        for turn, took in enumerate(gather_us):
            launch = (begin + turn * 4 * US, 1 * US)
            if copy:
                trace.copy("DtoD", at, took * US, 1_000_000, launch=launch, stream=stream, step_row=step)
            else:
                columns: dict[str, Any] = (
                    {} if ranks is None else {"collective": "_allgather_base", "group_size": ranks}
                )
                lists = types is None or types == ["TensorList"]
                shapes = None if elements is None else [[[elements]]] if lists else [[elements]]
                types_told = None if elements is None else types or ["TensorList"]
                op = "record_param_comms"
                columns |= {
                    "launch": launch,
                    "op": op,
                    "shapes": shapes,
                    "dtypes": types_told,
                    "stream": stream,
                    "step_row": step,
                }
                trace.kernel(GATHER, at, took * US, **columns)
            at += (took - beside_us) * US
            trace.kernel(GEMM, at, 600 * US, launch=(begin + turn * 4 * US + 2 * US, 1 * US), step_row=step)
            at += 600 * US
        trace.call("cudaDeviceSynchronize", begin + 30 * US, at - begin)
    return trace


def _scanned(trace: Trace) -> Scan:
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def _found(scan: Scan) -> list[Finding]:
    return [one for one in scan.findings if one.rule == "communication_exposed"]


def _notes(scan: Scan) -> list[str]:
    return [text for text in scan.warnings if text.startswith("Communication")]


@pytest.mark.parametrize(("beside_us", "cost_us"), [(0, 1_600), (100, 1_200)])
def test_its_cost_is_what_a_step_runs_nothing_else_beside_to_the_nanosecond(beside_us: int, cost_us: int) -> None:
    scan = _scanned(_steps(beside_us=beside_us))
    (found,) = _found(scan)
    assert found.per_step is not None
    assert (found.measured_ns, found.per_step.measured_ns) == (4 * cost_us * US, cost_us * US)
    saving = found.gpu_saving_ns
    assert (saving.low, saving.high) == (0, found.measured_ns)
    assert 0 < saving.mid <= found.measured_ns // 2
    assert found.reported


def test_one_rank_tells_no_transfer_from_waiting_and_says_so() -> None:
    scan = _scanned(_steps())
    (found,) = _found(scan)
    assert "record all ranks" in found.fix
    assert "one rank does not tell" in found.assumptions[0]
    (note,) = _notes(scan)
    assert "One rank cannot tell transfer from waiting for others: record all ranks, and scan their folder. A" in note
    assert "overlaps: 1.60 ms a step. " in note
    assert " All-gather of 8 ranks 4 × 400 µs, " in note


def test_gpus_of_one_process_are_summed_and_no_other_rank_is_asked_for() -> None:
    trace = _steps(ranks=2)
    trace.kernel(GEMM, 1_000_000, 600 * US, device=1)
    (note,) = _notes(_scanned(trace))
    assert " a step, summed over 2 GPUs. " in note
    assert "waiting for another GPU or the host, is not known. " in note
    apart = _steps(ranks=8)  # six of them are other processes'
    apart.kernel(GEMM, 1_000_000, 600 * US, device=1)
    assert "summed over 2 GPUs" in _notes(_scanned(apart))[0]
    assert "record all ranks" in _notes(_scanned(apart))[0]


def test_a_rank_that_is_known_says_which_of_how_many_it_is() -> None:
    timeline = _steps().timeline()
    ranked = replace(timeline, meta=replace(timeline.meta, rank=3, world_size=8))
    (note,) = _notes(mined(analysed(ranked)))
    assert ". Rank 3 of 8 cannot tell transfer from waiting for others: record all ranks" in note


def test_what_the_bytes_take_at_the_links_raw_rate_is_the_middle() -> None:
    """7 × 2.25 MB at 450 GB/s are 35 µs; of four calls a step three hide behind all of the products."""
    saving = _found(_scanned(_steps(elements=1_125_000)))[0].gpu_saving_ns
    assert saving.mid == 16 * 35 * US * 3 // 4
    waited = _found(_scanned(_steps(elements=1_125_000, gather_us=(400, 4_000, 400, 400))))[0]
    assert waited.gpu_saving_ns.mid < 16 * 35 * US
    assert waited.gpu_saving_ns.low == 0


def test_on_the_stream_of_the_kernels_half_of_it_hides() -> None:
    own, shared = (_found(_scanned(_steps(elements=1_125_000, stream=stream)))[0] for stream in (23, 7))
    assert shared.gpu_saving_ns.mid * 3 == own.gpu_saving_ns.mid * 2
    assert "on the same stream" in shared.fix
    assert "on the same stream" not in own.fix


def test_a_rate_that_is_not_known_claims_half_of_the_shortest_call() -> None:
    for trace in (_steps(elements=1_125_000, ranks=64), _steps(elements=1_125_000, gpu="NVIDIA A10"), _steps()):
        assert _found(_scanned(trace))[0].gpu_saving_ns.mid == 16 * 200 * US * 3 // 4


@pytest.mark.parametrize("gather_us", [(400, 400, 400, 400), (20, 20, 20)])
def test_no_end_of_what_a_step_saves_is_above_its_cost(gather_us: tuple[int, ...]) -> None:
    """The device idles most of these steps; what is hidden is launched as before, so that no idle time goes with it."""
    scan = _scanned(_steps(gather_us=gather_us))
    (found,) = _found(scan)
    assert found.per_step is not None
    assert found.step_saving_ns.high <= found.measured_ns
    assert found.per_step.step_saving_ns.high <= found.per_step.measured_ns
    assert scan.summary.gpu_idle_ns > found.measured_ns


def test_a_type_that_is_not_recorded_is_said_to_be_assumed() -> None:
    said = "2 bytes an element, assumed"
    for types, assumed in ((["TensorList"], True), (["c10::BFloat16"], False)):
        scan = _scanned(_steps(elements=1_125_000, types=types))
        assert (said in _found(scan)[0].assumptions[0]) is assumed
        assert (said in _notes(scan)[0]) is assumed
    assert said not in _found(_scanned(_steps()))[0].assumptions[0]  # half of the shortest call: no bytes are counted


def test_it_is_counted_with_neither_idle_time_nor_other_work() -> None:
    scan = _scanned(_steps(beside_us=100))
    step = scan.summary.per_step
    assert step is not None
    assert step.unprofiled_ns is not None
    assert step.step_saving_ns is not None
    saved = sum(one.per_step.gpu_saving_ns.mid for one in scan.findings if one.per_step is not None)
    assert step.unprofiled_ns.mid - step.step_saving_ns.mid >= step.gpu_busy_ns - saved
    assert sum(one.measured_ns for one in scan.findings if one.on_gpu) <= scan.summary.gpu_busy_ns


@pytest.mark.parametrize(
    "trace",
    [_steps(beside_us=400), _steps(ranks=1), _steps(copy=True), _steps(gather_us=(15, 15, 15))],
    ids=["hidden", "one rank", "copies within the device", "little"],
)
def test_what_is_hidden_or_no_communication_is_none(trace: Trace) -> None:
    scan = _scanned(trace)
    assert _found(scan) == []
    assert _notes(scan) == []


def _random(seed: int) -> tuple[Trace, int]:
    """Return a random program of collectives beside other work, and for how long nothing ran beside these, ns."""
    chance = random.Random(seed)
    trace = Trace(devices=(RecordedDevice(ordinal=0, name=chance.choice(["NVIDIA H100 80GB HBM3", "NVIDIA NONE"])),))
    own = chance.choice([7, 23, 23])  # the kernels' stream, or one of their own
    longest = chance.choice([40, 900])
    steps, alone, moment = chance.randint(1, 4), 0, 1_000_000
    for number in range(steps):
        step, begin, ran = trace.step(moment, STEP_US * US, number), moment, [set[int](), set[int]()]
        at = 50
        for turn in range(chance.randint(1, 5)):
            gather, product = chance.randint(1, longest), chance.randint(1, 600)
            over = 0 if own == 7 else chance.choice([0, 0, chance.randint(0, gather)])
            kind: dict[str, Any] = (
                {"collective": "_allgather_base", "group_size": chance.choice([2, 8])} if chance.random() < 0.8 else {}
            )
            shapes: Any = chance.choice([None, [[[chance.randint(1, 10**8)]]]])
            launch = (begin + turn * 4 * US, US)
            columns: dict[str, Any] = {
                "op": "record_param_comms",
                "shapes": shapes,
                "dtypes": shapes and ["TensorList"],
            } | kind
            trace.kernel(GATHER, begin + at * US, gather * US, stream=own, step_row=step, launch=launch, **columns)
            ran[0].update(range(at, at + gather))
            at += gather - over
            trace.kernel(GEMM, begin + at * US, product * US, launch=(launch[0] + 2 * US, US), step_row=step)
            ran[1].update(range(at, at + product))
            at += max(product, over) + chance.choice([0, 0, chance.randint(0, 300)])
        trace.call("cudaDeviceSynchronize", begin + 30 * US, at * US)
        alone += len(ran[0] - ran[1]) * US
        moment += STEP_US * US
    return trace, alone


def test_no_end_of_what_hiding_it_saves_is_above_what_ran_alone() -> None:
    seen = 0
    for seed in range(20):
        trace, alone_ns = _random(seed)
        found = _found(mined(analysed(trace.timeline()), ScanOptions(threshold=Threshold(ns=0))))
        seen += bool(found)
        for one in found:
            each = one.per_step
            assert each is not None
            for saved, cost in (
                (one.step_saving_ns, one.measured_ns),
                (one.gpu_saving_ns, one.measured_ns),
                (each.step_saving_ns, each.measured_ns),
                (each.gpu_saving_ns, each.measured_ns),
            ):
                assert 0 <= saved.low <= saved.mid <= saved.high <= cost, seed
        for total in (
            sum(one.measured_ns for one in found),
            sum(one.step_saving_ns.high for one in found),
            sum(one.gpu_saving_ns.high for one in found),
        ):
            assert total <= alone_ns, seed
    assert seen >= 10
