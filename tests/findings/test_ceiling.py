"""How far GPU time could fall: at the device's rates, and as findings say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.findings.build import H200
from tests.known import known_device
from tests.timelines import Trace
from tracemine.findings.record import Part, Parts, Scan
from tracemine.perfmodel import rates_of
from tracemine.pipeline import ScanOptions, analysed, mined, scan
from tracemine.timeline import RecordedDevice

GEMM, ADD, NCCL = (
    "sm90_xmma_gemm_bf16",
    "void at::native::vectorized_elementwise_kernel<4>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
)
FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRACES = sorted([*FIXTURES.glob("kineto/*.json.gz"), *FIXTURES.glob("memory/*")])
DEVICE = known_device("NVIDIA H200")
SIDE = 8192
BF16: dict[str, Any] = {"dtypes": ["c10::BFloat16", "c10::BFloat16"]}


def parts(trace: Trace, device: RecordedDevice = H200) -> Parts:
    trace.meta = type(trace.meta)(tracemine_version="test", source="t.json", format="kineto", devices=(device,))
    found = mined(analysed(trace.timeline()), ScanOptions(rules=())).summary.parts
    assert found is not None
    return found


def product(dur: int, **columns: Any) -> Part:
    trace = Trace()
    trace.kernel(GEMM, 0, dur, launch=(0, 1), op="aten::mm", shapes=[[SIDE, SIDE]] * 2, **(BF16 | columns))
    return parts(trace).parts[0]


def reached_ns(arithmetic: str, flops: int, nbytes: int) -> int:
    """What the fastest twentieth of such products take."""
    found = rates_of(DEVICE).ns("product", arithmetic, flops, nbytes)
    assert found is not None
    return found.low


FLOPS = 2 * SIDE**3


def test_a_product_takes_no_less_than_the_fastest_that_were_recorded() -> None:
    least = product(9_000_000).least_gpu_time_ns
    assert least is not None
    assert 0 <= least - reached_ns("half", FLOPS, 3 * 2 * SIDE**2) <= 1
    assert least > FLOPS * 10**9 / DEVICE.flops_per_s["bf16"]
    least = product(99_000_000, dtypes=["float", "float"]).least_gpu_time_ns
    assert least is not None
    assert 0 <= least - reached_ns("fp32", FLOPS, 3 * 4 * SIDE**2) <= 1


def test_what_was_faster_than_others_stays_as_it_is() -> None:
    assert product(1_000_000).least_gpu_time_ns == 1_000_000


def test_kernels_of_one_product_share_its_flops() -> None:
    trace = Trace()
    op = trace.op("aten::mm", 0, 10, [[SIDE, SIDE]] * 2, BF16["dtypes"])
    for at in (0, 1):
        trace.kernel(GEMM, 10 + at * 5_000_000, 4_500_000, launch=(1 + at, 1), op=op)
    least = parts(trace).parts[0].least_gpu_time_ns
    assert least is not None
    assert 0 <= least - reached_ns("half", FLOPS, 3 * 2 * SIDE**2) <= 3


def test_memory_bound_work_takes_no_less_than_its_bytes_at_the_bandwidth_of_a_copy() -> None:
    trace = Trace()
    trace.kernel(ADD, 0, 900_000, launch=(0, 1), op="aten::add", shapes=[[SIDE, SIDE]] * 2, **BF16)
    nbytes = 3 * 2 * SIDE**2
    assert parts(trace).parts[0].least_gpu_time_ns == -(-nbytes * 10**9 // DEVICE.achieved_bytes_per_s)


def test_a_small_kernel_takes_no_less_than_the_smallest() -> None:
    trace = Trace()
    trace.kernel(ADD, 0, 9_000, launch=(0, 1), op="aten::add", shapes=[[8, 8]] * 2, **BF16)
    assert parts(trace).parts[0].least_gpu_time_ns == DEVICE.launch_floor_ns[0]


def test_what_is_not_known_stays_as_it_is_and_says_so() -> None:
    trace = Trace()
    trace.kernel(ADD, 0, 900_000, launch=(0, 1), op="aten::add", shapes=[[SIDE, SIDE]] * 2, **BF16)
    trace.kernel(NCCL, 900_000, 300_000)
    trace.copy("HtoD", 1_200_000, 300_000, 1 << 20)
    found = parts(trace)
    memory, copies, communication = found.parts[:3]
    assert (communication.least_gpu_time_ns, copies.least_gpu_time_ns) == (None, None)
    assert memory.least_gpu_time_ns is not None
    assert found.least_gpu_time_ns == memory.least_gpu_time_ns + 600_000
    assert found.least_known_share == 0.6
    trace.kernel(NCCL, 1_500_000, 900_000)
    assert parts(trace).least_gpu_time_ns is None


def test_on_a_gpu_that_is_not_known_nothing_is_said() -> None:
    trace = Trace()
    trace.kernel(ADD, 0, 900_000, launch=(0, 1), op="aten::add", shapes=[[SIDE, SIDE]] * 2, **BF16)
    found = parts(trace, RecordedDevice(ordinal=0, name="NVIDIA Z1"))
    assert (found.least_gpu_time_ns, found.gpu_time_after_ns, found.least_known_share) == (None, None, 0.0)


def _recording(trace: Path) -> tuple[Scan, Parts]:
    found = scan(trace)
    assert found.summary.parts is not None
    return found, found.summary.parts


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_the_least_of_a_recording_is_no_more_than_what_the_findings_reach_at_most(trace: Path) -> None:
    found, whole = _recording(trace)
    assert whole.least_gpu_time_ns is not None and whole.gpu_time_after_ns is not None
    spent = sum(part.gpu_time_ns for part in whole.parts)
    for part in whole.parts:
        assert part.least_gpu_time_ns is None or 0 <= part.least_gpu_time_ns <= part.gpu_time_ns
    slack = 2 * sum(len(one.activities) for one in found.findings) + 50
    assert 0 < whole.least_gpu_time_ns <= whole.gpu_time_after_ns.low + slack  # each activity is rounded up
    assert whole.gpu_time_after_ns.low <= whole.gpu_time_after_ns.mid <= whole.gpu_time_after_ns.high <= spent


def test_with_a_finding_the_least_falls_by_what_it_saves_at_most() -> None:
    with_rules, reached = _recording(FIXTURES / "kineto/chain.json.gz")
    one = with_rules.findings[0]
    assert one.per_step is not None and one.per_step.gpu_saving_ns.high > 0
    spent = sum(part.gpu_time_ns for part in reached.parts)
    assert reached.least_gpu_time_ns is not None
    assert 0 <= reached.least_gpu_time_ns - (spent - one.per_step.gpu_saving_ns.high) <= 8
