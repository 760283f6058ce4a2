"""Cut and changed files: an error that names the place, or a timeline; no hang, and no memory to speak of."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import process_time

import pytest

from tests.formats.xla.make import small_planes, space_bytes, write_json
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.xla import wire
from tracemine.formats.xla.space import open_space
from tracemine.formats.xla.xplane import recording_of
from tracemine.timeline import Timeline

SHARED = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "")) / "jax"
CUTS, CHANGES, SECONDS = 20, 500, 2.0
OWN = space_bytes(small_planes(devices=2))


def changed(data: bytes, seed: int) -> bytes:
    """The same with one byte another."""
    chosen = random.Random(seed)
    at = chosen.randrange(len(data))
    return data[:at] + bytes([data[at] ^ chosen.randrange(1, 256)]) + data[at + 1 :]


def opened(path: Path, data: bytes) -> tuple[Timeline | None, str]:
    """Return what is read of a file of these bytes, or how it is refused; either comes soon."""
    path.write_bytes(data)
    began, timeline, refusal = process_time(), None, ""
    try:
        timeline = open_trace(path)
    except InputError as error:
        refusal = str(error)
        assert str(path) in refusal
    assert process_time() - began < SECONDS
    return timeline, refusal


def read(path: Path, data: bytes, *, cut: bool = False) -> bool:
    """Return whether a file of these bytes is read, and says so where it was cut; how it is refused is checked."""
    timeline, _ = opened(path, data)
    assert timeline is None or not cut or timeline.meta.ingest.truncated
    return timeline is not None


def of_all(path: Path, data: bytes, alterations: Iterator[bytes]) -> int:
    assert read(path, data)
    return sum(read(path, altered) for altered in alterations)


def cut(data: bytes, parts: int = CUTS) -> Iterator[bytes]:
    return (data[: len(data) * part // parts] for part in range(parts))


def test_one_that_is_cut_is_refused_or_truncated(tmp_path: Path) -> None:
    path = tmp_path / "x.xplane.pb"
    assert sum(read(path, data, cut=True) for data in cut(OWN))


def test_a_cut_behind_the_planes_of_gpus_leaves_their_times(tmp_path: Path) -> None:
    path = tmp_path / "x.xplane.pb"
    path.write_bytes(OWN[: OWN.index(b"/host:CPU")])
    timeline = open_trace(path)
    assert timeline.meta.ingest.truncated
    assert (timeline.activities.num_rows, timeline.api.num_rows) == (18, 0)


def test_gzip_that_is_cut_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "x.xplane.pb.gz"
    data = gzip.compress(OWN)
    path.write_bytes(data[:-4])
    assert open_trace(path).meta.ingest.truncated


def test_one_byte_that_is_another_never_hangs_and_both_readers_find_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, count = tmp_path / "x.pb", 0
    readers = dict.fromkeys((wire.COMPILED, None))
    for seed in range(CHANGES // 4):
        outcomes = []
        for reader in readers:
            monkeypatch.setattr(wire, "COMPILED", reader)
            timeline, refusal = opened(path, changed(OWN, seed))
            outcomes.append(refusal if timeline is None else (timeline.activities, timeline.api))
        assert outcomes[0] == outcomes[-1], seed
        count += isinstance(outcomes[0], tuple)
    assert CHANGES // 20 < count < CHANGES // 4  # some break the file, many do not


def test_a_length_that_is_none_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.pb"
    at = OWN.index(b"Stream #14") - 1
    data = OWN[: at - 1] + b"\x10\xff\xff\xff\xff\x0f" + OWN[at + 5 :]  # a number where a name was
    tracemalloc.start()
    assert not read(path, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(OWN) + 4_000_000


@pytest.mark.parametrize("alter", [cut, lambda data: (changed(data, seed) for seed in range(CHANGES // 4))])
def test_json_that_is_cut_or_changed(tmp_path: Path, alter: Callable[[bytes], Iterator[bytes]]) -> None:
    path = write_json(tmp_path / "x.trace.json.gz", small_planes())
    of_all(path, path.read_bytes(), iter(()))
    text = gzip.decompress(path.read_bytes())
    of_all(tmp_path / "x.trace.json", text, (data for data in alter(text) if data))


@pytest.mark.skipif(not SHARED.is_dir(), reason="TRACEMINE_COMPAT_TRACES is not set")
@pytest.mark.parametrize(
    ("name", "changes"),
    [("sync_each", 10)]
    + [(name, 2) for name in ("eager_chain", "train_cudnn", "train_spelled", "scan_lstm", "data_parallel")],
)
def test_recordings_that_are_cut_or_changed(tmp_path: Path, name: str, changes: int) -> None:
    """All of it of a few, since joining modules takes its time; planes, lines and events of ten times as many."""
    data = gzip.decompress((SHARED / name / "host.xplane.pb.gz").read_bytes())
    path = tmp_path / "host.xplane.pb"
    for part in cut(data, 3):
        read(path, part, cut=True)
    of_all(path, data, (changed(data, seed) for seed in range(changes)))
    for seed in range(10 * changes):
        began = process_time()
        with suppress(InputError):
            recording_of(open_space(memoryview(changed(data, seed))))
        assert process_time() - began < SECONDS
