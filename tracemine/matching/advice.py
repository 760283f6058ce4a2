"""Advice that depends on the trace: texts with conditions on facts, the first that fits counts. Data, in rule.toml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from tracemine.ops.infer.library import OPERATIONS
from tracemine.tables import table_beside
from tracemine.timeline import PRODUCERS

Fact = bool | str | None  # None: not known; no condition holds of it
Facts = Mapping[str, Fact]


class FactDoc(Struct, frozen=True):
    """A fact that a condition may ask for: it holds or not, or is a text, one of `values` where these are all."""

    says: str
    text: bool = False
    values: tuple[str, ...] | None = None


_VALUES: Final = {"producer": {"values": tuple(PRODUCERS)}, "call_class": {"values": tuple(OPERATIONS.values())}}
_TABLE = table_beside(__file__, "facts.toml")
FACTS: Final[Mapping[str, FactDoc]] = {
    name: msgspec.convert(doc | _VALUES.get(name, {}), FactDoc) for name, doc in _TABLE["facts"].items()
}
PLACEHOLDER: Final = "{blockers}"
FORWARD: Final = "{forward}"  # in a text that asks that the function is known
GRAPH: Final = "{graph_answer}"  # likewise
# Plain text, by the fact that a text asks for.
INSERTED: Final = {
    "forward_function": FORWARD,
    "graph_answer": GRAPH,
    "function": "{function}",
    "operators": "{operators}",
    "waiting": "{waiting}",  # one of a few texts
}
# Texts that hold of all parts together or not at all: what fits one part would be wrong of another.
_OF_ALL: Final = frozenset({"call_class", "forward_function", "function"})


class Advice(Struct, frozen=True):
    """A text, and what must hold for it: a flag, or one of several texts; of a text `True` asks that it is known."""

    when: Mapping[str, bool | tuple[str, ...]]
    text: str
    call: str | None = None  # None: as its rule says
    title: str | None = None  # likewise
    task: str | None = None  # what to do where that is the title

    def fits(self, facts: Facts) -> bool:
        return all(_holds(facts.get(name), wanted) for name, wanted in self.when.items())


def _holds(fact: Fact, wanted: bool | tuple[str, ...]) -> bool:
    """Return whether a fact is as a condition wants it.

    >>> _holds("AdamW", ("Adam", "AdamW")), _holds("AdamW", True), _holds(None, False), _holds(None, ("Adam",))
    (True, True, True, False)
    """
    return bool(fact) is wanted if isinstance(wanted, bool) else fact in wanted


def fitting(advice: Sequence[Advice], facts: Facts) -> Advice | None:
    """Return the first that fits; None: the rule's own fix does.

    >>> fitting([Advice({"amd": True}, "HIP")], {"amd": None}) is None
    True
    """
    return next((one for one in advice if one.fits(facts)), None)


def advised(advice: Sequence[Advice], otherwise: str, facts: Facts, blockers: str = "") -> str:
    """Return the first text that fits, with the optimizer's class and what would break a CUDA graph's capture in it.

    >>> advised([Advice({"amd": True}, "HIP")], "CUDA {blockers}", {"amd": None}, "(x)")
    'CUDA (x)'
    """
    found = fitting(advice, facts)
    if found is None:
        return otherwise.replace(PLACEHOLDER, blockers)
    text = found.text
    for name, wanted in found.when.items():
        if isinstance(wanted, tuple):  # so it is one of those, and no other text of the trace's
            text = text.replace(f"{{{name}}}", str(facts[name]))
    for name, place in INSERTED.items():
        if found.when.get(name) is True:
            text = text.replace(place, str(facts[name]))
    return text.replace(PLACEHOLDER, blockers)


def merged(facts: Iterable[Facts]) -> dict[str, Fact]:
    """Return the facts of several together: a flag holds where it does of any, a text is the first that is known.

    A text that has to hold of all is not known where they differ.

    >>> merged([{"backward": False, "optimizer": None}, {"backward": True, "optimizer": "SGD"}])
    {'backward': True, 'optimizer': 'SGD'}
    >>> merged([{"call_class": "product"}, {"call_class": "convolution"}])
    {'call_class': None}
    """
    found: dict[str, Fact] = {}
    for each in facts:
        for name, fact in each.items():
            known = found.get(name, fact)
            found[name] = (known if known == fact else None) if name in _OF_ALL else known or fact
    return found


def when_text(when: Mapping[str, bool | tuple[str, ...]]) -> str:
    """Return a condition for people.

    >>> when_text({"engine": ("vllm", "sglang"), "compiled": False})
    'engine is vllm or sglang, not compiled'
    """
    return ", ".join(
        (name if wanted else f"not {name}") if isinstance(wanted, bool) else f"{name} is {' or '.join(wanted)}"
        for name, wanted in when.items()
    )
