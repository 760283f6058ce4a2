"""By rule how its fix gets into a program: ways.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tracemine.tables import table_beside

MODULE, DIFF, SETTING, WRAPPER, PATCH, ADVICE = "module", "diff", "setting", "wrapper", "patch", "advice"
SAYS: Final[Mapping[str, str]] = {
    MODULE: "a generated module to import and call",
    DIFF: "a change of the source",
    SETTING: "a setting, where the program begins",
    WRAPPER: "torch.compile or a CUDA graph around the function that is named",
    PATCH: "a change of a class or a function while the program runs",
    ADVICE: "advice: there is nothing that could be applied",
}


class FixWay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a rule's fix is applied: the ways, best first, and the edits of a source that are known."""

    ways: tuple[str, ...]
    edits: tuple[str, ...] = ()
    arithmetic: bool = False  # it computes in fewer bits: the results are others


_OTHERS: Final = FixWay(ways=(ADVICE,))  # rules of one's own
WAYS: Final = msgspec.convert(table_beside(__file__, "ways.toml"), dict[str, FixWay])


def way_of(rule: str) -> FixWay:
    """Return how a rule's fix is applied.

    >>> way_of("optimizer_unfused").edits, way_of("mine").ways
    (('fused_optimizer',), ('advice',))
    """
    return WAYS.get(rule, _OTHERS)
