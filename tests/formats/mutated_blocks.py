"""Blocks of events with something wrong in them, and the two readers of blocks side by side.

    python -m tests.formats.mutated_blocks [--count N] [--seed N]

reads N blocks both ways. It is what runs under a sanitizer, see docs/internals/packaging.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracemine.formats.kineto.columns import Rows, Strings
from tracemine.formats.kineto.decoder import EventDecoder, PlainBlocks
from tracemine.formats.kineto.structs import CATEGORIES, KNOWN_SPELLINGS, TABLES
from tracemine.formats.kineto.values import InexactTimes

BLOCK_BYTES = 1 << 16
# What stands in the place of something else: of another type, at the edge of a type, or no JSON at all.
TOKENS = (
    *("null", "true", "fals", "-", "-0", "01", "1.", ".5", "1e3", "1E+2", "0.0005", "12.3456", "NaN", '""', '"', "\\"),
    *("9223372036854775807", "9223372036854775808", "123456789012345678", "1234567890123456789", "123456789012345.5"),
    *("999999999999999.999", "1000000000000000", "-5", "-5.25", "[]", "{}", "[1,[2,{}]]", '{"a":[1,2.5e-3,"x"]}', "]"),
    *(
        '"stream 7 "',
        '"\\u00e9"',
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"é"',
        '"\\q"',
        '"a\\/b"',
        '"\t"',
        "[" * 40 + "]" * 40,
    ),
    *(
        '"ts":5,',
        '"cat":"kernel",',
        '"cat":"no such",',
        '"args":{},',
        '"ph":"M",',
        '"c\\u0061t":"kernel",',
        '"name":"b",',
    ),
    *(",", ":", "}", "{", " ", "\n", "\x00", "}, {", '"dur":"7",', '"Input dims": [1],', '"external id": 4,'),
)


def event(random_: random.Random) -> dict[str, Any]:
    """An event of any table, with any of the arguments that are wanted of it, and some others."""
    category = random_.choice(KNOWN_SPELLINGS)
    own = CATEGORIES.get(category, (None,))[0]
    table = TABLES[own] if own and random_.random() < 0.95 else random_.choice(list(TABLES.values()))
    keys = [(a.kind, key) for a in table.arguments for key in (a.key, *a.aliases)]
    random_.shuffle(keys)
    values: dict[str, Callable[[], Any]] = {
        "integer": lambda: random_.choice([0, 7, -3, 10**17]),
        "number": lambda: random_.choice([0, 12.5, 1e-3, 100]),
        "text": lambda: random_.choice(["x", "", "é", 'a"b', None]),
        "raw": lambda: random_.choice([[], [[1, 2], []], ["float", ""], "triton", None, {"a": 1}, True]),
    }
    fields = {
        "ph": random_.choice(table.phases),
        "cat": category,
        "name": random_.choice(["aten::mm", "[memory]", "k<float, 4>", "é", "", "a\\b"]),
        "pid": random_.choice([0, 7, "stream 7 ", "x"]),
        "tid": random_.choice([0, 7, -1]),
        "ts": random_.choice([1, 2.5, 1234567.125, 4392761537158.56, 0]),
        "dur": random_.choice([0, 1.25, -1, 3]),
        "args": {key: values[kind]() for kind, key in keys[: random_.randrange(len(keys) + 1)]}
        | {"other": [1, {"b": "c"}]},
    }
    order = list(fields)
    if random_.random() < 0.3:
        random_.shuffle(order)
    return {name: fields[name] for name in order if random_.random() < 0.97}


def blocks(count: int, seed: int) -> Iterator[bytes]:
    """Blocks of one to eight events; every second one with one to three mutations."""
    random_ = random.Random(seed)
    for number in range(count):
        events = [event(random_) for _ in range(random_.randrange(1, 9))]
        layout: dict[str, Any] = random_.choice(
            [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}]
        )
        text = json.dumps(events, **layout).encode()
        for _ in range(random_.randrange(1, 4) if number % 2 else 0):
            text = mutated(text, random_)
        yield text


def mutated(text: bytes, random_: random.Random) -> bytes:
    """A text with one change: a byte, a stretch taken out or doubled, a token put in, or a value replaced."""
    at = random_.randrange(len(text) or 1)
    to = min(len(text), at + random_.randrange(1, 12))
    token = random_.choice(TOKENS).encode()
    kind = random_.randrange(6)
    if kind == 0:
        return text[:at] + bytes([random_.randrange(256)]) + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[to:]
    if kind == 2:
        return text[:to] + text[at:]
    if kind == 3:
        return text[:at] + token + text[at:]
    if kind == 4:
        return text[:at]
    value = text.find(b":", at) + 1
    end = min((found for stop in b",}]" if (found := text.find(stop, value)) >= 0), default=value)
    return text[:value] + token + text[end:] if value else text


class Readers:
    """Both readers of blocks, each with texts of its own."""

    def __init__(self) -> None:
        self.decoder, self.decoded_strings, self.plain_strings = EventDecoder(KNOWN_SPELLINGS), Strings(), Strings()
        self.plain = PlainBlocks(self.plain_strings, self.decoder.spellings, BLOCK_BYTES)

    def differ(self, block: bytes) -> str | None:
        """Read a block both ways: None if it is not plain or both read the same, else where they differ.

        A plain block must be one that decodes into Structs at once: nothing in it is read leniently.
        """
        # A copy with nothing behind it, where a sanitizer sees what reads on.
        self.was_plain = self.plain.read(np.frombuffer(block, np.uint8).copy().data)
        if not self.was_plain:
            return None
        read = self.plain.take()
        got = {name: spelt(rows, name, self.plain_strings) for name, rows in read[0].items()}
        batch = self.decoder.block(memoryview(block))
        if batch is None or batch.counts or batch.metadata:
            return "read as plain what is not"
        try:
            rows, events = self.decoder.rows(batch, self.decoded_strings)
        except InexactTimes:
            self.decoder.be_exact()
            return self.differ(block)
        wanted = {name: spelt(rows, name, self.decoded_strings) for name, rows in rows.items()}
        if events != read[1]:
            return f"events: {read[1]}, not {events}"
        return next(
            (
                f"{name}: {got.get(name)}, not {wanted.get(name)}"
                for name in TABLES
                if got.get(name) != wanted.get(name)
            ),
            None,
        )


def spelt(rows: Rows, name: str, strings: Strings) -> dict[str, list[Any]]:
    """The columns of a table as lists, with texts for their ids."""
    texts = [*strings.table(), None]
    columns: dict[str, list[Any]] = {}
    for column in ("spelling", "pid", "tid", *TABLES[name].columns, *(a.column for a in TABLES[name].arguments)):
        if column == "category":
            continue
        is_text = column == "name" or any(
            a.column == column and a.kind in ("raw", "text") for a in TABLES[name].arguments
        )
        values = np.nan_to_num(rows[column], nan=-1.5).tolist()
        columns[column] = [texts[value] for value in values] if is_text else values
    return columns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    readers, plain, wrong = Readers(), 0, 0
    for block in blocks(options.count, options.seed):
        told = readers.differ(block)
        plain += readers.was_plain
        if told:
            wrong += 1
            print(block, told)
    print(f"{options.count:,} blocks, {plain:,} of them plain, {wrong} read differently")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
