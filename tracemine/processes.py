"""A child process that answers lines with lines: watched by the clock, and started again where it ended."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import dropwhile
from typing import Any, Self

from tracemine.errors import UsageError
from tracemine.extras import install
from tracemine.programs import python, start

_SAID_BYTES = 4000


class TooLate(Exception):
    """No answer came in time. The process has ended."""


class Ended(Exception):
    """The process ended instead of answering.

    code: as `subprocess` gives it; said: what it wrote last of errors; begun: whether it had written any answer, or
    that it is ready for questions.
    """

    def __init__(self, code: int, said: Sequence[str], begun: bool = True) -> None:
        super().__init__(code, said)
        self.code, self.said, self.begun = code, tuple(said), begun

    @property
    def how(self) -> str:
        """In words."""
        return how_ended(self.code, self.said)

    @property
    def unstarted(self) -> bool:
        """Whether it gave up before it could be asked anything: what it needs is not there, or does not work."""
        return self.code > 0 and not self.begun


def does_not_start(what: str, said: Sequence[str]) -> UsageError:
    """Return the error that a process cannot do its work at all, and no other in its place could."""
    hint = f'see what python -c "import torch, triton" says; {install("verify")}'
    return UsageError(f"{what} does not start: {error_text(said) or 'it said nothing'}", hint=hint)


def error_text(said: Sequence[str]) -> str:
    """Return a process's last error, of its last lines: after a traceback the exception's, else the last.

    >>> error_text(["Traceback …", '  File "a.py", line 1', "    import b", "ImportError: no", "such library"])
    'ImportError: no such library'
    """
    frames = [k for k, line in enumerate(said) if line.startswith("  File ")]
    rest = dropwhile(lambda line: line.startswith("    "), said[frames[-1] + 1 :]) if frames else said[-1:]
    return " ".join(rest)[:300]


class Tail:
    """The end of what a child writes to its standard error, a pipe. It is read as it comes and not kept elsewhere."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        stream, child.stderr = child.stderr, None  # nothing else reads it
        assert stream is not None  # noqa: S101
        self._stream, self._kept = stream, b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def lines(self, wait_s: float = 1.0) -> list[str]:
        """Return its lines. The child has ended, but what it started may hold the pipe open: so long is waited."""
        self._reader.join(wait_s)
        return self._kept.decode("utf-8", "replace").strip().splitlines()

    def _read(self) -> None:
        with self._stream, contextlib.suppress(OSError):
            while piece := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + piece)[-_SAID_BYTES:]


def worker(module: str) -> tuple[str, ...]:
    """Return the command of a child that runs a module, and ends with its reader while that is still being loaded."""
    return python("-m", "tracemine.processes", module)


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer lines from standard input, until there are no more: what such a child does.

    What is printed on the way goes to standard error, whoever prints it. An empty line comes before all answers.
    """
    answers = os.fdopen(os.dup(1), "wb")
    end_with_reader(answers.fileno())
    os.dup2(2, 1)
    answers.write(b"\n")
    answers.flush()
    for line in sys.stdin.buffer:
        answers.write(answer(line) + b"\n")
        answers.flush()


def end_with_reader(descriptor: int = 1) -> None:
    """End this process when its answers can no longer be read: the process that asked may be gone, however that came.

    Where the system has no `poll` it goes on until it has answered, and finds that nothing more is asked.
    """

    def watch() -> None:
        gone.poll()
        os._exit(0)

    with contextlib.suppress(AttributeError):
        gone = select.poll()
        gone.register(descriptor, 0)  # nothing but errors: of a pipe, that its other end is closed
        threading.Thread(target=watch, daemon=True).start()


def limit_memory(pid: int, most_bytes: int) -> None:
    """Lets a process have so many bytes of addresses; not on every system."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        resource = _limits()
        resource.prlimit(pid, resource.RLIMIT_AS, (most_bytes, most_bytes))


def no_core_files() -> None:
    """Let this process leave no image of its memory where it is ended by a signal."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        resource = _limits()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limits() -> Any:
    """Return the module of limits. Raises ImportError where the system has none."""
    import resource

    return resource


def how_ended(code: int, said: Sequence[str]) -> str:
    """Return how a process ended, in words: by which signal, or with which code and last line.

    >>> how_ended(-9, ()), how_ended(1, ("Traceback …", "ValueError: no"))
    ('was ended by SIGKILL', 'ended with 1: ValueError: no')
    """
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with {code}: {said[-1][:300] if said else 'it said nothing'}"


class Closing:
    """What is closed at the end of a `with`."""

    def close(self) -> None:
        """Leave nothing of it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Process(Closing):
    """One child at a time, which begins when it is first asked. Close it at the end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        started: Callable[[int], object] = lambda pid: None,
    ) -> None:
        """started: called with the child's number, each time that one has begun."""
        self._command, self._environment, self._begun = tuple(command), environment, started
        self._child: subprocess.Popen[bytes] | None = None
        self._killed = self._answers = False
        self._errors: Tail | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # for its files: what is killed leaves them there

    def start(self) -> int:
        """Begin, if it has not or has ended. The child's number. Raises Ended after `kill`."""
        if self._killed:
            raise Ended(-signal.SIGKILL, ())
        if self._child is None or self._child.poll() is not None:
            self._answers = False
            self._clear()
            self._folder = tempfile.TemporaryDirectory(prefix="tracemine-", ignore_cleanup_errors=True)
            self._child = start(
                self._command,
                {**self._environment, "TMPDIR": self._folder.name},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,  # Ctrl-C is for whoever asks: what a child had validated until then is an answer
            )
            assert self._child.stdin is not None  # noqa: S101
            os.set_blocking(self._child.stdin.fileno(), False)
            self._errors = Tail(self._child)
            self._begun(self._child.pid)
            if self._killed:  # meanwhile, by another thread
                self._child.kill()
        return self._child.pid

    def ask(self, line: bytes, limit_s: float) -> bytes:
        """Return the line that it answers. Raises TooLate, and Ended."""
        deadline = time.monotonic() + limit_s
        self.start()
        child = self._child
        assert child is not None  # noqa: S101
        found = self._answer(child, line + b"\n", deadline)
        if found is None:
            self.end()
            raise TooLate
        if not found:
            try:
                code = child.wait(max(deadline - time.monotonic(), 1.0))
            except subprocess.TimeoutExpired:  # it closed its output and hangs
                self.end()
                raise TooLate from None
            self.end()
            raise Ended(code, () if self._errors is None else self._errors.lines(), self._answers)
        return found

    def kill(self) -> None:
        """End the child at once, and start none after it: whoever waits for its answer finds that it has ended."""
        self._killed = True
        if (child := self._child) is not None:
            child.kill()

    def end(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        if child.poll() is None:
            child.kill()
            child.wait()

    def close(self) -> None:
        """End the child, and start none after it."""
        self.end()
        self._clear()

    def _clear(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _answer(self, child: subprocess.Popen[bytes], line: bytes, deadline: float) -> bytes | None:
        """Return b"" where it ended, None where it takes too long, be it to read: a pipe holds 64 KiB unread."""
        assert child.stdin is not None  # noqa: S101
        assert child.stdout is not None  # noqa: S101
        unsent, parts = memoryview(line), [b""]
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdin, selectors.EVENT_WRITE)
            selector.register(child.stdout, selectors.EVENT_READ)
            while not parts[-1].endswith(b"\n"):
                left = deadline - time.monotonic()
                ready = [key.fileobj for key, _ in selector.select(left)] if left > 0 else []
                if not ready:
                    return None
                if child.stdin in ready:
                    unsent = _written(child.stdin.fileno(), unsent)
                try:
                    if child.stdout in ready:
                        piece = os.read(child.stdout.fileno(), 1 << 16)
                        if not piece:
                            return b""
                        self._answers = True
                        parts.append(piece if any(parts) else piece.lstrip(b"\n"))
                except OSError:
                    return b""
                if not unsent and child.stdin in selector.get_map():
                    selector.unregister(child.stdin)
        return b"".join(parts)


def _written(descriptor: int, unsent: memoryview) -> memoryview:
    """Return what is still to be written; nothing where the reader is gone. What it said before is still read."""
    try:
        return unsent[os.write(descriptor, unsent) :]
    except OSError:
        return unsent[:0]


if __name__ == "__main__":
    import runpy

    end_with_reader()  # before anything is loaded that takes long
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
