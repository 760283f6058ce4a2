"""What bounds a trace: the facts of a report's first line."""

from __future__ import annotations

from io import StringIO
from typing import Any

from tests.timelines import Trace
from tracemine.documents.headline import bound_headline
from tracemine.findings.record import Bound, Scan
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.report import Drawing as ReportOptions
from tracemine.report import render
from tracemine.timeline import RecordedDevice

GEMM, ADD, NCCL = "sm90_xmma_gemm_bf16", "vectorized_elementwise_kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def scanned(trace: Trace, gpu: str | None = "NVIDIA H200") -> Scan:
    trace.meta = type(trace.meta)(
        **{
            **{name: getattr(trace.meta, name) for name in trace.meta.__struct_fields__},
            "devices": (RecordedDevice(ordinal=0, name=gpu),),
        }
    )
    return mined(analysed(trace.timeline()), ScanOptions(rules=()))


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
    assert bound_headline(scanned(trace)) == "Host-bound: the GPU idles 78% of the recorded time; GEMM/conv 22%"


def test_idle_time_that_nothing_explains_is_the_headline_all_the_same() -> None:
    trace = Trace()
    for at in range(1, 9):
        trace.kernel(GEMM, at * 100_000, 20_000)
    found = bound(trace)
    assert (found.by, found.cause, found.cause_share) == ("unknown", None, None)
    assert bound_headline(scanned(trace)).startswith("The GPU idles 78% of the recorded time, cause not recorded")


def test_gaps_that_are_little_of_the_idle_time_do_not_explain_it() -> None:
    for kernels, by in ((8, "host"), (3, "unknown")):
        trace = Trace()
        step = trace.step(0, 800_000)
        for start in range(801_000 - kernels * 100_000, 800_000, 100_000):
            trace.kernel(GEMM, start, 40_000, launch=(start - 200, 100), step_row=step)
        assert bound(trace).by == by


def test_a_fifth_of_idle_time_is_no_headline() -> None:
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 81_000) for at in range(1, 9)))
    assert bound(trace).by == "gpu"
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 76_000) for at in range(1, 9)))
    assert bound(trace).by == "host"


def recorded(busy_ns: int) -> Trace:
    """A step in which the host launches eight kernels a hundred microseconds apart while its operators are recorded."""
    trace = Trace()
    for at in range(1, 9):
        trace.kernel(
            GEMM, at * 100_000, busy_ns, launch=(at * 100_000 - 200, 100), op="aten::mm", shapes=[[64, 64]] * 2
        )
    return trace


def test_a_gpu_that_idles_only_because_of_the_recording_bounds_the_step() -> None:
    found = bound(recorded(75_000))
    assert found.idle_share > 0.2
    assert found.unprofiled_idle_share is not None
    assert found.unprofiled_idle_share.high < 0.2
    assert found.by == "gpu"
    assert bound_headline(scanned(recorded(75_000))).startswith("GPU-bound, ")


def test_a_host_that_is_slow_with_nobody_recording_bounds_the_step_all_the_same() -> None:
    found = bound(recorded(10_000))
    assert found.unprofiled_idle_share is not None
    assert found.unprofiled_idle_share.low > 0.2
    assert found.by == "host"


def test_what_the_estimate_leaves_open_is_said_to_be_open() -> None:
    spread = [bound(recorded(busy)) for busy in range(20_000, 76_000, 2_000)]
    assert {one.by for one in spread} == {"host", "unclear", "gpu"}
    for one in spread:
        share = one.unprofiled_idle_share
        assert share is not None
        assert one.by == ("host" if share.low > 0.2 else "gpu" if share.high <= 0.2 else "unclear")


def test_communication_that_nothing_hides_bounds_a_busy_gpu() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 50_000), (NCCL, 51_000, 50_000), (ADD, 101_000, 10_000), late=False)
    found = bound(trace)
    assert (found.by, found.work, found.work_share) == ("communication", "gemm", 0.8333)
    assert found.bare_communication_share == 0.4545


def test_what_takes_more_of_the_step_bounds_it() -> None:
    for communicating_us, by in ((50, "communication"), (25, "host")):
        trace = Trace()
        for at in range(1, 9):
            begin = at * 100_000
            end = begin + communicating_us * 1_000
            run(trace, (NCCL, begin, end - begin), (GEMM, end, 20_000))
        assert bound(trace).by == by
        assert "idle" in bound_headline(scanned(trace))


def test_communication_beside_other_work_is_hidden() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 100_000), late=False)
    trace.kernel(NCCL, 1_000, 90_000, stream=8, launch=(500, 1))
    found = bound(trace)
    assert (found.by, found.bare_communication_share) == ("gpu", 0.0)


def test_work_that_is_not_classified_is_counted_apart() -> None:
    trace = Trace()
    run(trace, ("mystery", 1_000, 100_000), (GEMM, 101_000, 10_000), late=False)
    found = bound(trace)
    assert (found.work, found.work_share, found.unclassified_share) == (None, 0.9091, 0.9091)


def test_a_trace_without_activities_has_no_headline() -> None:
    assert scanned(Trace()).summary.bound is None
    assert bound_headline(scanned(Trace())) == ""


def test_the_report_begins_with_the_headline_and_says_that_nothing_is_estimated() -> None:
    trace = Trace()
    run(trace, (GEMM, 1_000, 100_000), late=False)
    out = StringIO()
    render("text", scanned(trace, gpu=None), out, ReportOptions(width=160))
    text = " ".join(out.getvalue().split())
    assert text.startswith(
        "GPU-bound, 100% busy: GEMM/conv 100% of the recorded time "
        "the trace does not name its GPU: savings of GPU time are not estimated; "
        "--gpu NAME says which it was, such as --gpu h100 "
    )
    for once in ("--gpu h100", "not estimated", "name its GPU"):
        assert text.count(once) == 1


def offloading(*, copies: bool, beside: bool = False, memory: str = "pinned") -> Trace:
    """Ten rounds: 900 µs of a copy from the host (or of a product), then a product of 100 µs; or both side by side."""
    trace = Trace()
    for at in range(10):
        begin = at * 1_000_000 + 10_000
        if copies:
            pageable = memory == "pageable"
            trace.copy("HtoD", begin, 900_000, 25_000_000, pageable=pageable, launch=(begin - 5_000, 1_000), stream=9)
        else:
            trace.kernel(GEMM, begin, 900_000, launch=(begin - 5_000, 1_000))
        start, dur = (begin, 890_000) if beside else (begin + 900_000, 100_000)
        trace.kernel(GEMM, start, dur, launch=(begin - 2_000, 1_000))
    return trace


def test_a_loop_that_copies_from_the_host_is_bound_by_that() -> None:
    found = bound(offloading(copies=True))
    assert found.by == "transfer" and found.transfers is not None
    assert (found.transfers.bytes, found.transfers.memory) == (25_000_000, "pinned")
    assert round(found.transfers.bytes_per_s / 1e9, 1) == 27.8 and 0.88 < found.transfers.alone_share < 0.92
    said = bound_headline(scanned(offloading(copies=True)))
    assert said.startswith("Transfer-bound: copies are 90% of the step (25.0 MB at 27.8 GB/s, pinned host memory)")
    assert bound(offloading(copies=True, memory="pageable")).transfers is not None
    assert "pageable host memory" in bound_headline(scanned(offloading(copies=True, memory="pageable")))


def test_products_and_copies_beside_products_are_no_transfers() -> None:
    assert bound(offloading(copies=False)).by == "gpu" and bound(offloading(copies=False)).transfers is None
    hidden = bound(offloading(copies=True, beside=True))
    assert hidden.by == "gpu" and hidden.transfers is not None and hidden.transfers.alone_share < 0.15


def test_next_to_nothing_is_no_verdict() -> None:
    trace = Trace()
    trace.call("cudaMalloc", 0, 1_000)
    trace.kernel("Memset", 50_000_000, 1_500, launch=(49_990_000, 1_000), kind="memset")
    trace.call("cudaDeviceSynchronize", 50_000_000, 81_000_000)
    found = scanned(trace)
    assert found.summary.bound is None and found.summary.parts is None
    assert bound_headline(found) == "nothing to judge: 1 GPU activity, 1.50 µs in all that was recorded"
    for kind in ("text", "markdown", "html"):
        out = StringIO()
        render(kind, found, out, ReportOptions())
        assert (
            "othing to judge" in out.getvalue()
            and "busy" not in out.getvalue().split("<script")[0].split("</style>")[-1]
        )


def test_few_activities_that_fill_the_recording_are_judged() -> None:
    trace = Trace()
    run(trace, *((GEMM, at * 100_000, 90_000) for at in range(1, 5)))
    assert bound(trace).by == "gpu"


def one_batch(queued_ns: int) -> Trace:
    """One batch of an engine: a graph of twelve kernels without a gap, that begins so long after its launch."""
    trace = Trace()
    trace.add(
        "ops", kind="annotation", name="execute_context_0(0)_generation_8(8)", start_ns=0, dur_ns=20_000, pid=1, tid=1
    )
    call = trace.call("cudaGraphLaunch", 1_000, 9_000)
    for at in range(12):
        trace.kernel(GEMM, 10_000 + queued_ns + 100_000 * at, 100_000, launch=call)
    return trace


def test_what_ran_before_the_recording_is_no_idle_time() -> None:
    found = scanned(one_batch(6_000_000))  # behind a batch that was not recorded
    assert found.summary.bound is not None and found.summary.per_step is not None
    assert found.summary.bound.by == "gpu" and found.summary.per_step.span_ns == 1_200_000
    soon = scanned(one_batch(20_000)).summary.per_step
    assert soon is not None and soon.span_ns == 1_230_000  # from its mark on


def idle(*gaps_us: tuple[str, int]) -> Trace:
    """Products of 20 µs, with so many microseconds of idle time before each, for what is named."""
    trace = Trace()
    at = 100_000
    trace.kernel(GEMM, at, 20_000, launch=(at - 200, 100))
    for cause, us in gaps_us:
        at += 20_000 + us * 1_000
        if cause == "sync":  # the host asks for the one before, and is told when it launches the next
            trace.call("cudaStreamSynchronize", at - us * 1_000 - 15_000, us * 1_000 + 14_000)
        name = "cudaGraphLaunch" if cause == "graph" else "cudaLaunchKernel"
        launch = (
            None if cause == "unknown" else (at - us * 800, us * 800 - 100) if cause == "graph" else (at - 200, 100)
        )
        trace.kernel(GEMM, at, 20_000, launch=launch, launch_name=name)
    return trace


def test_two_causes_of_idle_time_are_named_with_their_shares() -> None:
    found = bound(idle(*[("host", 60), ("graph", 40)] * 4))
    assert [(one.name, one.cause, one.share) for one in found.causes] == [
        ("host", "host_bound", 0.6),
        ("graph launch", "graph_launch", 0.4),
    ]
    said = bound_headline(scanned(idle(*[("host", 60), ("graph", 40)] * 4)))
    assert said.startswith("Host-bound: the GPU idles 69% of")
    said = bound_headline(scanned(idle(*[("host", 30), ("graph", 90)] * 4)))
    assert said.startswith("The GPU idles 73% of the recorded time, mostly for graph launch")


def test_causes_that_are_half_of_the_idle_time_together_are_not_unknown() -> None:
    found = idle(*[("host", 60), ("graph", 50), ("unknown", 90)] * 4)
    assert [(one.name, round(one.share, 2)) for one in bound(found).causes] == [("host", 0.3), ("graph launch", 0.25)]
    assert bound_headline(scanned(found)).startswith("Host-bound: the GPU idles 75% of")


def test_causes_that_are_less_than_half_of_the_idle_time_are_unknown() -> None:
    found = idle(*[("host", 50), ("graph", 40), ("unknown", 95)] * 4)
    assert bound_headline(scanned(found)).startswith("The GPU idles 74% of the recorded time, cause not recorded")


def test_shares_are_of_what_was_recorded_where_the_estimate_has_the_rest_at_the_edges_of_steps() -> None:
    trace = Trace()
    step = trace.step(0, 6_000_000)
    mm: dict[str, Any] = {"op": "aten::mm", "shapes": [[64, 64]] * 2, "step_row": step}
    for at in range(13):
        start = 1_600_000 + at * 200_000
        trace.kernel(GEMM, start, 100_000, launch=(start - 200, 100), **mm)
    trace.kernel(GEMM, 4_800_000, 1_000_000, launch=(4_100_100, 699_000), launch_name="cudaGraphLaunch", step_row=step)
    found = bound(trace)
    assert found.causes_recorded
    assert [(one.name, one.share) for one in found.causes] == [("host", 0.6316), ("graph launch", 0.3684)]
