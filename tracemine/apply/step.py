"""The step that the user's `build()` gives: any object with these names will do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class NotAStep(Exception):
    """What `build()` gave is none, or there is no `build`."""


@dataclass(slots=True)
class Step:
    """One step of a program.

    run: does a step on a batch, and gives tensors, in tuples, lists and dictionaries if there are several.
    batches: can be gone through again.
    parameters: tensors, pairs of a name and a tensor, or a function that gives them; their gradients are compared.
    loss: gives the loss of what `run` gave; without it a single number that `run` gave is taken for the loss.
    modules: what torch.compile and layouts are applied to, and whose buffers are compared; without them `run` itself.
    """

    run: Callable[[Any], Any]
    batches: Sequence[Any]
    parameters: Any = ()
    loss: Callable[[Any], Any] | None = None
    modules: Sequence[Any] = ()

    def named_parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        given = self.parameters() if callable(self.parameters) else self.parameters
        pairs = given.items() if isinstance(given, Mapping) else given
        return dict(pair if isinstance(pair, tuple) else (str(k), pair) for k, pair in enumerate(pairs))

    def named_buffers(self) -> dict[str, Any]:
        """Return the modules' buffers by name."""
        return {f"{k}.{name}": b for k, module in enumerate(self.modules) for name, b in module.named_buffers()}


def built(entry: str, folder: str) -> Step:
    """Import MODULE:FUNCTION, from a folder first, and call it. Raises NotAStep, and what the user's code raises."""
    name, _, function = entry.partition(":")
    name = name.removesuffix(".py").replace("/", ".")
    sys.path.insert(0, folder)
    build = getattr(importlib.import_module(name), function or "build", None)
    if not callable(build):
        raise NotAStep(f"{name} has no function {function or 'build'}")
    return taken(build())


def taken(given: Any) -> Step:
    """Return the step that an object describes. Raises NotAStep."""
    named = {name: getattr(given, name, None) for name in Step.__dataclass_fields__}
    missing = [name for name in ("run", "batches") if named[name] is None]
    if missing:
        raise NotAStep(f"what build() gave has no {missing[0]}: it is to have run and batches, and may have more")
    step = Step(**{name: value for name, value in named.items() if value is not None})
    step.batches = list(step.batches)
    if not step.batches:
        raise NotAStep("build() gave no batches")
    return step


def numbers_in(value: Any, name: str) -> Iterable[tuple[str, Any]]:
    """Yield each tensor and number in what a step gave, with where it is.

    >>> list(numbers_in((1.5, {"a": 2, "b": "text"}), "output"))
    [('output.0', 1.5), ('output.1.a', 2)]
    """
    if isinstance(value, Mapping | list | tuple):
        for key, member in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from numbers_in(member, f"{name}.{key}")
    elif hasattr(value, "dtype") or isinstance(value, int | float):
        yield name, value
