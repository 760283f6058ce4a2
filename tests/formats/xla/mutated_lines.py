"""Damaged lines of events, and whether both readers find the same: `python -m tests.formats.xla.mutated_lines`."""

from __future__ import annotations

import argparse
import random
import sys
from itertools import chain

import numpy as np

from tests.formats.xla.make import small_planes, space_bytes
from tracemine.errors import InputError
from tracemine.formats.xla import event_cells
from tracemine.formats.xla.space import open_space


def outcome(data: memoryview, line: tuple[int, int]) -> str:
    """Return all cells of a line, or how it is refused."""
    wanted, skipped = np.array([1, 2, 5, -1, 3], np.int64), np.array([2, 4], np.int64)
    try:
        parts = [(cells.tolist(), kinds.tolist()) for cells, kinds in event_cells.cells(data, line, wanted, skipped)]
    except InputError as error:
        return str(error)
    return repr([[list(chain(*rows)) for rows in zip(*each, strict=True)] for each in zip(*parts, strict=True)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    compiled, whole = event_cells.COMPILED, space_bytes(small_planes())
    assert compiled is not None, "the compiled reader was not built"
    spans = [line.span for plane in open_space(memoryview(whole)).planes for line in plane.lines]
    random_one = random.Random(chosen.seed)
    refused = 0
    for _ in range(chosen.count):
        begin, end = random_one.choice(spans)
        line = bytearray(whole[begin:end])
        for _ in range(random_one.randrange(1, 4)):
            line[random_one.randrange(len(line))] = random_one.randrange(256)
        data = memoryview(bytes(line[: random_one.randrange(1, len(line) + 1)] if random_one.random() < 0.3 else line))
        found = []
        for reader in (compiled, None):
            event_cells.COMPILED = reader
            found.append(outcome(data, (0, len(data))))
        if found[0] != found[1]:
            print(f"read differently: {bytes(data)!r}\n{found[0][:400]}\n{found[1][:400]}")
            return 1
        refused += found[0].startswith("is damaged")
    print(f"{chosen.count} lines, {refused} refused: both readers agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
