"""Records of calls: those of all fixtures, and damaged ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tracemine.calls import Call
from tracemine.calls.call import Texts
from tracemine.columns import string_ids
from tracemine.formats import open_trace

Record = tuple[str | None, str | None, str | None, str | None, str | None]  # name, and the four texts
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COLUMNS = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
_HOSTILE = (
    "",
    "[",
    "null",
    "{}",
    "[[[[[]]]]]",
    "[1e999]",
    '["\\ud800"]',
    "[[-1]]",
    "[[99999999999999999999]]",
    "[" * 2000,
)


@cache
def recorded() -> tuple[Record, ...]:
    """Every distinct record of the fixtures."""
    found: dict[Record, None] = {}
    for path in [*sorted(FIXTURES.glob("kineto/*.gz")), *sorted(FIXTURES.glob("nsys/*.sqlite")), *_folders()]:
        ops = open_trace(path).ops
        columns = [string_ids(ops[name]) for name in COLUMNS]
        rows = zip(*([texts[i] if i >= 0 else None for i in ids.tolist()] for ids, texts in columns), strict=True)
        found |= dict.fromkeys(rows)
    return tuple(found)


def _folders() -> Iterator[Path]:
    for room in ("captures", "memory", "accumulated"):
        yield from sorted(path for path in (FIXTURES / room).iterdir() if path.is_dir())


def call_of(
    name: str,
    shapes: str | None = None,
    dtypes: str | None = None,
    strides: str | None = None,
    values: str | None = None,
    read: Texts | None = None,
) -> Call:
    """The call of these texts."""
    read = read or Texts()
    return Call(name, read.extents(shapes), read.words(dtypes), read.extents(strides), read.words(values))


def damaged(seed: int = 0, least: int = 2_000) -> Iterator[Record]:
    """Records with a text that is cut, changed, another's, or hostile."""
    chance = random.Random(seed)
    known = recorded()
    for _ in range(least):
        record = list(chance.choice(known))
        which = chance.randrange(1, len(COLUMNS))
        text = record[which] or "[]"
        at = chance.randrange(len(text))
        record[which] = chance.choice(
            (
                text[:at],
                text[:at] + chance.choice('0123456789-[]",x.e') + text[at + 1 :],
                text[:at] + text[at + 1 :],
                chance.choice(known)[which],
                chance.choice(_HOSTILE),
                None,
            )
        )
        yield tuple(record)  # type: ignore[misc]
