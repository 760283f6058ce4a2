"""Ranks read by processes of this machine: a task a file, of which the summary alone comes back."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracemine.errors import InputError, TracemineError
from tracemine.pool import Pool
from tracemine.processes import Closing, Ended, Process, TooLate, worker
from tracemine.ranks.summary import RankSummary

_LEAST_BYTES, _LEAST_FILES = 16 << 20, 3  # a process takes a second to begin
_LIMIT_S, _ATTEMPTS = 900.0, 2
_NARROW = (np.int8, np.int16, np.int32)
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # one process a core is enough

Outcome = list[RankSummary] | TracemineError


class SummaryAnswer(msgspec.Struct, frozen=True):
    """What became of a file: the ranks that it holds, or why there are none."""

    ranks: list[RankSummary] = []
    error: str | None = None


def read_each(
    paths: Sequence[Path], read: Callable[[Path], list[RankSummary]], processes: int | None = None
) -> Iterator[Outcome]:
    """Yield what each file holds, or what is wrong with it, in order.

    processes: how many read at once; by default one a core where there are several large files, else this one.
    """
    if processes is None:
        is_large = len(paths) >= _LEAST_FILES and sum(map(_size, paths)) >= _LEAST_BYTES
        processes = min(len(os.sched_getaffinity(0)), len(paths)) if is_large else 1
    if processes < 2:
        for path in paths:
            try:
                yield read(path)
            except TracemineError as error:
                yield error
        return
    with Pool([_Reader() for _ in range(processes)]) as pool:
        waiting: list[Future[Outcome]] = [
            pool.start(lambda reader, path=path: reader.read(path))  # type: ignore[misc]
            for path in paths
        ]
        for one in waiting:
            yield one.result()


class _Reader(Closing):
    """One process that reads files, one at a time."""

    def __init__(self) -> None:
        self._process = Process(worker("tracemine.ranks.worker"), {**os.environ, **_ENVIRONMENT})

    def read(self, path: Path) -> Outcome:
        """Return what a file holds; once more where the process was lost."""
        says = ""
        for _ in range(_ATTEMPTS):
            try:
                answer = unpacked(self._process.ask(base64.b64encode(os.fsencode(path.resolve())), _LIMIT_S))
            except TooLate:
                return InputError(f"took longer than {_LIMIT_S:g} s to read")
            except Ended as end:
                says = f"the process that read it {end.how}"
            else:
                return answer.ranks if answer.error is None else InputError(answer.error)
        return InputError(says)

    def kill(self) -> None:
        """End what it does at once."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.close()


def packed(answer: SummaryAnswer) -> bytes:
    """Return an answer as a line; integers as few bytes as hold them."""
    return base64.b64encode(msgspec.msgpack.encode(answer, enc_hook=_as_bytes))


def unpacked(line: bytes) -> SummaryAnswer:
    """Return what `packed` made."""
    return msgspec.msgpack.decode(base64.b64decode(line), type=SummaryAnswer, dec_hook=_as_array)


def _as_bytes(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError
    kinds = _NARROW if value.dtype == np.int64 and value.size else ()
    low, high = (int(value.min()), int(value.max())) if kinds else (0, 0)
    narrow = next((kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max), None)
    sent = value if narrow is None else value.astype(narrow)
    return value.dtype.str, sent.dtype.str, value.shape, sent.tobytes()


def _as_array(_: type, value: Any) -> Any:
    kind, sent, shape, content = value
    return np.frombuffer(content, np.dtype(sent)).astype(np.dtype(kind)).reshape(shape)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
