"""Describe what a root operator takes and gives."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msgspec import Struct, field

from tracemine.flow.inferred.calls import CallTensors
from tracemine.ops.infer import TensorSpec


class Need(Struct, frozen=True):
    """A tensor that an operator takes from elsewhere."""

    key: int
    loose: int
    listed: bool  # a member of a list: its dtype was not recorded
    place: int  # ANYWHERE, GPU or HOST
    position: int
    index: int  # in a list, −1: the argument is none
    name: str  # of the argument
    left: int  # so many of the operator's inputs look the same, from this one on
    twins: int  # and altogether


class Give(Struct, frozen=True):
    """A tensor that an operator gives."""

    slot: int  # whose storage it shares, −1: a new one
    new: int  # which of the new ones
    offset: int  # elements behind where the slot's tensor begins
    key: int
    sure: bool
    place: int


class Local(Struct, eq=False):
    """A tensor inside an operator."""

    storage: int  # up to the number of the operator's slots theirs; then new ones
    offset: int
    spec: TensorSpec
    key: Hashable
    sure: bool = True
    read: bool = False
    allocated: bool = False  # and nothing else yet

    def waits(self, given: Sequence[Local], made: Sequence[Local], read: set[int]) -> bool:
        """Return whether it is whole, computed, and has no consumer yet: nothing overwrites that."""
        if self.allocated or id(self) in read or any(self is one for one in given):
            return False
        return sum(one.storage == self.storage for one in made) == 1


class WiringRow(Struct):
    """One tensor that a node takes or gives, or that an allocation gives."""

    op: int  # behind the root, counted through its thread
    is_output: bool
    position: int
    list_index: int
    storage: int
    offset: int
    spec: TensorSpec
    sure: bool


class InnerCall(Struct, frozen=True):
    """One of the operators inside another, or itself. None: unknown."""

    call: CallTensors
    took: list[Give | None]  # by slot
    made: list[Give | None]


class Wiring(Struct):
    """One operator with all that is inside it, seen from outside."""

    call: CallTensors
    rows: list[WiringRow] = field(default_factory=list)
    nodes: list[tuple[int, str]] = field(default_factory=list)  # operators that are nodes, with their schema
    needs: list[Need] = field(default_factory=list)
    gives: list[Give] = field(default_factory=list)
    inside: dict[int, InnerCall] = field(default_factory=dict)  # by how far behind the root
    number: int = 0
    parameters: frozenset[int] = frozenset()  # positions
    partner: str | None = None  # an operator that takes the same tensor as this one does
    commutes: bool = False  # it does not tell two inputs apart that look the same
    beside: bool = False  # its kind is seldom applied to its own result
    mutated: list[int] = field(default_factory=list)  # slots that are written
    copies: bool = False  # it writes all of a tensor that it is given, from another one
    fills: bool = False  # it writes all of what it is given, from no tensor
    place: dict[int, int] = field(default_factory=dict)  # storage → GPU or HOST, where that is known
    new: int = 0  # storages that it makes
    barrier: bool = False  # it may have made or written something unknown
    wrote_unknown: bool = False  # it writes into tensors that were not recorded
    numbers: list[int] = field(default_factory=list)  # looks of what may be Python's numbers, or tensors
    reads_unknown: bool = False  # it reads tensors that were not recorded
    has_list: bool = False  # it takes a list, whose members' dtype was not recorded


def is_like(spec: TensorSpec, wanted: TensorSpec) -> bool:
    """Return whether two look the same but for strides, which one of them lacks."""
    if spec.strides is not None and wanted.strides is not None:
        return False
    return spec.shape == wanted.shape and spec.dtype == wanted.dtype


def doubt(fitting: Sequence[Local], there: Sequence[Local]) -> None:
    """Note that one of those that fit was written, by guess: what lies in which storage is a guess from here on."""
    storages = {local.storage for local in fitting}
    for local in there:
        local.sure &= local.storage not in storages
