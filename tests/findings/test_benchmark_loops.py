"""One call again and again, whose results nothing reads, is measured and not fused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.findings.record import Scan
from tracemine.timeline import RecordedDevice

H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
BIG = [4096, 8192]
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


class Program(Trace):
    """Operators one after another, a kernel of `us` each."""

    def __init__(self) -> None:
        super().__init__(devices=(H200,))
        self.at = 0

    def run(self, name: str, *inputs: Any, us: int = 120, concrete: list[str] | None = None) -> None:
        dtypes = ["float" if each else "Scalar" for each in inputs]
        strides = [[each[1], 1] if each else [] for each in inputs]
        start = 1_000_000 + self.at * us * 1000
        self.kernel(
            KERNEL,
            start,
            us * 1000,
            launch=(self.at * 10_000 + 2_000, 4_000),
            op=name,
            shapes=list(inputs),
            dtypes=dtypes,
            strides=strides,
            concrete=concrete or [""] * (len(inputs) - 1) + ["1"],
        )
        self.at += 1

    def scan(self) -> Scan:
        return pipeline.mined(pipeline.analysed(self.timeline()))


def _chains(scan: Scan) -> list[tuple[str, ...]]:
    return [found.ops for found in scan.findings if found.rule == "memory_bound_chain"]


def _said(scan: Scan) -> list[str]:
    return [text for text in scan.warnings if "a benchmark's loop" in text]


@pytest.mark.parametrize(
    ("name", "inputs", "times", "us", "says"),
    [
        (
            "aten::add",
            (BIG, BIG, []),
            10,
            120,
            "add ×10 (float32 [4096, 8192]) is the same call each time, and nothing reads what it makes: a benchmark's "
            "loop, and no chain for one kernel. A call moves 403 MB in 120 µs: 3.36 TB/s, 69.9% of the 4.80 TB/s that "
            "the data sheet states; a large copy reaches 4.30 TB/s.",
        ),
        (
            "aten::relu",
            ([2048, 8192],),
            100,
            50,
            "relu ×100 (float32 [2048, 8192]) is the same call each time, and nothing reads what it makes: a "
            "benchmark's loop, and no chain for one kernel. A call moves 134 MB in 50.0 µs: 2.68 TB/s, 55.9% of the "
            "4.80 TB/s that the data sheet states; a large copy reaches 4.30 TB/s.",
        ),
    ],
)
def test_a_benchmarks_loop_is_no_chain_and_its_bandwidth_is_said(
    name: str, inputs: tuple[Any, ...], times: int, us: int, says: str
) -> None:
    program = Program()
    for _ in range(times):
        program.run(name, *inputs, us=us)
    scan = program.scan()
    assert _chains(scan) == []
    assert _said(scan) == [says]
    assert scan.dropped["benchmark_loop"] >= 1


def test_one_loop_behind_another_is_two() -> None:
    program = Program()
    for _ in range(8):
        program.run("aten::add", BIG, BIG, [])
    for _ in range(6):
        program.run("aten::mul", BIG, BIG)
    scan = program.scan()
    assert _chains(scan) == []
    assert [text.split(" is ")[0] for text in _said(scan)] == [
        "add ×8 (float32 [4096, 8192])",
        "mul ×6 (float32 [4096, 8192])",
    ]


def test_calls_whose_result_is_read_are_a_chain() -> None:
    program = Program()
    for _ in range(10):
        program.run("aten::add", BIG, BIG, [])
    program.run("aten::relu", BIG)
    program.run("aten::sum", BIG)
    scan = program.scan()
    assert _chains(scan)
    assert _said(scan) == []


def test_calls_with_other_inputs_are_a_chain() -> None:
    program = Program()
    for number in range(10):
        program.run("aten::add", BIG, BIG, [], concrete=["", "", str(number + 2)])
    scan = program.scan()
    assert _chains(scan)
    assert _said(scan) == []


def test_calls_that_write_in_place_are_a_chain() -> None:
    program = Program()
    for _ in range(10):
        program.run("aten::add_", BIG, BIG, [])
    scan = program.scan()
    assert _chains(scan)
    assert _said(scan) == []


def test_a_few_calls_that_are_alike_are_a_chain() -> None:
    program = Program()
    for _ in range(3):
        program.run("aten::add", BIG, BIG, [])
    scan = program.scan()
    assert _chains(scan)
    assert _said(scan) == []


def test_what_a_cache_holds_is_no_share_of_the_memorys_rate() -> None:
    program = Program()
    for _ in range(10):
        program.run("aten::add", BIG, BIG, [], us=60)
    assert _said(program.scan())[0].endswith(
        "A call moves 403 MB in 60.0 µs: 6.71 TB/s, more than the 4.80 TB/s of the GPU's memory: a cache has it."
    )
