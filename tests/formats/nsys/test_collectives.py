"""Collectives of NCCL's NVTX ranges: which kernel is whose, of how many bytes, and on which communicator."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.formats.nsys.make import PROCESS, THREAD, Export
from tracemine.formats import open_trace
from tracemine.formats.nsys.collectives import NO_SIZES
from tracemine.ranks.collectives import SentPart, collectives_of
from tracemine.ranks.match import matched
from tracemine.ranks.recognise import read_ranks

COMMUNICATOR = ("NCCL communicator ID", 18)
LAYOUTS = {  # as NCCL registers them: an entry of 8 bytes, or of 4
    0: (COMMUNICATOR, ("No. of ranks", 5), ("Rank", 5), ("CUDA device", 5)),
    4: (COMMUNICATOR, ("Message size [bytes]", 22)),
    5: (COMMUNICATOR, ("Message size [bytes]", 22), ("Reduction operation", 16777232)),
    9: (COMMUNICATOR, ("Message size [bytes]", 22), ("Peer rank", 5)),
}
FIRST = 16777216  # number of the first layout
NCCL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"


class Recorded:
    """An export whose calls of NCCL carry payloads, as bytes or as hexadecimal digits."""

    def __init__(self, process: int = PROCESS, *, digits: bool = False, layouts: bool = True) -> None:
        self.export, self.now, self.process, self.digits = Export(), 1_000, process, digits
        for number, entries in LAYOUTS.items() if layouts else ():
            offset = 0
            for at, (name, kind) in enumerate(entries):
                self.export.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=FIRST + number, idx=at, type=kind, name=name,
                    offset=offset or None,
                )  # fmt: skip
                offset += 4 if kind == 5 else 8

    def call(self, name: str, layout: int | None = None, *values: int, kernels: int = 0) -> Recorded:
        """A call, with the kernels that it launches."""
        more: dict[str, Any] = {}
        if layout is not None:
            said = struct.pack("<QQ" + "i" * (len(values) - 2) if layout else "<Qi", *values)
            blob = struct.pack("<QQQQ", 1, FIRST + layout, len(said), 32) + said
            more = {"binaryData": blob.hex() if self.digits else blob}
        begin, thread = self.now, self.process | (THREAD - PROCESS)
        for _ in range(kernels):
            self.now += 10
            self.export.call(self.now, self.now + 5, self.now, globalTid=thread)
            self.export.kernel(self.now + 50, self.now + 90, self.now, name=NCCL, globalPid=self.process)
        self.now += 10
        self.export.range(name, begin, self.now, domainId=1, globalTid=thread, **more)
        self.now += 100
        return self


def rows(recorded: Recorded, path: Path) -> list[dict[str, Any]]:
    names = ("activity_row", "name", "group_name", "group_size", "peer", "elements_in", "elements_out")
    found: list[dict[str, Any]] = (
        open_trace(recorded.export.write(path / "job.sqlite")).collectives.select(names).to_pylist()
    )
    return found


@pytest.mark.parametrize("digits", [False, True])
def test_a_call_says_its_bytes_and_the_group_that_was_joined_its_size(digits: bool, tmp_path: Path) -> None:
    recorded = Recorded(digits=digits).call("ncclCommInitRank", 0, 0xABC, 4)
    recorded.call("ncclAllReduce", 5, 0xABC, 800, 0, kernels=1).call("ncclReduceScatter", 5, 0xABC, 100, 0, kernels=1)
    recorded.call("ncclAllGather", 4, 0xDEF, 64, kernels=1)
    group, whole = "communicator abc", {"peer": None, "elements_out": None}
    assert rows(recorded, tmp_path) == [
        {"activity_row": 0, "name": "ncclAllReduce", "group_name": group, "group_size": 4, "elements_in": 800, **whole},
        {"activity_row": 1, "name": "ncclReduceScatter", "group_name": group, "group_size": 4, "peer": None,
         "elements_in": 400, "elements_out": 100},
        {"activity_row": 2, "name": "ncclAllGather", "group_name": "communicator def", "group_size": None,
         "elements_in": 64, **whole},
    ]  # fmt: skip
    found = collectives_of(open_trace(tmp_path / "job.sqlite"))
    assert (found.kind, found.nbytes.tolist()) == (("all_reduce", "reduce_scatter", "all_gather"), [800, 400, -1])


def test_folders_hold_payloads_as_databases_do(tmp_path: Path) -> None:
    recorded = Recorded(digits=True).call("ncclAllReduce", 5, 0xABC, 800, 0, kernels=1)
    assert (
        open_trace(recorded.export.folder(tmp_path / "job", "parquetdir")).collectives["elements_in"][0].as_py() == 800
    )


def test_the_outermost_end_of_a_group_launches_what_was_called_in_it(tmp_path: Path) -> None:
    recorded = Recorded().call("ncclGroupStart").call("ncclSend", 9, 1, 64, 2)
    recorded.call("ncclGroupStart").call("ncclRecv", 9, 1, 32, 3).call("ncclGroupEnd").call("ncclGroupEnd", kernels=1)
    recorded.call("ncclGroupStart").call("ncclAllReduce", 5, 1, 8, 0).call(
        "ncclGroupEnd"
    )  # its kernel was not recorded
    recorded.call("ncclAllReduce", 5, 1, 16, 0, kernels=1)
    kept = rows(recorded, tmp_path)
    assert [(row["activity_row"], row["name"], row["elements_in"]) for row in kept] == [
        (0, "ncclSend", 64), (0, "ncclRecv", 32), (1, "ncclAllReduce", 16), (None, "ncclAllReduce", 8),
    ]  # fmt: skip
    found = collectives_of(open_trace(tmp_path / "job.sqlite"))
    assert found.parts[0] == (SentPart("send", 2, 64), SentPart("recv", 3, 32))


def test_sends_to_every_rank_and_back_are_an_all_to_all(tmp_path: Path) -> None:
    recorded = Recorded().call("ncclGroupStart")
    for peer, (sent, got) in enumerate(((10, 1), (20, 2))):
        recorded.call("ncclSend", 9, 1, sent, peer).call("ncclRecv", 9, 1, got, peer)
    timeline = open_trace(recorded.call("ncclGroupEnd", kernels=1).export.write(tmp_path / "job.sqlite"))
    (row,) = timeline.collectives.to_pylist()
    assert (row["name"], row["elements_in"], row["elements_out"]) == ("ncclAlltoAll", 30, 3)
    assert (row["splits_in"], row["splits_out"], row["group_size"]) == ("[10, 20]", "[1, 2]", 2)


@pytest.mark.parametrize(
    "blob", [b"", b"\x00" * 31, struct.pack("<QQQQ", 1, FIRST + 5, 1 << 60, 32), "zz", "00" * 40, 7]
)
def test_a_damaged_payload_says_nothing(blob: object, tmp_path: Path) -> None:
    recorded = Recorded().call("ncclAllReduce", 5, 0xABC, 800, 0, kernels=1)
    recorded.export.rows["NVTX_EVENTS"][0]["binaryData"] = blob
    (row,) = rows(recorded, tmp_path)
    assert (row["name"], row["elements_in"], row["group_name"]) == ("ncclAllReduce", None, None)


@pytest.mark.parametrize("recorded", [Recorded(layouts=False), Recorded()])
def test_without_payloads_calls_are_known_by_name_and_how_to_get_sizes(recorded: Recorded, tmp_path: Path) -> None:
    recorded.call("ncclSend", kernels=1).call("ncclAllReduce", kernels=1)
    assert [row["name"] for row in rows(recorded, tmp_path)] == ["ncclAllReduce"]  # of a send nothing more is known
    assert NO_SIZES in open_trace(tmp_path / "job.sqlite").meta.ingest.warnings


def test_files_of_ranks_are_matched_by_their_communicators(tmp_path: Path) -> None:
    """A rank calls on two communicators, in an order that differs by rank: each matches its own."""
    for rank, order in enumerate(((0xA, 0xB), (0xB, 0xA))):
        recorded = Recorded(PROCESS + (rank << 24))
        for turn in range(3):
            for communicator in order:
                recorded.call("ncclAllReduce", 5, communicator, 1_000 * (1 + turn), 0, kernels=1)
        recorded.export.write(tmp_path / f"rank{rank}.sqlite")
    read = read_ranks(sorted(tmp_path.iterdir()))
    found = matched(read.ranks)
    for block in found.blocks:
        own = [read.ranks[at].collectives for at in block.ranks.tolist()]
        called = [each.groups[each.group[block.at[0, column]]].description for column, each in enumerate(own)]
        assert called in (["communicator a"] * 2, ["communicator b"] * 2)
    assert len(found) == 6
