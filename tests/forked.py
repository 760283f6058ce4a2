"""Processes that begin loaded: one process loads what takes a second or two, and forks for each command.

Run as a file it is that process: it imports nothing of the tests. All processes of a run share it. Where what a new
interpreter does is itself the subject (what it imports, how it ends on a signal), start a new one instead.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What such a process has loaded; LIBRARIES: what tracemine imports, of whichever checkout is run there.
TRACEMINE, TORCH, WORKERS, LIBRARIES, COMPILER = "tracemine", "torch", "workers", "libraries", "compiler"
STEPS = "steps"  # with what an optimizer loads when it is made
_TORCH = ("torch", "triton", "triton.language", "triton.runtime.interpreter", "numpy")
_LIBRARIES = (
    *_TORCH,
    "pyarrow.parquet",
    "pyarrow.compute",
    "msgspec",
    "typer",
    "rich.table",
    "rich.progress",
    "jinja2",
)
# Workers of tracemine, each with a `main`: they interpret kernels, compile them, run steps, or need no torch.
_WORKERS = {
    WORKERS: ("tracemine.validate.worker", "tracemine.verify.library.worker", "tracemine.verify.gpu.worker"),
    STEPS: ("tracemine.apply.child", "torch._dynamo"),
    COMPILER: ("tracemine.codegen.triton.resources_worker", "tracemine.verify.gpu.worker"),
    TRACEMINE: ("tracemine.fleet.worker", "tracemine.api.many"),
}
# Of them those that make of a line what they answer, and nothing else: what is asked again was answered.
_ANSWER_LINES = _WORKERS[WORKERS][:2]
_PLACE = "FORKED_WORKERS"  # in the environment of TRACEMINE: where its commands find WORKERS
_RUN = "PYTEST_FORKED"  # in the environment of a run: the folder of its sockets
_HELD = "held"  # there: a pipe that whoever made the folder holds open
ASKED: set[int] = set()  # workers that this process asked for and that have not ended: no children of it
_ANSWER_BYTES = 16
# The program `tracemine` for scripts of shells: it hands its streams over and waits for the exit code.
_PROGRAM = """\
#!{python} -IS
import json, os, socket, sys
what = {{"file": None, "module": None, "args": sys.argv[1:], "number": False}}
order = json.dumps({{**what, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
with socket.socket(socket.AF_UNIX) as to:
    to.connect({place!r})
    socket.send_fds(to, [len(order).to_bytes(8)], [0, 1, 2])
    to.sendall(order)
    sys.exit(int(to.recv({most})))
"""


def run(
    loaded: str, args: Sequence[str], *, file: Path | None = None, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run tracemine's command line, or a file as Python's main program, as `subprocess.run` does with pipes."""
    order = {"file": None if file is None else str(file), "module": None, "args": [*args], "number": False}
    content = json.dumps({**order, "cwd": str(cwd), "env": dict(env)}).encode()
    with (
        open(os.devnull) as nothing,  # noqa: PTH123
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        socket.socket(socket.AF_UNIX) as to,
    ):
        to.connect(place(loaded))
        socket.send_fds(to, [len(content).to_bytes(8)], [nothing.fileno(), out.fileno(), err.fileno()])
        to.sendall(content)
        code = int(to.recv(_ANSWER_BYTES))
        texts = [(stream.seek(0), stream.read().decode("utf-8"))[1] for stream in (out, err)]
    return subprocess.CompletedProcess(args, code, *texts)


def write_program(path: Path) -> None:
    """Write a file that is run as `tracemine`, by the process that has it loaded."""
    path.write_text(_PROGRAM.format(python=sys.executable, place=place(TRACEMINE), most=_ANSWER_BYTES), "utf-8")
    path.chmod(0o755)


class Worker:
    """A worker, or a file that is run, that begins loaded: of `subprocess.Popen` what tracemine uses of it."""

    def __init__(self, what: Mapping[str, object], env: Mapping[str, str], at: str, cwd: str | None = None) -> None:
        ends = [os.pipe() for _ in range(3)]
        theirs = [ends[0][0], ends[1][1], ends[2][1]]
        order = {"file": None, "module": None, "args": [], "number": True, **what}
        content = json.dumps({**order, "cwd": cwd or str(Path.cwd()), "env": dict(env)}).encode()
        self._to = socket.socket(socket.AF_UNIX)
        self._to.connect(at)
        socket.send_fds(self._to, [len(content).to_bytes(8)], theirs)
        self._to.sendall(content)
        for descriptor in theirs:
            os.close(descriptor)
        self.pid = int(self._to.recv(_ANSWER_BYTES))
        ASKED.add(self.pid)
        self.returncode: int | None = None
        self.stdin: Any = open(ends[0][1], "wb", buffering=0)  # noqa: PTH123, SIM115
        self.stdout: Any = open(ends[1][0], "rb", buffering=0)  # noqa: PTH123, SIM115
        self.stderr: Any = open(ends[2][0], "rb", buffering=0)  # noqa: PTH123, SIM115

    def poll(self) -> int | None:
        """The exit code, where it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it ends. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._to], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self.returncode = int(self._to.recv(_ANSWER_BYTES))
            self._to.close()
            ASKED.discard(self.pid)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[bytes, None]:
        """All that it prints, once it has ended; its errors are read elsewhere. Raises TimeoutExpired."""
        deadline, parts = time.monotonic() + timeout, [b"begun"]
        while parts[-1]:
            if not select.select([self.stdout], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                raise subprocess.TimeoutExpired("worker", timeout)
            parts.append(os.read(self.stdout.fileno(), 1 << 16))
        self.wait(max(deadline - time.monotonic(), 0.0))
        return b"".join(parts[1:]), None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()
        self.wait()


def fork_workers(at: Callable[[str], str | None]) -> None:
    """Let what tracemine starts with torch or itself begin loaded, if none of its modules may lie elsewhere.

    at: where the process is that forks what needs something loaded; None: what needs that is started.
    """
    from tracemine import processes, programs
    from tracemine.verify.repro import standalone

    stock = programs.start

    def start(command: Sequence[str], given: Mapping[str, str], **how: Any) -> Any:
        env = programs.environment(given)
        ours = env.get("PYTHONPATH", str(ROOT)) == str(ROOT)
        interprets = env.get("TRITON_INTERPRET") == "1"  # read when triton is imported
        module = _module(command, programs.python("-m", "tracemine.processes"), programs.python())
        for loaded in (WORKERS if interprets else COMPILER, STEPS, TRACEMINE):
            if ours and module in _WORKERS[loaded] and (place := at(loaded)):
                return Worker({"module": module}, env, place)
        alone = [Path(name).name for name in command[2:3]] == ["standalone.py"]
        if ours and interprets and alone and (place := at(WORKERS)):
            return Worker({"file": command[2], "args": command[3:]}, env, place, how["cwd"])
        return stock(command, given, **how)

    for each in (processes, standalone):
        vars(each)["start"] = start  # that name is imported there


def _module(command: Sequence[str], by_name: Sequence[str], by_file: Sequence[str]) -> str | None:
    """The module of ours that a command runs."""
    if [*command[:-1]] == [*by_name]:
        return command[-1]
    if [*command[:-1]] == [*by_file] and Path(command[-1]).is_relative_to(ROOT):
        return ".".join(Path(command[-1]).relative_to(ROOT).with_suffix("").parts)
    return None


@functools.cache
def run_folder() -> Path:
    """The folder that all processes of a run share; whichever makes it ends last, and with it what was begun."""
    if _RUN not in os.environ:
        os.environ[_RUN] = tempfile.mkdtemp(prefix="forked-")
        atexit.register(shutil.rmtree, os.environ[_RUN], ignore_errors=True)
        os.mkfifo(Path(os.environ[_RUN]) / _HELD)
        os.open(Path(os.environ[_RUN]) / _HELD, os.O_RDWR)  # for as long as this process lives
    return Path(os.environ[_RUN])


@functools.cache
def place(loaded: str) -> str:
    """The socket of the process that has something loaded; it begins when one of the run first asks for it."""
    found = run_folder() / loaded
    env = {name: text for name, text in os.environ.items() if not name.startswith(("TRACEMINE_", "PYTHON"))}
    env |= {} if loaded in (TORCH, LIBRARIES) else {"PYTHONPATH": str(ROOT)}
    env |= {"TRITON_INTERPRET": "0" if loaded == COMPILER else "1"}
    env |= {"OMP_NUM_THREADS": "1"} if loaded in (WORKERS, COMPILER, STEPS) else {}
    env |= {_PLACE: place(WORKERS)} if loaded == TRACEMINE else {}
    with found.with_suffix(".lock").open("w") as alone, (run_folder() / _HELD).open("rb") as held:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not found.exists():
            command = [sys.executable, "-P", str(Path(__file__)), str(found), loaded]
            said, says = os.pipe()
            streams = [(os.POSIX_SPAWN_DUP2, of, at) for at, of in enumerate((held.fileno(), says))]
            os.posix_spawn(command[0], command, env, file_actions=streams)  # no object that is to be waited for
            os.close(says)
            assert os.read(said, 99) == b"ready\n", f"the process that has {loaded} loaded did not begin"
            os.close(said)
    return str(found)


def _serve(at: str, loaded: str) -> None:
    """Fork for each connection, until the run ends, which holds standard input open."""
    _load(loaded, at)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(at)
        listener.listen()
        if not os.fork():
            _answer(listener, Path(at))
        os.write(1, b"ready\n")
        sys.stdin.buffer.read()
    shutil.rmtree(Path(at).parent, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _load(loaded: str, own: str) -> None:
    """Import, and do once what fills caches."""
    # What registers an operator loads Dynamo, two seconds in each child.
    for name in {TORCH: (*_TORCH, "torch._dynamo"), LIBRARIES: _LIBRARIES, **_WORKERS}[loaded]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if loaded == TRACEMINE:
        from tracemine.cli import main

        fork_workers({WORKERS: os.environ.pop(_PLACE), TRACEMINE: own}.get)

        trace = str(ROOT / "fixtures/kineto/decoder_prefill.json.gz")
        with tempfile.TemporaryDirectory() as folder:
            for form in ("json", "html", "markdown", "text"):
                main(["scan", trace, "--format", form, "--quiet", f"--output={folder}/report"])
    gc.collect()
    gc.freeze()  # children share its pages


def _answer(listener: socket.socket, at: Path) -> None:
    """Wait for connections; a process for each waits for the one that does what it asks."""
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not os.fork():
            listener.close()
            size, streams, _, _ = socket.recv_fds(connection, 8, 3)
            order = json.loads(connection.makefile("rb").read(int.from_bytes(size)))
            pid = os.fork()
            if not pid:
                connection.close()
                os._exit(_done(order, streams, at))
            for stream in streams:
                os.close(stream)
            if order["number"]:
                connection.sendall(str(pid).encode().rjust(_ANSWER_BYTES))
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):  # whoever asked may be gone
                connection.sendall(str(code).encode().rjust(_ANSWER_BYTES))
            os._exit(0)
        connection.close()


def _serve_again(
    serve: Callable[[Callable[[bytes], bytes]], None], kept: Path, answer: Callable[[bytes], bytes]
) -> None:
    """Answer lines; of those that were answered in this run, a folder keeps what was."""
    kept.mkdir(exist_ok=True)

    def again(line: bytes) -> bytes:
        path = kept / sha256(line).hexdigest()
        if not path.exists():
            part = kept / f"{os.getpid()}"
            part.write_bytes(answer(line))
            part.replace(path)
        return path.read_bytes()

    serve(again)


def _done(order: dict[str, Any], streams: Sequence[int], at: Path) -> int:
    """Do what an order says; return the exit code as Python's own interpreter gives it."""
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        setattr(sys, name, open(("stdin", "stdout", "stderr").index(name), mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    try:
        if order["module"] is not None:
            os.setpgid(0, 0)
            with contextlib.suppress(OSError):  # what it is called, where processes are listed
                Path("/proc/self/comm").write_text(order["module"][-15:], "utf-8")
            worker: Any = importlib.import_module(order["module"])
            if order["module"] in _ANSWER_LINES:
                worker.serve = functools.partial(_serve_again, worker.serve, at.parent / order["module"])
            code: object = worker.main()
        elif order["file"] is None:
            from tracemine.cli import main

            code = main(order["args"])
        else:
            sys.argv = [order["file"], *order["args"]]
            beside = [] if order["env"].get("PYTHONSAFEPATH") else [str(Path(order["file"]).parent)]
            sys.path[:0] = [*beside, *order["env"].get("PYTHONPATH", "").split(os.pathsep)]
            with contextlib.suppress(ImportError):
                importlib.import_module("sitecustomize")
            runpy.run_path(order["file"], run_name="__main__")
            code = 0
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        traceback.print_exc()
        sys.last_value = error  # as Python keeps it: closed with its frames, a pipe would end this process with 0
        code = 1
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            output.flush()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    os.setpgid(0, 0)
    _serve(*sys.argv[1:])
