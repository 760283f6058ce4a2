"""Waits as findings: each at its own line, where the step is shorter without; and near misses that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined

STALL = 5_000_000
LATE = 30_000  # from one launch to the next, as recorded; alone the host takes less than half of it
KERNEL = 22_000
Step = Callable[[Trace, int, int], int]


def frame(trace: Trace, line: str) -> dict[str, Any]:
    """A line that `main` calls: the same row each time."""
    main = next((row for row in trace.rows["stacks"]), None) or trace.frame("train.py(1): main")
    return next((row for row in trace.rows["stacks"] if row["frame"] == line), None) or trace.frame(line, main)


def launches(trace: Trace, at: int, count: int = 12, every: int = LATE, lasting: int = KERNEL) -> int:
    """Operators that a recorded host launches too late, one after another; returns when the last kernel ends."""
    line = frame(trace, "train.py(10): layers")
    end = at
    for number in range(count):
        begin = at + number * every
        op = trace.op("aten::mm", begin, 15_000, [[64, 8]], ["float"], stack_row=line)
        start = max(begin + 16_000, end + 1_000)
        trace.kernel("gemm", start, lasting, launch=(begin + 10_000, 5_000), op=op, stack=line)
        end = start + lasting
    return end


def wait(trace: Trace, at: int, line: str = "train.py(20): log", size: int = 4, kind: str = "DtoH") -> int:
    """A number that is copied to the host, which waits for that; recorded, the device is done before. Returns when."""
    stack = frame(trace, line)
    item = trace.op("aten::item", at, 20_000, [[]], ["float"], stack_row=stack)
    op = trace.op("aten::_local_scalar_dense", at + 500, 19_000, parent_row=item, stack_row=stack)
    trace.copy(kind, at + 9_000, 1_500, size, pageable=True, launch=(at + 3_000, 5_000), op=op, stack=stack)
    trace.call("cudaStreamSynchronize", at + 8_500, 5_000, op_row=op, stack_row=stack)
    return at + 20_000


def logged(trace: Trace, begin: int, step: int) -> int:
    """Waits in the middle of a step: alone the host would have been ahead."""
    return launches(trace, wait(trace, launches(trace, begin) + 3_000) + 20_000)


def logged_twice(trace: Trace, begin: int, step: int) -> int:
    """The same at two lines."""
    middle = launches(trace, wait(trace, launches(trace, begin) + 3_000) + 20_000)
    return launches(trace, wait(trace, middle + 3_000, "train.py(30): check") + 20_000)


def by_device(trace: Trace, begin: int, step: int) -> int:
    """Long kernels, and a wait for an event behind which more was launched: the device goes on."""
    stack = frame(trace, "train.py(20): log")
    launches(trace, begin, 6, lasting=100_000)
    trace.call("cudaEventRecord", begin + 6 * LATE - 4_000, 1_000)
    launches(trace, begin + 20 * LATE, 6)
    trace.call("cudaEventSynchronize", begin + 26 * LATE, 10_000, stack_row=stack)
    return launches(trace, begin + 27 * LATE, 6)


def by_host(trace: Trace, begin: int, step: int) -> int:
    """Kernels so short that the host is behind alone, too: without the wait each launch comes late as well."""
    return launches(trace, wait(trace, launches(trace, begin, lasting=1_000) + 3_000) + 20_000, lasting=1_000)


def masked(trace: Trace, begin: int, step: int, looks: int = 3, looking: str = "aten::nonzero") -> int:
    """Rows that a mask chooses, on a host that is late alone too: what looks for their places launches as well."""
    at, stack = launches(trace, begin, lasting=1_000) + 3_000, frame(trace, "train.py(20): log")
    spent = 20_000 * (looks + 1) + 20_000
    index = trace.op("aten::index", at, spent, [[64, 8], [[64]]], ["float", "TensorList"], stack_row=stack)
    op = trace.op(looking, at + 500, spent - 18_000, parent_row=index, stack_row=stack)
    for look in range(looks):
        begin = at + 2_000 + 20_000 * look
        trace.kernel("select", begin + 16_000, 1_000, launch=(begin + 10_000, 5_000), op=op, stack=stack)
    read = at + 2_000 + 20_000 * looks
    trace.copy("DtoH", read + 9_000, 1_500, 4, pageable=True, launch=(read + 3_000, 5_000), op=op, stack=stack)
    trace.call("cudaStreamSynchronize", read + 8_500, 5_000, op_row=op, stack_row=stack)
    trace.kernel("gather", at + spent - 3_000, 1_000, launch=(at + spent - 8_000, 4_000), op=index, stack=stack)
    return launches(trace, at + spent + 20_000, lasting=1_000)


def masked_by_more(trace: Trace, begin: int, step: int) -> int:
    return masked(trace, begin, step, looks=6)


def distinct(trace: Trace, begin: int, step: int) -> int:
    """The same of values that differ: as many as there are."""
    return masked(trace, begin, step, looking="aten::_unique2")


def repeated(trace: Trace, begin: int, step: int) -> int:
    """The same of what is still done once its length is given."""
    return masked(trace, begin, step, looking="aten::repeat_interleave")


def once(trace: Trace, begin: int, step: int) -> int:
    """A wait of one step among many."""
    return logged(trace, begin, step) if step == 1 else launches(trace, launches(trace, begin) + 30_000)


def settled(trace: Trace, begin: int, step: int) -> int:
    """Waits for the whole device at a step's end, as profilers and timers do."""
    end = launches(trace, begin, 24)
    stack = trace.frame("train.py(40): timed")
    trace.call("cudaDeviceSynchronize", end + 3_000, 5_000, stack_row=stack)
    return end + 10_000


def of_nobody(trace: Trace, begin: int, step: int) -> int:
    """A wait in no operator and at no line."""
    end = launches(trace, begin)
    trace.call("cudaStreamSynchronize", end + 3_000, 5_000)
    return launches(trace, end + 30_000)


def large(trace: Trace, begin: int, step: int) -> int:
    """A large copy from pageable memory, which is another finding."""
    return launches(trace, moved(trace, launches(trace, begin) + 3_000, frame(trace, "train.py(20): batch")) + 20_000)


def made(trace: Trace, begin: int, step: int, lasting: int = 120_000, second: str = "aten::tril") -> int:
    """A large mask that operators on the host make, and its copy."""
    at = launches(trace, begin) + 3_000
    line = frame(trace, "train.py(20): mask")
    for name in ("aten::ones", second):
        trace.op(name, at, lasting, [[1024, 1024]], ["float"], stack_row=line)
        at += lasting + 1_000
    return launches(trace, moved(trace, at, line) + 20_000)


def moved(trace: Trace, at: int, line: dict[str, Any]) -> int:
    """x.to("cuda") of a large tensor in pageable memory; returns when."""
    to = trace.op("aten::to", at, 40_000, [[1024, 1024]], ["float"], stack_row=line)
    op = trace.op("aten::copy_", at + 500, 39_000, parent_row=to, stack_row=line)
    trace.copy("HtoD", at + 9_000, 1_500, 1 << 22, pageable=True, launch=(at + 3_000, 5_000), op=op, stack=line)
    trace.call("cudaStreamSynchronize", at + 8_500, 5_000, op_row=op, stack_row=line)
    return at + 40_000


def made_of_more(trace: Trace, begin: int, step: int) -> int:
    return made(trace, begin, step, lasting=240_000)


def prepared(trace: Trace, begin: int, step: int) -> int:
    """The same with what may work on a batch that was there before: that is pinned, or prepared ahead."""
    return made(trace, begin, step, second="aten::mul")


def stalled(trace: Trace, begin: int, step: int) -> int:
    """Behind a wait the host does something else for long, which is a finding of its own."""
    end = launches(trace, begin, 4, lasting=500_000)
    stack = frame(trace, "train.py(20): log")
    trace.call("cudaStreamSynchronize", begin + 4 * LATE, end + 4_000 - begin - 4 * LATE, stack_row=stack)
    for at in range(end + 10_000, end + STALL - 30_000, 20_000):
        trace.op("aten::tolist", at, 10_000)
    return launches(trace, end + STALL, 4)


def one_after_another(trace: Trace, begin: int, step: int) -> int:
    """Five numbers on one line, each asked for by itself: nothing is computed in between."""
    at = launches(trace, begin) + 3_000
    for _ in range(5):
        at = wait(trace, at)
    return launches(trace, at + 20_000)


SCHEMAS = {
    "aten::eq": "aten::eq.Scalar(Tensor self, Scalar other) -> Tensor",
    "aten::all": "aten::all(Tensor self) -> Tensor",
    "aten::_local_scalar_dense": "aten::_local_scalar_dense(Tensor self) -> Scalar",
    "aten::relu": "aten::relu(Tensor self) -> Tensor",
}


def reads(trace: Trace, op: dict[str, Any], taken: int, given: int | None = None) -> None:
    """Say what an operator takes and gives, each a storage of its own."""
    op["execution_node_id"] = 10 + len(trace.rows["ops"])
    op["op_schema"] = SCHEMAS[op["name"]]
    for storage, is_output in ((taken, False), (given, True)):
        if storage is not None:
            trace.add(
                "tensors", op_row=op, is_output=is_output, position=0, list_index=None, tensor_id=0, storage_id=storage,
                offset_elements=0, numel=64, itemsize_bytes=4, device="cuda:0", dtype="float", shape=[64], strides=[1],
            )  # fmt: skip


def until_done(trace: Trace, begin: int, step: int, kept: bool = False) -> int:
    """Twelve rounds, behind each of which all rows are asked whether they have ended; kept: that is used as well."""
    line, at = frame(trace, "decode.py(9): decode"), begin
    for turn in range(12):
        at, mine = launches(trace, at, 2, lasting=1_000) + 3_000, 1_000 * (step + 1) + 10 * turn
        calls = [("aten::eq", mine, mine + 1), ("aten::all", mine + 1, mine + 2)]
        for name, taken, given in [*calls, ("aten::relu", mine + 1, mine + 3)] if kept else calls:
            op = trace.op(name, at, 15_000, [[64]], ["float"], stack_row=line)
            reads(trace, op, taken, given)
            trace.kernel(name, at + 16_000, 1_000, launch=(at + 10_000, 5_000), op=op, stack=line)
            at += LATE
        asked = trace.op("aten::is_nonzero", at, 20_000, [[]], ["float"], stack_row=line)
        op = trace.op("aten::_local_scalar_dense", at + 500, 19_000, parent_row=asked, stack_row=line)
        reads(trace, op, mine + 2)
        trace.copy("DtoH", at + 9_000, 1_500, 4, pageable=True, launch=(at + 3_000, 5_000), op=op, stack=line)
        trace.call("cudaStreamSynchronize", at + 8_500, 5_000, op_row=op, stack_row=line)
        at += LATE
    return at


def until_kept(trace: Trace, begin: int, step: int) -> int:
    return until_done(trace, begin, step, kept=True)


def handed_on(trace: Trace, begin: int, step: int) -> int:
    """Rounds that each take a number, which the next operator may compute with."""
    at = begin
    for _ in range(4):
        at = wait(trace, launches(trace, at, 6) + 3_000, "solver.py(5): solve") + 2_000
        trace.op("aten::mul", at, 3_000, [[64, 8], []], ["float", "double"], concrete=["", ""])
        at += 20_000
    return at


def findings(step: Step, steps: int = 4) -> list[Finding]:
    trace, begin = Trace(with_stack=True), 0
    for at in range(steps):
        end = step(trace, begin, at)
        trace.step(begin, end + 2_000 - begin)
        begin = end + 4_000
    return [one for one in mined(analysed(trace.timeline())).findings if one.rule == "host_sync"]


def test_a_wait_is_a_finding_of_its_own_line() -> None:
    (found,) = findings(logged)
    assert [(one.line, one.function) for one in found.source] == [(20, "log"), (1, "main")]
    assert "Replace `.item()` by `logged.append(loss.detach())`" in found.fix
    assert (found.occurrences, found.evidence) == (4, "consistent")
    saving, measured = found.step_saving_ns, found.measured_ns
    assert saving.low == 0 < saving.mid <= saving.high <= measured
    assert 4 * 2_000 < saving.mid < 4 * 20_000  # until the host has launched again alone, and no more


def test_where_the_host_is_late_anyhow_a_wait_costs_what_its_call_takes() -> None:
    (found,) = findings(by_host)
    saving = found.step_saving_ns
    assert saving.low == 0 < saving.mid < 4 * 10_000  # of each of four, less than the queue behind it takes to fill
    assert saving.mid < findings(logged)[0].step_saving_ns.mid


def test_what_looks_for_the_places_of_a_mask_goes_with_its_wait() -> None:
    number, mask, more = (findings(step)[0].step_saving_ns for step in (by_host, masked, masked_by_more))
    assert 2 * number.mid < mask.mid < more.mid <= more.high
    assert mask.low == more.low == 0


def test_what_looks_for_values_that_differ_goes_with_its_wait() -> None:
    mask, values, lengths = (findings(step)[0].step_saving_ns.mid for step in (masked, distinct, repeated))
    assert values == mask > 2 * lengths


def test_what_operators_on_the_host_make_goes_with_its_copy() -> None:
    (found,), (more,) = findings(made), findings(made_of_more)
    assert found.title.startswith("Tensor made on the host, then copied")
    assert "device=" in found.fix
    assert ".to(device)" in found.fix
    # Of the longer one so much more, as far as the device then has to wait for the host at all.
    assert 4 * 10_000 < found.step_saving_ns.mid < more.step_saving_ns.mid / 2


def test_what_is_computed_to_be_tested_alone_goes_with_the_test() -> None:
    (found,), (kept,) = findings(until_done), findings(until_kept)
    # The comparison of each round stays where something else reads it.
    assert found.step_saving_ns.mid > kept.step_saving_ns.mid + 4 * 12 * 5_000
    assert kept.step_saving_ns.mid > 0


def test_numbers_asked_for_one_after_another_are_no_rounds() -> None:
    (found,) = findings(one_after_another)
    assert found.source[0].line == 20
    assert 0 == found.step_saving_ns.low < found.step_saving_ns.mid


def test_each_line_is_a_finding() -> None:
    assert sorted(one.source[0].line for one in findings(logged_twice)) == [20, 30]


@pytest.mark.parametrize(
    "step", [by_device, once, settled, of_nobody, large, prepared, stalled, handed_on], ids=lambda step: step.__name__
)
def test_near_misses_are_none(step: Step) -> None:
    assert not findings(step)
