"""A process that has loaded tracemine and forks for command lines: some 20 ms each instead of 800.

It reads an `Order` a line, as JSON, and answers with the exit code of each copy, null where it had to be ended.
tests/forked.py begins it and has `load` done, once in a run: no more than the standard library and tracemine is loaded.

Plain orders are carried out one after another by one fork, `_MOST` of them: what each fork copies of its parent's
pages, and works out anew, takes as long as the scan of a small trace. What proves and compiles for them begins loaded
too; for all others a new interpreter is started, as for a user.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
_FIXTURES = ROOT / "fixtures"
_TORCH = ("torch", "triton")  # what needs them is loaded by no command that forks here
# What fills caches: templates, tables of commands, rules that are read. @ is a folder for what is written.
_FILLING = (
    *(f"scan {_FIXTURES}/kineto/triton_kernel.json.gz --format {form} -q -o @/report.{form}"
      for form in ("json", "html", "markdown", "text")),
    f"scan {_FIXTURES}/nsys/block_graph_whole.sqlite -q -o @/report.text",
    f"scan {_FIXTURES}/kineto/triton_kernel.json.gz -q --parquet @/timeline",
    f"verify {_FIXTURES}/kineto/clean_gemms.json.gz -q -o @/verified",
    f"top {_FIXTURES}/ncu/chain/raw.csv.gz",
    "scan @/report.json -q",
    "scan @/report.json -q --format html",
    "rules show rmsnorm_unfused",
    "--version",
)  # fmt: skip

# An order that has these, three variables and both streams leaves nothing behind that the next one could meet.
_PLAIN = {"copies": 1, "cwd_gone": False, "umask": 0o022, "file_size": None, "exec": False, "plant": None}
_PLAIN |= {"signal": None}
_MEMORY = 4 << 30  # of a plain order at least: what the fork keeps is little beside it
_VARIABLES = 3
_MOST = 300  # orders of one fork, which keeps what is worked out once
_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Answer until nothing more is asked."""
    answers = os.fdopen(os.dup(1), "w")
    series: _Series | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if series is not None and series.is_over:
            series.close()
            series = None
        if not _is_plain(order):
            codes = _ended(order, [_begun(order, n) for n in range(order["copies"])])
        else:
            series = series or _Series()
            codes = [series.code(order)]
        answers.write(json.dumps(codes) + "\n")
        answers.flush()
    if series is not None:
        series.close()


def _is_plain(order: dict[str, Any]) -> bool:
    streams = order["out"] is not None and order["err"] is not None
    usual = len(order["env"]) == _VARIABLES and order["memory"] >= _MEMORY
    return streams and usual and all(order[name] == it for name, it in _PLAIN.items())


class _Series:
    """A fork that carries out plain orders until one of them ends it."""

    def __init__(self) -> None:
        self._ended, self._left = False, _MOST
        theirs, self._orders = os.pipe()
        self._codes, answers = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._orders)
            os.close(self._codes)
            os.setsid()
            gc.disable()
            _carry_out(os.fdopen(theirs), answers)
        os.close(theirs)
        os.close(answers)

    @property
    def is_over(self) -> bool:
        """Whether the next order is another fork's."""
        return self._ended or not self._left

    def code(self, order: dict[str, Any]) -> int | None:
        """Return an order's exit code; None where it had to be ended."""
        self._left -= 1
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        answers = select.select([self._codes], [], [], order["limit_s"])[0]
        if answers and (answer := os.read(self._codes, 16)):
            return int(answer)
        self._ended = True
        if not answers:
            os.killpg(self._pid, signal.SIGKILL)
        status = os.waitpid(self._pid, 0)[1]
        return os.waitstatus_to_exitcode(status) if answers else None

    def close(self) -> None:
        os.close(self._orders)
        os.close(self._codes)
        if not self._ended:  # another fork may hold what would tell it that nothing more is asked
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _carry_out(orders: io.TextIOWrapper, answers: int) -> None:
    """Answer orders with exit codes; what leaves a command as an exception ends the process, with its own code."""
    environment = dict(os.environ)
    try:
        for line in orders:
            _prepare(order := json.loads(line), 0)
            if order["workers"]:
                forked.fork_workers(order["workers"].get)
            code = _run(order)
            os.environ.clear()
            os.environ.update(environment)
            os.write(answers, b"%d" % code)
    except BaseException as end:
        os._exit(_code(end))


def _code(end: BaseException) -> int:
    """Return the exit code of a command that an exception ends; say which, but for one that is meant to."""
    if isinstance(end, SystemExit):
        return end.code if isinstance(end.code, int) else 98
    import traceback

    os.write(2, "".join(traceback.format_exception(end)).encode("utf-8", "replace"))
    return 99


def load() -> None:
    import tracemine

    absent: dict[str, Any] = dict.fromkeys(_TORCH)
    sys.modules.update(absent)
    for module in pkgutil.walk_packages(tracemine.__path__, "tracemine."):
        if module.name != "tracemine.__main__":
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for name in _TORCH:
        del sys.modules[name]
    _fill()
    gc.collect()
    gc.freeze()  # so that children share its pages


def _fill() -> None:
    """Run commands once, silently."""
    from tracemine.cli import main as command_line

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for line in _FILLING:
            command_line(line.replace("@", folder).split())


def _begun(order: dict[str, Any], number: int) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # until the command begins: what comes before is not its own
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        return pid
    gc.disable()  # as a command line that ends the process does
    try:
        os.setsid()
        _prepare(order, number)
        os._exit(_run(order))
    except BaseException as end:
        os._exit(_code(end))


def _prepare(order: dict[str, Any], number: int) -> None:
    """Folder, environment, limits and streams, as the order says."""
    os.chdir(order["cwd"])
    if order["cwd_gone"]:
        Path(order["cwd"]).rmdir()
    for name, value in order["env"].items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    os.umask(order["umask"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], resource.RLIM_INFINITY))  # of each in a series its own
    if order["file_size"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_size"], order["file_size"]))
    for descriptor, name in enumerate((os.devnull, order["out"], order["err"])):
        if name is None:
            os.close(descriptor)
        else:
            mode = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
            opened = os.open(name.replace("{}", str(number)), mode, 0o644)
            os.dup2(opened, descriptor)
            os.close(opened)


def _run(order: dict[str, Any]) -> int:
    if order["exec"]:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        os.execv(sys.executable, [sys.executable, "-P", "-m", "tracemine", *order["args"]])  # noqa: S606
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = io.TextIOWrapper(os.fdopen(descriptor, "wb", closefd=False), encoding="utf-8", errors="strict")
        setattr(sys, name, file)
    if order["plant"]:
        sys.path.append(str(ROOT))
        module, _, name = order["plant"].partition(":")
        getattr(importlib.import_module(module), name)()
    module, _, name = order["program"].partition(":")
    command = getattr(importlib.import_module(module), name)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    except KeyboardInterrupt:
        return 130
    code: int = command(order["args"])
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _ended(order: dict[str, Any], pids: list[int]) -> list[int | None]:
    """The exit code of each; a signal is sent to all once a path is there that fits the pattern `when`."""
    codes: dict[int, int | None] = {}
    deadline = time.monotonic() + order["limit_s"]
    waits = order["signal"] is not None
    while len(codes) < len(pids):
        for pid in set(pids) - set(codes):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                codes[pid] = None
            elif waits and glob.glob(order["when"], include_hidden=True):  # noqa: PTH207
                time.sleep(order["after_s"])
                os.kill(pid, order["signal"])
                waits = False
        time.sleep(0.002)
    return [codes[pid] for pid in pids]
