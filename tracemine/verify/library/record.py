"""What the search for library calls gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracemine.validate.record import Mutant


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A function `library` that says what a graph says, by calls of PyTorch's library and, around them, eager ones.

    It takes the graph's inputs and its scalars, or the numbers in `numbers` instead; it gives the graph's live
    values, None in place of those that are let go of.
    """

    products: bool = False  # whether products are among what it replaces
    call: str  # what is called: F.rms_norm
    says: str  # the call as one writes it: F.rms_norm(x, (4096,), w, eps)
    text: str
    eager_calls: int  # that stay around the library's
    numbers: Mapping[str, float] = field(default_factory=dict)  # that the function takes in place of the scalars
    comes_to: Mapping[str, str] = field(default_factory=dict)  # scalars of the graph, in terms of those numbers
    positive: frozenset[int] = frozenset()  # inputs that hold no negative numbers
    at: Mapping[str, float] = field(default_factory=dict)  # scalars of the graph for which the two say the same
    assumptions: tuple[str, ...] = ()
    # Kinds of values, and layouts: why the two may differ there.
    differs: Mapping[str, str] = field(default_factory=dict)
    gpu_only: str | None = None  # why a CPU can validate nothing of it
    mutants: tuple[tuple[Mutant, str], ...] = ()  # planted mistakes, and the functions that have them


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A replacement, or why there is none: what came near, and what it lacks."""

    replacement: Replacement | None = None
    refused: tuple[str, ...] = ()
