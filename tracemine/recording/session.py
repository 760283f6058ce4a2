"""Record windows of a program that knows nothing of it: count its steps, open a window, write it, let go."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tracemine.errors import TracemineError, UsageError, bug_text
from tracemine.recording import Recording, torch_here
from tracemine.recording.files import RecordingOptions, doubts, everywhere, line_of, may_be_written
from tracemine.recording.hooks import AfterTorch, Hooks, capturing
from tracemine.recording.plan import AUTO, Plan, StepCounter, rank
from tracemine.units import count_text

_SIGNAL: signal.Signals | None = getattr(signal, "SIGUSR2", None)  # Windows has none
_LOOK_S = 0.1  # between two looks at the clock and at signals
_PATIENCE_S = 60.0  # that a server is asked for a window and ends no step, until seconds count as steps
_BUSY = b"tracemine capture: a window is open or asked for already: this SIGUSR2 is ignored\n"
_WAITS = "the program's own profiler is recording: the window waits until it has ended"


class Session:
    """One program, from its start to its end: `watch` before it runs, `close` after it.

    `ended`, `trains` and `profiles` come from the threads of the program, and nothing that goes wrong here reaches it.
    """

    def __init__(self, plan: Plan, output: Path, say: Callable[[str], None]) -> None:
        number = rank()
        self._folder = (output if number is None else output / f"rank{number}").absolute()  # programs change theirs
        self._plan, self._say = plan, say
        self.failed = False  # a window that was asked for is not there
        self._torch: Any = None
        self._hooks: Hooks | None = None
        self._lock = threading.Lock()
        self._inside: int | None = None  # the thread that records
        self._profilers: set[int] = set()  # the program's, that record now
        self._said: set[str] = set()
        self._signalled = self._asked = self._written = self._closed = False
        self._steps = StepCounter(plan.by)
        self._left = 0  # steps until the window opens
        self._since_s = 0.0
        self._recording: Recording | None = None
        self._options: RecordingOptions | None = None

    def watch(self) -> None:
        """Wait for torch and, where it is asked for, for SIGUSR2. Raises UsageError for a folder that is not ours."""
        may_be_written(self._folder.resolve(), str(self._folder))
        if self._plan.on_signal:
            if _SIGNAL is None:
                raise UsageError("--on-signal: this system has no SIGUSR2", hint="record after so many steps: --after")
            signal.signal(_SIGNAL, self._on_signal)
            self._say(f"kill -USR2 {os.getpid()} records a window into {self._folder}")
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)
        if "torch" in sys.modules:
            self._attach(sys.modules["torch"])
        else:
            sys.meta_path.insert(0, AfterTorch(self._attach))

    def close(self, *, whole: bool) -> None:
        """End with the program. `whole`: no error ended it, and what a window holds so far is kept."""
        if not self._closed:
            self._do(lambda: self._end(whole=whole))
        self._closed = True

    def ended(self, source: str, key: Any) -> None:
        """Count a step and do what is due after it, unless another thread is at work here."""
        steps = self._steps
        if not self._asked:
            return
        if self._left > 1 and source == steps.source and key is steps.key:  # most steps: they wait for no lock
            self._left -= 1
            steps.count += 1
        elif self._lock.acquire(blocking=False):
            try:
                if steps.counts(source, key):
                    self._guarded(self._advance if steps.count > 1 else self._begin_again)
            finally:
                self._lock.release()

    def trains(self) -> None:
        """Note that the program has made an optimizer: no call of a module is a whole step."""
        self._steps.trains = True

    def profiles(self, profiler: Any, *, begins: bool) -> None:
        """Make way for a profiler of the program's own."""
        if self._closed or self._inside == threading.get_ident():
            return
        (self._profilers.add if begins else self._profilers.discard)(id(profiler))
        if begins:
            self._do(self._make_way)

    def _attach(self, torch: Any) -> None:
        self._torch = torch
        self._do(self._hook)
        if not self._closed and (self._plan.on_signal or self._plan.by == "time"):
            threading.Thread(target=self._look, name="tracemine capture", daemon=True).start()

    def _hook(self) -> None:
        self._hooks = Hooks(torch_here(), Recording, self)
        if not self._plan.on_signal:
            self._ask()

    def _ask(self) -> None:
        self._steps = StepCounter(self._plan.by, trains=self._steps.trains)
        self._since_s, self._asked = time.monotonic(), True
        if self._hooks is not None:
            self._hooks.count(self._plan.by)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._asked or self._signalled:
            os.write(2, _BUSY)
        self._signalled = not self._asked

    def _look(self) -> None:
        """See to what no step does: signals, and seconds."""
        while not self._closed:
            time.sleep(_LOOK_S)
            self._do(self._look_once)

    def _look_once(self) -> None:
        if self._closed:
            return
        plan, steps = self._plan, self._steps
        if plan.on_signal and _SIGNAL is not None and signal.getsignal(_SIGNAL) != self._on_signal:
            raise UsageError("the program handles SIGUSR2 itself", hint="record after so many steps: --after")
        if self._signalled:
            self._signalled = False
            self._ask()
        if not self._asked:
            return
        waited = time.monotonic() - self._since_s
        patience = 0.0 if plan.by == "time" else _PATIENCE_S
        if steps.source is None and plan.by in (AUTO, "time") and waited >= patience:
            steps.source, self._since_s = "time", time.monotonic()
        elif steps.source == "time":
            self._record_by_time(waited)

    def _record_by_time(self, waited_s: float) -> None:
        plan = self._plan
        if self._recording is None and waited_s >= plan.after:
            self._open()
        elif self._recording is not None and waited_s >= plan.after + plan.steps:
            self._finish()

    def _begin_again(self) -> None:
        """Count from this step on: it is the first of its source."""
        if self._steps.source in ("optimizer", "marks") and self._hooks is not None:
            self._hooks.leave_modules()
        self._drop()
        _, self._left = self._window()
        self._advance()

    def _advance(self) -> None:
        if capturing(self._torch):
            return
        if self._recording is not None:
            self._recording.step()
            if self._recording.done:
                self._finish()
            return
        self._left -= 1
        if self._left <= 0:
            self._open()

    def _window(self) -> tuple[RecordingOptions, int]:
        free = sys.getprofile() is None  # torch takes the place of a profile function, and would not give it back
        return self._plan.window(self._steps.source, has_gpu=self._torch.cuda.is_available(), stacks=free)

    def _open(self) -> None:
        if self._profilers:
            self._say_once(_WAITS)
            return
        options, _ = self._window()
        if self._plan.stacks and not options.stacks:
            self._say_once("the program has a profile function (sys.setprofile): modules and lines are not recorded")
        if options.steps is None and everywhere(self._torch.profiler) is None:
            raise UsageError("by time only a newer torch can record: every thread", hint="mark the steps")
        self._options = options
        self._recording = Recording(self._torch, options, self._folder)
        self._recording._open()

    def _finish(self) -> None:
        recording, options, self._recording = self._recording, self._options, None
        if recording is None or options is None:
            return
        written = recording._keep()
        self._written = True
        self._say(line_of(str(self._folder), written, self._steps.words(), "--after 20"))
        for doubt in doubts(written, options, recording.lacks_light):
            self._say(f"{self._folder}: {doubt}")
        self._rest()

    def _drop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            with suppress(Exception):
                recording._drop()

    def _make_way(self) -> None:
        if self._recording is not None and self._recording.whole:
            self._finish()
        elif self._recording is not None:
            self._drop()
            self._left = self._plan.after
            self._say_once(_WAITS)

    def _rest(self) -> None:
        """Leave the program alone, until a signal where one may come."""
        self._asked = False
        if self._hooks is not None:
            self._hooks.count_no_more()
        if not self._plan.on_signal:
            self._closed = True
            if self._hooks is not None:
                self._hooks.detach()

    def _do(self, act: Callable[[], None]) -> None:
        with self._lock:
            self._guarded(act)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Keep what goes wrong here from the program; Ctrl-C is the program's."""
        self._inside = threading.get_ident()
        try:
            act()
        except TracemineError as error:
            self._fail(error.message + (f" ({error.hint})" if error.hint else ""))
        except Exception as error:
            self._fail(f"tracemine has a bug in {bug_text(error)}")
        except BaseException:
            self._fail("interrupted")
            raise
        finally:
            self._inside = None

    def _fail(self, why: str) -> None:
        self._drop()
        self.failed = True
        self._say(f"nothing was recorded: {why}")
        self._rest()

    def _end(self, *, whole: bool) -> None:
        recording = self._recording
        begun = recording is not None and (recording._recorded or self._steps.source == "time")
        if recording is not None and (recording.whole or (whole and begun)):
            self._finish()
        elif self._torch is None:
            self._fail("the program never imported torch")
        elif self._asked:
            self._fail(self._why() if whole else "the program ended with an error before its window did")
        elif self._plan.on_signal and not self._written and not self.failed:
            self._say("nothing was recorded: no SIGUSR2 came")
        if self._hooks is not None:
            self._hooks.detach()

    def _why(self) -> str:
        plan, steps = self._plan, self._steps
        if self._profilers:
            return "the program's own profiler was recording"
        if steps.source == "time":
            return f"the program ended in less than --after {plan.after} seconds"
        if steps.source is not None:
            return (
                f"the program ended after {count_text(steps.count, 'step')} {steps.words()}, and a window needs "
                f"{plan.after + 1} (--after {plan.after})"
            )
        return (
            "this process ended no step: no ProfilerStep# mark, no call of an optimizer's step or of a module "
            "(--by time; of child processes each needs tracemine capture)"
        )

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _leave(self) -> None:
        """Do nothing in a process that the program forked; the recording is its parent's."""
        self._closed, self._asked, self._lock = True, False, threading.Lock()
        if _SIGNAL is not None and signal.getsignal(_SIGNAL) == self._on_signal:
            signal.signal(_SIGNAL, signal.SIG_DFL)
