"""Protobuf's wire format by tables: values, wrong types, and damage with its offset."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from tracemine.errors import InputError
from tracemine.formats.xla import wire
from tracemine.formats.xla.wire import Kind, read, table, varint

ALL = table(
    count=(1, Kind.INT),
    below=(2, Kind.SIGNED),
    numbers=(3, Kind.INTS),
    signs=(4, Kind.SIGNEDS),
    double=(5, Kind.DOUBLE),
    float_=(6, Kind.FLOAT),
    name=(7, Kind.TEXT),
    names=(8, Kind.TEXTS),
    body=(9, Kind.SPAN),
    bodies=(10, Kind.SPANS),
)

WHOLE = bytes([8, 150, 1]) + b"\x10" + b"\xff" * 9 + b"\x01" + bytes([0x1A, 3, 1, 150, 1, 0x18, 7])
WHOLE += b"\x22\x0a" + b"\xff" * 9 + b"\x01" + b"\x29" + struct.pack("<d", 0.5) + b"\x35" + struct.pack("<f", 2.5)
WHOLE += b"\x3a\x01a\x42\x01b\x42\x01c\x4a\x01d\x52\x01e\x52\x00"


def decoded(data: bytes) -> dict[str, Any]:
    return read(memoryview(data), (0, len(data)), ALL)


def test_each_kind_is_read() -> None:
    data = WHOLE
    found = decoded(data)
    assert (found["count"], found["below"], found["numbers"], found["signs"]) == (150, -1, [1, 150, 7], [-1])
    assert (found["double"], found["float_"], found["name"], found["names"]) == (0.5, 2.5, "a", ["b", "c"])
    assert data[slice(*found["body"])] == b"d"
    assert [data[slice(*span)] for span in found["bodies"]] == [b"e", b""]


def test_what_is_absent_has_a_value_and_what_is_unknown_is_stepped_over() -> None:
    found = decoded(bytes([0xA2, 1, 2, 9, 9, 0xA9, 1, *range(8), 0xAD, 1, *range(4), 0xA0, 1, 3]))
    assert found == {
        "count": 0, "below": 0, "numbers": [], "signs": [], "double": 0.0, "float_": 0.0, "name": "", "names": [],
        "body": None, "bodies": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x38\x80\x80\x80\x80\x08", "byte 0: name is no text"),  # no bytes(2**31)
        (b"\x08\x01\x0a\x01a", "byte 2: count is no unsigned number"),
        (b"\x3a\x05ab", "byte 0: a field reaches beyond"),
        (b"\x3a\xff\xff\xff\xff\x0f", "byte 0: a field reaches beyond"),
        (b"\x29\x00", "byte 0: a field reaches beyond"),
        (b"\x08" + b"\x80" * 11, "byte 1: a number does not end"),
        (b"\x08\x80", "byte 1: a number does not end"),
        (b"\x0b", "byte 0: there is no wire type 3"),
        (b"\x00\x01", "byte 0: a field has number 0"),
        (b"\x1a\x02\x01\x80", "byte 3: a number does not end"),
    ],
)
def test_damage_is_named_with_its_place(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        decoded(data)


def test_a_number_never_exceeds_64_bits() -> None:
    assert varint(memoryview(b"\xff" * 9 + b"\x7f"), 0, 10)[0] == 2**64 - 1


def test_both_readers_find_the_same_in_changed_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    if wire.COMPILED is None:
        pytest.skip("the compiled reader is not there")
    chosen, compiled, refused = random.Random(2), wire.COMPILED, 0
    for _ in range(3_000):
        data = bytearray(WHOLE)
        for _ in range(chosen.randrange(1, 4)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        found = []
        for reader in (compiled, None):
            monkeypatch.setattr(wire, "COMPILED", reader)
            try:
                found.append(repr(decoded(bytes(data))))
            except InputError as error:
                found.append(str(error))
        assert found[0] == found[1]
        refused += found[0].startswith("is damaged")
    assert 500 < refused < 2_500
