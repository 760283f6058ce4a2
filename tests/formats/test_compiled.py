"""The compiled reader of blocks: it reads nearly all that profilers write, and never other than the decoder does."""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.formats.mutated_blocks import Readers, blocks
from tests.formats.test_scanner import TRACES, document, kernel, read_once, told, written
from tracemine.formats.kineto import decoder
from tracemine.formats.kineto.decoder import EventDecoder

EVENT = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 1.5, "args": {"correlation": 3}}'


@pytest.fixture(autouse=True)
def built() -> None:
    if not decoder.AVAILABLE:
        assert os.environ.get("TRACEMINE_COMPILED") != "required", "the compiled reader was not built"
        pytest.skip("the compiled reader is not there: pip install -e . builds it where there is a compiler")


def test_it_was_built_of_the_source_that_is_there() -> None:
    source = Path(decoder.__file__).with_name("_event_columns.c")
    built = import_module("tracemine.formats.kineto._event_columns")
    assert hashlib.sha256(source.read_bytes()).hexdigest() == built.SOURCE_SHA256, "build it again: pip install -e ."


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_nearly_all_blocks_of_a_recording_are_plain(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    block = EventDecoder.block

    def counted(self: EventDecoder, text: Any) -> Any:
        decoded.append(len(text))
        return block(self, text)

    monkeypatch.setattr(EventDecoder, "block", counted)
    raw = read_once(path, block_bytes=1 << 14)
    assert sum(decoded) < 0.15 * 100 * raw.events.total() + 4 * (1 << 14)  # metadata stands in two or three blocks


def test_blocks_with_something_wrong_are_read_as_the_decoder_reads_them_or_not_at_all() -> None:
    readers, plain = Readers(), 0
    for block in blocks(6000, seed=2):
        assert readers.differ(block) is None, block
        plain += readers.was_plain
    assert 2000 < plain < 4000


@pytest.mark.parametrize(
    ("was", "wrong"),
    [
        ('"ts": 5', '"ts": 6'),
        ('"dur": 1.5', '"dur": 1.25'),
        ('"name": "k"', '"name": "l"'),
        ('"tid": 7, ', ""),
        ('"correlation": 3', '"correlation": 4'),
        ('"cat": "kernel"', '"cat": "gpu_memset"'),
    ],
)
def test_a_wrong_value_is_seen(was: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, wrong_block = Readers(), f"[{EVENT.replace(was, wrong)}]".encode()
    assert readers.differ(f"[{EVENT}]".encode()) is None
    read = readers.plain.read
    monkeypatch.setattr(readers.plain, "read", lambda _: read(memoryview(wrong_block)))
    assert readers.differ(f"[{EVENT}]".encode())


@pytest.mark.parametrize(
    ("was", "other"),
    [
        ('"ts": 5', '"ts": "5"'),
        ('"ts": 5', '"ts": 5.0005'),
        ('"ts": 5', '"ts": 5e0'),
        ('"ts": 5', '"ts": 05'),
        ('"dur": 1.5', '"dur": 1.'),
        ('"ph": "X"', '"ph": "Y"'),
        ('"ph": "X"', '"ph": "X", "ph": "Y"'),
        ('"cat": "kernel"', '"cat": "kernel", "cat": "cpu_op"'),
        ('"cat": "kernel"', '"cat": "no such category"'),
        ('"cat": "kernel", ', ""),
        ('"name": "k"', '"n\\u0061me": "k"'),
        ('"name": "k"', '"name": "\\ud83d"'),
        ('"correlation": 3', '"correlation": 3.0'),
        ('"correlation": 3', '"correlation": 1234567890123456789'),
        ('"correlation": 3', '"correlation": null'),
        ('"correlation": 3', '"other": nul'),
        ('"correlation": 3', '"other": ' + "[" * 40 + "]" * 40),
        ('"correlation": 3', '"other": "\\x"'),
        ('"correlation": 3', '"other": "\n"'),
        ("}}", "}},"),
        ("}}", "}"),
    ],
)
def test_what_is_not_plain_is_left_to_the_decoder(was: str, other: str) -> None:
    plain = Readers().plain
    assert plain.read(memoryview(f"[{EVENT}]".encode()))
    assert not plain.read(memoryview(f"[{EVENT.replace(was, other)}]".encode()))
    assert plain.read(memoryview(f"[{EVENT}, {EVENT}]".encode()))  # and it goes on
    assert len(plain.take()[0]["gpu"]["name"]) == 3  # nothing of the one in between


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "]", "{}", "[,]", "[1]", '["', '[{"', '[{"cat', '[{"cat":', '[{"cat":"kernel"']
)
def test_a_block_that_ends_anywhere_ends_there(text: str) -> None:
    assert Readers().plain.read(memoryview(text.encode())) == (text == "[]")


def test_more_texts_than_the_table_begins_with_keep_their_numbers(tmp_path: Path) -> None:
    events = [kernel(number, f'"k{number % 3000}"') for number in range(9000)]
    path = written(tmp_path / "t.json", document(events))
    raw = read_once(path)
    assert [raw.strings[name] for name in raw.gpu["name"]] == [f"k{number % 3000}" for number in range(9000)]
    assert told(raw) == told(read_once(path, by_compiled_code=False))


def test_more_events_than_a_block_has_room_for_are_decoded(tmp_path: Path) -> None:
    short = ",".join(f'\n{{"ph":"X","cat":"cpu_op","ts":{number}}}' for number in range(20_000))
    path = written(tmp_path / "t.json", '{"schemaVersion": 1, "traceEvents": [' + short + "]}")
    assert told(read_once(path)) == told(read_once(path, by_compiled_code=False))


@pytest.mark.parametrize(
    "given",
    [
        (),
        (1, 2, 3, 4),
        ((), bytearray(8), None, -1, 5),
        (((b"X", 1, ((b"a", 1),), bytearray(8)),), bytearray(8), None, 0),
    ],
)
def test_a_decoder_that_is_made_wrongly_is_not_made(given: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        decoder.Decoder(*given)
