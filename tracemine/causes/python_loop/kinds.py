"""What a loop goes over: a table of forms, by what its body calls and how its iterations depend on each other."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from tracemine.tables import table_beside

Over = Literal[
    "experts",  # rows chosen for each, a product, added to a sum
    "boxes",  # overlaps of one box and the others, and what is above a limit
    "segments",  # what equals a number, reduced
    "masks",  # rows that a condition chooses
    "limits",  # what is above a limit, reduced
    "tables",  # rows looked up in one after another
    "parameters",  # the same arithmetic in place, on one tensor after another
    "steps",  # products and gates, from one position of a sequence to the next
    "scan",  # arithmetic alone, from one position of a sequence to the next
    "layers",  # the same layer with weights of its own
    "samples",  # the same on parts of a tensor, or on tensors of one shape
    "lengths",  # the same on as many rows as each has
    "copies",  # parts of a tensor, or tensors, put into one
    "crops",  # parts of a picture, of several sizes, resized
    "ahead",  # what each iteration does before it needs the one before
]

_MOVES: Final = frozenset({"copy", "fill"})


class Body(Struct, frozen=True, kw_only=True):
    """What is known of a loop."""

    operations: frozenset[str]
    classes: frozenset[str]
    in_place: bool
    dependence: str | None
    differs: str | None
    sizes: bool
    assigns: bool = False  # all that is done is `a[…] = b`, on the device, of one `a` that is read as a whole
    gathers: bool = False  # all results are put together by one move


class LoopForm(Struct, frozen=True, kw_only=True):
    """One row of the table: all that is given has to hold."""

    over: Over
    dependence: frozenset[str] = frozenset({"independent", "accumulates"})
    has: tuple[frozenset[str], ...] = ()  # of each set one at least is called
    classes: tuple[frozenset[str], ...] = ()  # likewise of kinds of work
    lacks: frozenset[str] = frozenset()  # none of these is called
    only: frozenset[str] | None = None  # no other kind of work is done
    operations: frozenset[str] | None = None  # nothing else is called
    differs: tuple[str, ...] | None = None
    sizes: bool | None = None  # shapes differ from iteration to iteration
    in_place: bool | None = None

    def fits(self, body: Body) -> bool:
        """Return whether a loop has this form."""
        return (
            body.dependence in self.dependence
            and all(not one.isdisjoint(body.operations) for one in self.has)
            and self.lacks.isdisjoint(body.operations)
            and all(not one.isdisjoint(body.classes) for one in self.classes)
            and (self.only is None or body.classes <= self.only)
            and (self.operations is None or body.operations <= self.operations)
            and (self.differs is None or body.differs in self.differs)
            and (self.sizes is None or body.sizes == self.sizes)
            and (self.in_place is None or body.in_place == self.in_place)
        )


_TABLE = msgspec.convert(table_beside(__file__, "forms.toml"), dict[str, tuple[LoopForm, ...]])
FORMS: Final = _TABLE["forms"]
KINDS: Final = tuple(dict.fromkeys(form.over for form in (*FORMS, *_TABLE["assigned"], *_TABLE["ahead"])))


def over(body: Body, *, ahead: bool = False) -> Over | None:
    """Return what a loop goes over; None: nothing that has a form of its own, or moves whose results stay apart.

    ahead: the body is that part of an iteration which needs nothing of those before.

    >>> step = Body(operations=frozenset({"mul", "add"}), classes=frozenset({"pointwise"}), in_place=False,
    ...     dependence="carried", differs="slices", sizes=False)
    >>> over(step)
    'scan'
    """
    forms = _TABLE["ahead"] if ahead else FORMS
    if not ahead and body.classes <= _MOVES:
        forms = (*(_TABLE["assigned"] if body.assigns else ()), *(_TABLE["gathered"] if body.gathers else ()))
    return next((form.over for form in forms if form.fits(body)), None)
