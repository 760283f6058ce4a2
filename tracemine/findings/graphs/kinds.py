"""What can be in the way of one graph, and what each way of launching less does then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tracemine.findings.graphs.record import WAYS, Effect, Outcome, WayName


class Kind(Struct, frozen=True):
    """A kind of obstacle: the words for it, and what each of WAYS does."""

    says: str
    effects: dict[WayName, Effect]


_LETTERS: Final[Mapping[str, Effect]] = {
    "E": "raises",
    "B": "breaks",
    "S": "skips",
    "O": "overwrites",
    "A": "records_again",
    "R": "recompiles",
    "T": "stale",
    "G": "already",
    "?": "not_known",
}


def _kind(says: str, effects: str) -> Kind:
    """Return a kind; effects: a letter a way, in the order of WAYS, `-` where it is not in the way."""
    return Kind(says, {way: _LETTERS[each] for way, each in zip(WAYS, effects, strict=True) if each != "-"})


# Kinds of waits are those of tracemine/host/waits.py. What holds of compiled code holds of torch 2.4 to 2.11.
KINDS: Final[Mapping[str, Kind]] = {
    "number": _kind("`.item()`, `float()` or `int()` of a tensor", "EBBBB"),
    "truth": _kind("`if tensor:` or `while tensor:`", "EBBBB"),
    "mask": _kind("a size that depends on values (`x[mask]`, `nonzero`, `unique`)", "EBBBB"),
    "print": _kind("`print` of a tensor", "EBBBB"),
    "synchronize": _kind("a wait for a stream, an event or the device", "EBBBB"),
    "check": _kind("an operator that checks its result on the host", "E????"),
    "other": _kind("a call that waits for the device", "E????"),
    "to_host": _kind("a copy to pageable memory (`.cpu()`, `.numpy()`)", "E-SSS"),
    "from_list": _kind("a tensor made of Python numbers", "E-SSS"),
    "made": _kind("a tensor made on the host", "E-SSS"),
    "from_host": _kind("a copy from pageable memory", "E-SSS"),
    "pinned_copy": _kind("a copy from pinned memory", "?-SSS"),
    "released": _kind("memory given back to the driver", "EBBBB"),
    "loading": _kind("a DataLoader's next batch", "TBBBB"),
    "cpu_random": _kind("random numbers made on the CPU", "T-SSS"),
    "optimizer": _kind("{what}'s step, unless it was made with `capturable=True`", "E----"),
    "backward": _kind("`backward()` or `autograd.grad()` called inside", "-BBBB"),
    "derived_twice": _kind("derivatives of derivatives (`create_graph=True`)", "-EEEE"),
    "collective": _kind("collectives", "?-???"),
    "custom": _kind("`{what}`, which a compiler may have no rule for", "-????"),
    "operators": _kind("other operators from call to call", "T?AAA"),
    "sizes": _kind("sizes that differ from call to call: {what}", "TRAAA"),
    "few_sizes": _kind("a few sizes, the same in each step: {what}", "ARRRR"),
    "several_calls": _kind(
        "{what} calls a step, of which an earlier one's results are read after a later one began", "--O-O"
    ),
    "perhaps_several": _kind("{what} calls a step, and what reads their results was not recorded", "--?-?"),
    "read_later": _kind("a result that a later step reads", "--OOO"),
    "kept": _kind("a result that a later step reads", "T-OOO"),
    "replayed": _kind("graphs are replayed there already", "GGGGG"),
    "captured": _kind("graphs are being captured: a recording of their replay tells more", "GGGGG"),
}

# The gravest first, and what each makes of a way.
GRAVITY: Final[Mapping[Effect, Outcome]] = {
    "raises": "fails",
    "overwrites": "fails",
    "stale": "fails",
    "breaks": "fails",
    "records_again": "fails",
    "skips": "fails",
    "not_known": "unknown",
    "recompiles": "works",
    "already": "works",
}
