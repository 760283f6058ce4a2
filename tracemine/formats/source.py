"""A file as a stream of bytes: plain or gzip, recognised by content, with a bound on what it may inflate to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from isal import igzip_lib

from tracemine.errors import InputError, Location
from tracemine.files import opened

HEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 15
_WHOLE_BLOCK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_DAMAGED: Any = igzip_lib.error  # isal's stubs call it an instance
_UTF8_BOM = b"\xef\xbb\xbf"
_GZIP_END = 8  # bytes: checksum and size
_LONGEST_HEADER = 1 << 20  # bytes of a gzip member's header: it may hold a name, a comment and 64 kB more

# A decompression bomb shows in its ratio. Real traces inflate 8 to 35 times, and their times and ids differ from
# event to event, which keeps any trace below about 60; deflate itself ends at 1032. The first 64 MB are free, so that
# a small file of nothing but blanks is judged by what is in it, not by how it is packed.
MAX_INFLATION = 200
FREE_BYTES = 64_000_000


class ByteSource(Protocol):
    """What a scanner reads from: bytes in order, and whether their end was the file's own end."""

    @property
    def path(self) -> str:
        """The path as given, for messages."""

    @property
    def truncated(self) -> bool:
        """Whether the file ended before its content did; known once `readinto` has returned 0."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def position(self) -> int:
        """Bytes on disk that were read so far."""

    def readinto(self, view: memoryview) -> int:
        """Fill the front of `view`; return how many bytes, 0 only at the end."""


class FileSource:
    """A `ByteSource` over a file on disk. `head` shows its first bytes, after inflation, without consuming them.

    A gzip file may have several members; one that is cut short or damaged yields what can be inflated and then sets
    `truncated`. `behind`: bytes on disk that follow the last member and are none, known once all is read. A UTF-8 byte
    order mark is left out.

    Raises InputError if the path is not a readable regular file, or inflates more than `MAX_INFLATION` times.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.truncated = False
        self.behind = 0
        self.part: Path | None = None  # a file or a folder elsewhere that belongs to it
        if path.is_dir():
            raise InputError(
                "is a directory, and not one that tracemine wrote",
                where=Location(str(path)),
                hint="pass one trace file in it",
            )
        self._file = opened(path)
        self.size = os.fstat(self._file.fileno()).st_size
        self.position = 0
        self._member: igzip_lib.IgzipDecompressor | None = None
        self._inflated_bytes = 0
        try:
            self._input = self._file.read(len(_GZIP_MAGIC))
            self.compressed = self._input == _GZIP_MAGIC
            self.head = self._begin().removeprefix(_UTF8_BOM)
        except BaseException:
            self._file.close()
            raise
        self._unread = self.head

    def readinto(self, view: memoryview) -> int:
        """Fill the front of `view`; return how many bytes, 0 only at the end.

        Raises InputError if the file inflates more than `MAX_INFLATION` times or cannot be read.
        """
        if not self._unread and not self.compressed and not self._input:
            count: int = self._file.readinto(view)
            self.position += count
            return count
        piece = self._unread[: len(view)] or self._read(len(view))
        self._unread = self._unread[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def whole(
        self, progress: Callable[[int, int], None] | None = None, most_bytes: int = 1 << 62, writer: str = ""
    ) -> bytearray:
        """Return all that is left, inflated. Raises InputError where that is more than `writer` writes."""
        content, block = bytearray(), memoryview(bytearray(_WHOLE_BLOCK_BYTES))
        while count := self.readinto(block):
            content += block[:count]
            if len(content) > most_bytes:
                raise InputError(f"is larger than what {writer} writes", where=Location(self.path))
            if progress is not None:
                progress(self.position, self.size)
        return content

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> bytes:
        head = b""
        while len(head) < HEAD_BYTES and (piece := self._read(HEAD_BYTES - len(head))):
            head += piece
        return head

    def _read(self, count: int) -> bytes:
        if self.compressed:
            return self._inflate(count)
        piece, self._input = self._input, b""
        piece += self._file.read(count - len(piece))
        self.position += len(piece)
        return piece

    def _inflate(self, count: int) -> bytes:
        """Return up to `count` bytes of content; b"" at the end, be it the file's own or where the damage begins."""
        while not self.truncated:
            if self._member is None and not self._begin_member():
                break
            assert self._member is not None  # noqa: S101  (for the type checker)
            if not self._input and self._member.needs_input and not self._more():
                self.truncated = True
                break
            try:
                piece: bytes = self._member.decompress(self._input, count)
            except _DAMAGED:
                self.truncated = True
                break
            self._input = b""
            if self._member.eof:
                self._end_member(self._member)
            if piece:
                self._check_inflation(len(piece))
                return piece
        return b""

    def _more(self) -> bool:
        """Read a chunk behind what is there; False at the end of the file."""
        chunk = self._file.read(_CHUNK_BYTES)
        self._input += chunk
        return bool(chunk)

    def _begin_member(self) -> bool:
        """Return whether another member begins: zeros may stand between; what else follows the last is counted."""
        while True:
            self._input = self._input.lstrip(b"\0")
            begins = _body_begins(self._input)
            if begins is not None and begins < len(self._input):
                break
            if begins is None and self._input[:2] not in (b"", _GZIP_MAGIC[:1], _GZIP_MAGIC):
                self.behind = len(self._input) + self.size - self._file.tell()
                return False
            if len(self._input) > _LONGEST_HEADER or not self._more():
                self.truncated = bool(self._input)
                return False
        self._input = self._input[begins:]
        # Its own check would keep back the last of the content where only the checksum is wrong.
        self._member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP_NO_HDR)
        return True

    def _end_member(self, member: igzip_lib.IgzipDecompressor) -> None:
        self._input, self._member = member.unused_data, None
        while len(self._input) < _GZIP_END and self._more():
            pass
        checksum = int.from_bytes(self._input[:4], "little")
        self.truncated = len(self._input) < _GZIP_END or checksum != member.crc
        self._input = self._input[_GZIP_END:]

    def _check_inflation(self, count: int) -> None:
        self._inflated_bytes += count
        self.position = self._file.tell()
        if self._inflated_bytes > FREE_BYTES and self._inflated_bytes > MAX_INFLATION * self.position:
            raise InputError(
                f"inflates to more than {MAX_INFLATION} times its size, which no trace does",
                where=Location(self.path),
                hint="if it is a trace all the same, gunzip it and pass the result",
            )


def _body_begins(member: bytes) -> int | None:
    """Return where in a gzip member its content begins, perhaps beyond what is there; None: it is no member.

    https://www.rfc-editor.org/rfc/rfc1952
    """
    if not member.startswith(_GZIP_MAGIC + b"\x08"):
        return None
    if len(member) < 12:
        return len(member)
    flags, begins = member[3], 10
    if flags & 4:
        begins += 2 + int.from_bytes(member[10:12], "little")
    for _ in range((flags >> 3 & 1) + (flags >> 4 & 1)):  # a name, a comment
        begins = member.find(b"\0", begins) + 1 or len(member)
    return begins + (flags & 2)
