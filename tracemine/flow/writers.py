"""The last writer of each byte: the one loop over everything that happens to storages, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct, field

from tracemine.flow.record import Source

# A read names so many writers at most; a buffer remembers so many strided writes. Real programs stay far below. Without
# a bound a trace made for it would have more edges than memory.
MOST_WRITERS = 1024

Piece = tuple[int, int, int]  # begin, end, number of the write


class _Storage(Struct):
    """What a storage holds now."""

    buffer: int
    born: bool = False  # allocated during the recording
    whole: list[Piece] = field(default_factory=list)  # every byte of these is written; disjoint, by begin
    strided: dict[tuple[int, int, int], int] = field(default_factory=dict)  # (begin, end, layout) → write
    uncertain: bool = False  # an operator that does not say what it writes has had it
    forgotten: bool = False  # more strided writes than are remembered

    def over(self, begin: int, end: int) -> tuple[list[int], bool]:
        """Return the writes that touch the bytes, in order of writing, and whether they cover all of them."""
        whole = self.whole
        if len(whole) == 1 and not self.strided:
            first, last, write = whole[0]
            return [write] if first < end and begin < last else [], first <= begin and end <= last
        at = bisect_left(whole, (begin,))
        at -= at > 0 and whole[at - 1][1] > begin
        pieces = whole[at : bisect_left(whole, (end,))]
        covered = sum(min(last, end) - max(first, begin) for first, last, _ in pieces) >= end - begin
        strided = [write for (first, last, _), write in self.strided.items() if first < end and begin < last]
        # Together they may fill what was allocated: whether they do is not looked into.
        covered |= bool(strided) and self.born
        return sorted({*(write for _, _, write in pieces), *strided}), covered


class LastWriters:
    """Storages by id; given allocations and writes in the order in which they happen, and asked at each read.

    >>> writers = LastWriters()
    >>> writers.allocate(7, node=0)
    >>> first, second = writers.write(7, 0, 8), writers.write(7, 4, 8)
    >>> writers.read(7, 0, 8)
    (<Source.WRITTEN: 0>, [0, 1])
    >>> writers.read(7, 0, 16), writers.read(9, 0, 4)
    ((<Source.PARTLY_HOLE: 4>, [0, 1]), (<Source.OUTSIDE: 1>, []))
    """

    def __init__(self) -> None:
        self.node = 0  # the next one to begin, for what goes now
        self.gone: list[int] = []  # for each write the first node that no longer finds it, −1: none
        self._pieces: list[int] = []  # of each write that are still there
        self._storages: dict[int, _Storage] = {}
        self._buffers = 0

    def buffer(self, storage: int) -> int:
        """Return number of the buffer that a storage id means now."""
        return self._storage(storage).buffer

    def allocate(self, storage: int, node: int) -> None:
        """Note that the id means new memory from now on."""
        self.node = node
        old = self._storages.get(storage)
        if old is not None:
            self._lost([write for _, _, write in old.whole])
            self._lost(old.strided.values())
        self._storages[storage] = _Storage(self._number(), born=True)

    def write(self, storage: int, begin: int, end: int, layout: int = -1) -> int:
        """Note that bytes from begin to end are written: all, or with a layout (equal numbers, equal bytes) some.

        Returns the number of the write.
        """
        held = self._storage(storage)
        number = len(self.gone)
        self.gone.append(-1)
        self._pieces.append(1)
        if layout >= 0:
            before = held.strided.pop((begin, end, layout), None)
            if before is not None:
                self._lost([before])
            elif len(held.strided) >= MOST_WRITERS:
                held.forgotten = True
                self._lost([held.strided.pop(next(iter(held.strided)))])
            held.strided[(begin, end, layout)] = number
            return number
        if held.strided:
            covered = [key for key in held.strided if begin <= key[0] and key[1] <= end]
            self._lost([held.strided.pop(key) for key in covered])
        whole = held.whole
        if not whole:
            whole.append((begin, end, number))
        elif len(whole) == 1 and begin <= whole[0][0] and whole[0][1] <= end:
            self._lost([whole[0][2]])
            whole[0] = (begin, end, number)
        else:
            self._insert(whole, begin, end, number)
        return number

    def maybe_written(self, storage: int) -> None:
        """Note that something that does not say what it writes has had the storage."""
        self._storage(storage).uncertain = True

    def is_made(self, storage: int) -> bool:
        """Return whether what the id means now was allocated during the recording."""
        return self._storage(storage).born

    def is_empty(self, storage: int, begin: int, end: int) -> bool:
        """Return whether a read of these bytes would find nothing: allocated, and never written."""
        held = self._storage(storage)
        return held.born and not held.uncertain and self.read(storage, begin, end)[0] is Source.HOLE

    def read(self, storage: int, begin: int, end: int) -> tuple[Source, list[int]]:
        """Return where bytes from begin to end came from, and the writes that did it, in the order of writing."""
        held = self._storages.get(storage)
        if held is None:
            held = self._storage(storage)
        found, covered = held.over(begin, end)
        if held.uncertain or (held.forgotten and not covered) or len(found) > MOST_WRITERS:
            return Source.UNCERTAIN, found[-MOST_WRITERS:]
        if held.born:
            return (Source.WRITTEN if covered else Source.PARTLY_HOLE if found else Source.HOLE), found
        return (Source.WRITTEN if covered else Source.PARTLY_OUTSIDE if found else Source.OUTSIDE), found

    def _insert(self, whole: list[Piece], begin: int, end: int, number: int) -> None:
        """Put a write among the others, and take away from them what it covers."""
        at = bisect_left(whole, (begin,))
        at -= at > 0 and whole[at - 1][1] > begin
        until = bisect_left(whole, (end,))
        new: list[Piece] = [(begin, end, number)]
        under = whole[at:until]
        for first, last, write in under:
            left = first < begin
            right = last > end
            if left:
                new.insert(0, (first, begin, write))
            if right:
                new.append((end, last, write))
            self._pieces[write] += left + right
        whole[at:until] = new
        self._lost([write for _, _, write in under])

    def _lost(self, writes: Iterable[int]) -> None:
        for write in writes:
            self._pieces[write] -= 1
            if not self._pieces[write]:
                self.gone[write] = self.node

    def _storage(self, storage: int) -> _Storage:
        held = self._storages.get(storage)
        if held is None:
            held = self._storages[storage] = _Storage(self._number())
        return held

    def _number(self) -> int:
        self._buffers += 1
        return self._buffers - 1
