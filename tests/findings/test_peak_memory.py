"""Peak memory that goes away: by when each tensor is there, not by their sum."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine.documents.words import memory_text
from tracemine.findings import peak_memory as module
from tracemine.findings.peak_memory import Events, events_of, gone_bytes
from tracemine.findings.record import Scan
from tracemine.flow import flow
from tracemine.fusion import Groups, groups
from tracemine.pipeline import scan

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
MB = 1 << 20


def with_gone(gone: list[tuple[int, int]]) -> Groups:
    """Groups of nothing but tensors that need not be: (operator, bytes) each, all of group 0."""
    from msgspec.structs import replace

    made = groups(flow(Trace().timeline()))
    rows, sizes = np.array(gone, np.int64).reshape(-1, 2).T
    return replace(made, gone_group=np.zeros(len(gone), np.int64), gone_op_row=rows, gone_bytes=sizes)


def lowered(trace: Trace, gone: list[tuple[int, int]]) -> tuple[int, int, int]:
    """Peak before, peak after, tensors that were not found."""
    timeline = trace.timeline()
    events = events_of(timeline)
    assert events is not None
    there, missing = gone_bytes(timeline, events, with_gone(gone), np.ones(1, np.bool_))
    return int(events.allocated_bytes.max()), int((events.allocated_bytes - there).max()), missing


class Allocator:
    """Writes what an allocator reports of operators that each take place at their own time."""

    def __init__(self) -> None:
        self.trace, self.allocated, self.at, self.free_address = Trace(), 0, 0, 0
        self.curve: list[dict[int, int]] = [{}]  # after each event what is there: address by address

    def op(self) -> int:
        self.at += 100
        self._op = self.trace.op("aten::mul", self.at, 90)
        return len(self.trace.rows["ops"]) - 1

    def event(self, nbytes: int, address: int) -> None:
        self.at += 1
        self.allocated += nbytes
        there = dict(self.curve[-1])
        if nbytes > 0:
            there[address] = nbytes
        else:
            there.pop(address)
        self.curve.append(there)
        self.trace.add(
            "memory",
            start_ns=self.at,
            bytes=nbytes,
            address=address,
            device="cuda:0",
            op_row=self._op,
            allocated_bytes=self.allocated,
            reserved_bytes=1 << 40,
        )

    def take(self, nbytes: int) -> int:
        self.free_address += 1
        self.event(nbytes, self.free_address)
        return self.free_address


def test_tensors_that_are_never_there_together_do_not_add_up() -> None:
    made = Allocator()
    gone = []
    for _ in range(3):
        gone.append((made.op(), MB))
        address = made.take(MB)
        made.event(-MB, address)
    made.op()
    made.take(MB // 2)
    assert lowered(made.trace, gone) == (MB, MB // 2, 0)


def test_a_tensor_that_is_gone_before_the_peak_lowers_nothing() -> None:
    made = Allocator()
    gone = [(made.op(), MB)]
    made.event(-MB, made.take(MB))
    made.op()
    made.take(4 * MB)
    assert lowered(made.trace, gone) == (4 * MB, 4 * MB, 0)


def test_without_the_tensors_of_one_peak_another_is_the_highest() -> None:
    made = Allocator()
    gone = [(made.op(), 3 * MB)]
    made.event(-3 * MB, made.take(3 * MB))
    made.op()
    made.take(2 * MB)
    assert lowered(made.trace, gone) == (3 * MB, 2 * MB, 0)


def test_a_block_that_is_a_little_larger_is_the_tensor_s_and_scratch_of_its_size_is_not() -> None:
    made = Allocator()
    op = made.op()
    scratch = made.take(2 * MB)
    made.take(2 * MB + 512)
    made.event(-2 * MB, scratch)
    assert lowered(made.trace, [(op, 2 * MB - 100)]) == (4 * MB + 512, 2 * MB, 0)


def test_a_tensor_without_an_allocation_of_its_size_stays_and_is_counted() -> None:
    made = Allocator()
    op = made.op()
    made.take(4 * MB)
    assert lowered(made.trace, [(op, 2 * MB)]) == (4 * MB, 4 * MB, 1)


def random_run(seed: int) -> tuple[Allocator, list[tuple[int, int]], set[int]]:
    pick, made = random.Random(seed), Allocator()
    gone: list[tuple[int, int]] = []
    addresses: set[int] = set()
    for size in (512 * (at + 1) for at in range(pick.randint(1, 30))):
        op = made.op()
        address = made.take(size)
        if pick.random() < 0.4:
            gone.append((op, size - pick.randint(0, 511)))
            addresses.add(address)
        made.op()
        for old in [each for each in made.curve[-1] if pick.random() < 0.3]:
            made.event(-made.curve[-1][old], old)
    return made, gone, addresses


def expected(made: Allocator, addresses: set[int]) -> tuple[int, int, int]:
    left = [sum(size for at, size in there.items() if at not in addresses) for there in made.curve[1:]]
    return max(sum(there.values()) for there in made.curve), max(left), 0


@pytest.mark.parametrize("seed", range(60))
def test_the_peak_is_that_of_what_is_left_moment_by_moment(seed: int) -> None:
    made, gone, addresses = random_run(seed)
    assert lowered(made.trace, gone) == expected(made, addresses)


def test_the_check_moment_by_moment_sees_tensors_that_are_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(events: Events) -> object:
        return np.full(len(events.bytes), -1, np.int64)

    runs = [random_run(seed) for seed in range(60)]
    monkeypatch.setattr(module, "_freed", never)
    assert any(lowered(made.trace, gone) != expected(made, addresses) for made, gone, addresses in runs)


def test_where_allocations_were_not_recorded_nothing_is_said() -> None:
    assert events_of(Trace().timeline()) is None
    assert scan(FIXTURES / "kineto/decoder_prefill.json.gz").summary.peak_memory is None


@pytest.mark.parametrize(("name", "lower"), [("tiny_mlp_train", False), ("whisper_train", True)])
def test_a_recording_with_allocations_says_how_much_lower_its_peak_is(name: str, lower: bool) -> None:
    found: Scan = scan(FIXTURES / "memory" / name)
    peak = found.summary.peak_memory
    assert peak is not None
    assert 0 < peak.after_bytes <= peak.before_bytes
    assert peak.not_found == 0
    assert bool(memory_text(found)) == lower
    none = replace(found, summary=replace(found.summary, peak_memory=None))
    assert memory_text(none) == ""
