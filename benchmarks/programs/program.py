"""What a program of this folder is: a step as somebody wrote it, and other ways to do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    """One program. `make` builds its state on the default device and gives the step and the function that is compiled.

    `by_hand`: what an expert would write instead, by name: the rules whose findings ask for it, and a `make` of the
    same kind. `compiled` wraps the function given to it, so that torch.compile meets what its user would give it.
    """

    name: str
    make: Callable[..., Step]
    by_hand: Mapping[str, tuple[Sequence[str], Callable[..., Step]]] = field(default_factory=dict)
    then_compiled: Sequence[str] = ()  # these by hand, and the rest compiled as well
    training: bool = False
    capturable: bool = False  # one CUDA graph can hold the step
    tolerance: float = 2e-2  # largest difference of an output, of the largest of the original's


def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
