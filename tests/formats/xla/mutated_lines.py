"""Damaged lines of events and damaged modules, read by both readers: `python -m tests.formats.xla.mutated_lines`."""

from __future__ import annotations

import argparse
import random
import sys
from itertools import chain

from tests.formats.xla.make import small_planes, space_bytes
from tests.formats.xla.test_join import layers
from tracemine.errors import InputError
from tracemine.formats.xla import event_cells, wire
from tracemine.formats.xla.hlo import module_of
from tracemine.formats.xla.space import open_space


def outcome(data: memoryview, line: tuple[int, int]) -> str:
    """Return all cells of a line, or how it is refused."""
    wanted, skipped = [1, 2, 5, -1, 3], [2, 4]
    try:
        parts = [(cells.tolist(), kinds.tolist()) for cells, kinds in event_cells.cells(data, line, wanted, skipped)]
    except InputError as error:
        return str(error)
    return repr([[list(chain(*rows)) for rows in zip(*each, strict=True)] for each in zip(*parts, strict=True)])


def module_outcome(data: memoryview, span: tuple[int, int]) -> str:
    """Return all that is read of a module, or how it is refused."""
    try:
        return repr(module_of(data, span))
    except InputError as error:
        return str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    compiled, whole = wire.COMPILED, space_bytes(small_planes())
    assert compiled is not None, "the compiled reader was not built"
    module = layers().proto()
    spans = [line.span for plane in open_space(memoryview(whole)).planes for line in plane.lines]
    random_one = random.Random(chosen.seed)
    refused = 0
    for at in range(chosen.count):
        begin, end = random_one.choice(spans)
        read, part = (outcome, whole[begin:end]) if at % 2 else (module_outcome, module)
        altered = bytearray(part)
        for _ in range(random_one.randrange(1, 4)):
            altered[random_one.randrange(len(altered))] = random_one.randrange(256)
        cut = random_one.randrange(1, len(altered) + 1) if random_one.random() < 0.3 else len(altered)
        data = memoryview(bytes(altered[:cut]))
        found = []
        for wire.COMPILED in (compiled, None):
            found.append(read(data, (0, len(data))))
        if found[0] != found[1]:
            print(f"read differently: {bytes(data)!r}\n{found[0][:400]}\n{found[1][:400]}")
            return 1
        refused += found[0].startswith("is damaged")
    print(f"{chosen.count} lines and modules, {refused} refused: both readers agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
