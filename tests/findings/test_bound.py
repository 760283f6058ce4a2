"""What bounds a trace: the facts of a report's first line."""

from __future__ import annotations

from io import StringIO

from tests.timelines import Trace
from tracemine.findings.record import Bound, Scan
from tracemine.pipeline import Options, analysed, mined
from tracemine.report import Options as ReportOptions
from tracemine.report import render
from tracemine.report.words import headline
from tracemine.timeline import Device

GEMM, ADD, NCCL = "sm90_xmma_gemm_bf16", "vectorized_elementwise_kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def scanned(trace: Trace, gpu: str | None = "NVIDIA H200") -> Scan:
    trace.meta = type(trace.meta)(
        **{
            **{name: getattr(trace.meta, name) for name in trace.meta.__struct_fields__},
            "devices": (Device(ordinal=0, name=gpu),),
        }
    )
    return mined(analysed(trace.timeline()), Options(rules=()))


def bound(trace: Trace) -> Bound:
    found = scanned(trace).summary.bound
    assert found is not None
    return found


def run(trace: Trace, *kernels: tuple[str, int, int], late: bool = True) -> None:
    """Kernels as (name, start, duration); each launched when it starts, or all before the first."""
    for at, (name, start, dur) in enumerate(kernels):
        trace.kernel(name, start, dur, launch=(start - 200 if late else at, 100 if late else 1))


def test_a_host_that_launches_too_slowly_bounds_the_step() -> None:
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 20_000) for at in range(1, 9)))
    found = bound(trace)
    assert (found.by, found.cause, found.work, found.work_share) == ("host", "host_bound", "gemm", 1.0)
    assert found.idle_share == 0.7778
    assert headline(scanned(trace)) == "host-bound: the GPU idles 78 %; of its work 100 % is matrix products"


def test_idle_time_that_nothing_explains_is_the_headline_all_the_same() -> None:
    trace = Trace()
    for at in range(1, 9):
        trace.kernel(GEMM, at * 100_000, 20_000)
    found = bound(trace)
    assert (found.by, found.cause, found.cause_share) == ("unknown", None, None)
    assert headline(scanned(trace)).startswith("the GPU idles 78 %, cause unknown; of its work")


def test_a_fifth_of_idle_time_is_no_headline() -> None:
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 81_000) for at in range(1, 9)))
    assert bound(trace).by == "gpu"
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 76_000) for at in range(1, 9)))
    assert bound(trace).by == "host"


def test_communication_that_nothing_hides_bounds_a_busy_gpu() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 50_000), (NCCL, 51_000, 50_000), (ADD, 101_000, 10_000), late=False)
    found = bound(trace)
    assert (found.by, found.work, found.work_share) == ("communication", "gemm", 0.8333)
    assert found.bare_communication_share == 0.4545


def test_communication_beside_other_work_is_hidden() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 100_000), late=False)
    trace.kernel(NCCL, 1_000, 90_000, stream=8, launch=(500, 1))
    found = bound(trace)
    assert (found.by, found.bare_communication_share) == ("gpu", 0.0)


def test_work_that_is_not_classified_is_said_to_be_that() -> None:
    trace = Trace()
    run(trace, ("mystery", 1_000, 100_000), (GEMM, 101_000, 10_000), late=False)
    found = bound(trace)
    assert (found.work, found.work_share, found.unclassified_share) == (None, 0.9091, 0.9091)
    assert headline(scanned(trace)) == "GPU-bound: the GPU is busy 100 %; of its work 91 % is not classified"


def test_a_trace_without_activities_has_no_headline() -> None:
    assert scanned(Trace()).summary.bound is None
    assert headline(scanned(Trace())) == ""


def test_the_report_begins_with_the_headline_and_says_that_nothing_is_estimated() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 100_000), late=False)
    out = StringIO()
    render("text", scanned(trace, gpu=None), out, ReportOptions(width=160))
    first = out.getvalue().splitlines()[0]
    assert first == (
        "GPU-bound: the GPU is busy 100 %; of its work 100 % is matrix products; "
        "savings of GPU time not estimated, the GPU is not known (--gpu NAME)"
    )
