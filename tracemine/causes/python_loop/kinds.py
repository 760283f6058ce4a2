"""What a loop goes over: a table of forms, by what its body calls and how its iterations depend on each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct

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
]

_IN_STEPS: Final = frozenset({"embedding", "gather", "norm", "random", "reduction", "loss", "softmax"})
_ATTENTION: Final = frozenset({"bmm", "baddbmm", "_softmax"})
_EQUAL: Final = frozenset({"eq", "ne"})
_ABOVE: Final = frozenset({"gt", "ge", "lt", "le"})
_LOGICAL: Final = frozenset({"bitwise_and", "bitwise_or", "logical_and", "logical_or", "__and__", "__or__"})
_BY_MASK: Final = frozenset({"mul", "where", "masked_fill", "addcmul", "index", "index_put", "index_add"})
_MULTIPLIES: Final = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmv", "convolution", "cudnn_convolution"})
_CHOSEN: Final = frozenset({"nonzero", "masked_select"})
_GATES: Final = frozenset({"sigmoid", "tanh", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"})
_ARITHMETIC: Final = frozenset({"add", "sub", "mul", "div", "addcmul", "lerp", "maximum", "minimum"})
# What joins a state with a step, whichever are joined first: the most likely way, or all ways, through a chain.
_JOINS: Final = frozenset({"logsumexp", "amax", "max", "amin", "min"})
_SEMIRING: Final = _JOINS | {"add", "sub", "abs", "eq", "masked_fill", "sum", "exp", "log"}
_LENGTHS: Final = frozenset({"linalg_vector_norm", "norm"})
_PADS: Final = frozenset({"fill", "constant_pad_nd"})
_PRODUCTS: Final = frozenset({"gemm", "conv"})
_CELLS: Final = frozenset({"gemm", "rnn"})
_POINTWISE: Final = frozenset({"pointwise", "copy", "fill", "foreach"})
_MOVES: Final = frozenset({"copy", "fill"})
_ROWWISE: Final = frozenset({*_POINTWISE, "gemm", "norm", "softmax"})
_MASKED: Final = frozenset({"reduction", "gather", "embedding"})  # which a mask or a padded index does as well
_APART: Final = frozenset({"independent", "accumulates"})
_REDUCES: Final = frozenset({"reduction", "scatter", "gather", "norm"})


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
    dependence: Collection[str] = _APART
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


_ANY = ("independent", "accumulates", "carried")
_CARRIED = ("carried",)
# The first that fits counts.
FORMS: Final = (
    LoopForm(over="experts", classes=(frozenset({"gemm"}), frozenset({"scatter"}), frozenset({"gather"}))),
    LoopForm(over="experts", classes=(frozenset({"gemm"}),), has=(_EQUAL, _BY_MASK)),
    LoopForm(over="boxes", dependence=_ANY, has=(frozenset({"maximum"}), frozenset({"minimum"}), _ABOVE)),
    LoopForm(
        over="boxes", dependence=_CARRIED, has=(_ABOVE, _LOGICAL), only=_POINTWISE | {"gather"}, differs=("slices",)
    ),
    LoopForm(over="segments", has=(_EQUAL,), classes=(_REDUCES,), lacks=_MULTIPLIES),
    LoopForm(over="masks", has=(_CHOSEN,)),
    LoopForm(over="limits", has=(_ABOVE,), classes=(_REDUCES - {"gather"},), sizes=False),
    LoopForm(over="tables", only=_MOVES | {"embedding", "gather"}, differs=("weights",)),
    LoopForm(over="tables", only=_POINTWISE | {"embedding"}, classes=(frozenset({"embedding"}),), differs=("weights",)),
    LoopForm(
        over="parameters",
        only=_POINTWISE | {"reduction", "norm"},
        classes=(frozenset({"pointwise", "reduction", "norm"}),),
        differs=("tensors",),
        in_place=True,
    ),
    LoopForm(over="parameters", only=_POINTWISE, classes=(frozenset({"pointwise"}),), differs=("tensors",), sizes=True),
    LoopForm(over="parameters", only=_POINTWISE | {"reduction"}, has=(_LENGTHS,), differs=("tensors",), sizes=True),
    LoopForm(
        over="steps", dependence=_CARRIED, has=(_GATES,), lacks=_ATTENTION, only=_POINTWISE | _CELLS | _IN_STEPS,
        classes=(_CELLS,), differs=("slices", "tensors"), sizes=False,
    ),
    LoopForm(over="scan", dependence=_CARRIED, only=_POINTWISE, has=(_ARITHMETIC,), differs=("slices",), sizes=False),
    LoopForm(over="scan", dependence=_CARRIED, operations=_SEMIRING, has=(_JOINS,), differs=("slices",), sizes=False),
    LoopForm(over="layers", classes=(_PRODUCTS,), differs=("weights",), sizes=False),
    LoopForm(over="samples", differs=("slices", "tensors", "numbers"), sizes=False),
    LoopForm(over="lengths", classes=(frozenset({"gemm", "attention"}),), only=_ROWWISE | {"attention"},
             differs=("slices", "tensors"), sizes=True),
    LoopForm(over="crops", only=_POINTWISE | {"resample"}, classes=(frozenset({"resample"}),), differs=("slices",),
             sizes=True),
    LoopForm(over="lengths", only=_ROWWISE | _MASKED, differs=("slices", "numbers"), sizes=True),
)  # fmt: skip
# Of moves alone: parts that are put into a tensor, numbers that are, and parts of one that are put together.
_APART_ALONE: Final = ("independent",)
_ASSIGNED: Final = (
    LoopForm(over="copies", dependence=_APART_ALONE, only=_MOVES, differs=("slices", "tensors", "numbers")),
    LoopForm(over="copies", dependence=_APART_ALONE, only=frozenset({"fill"})),
)
_GATHERED: Final = (
    LoopForm(over="copies", dependence=_APART_ALONE, only=frozenset({"copy"}), differs=("slices",)),
    LoopForm(over="copies", dependence=_APART_ALONE, only=_MOVES, has=(_PADS,), differs=("slices", "tensors")),
)
KINDS: Final = tuple(dict.fromkeys(form.over for form in (*FORMS, *_ASSIGNED)))


def over(body: Body) -> Over | None:
    """Return what a loop goes over; None: nothing that has a form of its own, or moves whose results stay apart.

    >>> step = Body(operations=frozenset({"mul", "add"}), classes=frozenset({"pointwise"}), in_place=False,
    ...     dependence="carried", differs="slices", sizes=False)
    >>> over(step)
    'scan'
    """
    forms = FORMS
    if body.classes <= _MOVES:
        forms = (*(_ASSIGNED if body.assigns else ()), *(_GATHERED if body.gathers else ()))
    return next((form.over for form in forms if form.fits(body)), None)
