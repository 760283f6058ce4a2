"""What a program is: a function that builds a step, marked by `@program`. A step is called with nothing and gives what
it computed.

Where a program's label names causes that can be mended, its function takes `fixed`: the step as it is, or the same step
with the fixes applied. Both draw the same random numbers in the same order, so that both steps compute the same.

With TRACEMINE_CAUSES_SIZE=tiny in the environment sizes are a 32nd and nothing is dropped out: for a CPU.
"""

from __future__ import annotations

import importlib
import inspect
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

Step = Callable[[], Any]
HERE = Path(__file__).parent
TINY = os.environ.get("TRACEMINE_CAUSES_SIZE") == "tiny"
SPLIT = ("build", "held")  # written together, before any rule
PARTS = (*SPLIT, "again")  # `again` by somebody who had not read the rules, when they had been mended by `held`
MODULES = ("attention", "products", "layouts", "gradients", "invariants", "indexed", "optimal")
LABELS = {"build": HERE / "labels.toml"} | {part: HERE / part / "labels.toml" for part in PARTS[1:]}
FOUND: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    name: str
    part: str
    make: Callable[..., Step]
    training: bool
    fixable: bool

    @property
    def before(self) -> Callable[[], Step]:
        return partial(self.make, False) if self.fixable else self.make

    @property
    def after(self) -> Callable[[], Step] | None:
        return partial(self.make, True) if self.fixable else None


@dataclass(frozen=True)
class Label:
    """What is known of a program from its source. `kind` and `number` say how the first two parts were split."""

    name: str
    part: str
    kind: str  # the cause that it was written for, or `none`
    number: int  # among those of its kind with the cause, or among its near misses, in the order of writing
    why: str
    causes: Sequence[str] = ()  # that are there
    where: str = ""  # the function or operators concerned
    near_miss_of: str | None = None
    fixes: Sequence[str] = ()  # of the causes, those that the step after is free of
    accept: Sequence[str] = ()  # that may be told of it as well: another name for what is there

    @property
    def drawn(self) -> str:
        """The rule of the split of what was written first: odd numbers are open, even ones are held back."""
        return "build" if self.number % 2 else "held"


def program(make: Callable[..., Step] | None = None, *, training: bool = False) -> Any:
    """Registers a function that builds a step."""
    if make is None:
        return partial(program, training=training)
    part = make.__module__.split(".")[-2]
    assert make.__name__ not in FOUND, make.__name__
    FOUND[make.__name__] = Program(make.__name__, part, make, training, bool(inspect.signature(make).parameters))
    return make


def programs(parts: Sequence[str] = PARTS) -> list[Program]:
    """All programs of the parts, in the order of their files."""
    for part in parts:
        for module in MODULES:
            importlib.import_module(f"benchmarks.causes.{part}.{module}")
    return [one for one in FOUND.values() if one.part in parts]


def labels(parts: Sequence[str] = PARTS) -> dict[str, Label]:
    """The labels of the parts, by the program's name."""
    found = {}
    for part in parts:
        for name, about in tomllib.loads(LABELS[part].read_text("utf-8")).items():
            found[name] = Label(name=name, part=part, **{"fixes": about.get("causes", ()), **about})
    return found


def size(usual: int, tiny: int | None = None) -> int:
    """A size on a GPU, or on a CPU."""
    if not TINY:
        return usual
    return max(8, usual // 32) if tiny is None else tiny


def chance(p: float) -> float:
    """How much is dropped out: nothing where results are compared."""
    return 0.0 if TINY else p
