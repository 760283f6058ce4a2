"""Notice where steps of a program end, and where it uses a profiler of its own, without a change to the program.

Methods of classes are wrapped, never of instances: a module that is copied or saved is as it was. What torch.compile
traces calls the methods as they were.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import Any, Protocol

from tracemine.recording.plan import AUTO

_STEP = "ProfilerStep#"


class Listener(Protocol):
    """What is called."""

    def ended(self, source: str, key: Any) -> None:
        """Count a step that has ended: `source` is marks, optimizer or module, `key` refers to the last two."""

    def trains(self) -> None:
        """Note that the program has made an optimizer."""

    def profiles(self, profiler: Any, *, begins: bool) -> None:
        """Note that a profiler begins, or has ended."""


class Hooks:
    """Methods of torch that tell a listener: of profilers and optimizers until `detach`, of steps as `count` says."""

    def __init__(self, torch: Any, recording: type, listener: Listener) -> None:
        self._torch, self._recording, self._listener = torch, recording, listener
        self._ended = listener.ended  # called at each step
        self._module: Any = None
        self._undo_module: Callable[[], None] | None = None
        self._undo_steps: list[Callable[[], None]] = []
        profile = torch.autograd.profiler.profile
        self._undo = [
            self._hooked(profile, "_prepare_trace", before=lambda one: listener.profiles(one, begins=True)),
            self._hooked(profile, "__exit__", after=lambda one: listener.profiles(one, begins=False)),
            self._hooked(torch.optim.Optimizer, "__init__", before=self._trains),
        ]

    def count(self, by: str) -> None:
        """Tell the listener of steps from now on."""
        if by in (AUTO, "marks"):
            record_function = self._torch.autograd.profiler.record_function
            self._undo_steps.append(self._hooked(record_function, "__exit__", after=self._marked))
            step = self._hooked(self._recording, "step", after=lambda _: self._listener.ended("marks", None))
            self._undo_steps.append(step)
        if by in (AUTO, "optimizer"):
            optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim lets the name go
            self._undo_steps.append(optimizers.register_optimizer_step_post_hook(self._stepped).remove)
        if by in (AUTO, "module"):
            self._find()

    def count_no_more(self) -> None:
        """Report no more steps."""
        if self._module is not None:  # else its wrapper stays: what torch.compile made would be compiled again
            self.leave_modules()
        while self._undo_steps:
            self._undo_steps.pop()()

    def detach(self) -> None:
        """Leave torch as it was."""
        self.count_no_more()
        self.leave_modules()
        while self._undo:
            self._undo.pop()()

    def _find(self) -> None:
        """Take the next module that nothing but the program calls: each of its calls ends a step.

        Its class alone is wrapped then, before torch.compile can see the wrapper of all modules.
        """
        if self._undo_module is not None and self._module is None:
            return  # it is looked for already
        self.leave_modules()
        module_class = self._torch.nn.Module
        call = getattr(module_class.__call__, "__code__", None)  # None: the program has its own

        def called(module: Any) -> None:
            if self._undo_module is undo and not _runs(call, sys._getframe(2)):
                undo()
                self._module = weakref.ref(module, self._gone)
                self._undo_module = self._hooked(type(module), "__call__", after=self._called)

        undo = self._undo_module = self._hooked(module_class, "__call__", before=called, after=self._called)

    def leave_modules(self) -> None:
        """Report no more calls of modules."""
        if self._undo_module is not None:
            self._undo_module()
        self._undo_module = self._module = None

    def _gone(self, _: Any) -> None:
        """Look for another module where the first was made for once."""
        if self._undo_module is not None:
            self._find()

    def _called(self, module: Any) -> None:
        known = self._module
        if known is not None and module is known():
            self._ended("module", known)

    def _marked(self, mark: Any) -> None:
        if mark.name.startswith(_STEP):
            self._ended("marks", None)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not self._torch.compiler.is_compiling():
            self._listener.ended("optimizer", weakref.ref(optimizer))

    def _trains(self, _: Any) -> None:
        self.leave_modules()
        self._listener.trains()

    def _hooked(
        self,
        owner: Any,
        name: str,
        before: Callable[[Any], None] | None = None,
        after: Callable[[Any], None] | None = None,
    ) -> Callable[[], None]:
        """Wrap a method. Returns what takes the wrapper off, unless the program has wrapped it once more."""
        whole, own = getattr(owner, name), name in vars(owner)
        is_compiling = self._torch.compiler.is_dynamo_compiling

        @functools.wraps(whole)
        def hooked(self: Any, *given: Any, **named: Any) -> Any:
            if before is not None and not is_compiling():
                before(self)
            result = whole(self, *given, **named)
            if after is not None and not is_compiling():
                after(self)
            return result

        def undo() -> None:
            if vars(owner).get(name) is not hooked:
                return
            if own:
                setattr(owner, name, whole)
            else:
                delattr(owner, name)

        # torch.compile keeps what it made by the code object: no two wrappers share one.
        hooked.__code__ = hooked.__code__.replace(co_name=name)  # type: ignore[attr-defined]
        setattr(owner, name, hooked)
        return undo


def _runs(code: CodeType | None, frame: FrameType | None) -> bool:
    """Return whether `code` runs in a frame or in one of its callers."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


class AfterTorch:
    """Tell once torch is imported: the first of the finders until then."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where torch is, as the other finders do, with a loader that tells."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            whole = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                whole(module)
                self._tell(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def capturing(torch: Any) -> bool:
    """Return whether a CUDA graph is being captured: the step that ends runs later, and a profiler cannot begin."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
