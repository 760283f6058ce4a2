"""What a rank does because it communicates: copies of buckets, buffers, statistics, small messages, contention."""

from __future__ import annotations

import pytest

from tests.causes.communication import COPIED_BACK, FORWARD, US, Rank
from tracemine.pipeline import analysed, mined

GATHERED = "aten::batch_norm_gather_stats_with_counts"


def buckets(around: tuple[str, ...]) -> Rank:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        rank.compute(took_us=500)
        rank.send(elements=8 << 20, took_us=400)
        for _ in range(20):
            rank.compute("aten::copy_", 10, around)
        rank.compute("aten::_foreach_add_", 50)
    return rank


def test_buckets_that_are_copied_back_cost_their_copies() -> None:
    (found,) = buckets((COPIED_BACK,)).findings("bucket_copies")
    assert (found.occurrences, found.measured_ns) == (2, 2 * 20 * 10 * US)
    assert found.gpu_saving_ns.high == found.measured_ns
    assert "gradient_as_bucket_view=True" in found.fix


def test_copies_of_anything_else_are_none() -> None:
    assert not buckets(()).findings("bucket_copies")
    assert not buckets(("torch::distributed::reducer::mul_out",)).findings("bucket_copies")


def buffers(forward: str, ranks: int = 4) -> Rank:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        rank.compute("aten::cat", 4, (forward, "aten::flatten_dense_tensors"))
        rank.send("broadcast", took_us=40, around=(forward, "c10d::broadcast_"), ranks=ranks)
        for _ in range(30):
            rank.compute("aten::copy_", 2, (forward,))
        rank.compute(took_us=300, around=(forward,))
        rank.compute("aten::copy_", 90, (forward,))  # the model's own
        rank.compute(took_us=300, around=(forward,))
    return rank


def test_buffers_that_are_broadcast_cost_their_copies_for_sure() -> None:
    (found,) = buffers(FORWARD).findings("buffers_broadcast")
    copies, sent = 2 * (4 + 30 * 2) * US, 2 * 40 * US
    assert found.measured_ns == copies + sent
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.high) == (copies, copies + sent)
    assert copies <= found.gpu_saving_ns.mid <= copies + sent // 2


def test_a_broadcast_of_the_programs_own_and_one_of_one_rank_are_none() -> None:
    assert not buffers("forward").findings("buffers_broadcast")
    assert not buffers(FORWARD, ranks=1).findings("buffers_broadcast")


def statistics(makes: str, uses: str, between: int = 1) -> Rank:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for _ in range(10):
            rank.compute("aten::convolution", 100)
            rank.compute(makes, 10)
            rank.send("_allgather_base", took_us=40)
            for _ in range(between):
                rank.compute("aten::cat", 2)
            rank.compute(uses, 5)
    return rank


def test_a_batch_norm_that_waits_for_other_ranks() -> None:
    (found,) = statistics("aten::batch_norm_stats", GATHERED).findings("sync_batch_norm")
    assert (found.occurrences, found.measured_ns) == (20, 20 * 40 * US)
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.high) == (0, found.measured_ns)
    (found,) = statistics("aten::batch_norm_backward_reduce", "aten::batch_norm_backward_elemt").findings(
        "sync_batch_norm"
    )
    assert found.occurrences == 20


@pytest.mark.parametrize(
    ("makes", "uses", "between"),
    [("aten::native_batch_norm", "aten::relu", 1), ("aten::batch_norm_stats", GATHERED, 33)],
)
def test_a_gather_far_from_statistics_is_none(makes: str, uses: str, between: int) -> None:
    assert not statistics(makes, uses, between).findings("sync_batch_norm")


def reduced(*behind: tuple[str, list[list[int]]], whole: list[int], ranks: int = 4) -> Rank:
    """Steps that sum a tensor over the ranks and then do what is given, before the next collective."""
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for _ in range(2):
            rank.compute(took_us=300)
            rank.send(elements=1 << 22, took_us=200, ranks=ranks, stream=7, shapes=[whole])
            for op, shapes in behind:
                if op in ("aten::slice", "aten::chunk"):
                    rank.trace.op(op, rank.host, US, shapes, ["float"])
                    rank.host += 2 * US
                else:
                    rank.compute(op, 20, shapes=shapes)
    return rank


WHOLE, PART = [4096, 1024], [1024, 1024]
SLICED = ("aten::slice", [WHOLE])


def test_a_sum_of_which_a_rank_reads_its_part_is_half_a_reduce_scatter() -> None:
    rank = reduced(SLICED, ("aten::add", [PART, PART]), ("aten::mm", [PART, [1024, 64]]), whole=WHOLE)
    (found,) = rank.findings("reduce_then_slice")
    assert (found.occurrences, found.measured_ns) == (3, 3 * 200 * US)  # the last has no collective behind it
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.mid) == (0, 3 * 100 * US)
    assert "reduce_scatter_tensor" in found.fix


@pytest.mark.parametrize(
    ("behind", "ranks"),
    [
        ([SLICED, ("aten::add", [PART, PART]), ("aten::add", [WHOLE, WHOLE])], 4),  # the sum is read as well
        ([SLICED, SLICED, ("aten::add", [PART, PART])], 4),  # two parts are
        ([SLICED, ("aten::add", [PART, PART])], 8),  # a part that is no rank's
        ([("aten::chunk", [WHOLE]), SLICED, ("aten::add", [PART, PART])], 4),
        ([SLICED], 4),  # nothing that is seen reads the part
        ([("aten::add", [PART, PART])], 4),
    ],
)
def test_a_sum_that_is_read_or_of_which_other_parts_are_is_none(
    behind: list[tuple[str, list[list[int]]]], ranks: int
) -> None:
    assert not reduced(*behind, whole=WHOLE, ranks=ranks).findings("reduce_then_slice")


def messages(count: int = 40, elements: int = 1024, between: str = "aten::div") -> Rank:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        rank.compute(took_us=1_000)
        for _ in range(count):
            rank.send(elements=elements, took_us=12)
            rank.compute(between, 2)
    return rank


def test_many_small_messages_are_one_but_for_a_latency() -> None:
    (found,) = messages().findings("small_messages")
    assert (found.occurrences, found.measured_ns) == (80, 80 * 12 * US)
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.high) == (0, found.measured_ns)
    assert found.gpu_saving_ns.mid == 78 * 12 * US


@pytest.mark.parametrize("near", [{"count": 9}, {"elements": 250_000}, {"between": "aten::mm"}])
def test_few_messages_large_ones_and_those_with_products_between_are_none(near: dict[str, object]) -> None:
    assert not messages(**near).findings("small_messages")  # type: ignore[arg-type]


def contended(slower: float, alone: int = 8) -> Rank:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for turn in range(alone):
            rank.compute("mine::attend", 100 + turn % 2)
        at = rank.at
        for turn in range(8):
            rank.compute("mine::attend", int(100 * slower) + turn % 2)
        rank.send(elements=8 << 20, took_us=(rank.at - at) // US, start=at)
    return rank


def test_kernels_next_to_a_collective_that_take_longer() -> None:
    (found,) = contended(1.5).findings("contention")
    assert found.occurrences == 16
    assert found.measured_ns == pytest.approx(16 * 50 * US, rel=0.02)
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.high) == (0, found.measured_ns)


@pytest.mark.parametrize(("slower", "alone"), [(1.05, 8), (1.5, 2)])
def test_a_little_slower_and_few_alone_tell_nothing(slower: float, alone: int) -> None:
    assert not contended(slower, alone).findings("contention")


def exposed(reason: str) -> Rank:
    """Steps of which half the time is communication of one exposed kind, too little of it transfer to count."""
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for turn in range(4):
            rank.compute(took_us=1_000)
            took = 10 if turn == 3 else 1_500
            rank.send(elements=1 << 20, took_us=took, stream=7 if reason == "same_stream" else 19)
            rank.at += 2 * US
            if reason == "host":
                rank.host = rank.at + 20 * US
                rank.at = rank.host + 30 * US
    return rank


@pytest.mark.parametrize("reason", ["same_stream", "waited_for", "host"])
def test_half_a_step_of_exposed_communication_is_said_with_the_reason(reason: str) -> None:
    scan = mined(analysed(exposed(reason).trace.timeline()))
    (found,) = [one for one in scan.findings if one.rule == "communication_exposed"]
    assert found.reported
    assert found.gpu_saving_ns.low == 0
    (kind,) = scan.summary.communication
    assert (kind.kind, kind.group_size, kind.count, kind.bytes) == ("all_reduce", 4, 4, 4 << 20)
    assert max(kind.because, key=lambda name: kind.because[name]) == reason
    assert sum(kind.because.values()) <= kind.exposed_ns == kind.ns
    assert ("launched nothing that could run" in found.fix) == (reason == "host")


def in_order(*, asks: bool, late_us: int = 2, turns: int = 4) -> Rank:
    """Steps in which products that do not need a sum begin when it ends. asks: their stream is made to wait for it."""
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        rank.trace.call("cudaStreamWaitEvent", rank.host, US // 2)  # before all of them
        rank.host += US
        for _ in range(turns):
            rank.compute(took_us=1_000)
            rank.send(elements=1 << 20, took_us=1_500)
            if asks:
                rank.trace.call("cudaStreamWaitEvent", rank.host, US // 2)
                rank.host += US
            rank.at += late_us * US
        rank.compute(took_us=1_000)
        rank.send(elements=1 << 20, took_us=10)
    return rank


def test_work_behind_a_collective_that_nothing_made_wait_stands_in_the_order_of_launches() -> None:
    (found,) = in_order(asks=False).findings("launch_order")
    assert (found.occurrences, found.measured_ns) == (8, 8 * 1_500 * US)
    assert (found.gpu_saving_ns.low, found.gpu_saving_ns.high) == (0, found.measured_ns)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in found.fix


def test_work_that_was_made_to_wait_or_begins_later_or_once_is_in_no_order() -> None:
    assert not in_order(asks=True).findings("launch_order")
    assert not in_order(asks=False, late_us=15).findings("launch_order")
    assert not in_order(asks=False, turns=1).findings("launch_order")
    assert not exposed("waited_for").findings("launch_order")  # no such calls are recorded


def test_the_last_of_a_step_is_the_tail_and_what_is_hidden_says_behind_what() -> None:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        rank.compute(took_us=1_000)
        rank.send(elements=1 << 20, took_us=400)
        rank.compute(took_us=900, start=rank.at - 400 * US)
        rank.send(elements=1 << 20, took_us=400)
    (kind,) = mined(analysed(rank.trace.timeline())).summary.communication
    assert kind.because == {"last": 400 * US}
    assert kind.behind == {"gemm": 400 * US}
    assert (kind.ns, kind.exposed_ns) == (800 * US, 400 * US)


def test_one_rank_alone_has_nobody_to_talk_to() -> None:
    rank = Rank()
    for step in range(2):
        rank.begin(step)
        for _ in range(20):
            rank.send(took_us=500, ranks=1)
    scan = mined(analysed(rank.trace.timeline()))
    assert scan.summary.communication == ()
    assert not {"communication_exposed", "small_messages"} & {one.rule for one in scan.findings}
