"""Waits for the device: what the host calls there, and what the value that it fetches is used for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.answers.waits import Told, scores
from tests.timelines import Trace
from tracemine.causes.host_sync import written
from tracemine.host.uses import USES, uses_of
from tracemine.host.waits import WAITS, Waits, waits_of
from tracemine.pipeline import analysed, mined
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import host_calls
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

STEP = 10_000
Step = Callable[[Trace, int, int], Any]


def work(trace: Trace, at: int, rows: int = 64, name: str = "aten::mm", factor: str = "") -> None:
    """An operator and its kernel, from `at` on for 100."""
    op = trace.op(name, at, 50, [[rows, 8], []], ["float", "Scalar" if factor else ""], concrete=["", factor])
    trace.kernel("gemm", at + 30, 60, launch=(at + 10, 10), op=op)


def copied(trace: Trace, at: int, kind: str, outer: str, *inner: str, size: int = 4) -> dict[str, Any]:
    """A copy from or to pageable memory, and the wait for it, in nested operators, from `at` on for 500."""
    op = trace.op(outer, at, 500)
    for depth, name in enumerate(inner, 1):
        op = trace.op(name, at + depth, 500 - 2 * depth, parent_row=op)
    trace.copy(kind, at + 60, 5, size, pageable=True, launch=(at + 20, 30), op=op)
    return trace.call("cudaStreamSynchronize", at + 60, 400, op_row=op)


def item(trace: Trace, at: int) -> None:
    copied(trace, at, "DtoH", "aten::item", "aten::_local_scalar_dense")


def log(trace: Trace, begin: int, step: int) -> None:
    """log.append(loss.item())"""
    item(trace, begin + 500)
    work(trace, begin + 1500)


def size(trace: Trace, begin: int, step: int) -> None:
    """y = x[: count.item()] @ w"""
    item(trace, begin + 500)
    work(trace, begin + 1500, rows=8 * (step + 1))


def branch(trace: Trace, begin: int, step: int) -> None:
    """y = x @ w if value.item() > 0 else x + w"""
    item(trace, begin + 500)
    work(trace, begin + 1500, name="aten::mm" if step % 2 else "aten::add")


def argument(trace: Trace, begin: int, step: int) -> None:
    """y = x.clamp(limit.item())"""
    item(trace, begin + 500)
    work(trace, begin + 1500, name="aten::clamp", factor=f"0.{step}")


def maybe_argument(trace: Trace, begin: int, step: int) -> None:
    """y = x * scale.item(): the number is not recorded, so it may as well be logged"""
    item(trace, begin + 500)
    trace.op("aten::mul", begin + 1500, 50, [[64, 8], []], ["float", "double"], concrete=["", ""])


def loop(trace: Trace, begin: int, step: int) -> None:
    """while error.item() > limit: work()"""
    for at in range(2 + step % 2):
        work(trace, begin + 500 + 1500 * at)
        item(trace, begin + 1000 + 1500 * at)


def other_batches(trace: Trace, begin: int, step: int) -> None:
    """log.append(loss.item()), where batches have other sizes anyway: what differs does so before it too"""
    work(trace, begin + 100, rows=8 * (step + 1))
    item(trace, begin + 500)
    work(trace, begin + 1500, rows=8 * (step + 1))


def truth(trace: Trace, begin: int, step: int) -> None:
    """if loss.isfinite(): …"""
    copied(trace, begin + 500, "DtoH", "aten::is_nonzero", "aten::item", "aten::_local_scalar_dense")
    work(trace, begin + 1500)


def check(trace: Trace, begin: int, step: int) -> None:
    """torch.linalg.cholesky(x)"""
    copied(trace, begin + 500, "DtoH", "aten::linalg_cholesky", "aten::_linalg_check_errors", "aten::item")
    work(trace, begin + 1500)


def mask(trace: Trace, begin: int, step: int) -> None:
    """x[mask]"""
    copied(trace, begin + 500, "DtoH", "aten::index", "aten::nonzero")


def to_host(trace: Trace, begin: int, step: int) -> None:
    """x.cpu()"""
    copied(trace, begin + 500, "DtoH", "aten::to", "aten::_to_copy", "aten::copy_", size=1 << 20)


def from_host(trace: Trace, begin: int, step: int) -> None:
    """batch.cuda()"""
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=1 << 20)


def from_list(trace: Trace, begin: int, step: int) -> None:
    """torch.tensor([…], device="cuda")"""
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=512)
    trace.op("aten::lift_fresh", begin + 1010, 5)


def tensor_of_list(trace: Trace, begin: int, step: int) -> None:
    """torch.tensor([…]).to("cuda")"""
    for at, name in enumerate(("aten::lift_fresh", "aten::detach_")):
        trace.op(name, begin + 400 + 20 * at, 5)
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=512)


def detached(trace: Trace, begin: int, step: int) -> None:
    """small = small.detach_().to("cuda"): of no list"""
    trace.op("aten::detach_", begin + 420, 5)
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=512)


def made_mask(trace: Trace, begin: int, step: int) -> None:
    """torch.ones(n, n).tril().to("cuda")"""
    trace.op("aten::ones", begin + 300, 60)
    trace.op("aten::tril", begin + 380, 100)
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=1 << 20)


def made_on_device(trace: Trace, begin: int, step: int) -> None:
    """torch.ones(n, device="cuda"), and a batch.cuda() of what was there before"""
    op = trace.op("aten::ones", begin + 300, 60)
    trace.kernel("fill", begin + 340, 20, launch=(begin + 320, 10), op=op)
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=1 << 20)


def mixed_with_batch(trace: Trace, begin: int, step: int) -> None:
    """(batch * torch.rand(n)).to("cuda"): what has two inputs may work on what was there before"""
    trace.op("aten::rand", begin + 300, 60)
    trace.op("aten::mul", begin + 380, 100)
    copied(trace, begin + 500, "HtoD", "aten::to", "aten::_to_copy", "aten::copy_", size=1 << 20)


def synchronize(trace: Trace, begin: int, step: int) -> None:
    """torch.cuda.synchronize()"""
    trace.call("cudaDeviceSynchronize", begin + 500, 400)


def event(trace: Trace, begin: int, step: int) -> None:
    """done.record(); done.synchronize()"""
    trace.call("cudaEventRecord", begin + 400, 10)
    trace.call("cudaEventSynchronize", begin + 500, 400)


def event_later(trace: Trace, begin: int, step: int) -> None:
    """done.record(), and work on before done.synchronize(): the device goes on"""
    trace.call("cudaEventRecord", begin + 100, 10)
    work(trace, begin + 200)
    trace.call("cudaEventSynchronize", begin + 500, 100)


def event_before(trace: Trace, begin: int, step: int) -> None:
    """work, done.record(), and a wait for the event of the round before: the device is at work when it returns"""
    trace.kernel("gemm", begin + 420, 500, launch=(begin + 300, 10))
    trace.call("cudaEventRecord", begin + 400, 10)
    trace.call("cudaEventSynchronize", begin + 500, 100)


def pinned(trace: Trace, begin: int, step: int) -> None:
    """host.copy_(x, non_blocking=True), host pinned"""
    trace.copy("DtoH", begin + 600, 50, 1 << 20, launch=(begin + 500, 10), op="aten::copy_")


def freed(trace: Trace, begin: int, step: int) -> None:
    """torch.cuda.empty_cache()"""
    trace.call("cudaFree", begin + 500, 400)


def first_asked(trace: Trace, begin: int, step: int) -> None:
    """before = value.item(), and rounds that take numbers of the same line: none of them is only logged"""
    item(trace, begin + 100)
    work(trace, begin + 700)
    for at in range(3):
        item(trace, begin + 1500 + 1000 * at)
        trace.op("aten::mul", begin + 2200 + 1000 * at, 50, [[64, 8], []], ["float", "double"], concrete=["", ""])


CASES: list[tuple[Step, str | None, str | None]] = [
    *((log, "number", "log"), (size, "number", "size"), (branch, "number", "branch"), (loop, "number", "loop")),
    *((argument, "number", "argument"), (maybe_argument, "number", None), (other_batches, "number", None)),
    (first_asked, "number", None),
    (check, "check", "check"),
    *((truth, "truth", "branch"), (mask, "mask", "mask"), (to_host, "to_host", "to_host")),
    *((from_host, "from_host", "from_host"), (from_list, "from_list", "from_list")),
    *((tensor_of_list, "from_list", "from_list"), (detached, "from_host", "from_host")),
    *((made_mask, "made", "made"), (made_on_device, "from_host", "from_host")),
    (mixed_with_batch, "from_host", "from_host"),
    *((synchronize, "synchronize", "synchronize"), (event, "synchronize", "synchronize")),
    *((event_later, None, None), (event_before, None, None), (pinned, None, None), (freed, None, None)),
]


def made(step: Step, steps: int = 4) -> Trace:
    trace = Trace()
    for at in range(steps):
        trace.step(at * STEP, STEP)
        work(trace, at * STEP)
        step(trace, at * STEP, at)
    return trace


def waits_and_uses(timeline: Timeline) -> tuple[Waits, IntArray]:
    calls, of_ops = host_calls(timeline)
    waits = waits_of(timeline, calls, of_ops)
    return waits, uses_of(timeline, waits, rows_of(timeline.steps["start_ns"]), of_ops)


def test_what_operators_made_of_nothing_is_counted_in_their_time() -> None:
    waits, _ = waits_and_uses(made(made_mask).timeline())
    assert set(waits.made_ns.tolist()) == {160}
    waits, _ = waits_and_uses(made(from_host).timeline())
    assert not waits.made_ns.any()


@pytest.mark.parametrize(("step", "kind", "use"), CASES, ids=[step.__name__ for step, *_ in CASES])
def test_a_wait_is_told_by_its_call_and_its_use_by_what_follows(step: Step, kind: str | None, use: str | None) -> None:
    waits, uses = waits_and_uses(made(step).timeline())
    assert {WAITS[each] for each in waits.kind.tolist()} == ({kind} if kind else set())
    assert {USES[each] if each >= 0 else None for each in uses.tolist()} == ({use} if kind else set())
    assert (waits.wait_ns <= waits.end_ns - waits.begin_ns).all()


@pytest.mark.parametrize(
    ("step", "text"),
    [
        *((log, ".item()"), (truth, "if tensor:"), (mask, "x[mask]"), (to_host, ".cpu()"), (from_host, ".to(device)")),
        *((from_list, "torch.tensor(list)"), (synchronize, "torch.cuda.synchronize()")),
        *((event, "event.synchronize()"), (check, "torch.linalg.cholesky()")),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_wait_is_named_as_it_is_written(step: Step, text: str) -> None:
    timeline = made(step).timeline()
    context: Any = SimpleNamespace(timeline=timeline, waits=waits_and_uses(timeline)[0])
    assert written(context, 0) == text


def test_without_operators_a_call_that_waits_may_be_any_operators() -> None:
    trace = Trace()
    trace.kernel("gemm", 30, 60, launch=(10, 10))
    trace.call("cudaStreamSynchronize", 40, 80)
    timeline = trace.timeline()
    context: Any = SimpleNamespace(timeline=timeline, waits=waits_and_uses(timeline)[0])
    assert (WAITS[int(context.waits.kind[0])], written(context, 0)) == ("other", None)


def test_the_calls_of_one_operator_are_one_wait() -> None:
    waits, _ = waits_and_uses(made(log).timeline())
    assert len(waits) == 4
    assert waits.wait_ns.tolist() == [430] * 4  # the copy's call and the one that waits for it
    assert [int((waits.call_of == at).sum()) for at in range(4)] == [2] * 4
    assert all(waits.api_row[at] in waits.call_row[waits.call_of == at] for at in range(4))


def test_a_number_of_a_single_step_tells_nothing() -> None:
    assert waits_and_uses(made(log, steps=1).timeline())[1].tolist() == [-1]


def test_a_tensor_that_is_printed_is_logged() -> None:
    trace = Trace(with_stack=True)
    trace.step(0, STEP)
    printing = trace.frame("torch/_tensor_str.py(120): _str", trace.frame("train.py(3): main"))
    op = trace.op("aten::masked_select", 500, 500)
    trace.call("cudaStreamSynchronize", 560, 400, op_row=op, stack_row=printing)
    waits, uses = waits_and_uses(trace.timeline())
    assert [WAITS[each] for each in waits.kind.tolist()] == ["print"]
    assert [USES[each] for each in uses.tolist()] == ["log"]


def test_programs_recorded_on_a_gpu_are_told_as_they_are_labelled(waiting_programs: list[Told]) -> None:
    wrong = {one.name: (one.label, one.use) for one in waiting_programs if one.label != one.use}
    assert wrong == {"argument": ("argument", "not known")}  # `x * scale.item()`: the number is not recorded
    assert all(right == said for right, said, _ in scores(waiting_programs).values())


def idle_after_each_wait(step: int, use: str) -> Trace:
    """Steps whose device goes idle while the host waits for a number, and stays so until it has launched again."""
    trace = Trace()
    for at in range(4):
        begin = at * 1_000_000
        trace.step(begin, 1_000_000)
        trace.kernel("gemm", begin + 50_000, 400_000, launch=(begin + 10_000, 5_000), op="aten::mm")
        op = trace.op("aten::_local_scalar_dense", begin + 20_000, 440_000)
        trace.call("cudaStreamSynchronize", begin + 30_000, 425_000, op_row=op)
        rows = 8 * (at + 1) if use == "size" else 64
        after = trace.op("aten::mm", begin + 500_000, 50_000, [[rows, 8], []], ["float", ""])
        trace.kernel("gemm", begin + 520_000, 400_000, launch=(begin + 510_000, 5_000), op=after)
    return trace


@pytest.mark.parametrize(("use", "says"), [("log", "it is logged or printed"), ("size", "as a size")])
def test_the_fix_is_that_of_the_use(use: str, says: str) -> None:
    scan = mined(analysed(idle_after_each_wait(4, use).timeline()))
    (found,) = [one for one in scan.findings if one.rule == "host_sync"]
    assert says in found.fix
