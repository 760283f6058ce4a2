"""Protobuf's wire format by tables: values, wrong types, and damage with its offset."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tracemine.errors import InputError
from tracemine.formats.xla import wire
from tracemine.formats.xla.wire import INT, SPAN, TEXT, read, table, varint

PART = table(count=(1, INT), names=(7, [TEXT]))
ALL = table(
    count=(1, INT),
    numbers=(3, [INT]),
    name=(7, TEXT),
    names=(8, [TEXT]),
    body=(9, SPAN),
    bodies=(10, [SPAN]),
    part=(11, PART),
    parts=(12, [PART]),
)
NOTHING = (0, (), "", (), None, (), (0, ()), ())

WHOLE = bytes([8, 150, 1]) + b"\x08" + b"\xff" * 9 + b"\x01" + bytes([0x1A, 3, 1, 150, 1, 0x18, 7])
WHOLE += b"\x1a\x0a" + b"\xff" * 9 + b"\x01"
WHOLE += b"\x3a\x01a\x42\x01b\x42\x01c\x4a\x01d\x52\x01e\x52\x00"
WHOLE += b"\x5a\x05\x08\x05\x3a\x01f\x62\x00\x62\x05\x3a\x01g\x08\x06"


def decoded(data: bytes) -> tuple[Any, ...]:
    return read(memoryview(data), (0, len(data)), ALL)


@pytest.mark.parametrize("compiled", [True, False])
def test_each_kind_is_read(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(wire, "COMPILED", None)
    count, numbers, name, names, body, bodies, part, parts = decoded(WHOLE)
    assert (count, numbers, name, names) == (-1, [1, 150, 7, -1], "a", ["b", "c"])
    assert WHOLE[slice(*body)] == b"d"
    assert [WHOLE[slice(*span)] for span in bodies] == [b"e", b""]
    assert (part, parts) == ((5, ["f"]), [(0, ()), (6, ["g"])])


def test_what_is_absent_has_a_value_and_what_is_unknown_is_stepped_over() -> None:
    unknown = bytes([0xA2, 1, 2, 9, 9, 0xA9, 1, *range(8), 0xAD, 1, *range(4), 0xA0, 1, 3])
    assert decoded(b"") == decoded(unknown) == decoded(b"\x1a\x00") == NOTHING


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x38\x80\x80\x80\x80\x08", "byte 0: name is no text"),  # no bytes(2**31)
        (b"\x08\x01\x0a\x01a", "byte 2: count is no signed number"),
        (b"\x3a\x05ab", "byte 0: a field reaches beyond"),
        (b"\x3a\xff\xff\xff\xff\x0f", "byte 0: a field reaches beyond"),
        (b"\x29\x00", "byte 0: a field reaches beyond"),
        (b"\x08" + b"\x80" * 11, "byte 1: a number does not end"),
        (b"\x08\x80", "byte 1: a number does not end"),
        (b"\x0b", "byte 0: there is no wire type 3"),
        (b"\x58\x01", "byte 0: part is no message"),
        (b"\x62\x03\x08\x01\x3d", "byte 4: a field reaches beyond"),
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
