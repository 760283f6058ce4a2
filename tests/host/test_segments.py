"""Host time: segments that add up to the steps, and what each of them is."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.host import KINDS, HostTime, host_time
from tracemine.host.kinds import threads_of
from tracemine.host.leading import innermost
from tracemine.pipeline import analyse
from tracemine.rows.host import threads
from tracemine.rows.iterations import iterations
from tracemine.timeline import Timeline


def of_steps(timeline: Timeline) -> HostTime:
    steps = iterations(timeline)
    assert steps is not None
    found = host_time(timeline, steps.begin_ns, steps.end_ns)
    assert found is not None
    sums = np.zeros(len(steps), np.int64)
    np.add.at(sums, found.step, found.dur_ns)
    assert sums.tolist() == (steps.end_ns - steps.begin_ns).tolist()
    return found


def told(found: HostTime) -> list[tuple[str, int, int]]:
    return [
        (KINDS[kind], begin, end)
        for kind, begin, end in zip(found.kind.tolist(), found.begin_ns.tolist(), found.end_ns.tolist(), strict=True)
    ]


def test_a_thread_is_told_by_its_process_too_and_by_its_number_where_one_process_has_it() -> None:
    trace = Trace()
    for pid, tid in ((1, 5), (2, 5), (2, 6)):
        trace.add("ops", kind="annotation", name="f", start_ns=100, dur_ns=300, pid=pid, tid=tid)
    timeline = trace.timeline()
    calls, ops = threads(timeline)
    asked = {"thread": np.concatenate((ops, calls)), "tid": np.array([5, 5, 6, 7])}
    assert threads_of(timeline, **asked, pid=np.array([2, 1, 2, 2])).tolist() == [ops[1], ops[0], ops[2], -1]
    assert threads_of(timeline, **asked).tolist() == [-1, -1, ops[2], -1]


def test_the_innermost_call_owns_each_nanosecond() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.kernel("add", 400, 100, launch=(110, 20), op=trace.op("aten::add", 100, 50))
    item = trace.op("aten::item", 200, 400)
    inner = trace.op("aten::_local_scalar_dense", 210, 380, parent_row=item)
    trace.call("cudaStreamSynchronize", 220, 300, op_row=inner)
    trace.call("cudaMalloc", 700, 40)
    trace.call("cudaEventRecord", 750, 10)
    assert told(of_steps(trace.timeline())) == [
        ("python", 0, 100),
        ("operator", 100, 110),
        ("launch", 110, 130),
        ("operator", 130, 150),
        ("python", 150, 200),
        ("operator", 200, 210),
        ("operator", 210, 220),
        ("wait", 220, 520),
        ("operator", 520, 590),
        ("operator", 590, 600),
        ("python", 600, 700),
        ("allocator", 700, 740),
        ("python", 740, 750),
        ("runtime", 750, 760),
        ("python", 760, 1000),
    ]


def test_a_backward_pass_on_a_thread_of_its_own_counts_while_the_steps_thread_waits_for_it() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.kernel("add", 130, 10, launch=(110, 10), op=trace.op("aten::add", 100, 100))
    for start in (300, 500):
        node = trace.op("autograd::engine::evaluate_function: AddBackward0", start, 100, tid=2)
        trace.kernel("mul", start + 30, 10, launch=(start + 10, 10), op=node, tid=2)
    trace.op("aten::stack", 150, 700, tid=3)  # a worker that launches nothing
    found = of_steps(trace.timeline())
    assert told(found) == [
        ("python", 0, 100),
        ("operator", 100, 110),
        ("launch", 110, 120),
        ("operator", 120, 200),
        ("python", 200, 300),
        ("operator", 300, 310),
        ("launch", 310, 320),
        ("operator", 320, 400),
        ("operator", 400, 500),  # autograd's engine, for the node that follows
        ("operator", 500, 510),
        ("launch", 510, 520),
        ("operator", 520, 600),
        ("python", 600, 1000),
    ]
    assert found.op_row[8] == found.op_row[9] != found.op_row[7]
    assert len(set(found.thread[5:12].tolist())) == 1 != len(set(found.thread.tolist()))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data_loading"),
        ("compile_inner (dynamo_timed)", "compilation"),
        ("Python GC", "garbage_collection"),
        ("Waiting for GIL", "lock"),
        ("my own range", "python"),
    ],
)
def test_ranges_that_name_a_kind_of_work_count_for_it(name: str, kind: str) -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.add("ops", kind="annotation", name=name, start_ns=100, dur_ns=300, pid=1, tid=1)
    trace.kernel("add", 800, 10, launch=(610, 10), op=trace.op("aten::add", 600, 100))
    found = of_steps(trace.timeline())
    assert (kind, 100, 400) in told(found)


def test_nothing_is_called_python_where_no_operators_are_recorded() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.kernel("add", 800, 10, launch=(610, 10))
    found = of_steps(trace.timeline())
    assert told(found) == [("not_recorded", 0, 610), ("launch", 610, 620), ("not_recorded", 620, 1000)]
    assert found.by_kind(found.dur_ns) == {"launch": 10, "not_recorded": 990}


def test_what_holds_up_an_idle_device_is_critical() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.kernel("add", 120, 80, launch=(100, 10), op=trace.op("aten::add", 100, 10))
    trace.kernel("add", 500, 100, launch=(470, 20), op=trace.op("aten::add", 460, 60))  # late: 200 to 490 are idle
    trace.kernel("add", 650, 50, launch=(530, 10), op=trace.op("aten::add", 530, 10))  # queued: it waited for else
    found = of_steps(trace.timeline())
    critical = {(begin, end): int(ns) for (_, begin, end), ns in zip(told(found), found.critical_ns, strict=True)}
    assert critical == {
        (0, 100): 0,
        (100, 110): 0,
        (110, 460): 260,
        (460, 470): 10,
        (470, 490): 20,
        (490, 520): 0,
        (520, 530): 0,
        (530, 540): 0,
        (540, 1000): 0,
    }


def test_time_in_no_call_counts_for_the_function_that_holds_the_calls_around_it() -> None:
    trace = Trace(with_stack=True)
    trace.step(0, 1000)
    main = trace.frame("train.py(1): main")
    first, second = trace.frame("train.py(9): encode", main), trace.frame("train.py(19): decode", main)
    for start, stack in ((100, first), (200, first), (300, second)):
        trace.kernel("add", start + 50, 10, launch=(start, 10), op="aten::add", stack=stack)
    timeline = trace.timeline()
    found = of_steps(timeline)
    frames = timeline.stacks["frame"].to_pylist()
    at = {
        begin: None if row < 0 else frames[row] for (_, begin, _), row in zip(told(found), found.stack_row, strict=True)
    }
    assert (at[111], at[211]) == ("train.py(9): encode", "train.py(1): main")


def test_steps_that_overlap_are_each_told_whole() -> None:
    trace = Trace()
    trace.step(0, 1000)
    trace.step(500, 1000)
    trace.kernel("add", 700, 10, launch=(610, 10), op=trace.op("aten::add", 600, 100))
    found = of_steps(trace.timeline())
    assert found.by_kind(found.dur_ns) == {"operator": 180, "launch": 20, "python": 1800}


def test_random_events_that_overlap_at_random_have_the_last_begun_as_the_innermost() -> None:
    random = Random(7)
    for _ in range(60):
        count = random.randint(1, 12)
        begin = np.array([random.randint(0, 30) for _ in range(count)])
        end = begin + np.array([random.randint(0, 15) for _ in range(count)])
        thread = np.array([random.randint(0, 1) for _ in range(count)])
        found = innermost(begin, end, thread)
        for of in set(thread.tolist()):
            painted = _painted(begin, end, thread, of)
            own = {
                moment: int(event)
                for at, low, high, event in zip(found.thread, found.begin, found.end, found.event, strict=True)
                for moment in range(low, high)
                if at == of
            }
            assert own == painted


def _painted(begin: np.ndarray, end: np.ndarray, thread: np.ndarray, of: int) -> dict[int, int]:
    rows = sorted(np.flatnonzero(thread == of).tolist(), key=lambda row: (begin[row], begin[row] - end[row]))
    moments = range(min(begin[rows]), max(end[rows]))
    return {at: next((row for row in reversed(rows) if begin[row] <= at < end[row]), -1) for at in moments}


RECORDINGS = (
    *("fixtures/captures/convnet_train", "fixtures/kineto/decoder_prefill.json.gz", "fixtures/memory/whisper_train"),
    *("fixtures/nsys/block_train.sqlite", "fixtures/kineto/chain.json.gz"),
)


@pytest.mark.parametrize("path", RECORDINGS)
def test_recordings_add_up(path: str) -> None:
    found = of_steps(analyse(path).timeline)
    assert (found.critical_ns <= found.dur_ns).all()
    assert (found.critical_ns >= 0).all()


def test_without_a_host_nothing_is_said() -> None:
    trace = Trace()
    trace.kernel("add", 0, 10)
    assert host_time(trace.timeline(), np.array([0]), np.array([10])) is None
