"""An attack's folder, its run and the judgement, which is the same for all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
LIMIT_S = 60.0  # far more than any attack takes; what needs more hangs
MEMORY = 8 << 30
PWNED = "PWNED"  # the beginning of the name of a file that planted code writes
# What a terminal acts on or a reader does not see: C0 but tab and newline, DEL, C1, zero-width, separators, bidi, BOM.
UNSEEN = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
)
# What the workers of a command have loaded, where an order is plain.
LOADED = {"verify": (forked.WORKERS, forked.COMPILER), "fleet": (forked.TRACEMINE,)}
_TRACEBACK = re.compile(rb"Traceback \(most recent|Exception ignored in|\.py:\d+: \w*Warning")
_SYSTEM = {os.strerror(number) for number in errno.errorcode}
_HINT = "  hint: "
# Columns of the table, each a way to fail.
FAULTS = ("tracebacks", "hangs", "foreign writes", "executions", "control bytes", "wrong answers")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a command line. code: None where it hung; changed: what it wrote; left: what stays in TMPDIR."""

    code: int | None
    out: bytes
    err: bytes
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    pwned: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Standard error as text."""
        return self.err.decode("utf-8", "replace")


def judge(ended: Ended, codes: Sequence[int | None], may_write: Iterable[str] = ()) -> list[tuple[str, str]]:
    """What is wrong with an end, as pairs of a column of the table and a text.

    codes: the exit codes that fit. may_write: paths in the box that were named as outputs, with all that is below.
    """
    allowed = tuple(may_write)
    foreign = [p for p in ended.changed if not any(p == a or p.startswith(a + "/") for a in allowed)]
    found = [("foreign writes", path) for path in (*foreign, *ended.left)]
    found += [("executions", path) for path in ended.pwned]
    if ended.code is None:
        return [*found, ("hangs", "it was ended")]
    both = ended.out + ended.err
    if ended.code in (3, 98, 99) or _TRACEBACK.search(both):
        return [*found, ("tracebacks", ended.said[-600:])]
    if unseen := UNSEEN.search(both):
        found.append(("control bytes", repr(both[max(0, unseen.start() - 50) : unseen.end() + 30])))
    if ended.code not in codes:
        found.append(("wrong answers", f"exit code {ended.code}, not of {codes}: {ended.said[-300:]}"))
    elif ended.code == 2 and (wrong := _not_an_error(ended.said)):
        found.append(("wrong answers", f"{wrong}: {ended.said[:300]!r}"))
    return found


def _not_an_error(said: str) -> str | None:
    """Why a text on standard error is no error as a line: where, and what."""
    lines = said.splitlines()
    if not lines or lines[0].startswith(_HINT):
        return "exit code 2 without a word"
    if lines[0] in _SYSTEM:
        return "no more than the system's word"
    return "a line is too long" if max(map(len, lines)) > 2200 else None


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder, links not followed, and by what a change of it is told."""
    found: dict[str, tuple[object, ...]] = {}
    for parent, folders, files in os.walk(os.fsencode(folder)):
        for name in (*folders, *files):
            path = os.path.join(parent, name)  # noqa: PTH118 - bytes
            s = os.lstat(path)
            what = (s.st_mode, s.st_ino) if stat.S_ISDIR(s.st_mode) else (s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns)
            found[os.path.relpath(path, os.fsencode(folder)).decode("utf-8", "backslashreplace")] = what
    return found


class Runner:
    """The process that forks, and the orders to it: itself a fork of the one of the run that has tracemine loaded."""

    def __init__(self) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TRACEMINE_", "PYTHON", "COV_", "NO_COLOR"))}
        env |= {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._child = forked.Worker({"module": "tests.attack.child"}, env, forked.place(forked.ATTACKS))

    def run(self, order: dict[str, Any]) -> list[int | None]:
        """The exit codes."""
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        answer = self._child.stdout.readline()
        assert answer, f"the process that runs attacks ended: {self._child.stderr.read().decode()}"
        codes: list[int | None] = json.loads(answer)
        return codes

    def close(self) -> None:
        """No process stays."""
        with self._child, self._child.stderr:
            pass


@dataclass
class Attack:
    """Attacks of one kind, in a folder that is made anew for each.

    `here` is the current folder of what runs; beside it lie a home with a file, and the folder of temporary files.
    """

    kind: str
    folder: Path
    runner: Runner
    again: str = ""  # how to run one again, {} for its seed
    tally: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.box = self.folder / "box"
        self.here, self.home, self.tmp = self.box / "here", self.box / "home", self.box / "tmp"
        self.fresh()

    def fresh(self) -> Path:
        """An empty current folder."""
        shutil.rmtree(self.box, ignore_errors=True)
        for path in (self.here, self.home, self.tmp):
            path.mkdir(parents=True)
        (self.home / "rc").write_text("precious")
        return self.here

    def run(self, *args: object, **how: Any) -> Ended:
        """Run a command line and say what became of it, without judging it. `how`: keys of an order."""
        return self.several(*args, **how)[0]

    def several(self, *args: object, **how: Any) -> list[Ended]:
        """The same for `copies` processes at once; what was written is the same for all."""
        streams = {"out": str(self.folder / "out.{}"), "err": str(self.folder / "err.{}")} | how
        order = {"copies": 1, "cwd": str(self.here), "cwd_gone": False, "umask": 0o022, "memory": MEMORY}
        order |= {"file_size": None, "exec": False, "plant": None, "program": "tracemine.cli:main"}
        order |= {"limit_s": LIMIT_S, "signal": None, "when": "", "after_s": 0.0, **how, **streams}
        order["env"] = {"HOME": str(self.home), "TMPDIR": str(self.tmp)}
        order["env"] |= {"TRITON_CACHE_DIR": str(forked.run_folder() / "triton")} | how.get("env", {})
        begins = LOADED.get(str(args[0]), ()) if args and how.keys() <= {"limit_s"} else ()
        order["workers"] = {each: forked.place(each) for each in begins}
        order["args"] = [os.fsdecode(a) if isinstance(a, bytes | Path) else str(a) for a in args]
        before = snapshot(self.box)
        codes = self.runner.run(order)
        after = snapshot(self.box)
        changed = [p for p in before.keys() | after.keys() if before.get(p) != after.get(p)]
        texts = [[self._taken(streams[name], n) for name in ("out", "err")] for n in range(len(codes))]
        return [
            Ended(
                code=code,
                out=out,
                err=err,
                changed=tuple(sorted(p for p in changed if not p.startswith("tmp/"))),
                left=tuple(sorted(p for p in after if p.startswith("tmp/"))),
                pwned=tuple(sorted(p for p in changed if Path(p).name.startswith(PWNED))),
            )
            for code, (out, err) in zip(codes, texts, strict=True)
        ]

    def __call__(
        self,
        *args: object,
        codes: Sequence[int | None] = (0, 2),
        may_write: Iterable[str] = (),
        label: object = "",
        must: Callable[[Ended], object] | None = None,
        **how: Any,
    ) -> Ended:
        """Run a command line and judge it. must: what else must hold, which raises AssertionError where it does not."""
        ended = self.run(*args, **how)
        self.count(label or args, judge(ended, codes, [f"here/{p}" for p in may_write]), ended, must)
        return ended

    def count(
        self,
        label: object,
        found: list[tuple[str, str]],
        ended: Ended | None = None,
        must: Callable[[Ended], object] | None = None,
    ) -> None:
        """Enter one attack in the table, with what was found wrong."""
        if must is not None and ended is not None and not found:
            try:
                must(ended)
            except (AssertionError, ValueError, KeyError, OSError) as error:
                found = [("wrong answers", f"{type(error).__name__}: {error} {ended.said[-300:]}")]
        self.tally["tried"] += 1
        self.tally.update({what for what, _ in found})
        once_more = f"\n    again: {self.again.format(label)}" if self.again else ""
        self.faults += [f"{self.kind} {label}: {what}: {text}{once_more}" for what, text in found]

    def _taken(self, pattern: str | None, number: int) -> bytes:
        path = Path((pattern or os.devnull).replace("{}", str(number)))
        if not path.is_file():
            return b""
        content = path.read_bytes()
        path.unlink()
        return content


def orphans(mark: str) -> list[str]:
    """Command lines of processes that live with this text in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def gone(mark: str, within_s: float = 5.0) -> None:
    """Asserts that after some time no process lives that has this text in its environment."""
    end = time.monotonic() + within_s
    while (left := orphans(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left, left


def table(tallies: dict[str, Counter[str]]) -> list[str]:
    """What was tried, by kind, and how much of it went wrong in which way."""
    total: Counter[str] = sum(tallies.values(), Counter())
    heads = ("tried", *FAULTS)
    lines = [f"{'inputs, by kind':<28}" + "".join(f"{head:>16}" for head in heads)]
    for kind, tally in (*sorted(tallies.items()), ("all", total)):
        lines.append(f"{kind:<28}" + "".join(f"{tally[head]:>16,}" for head in heads))
    return lines
