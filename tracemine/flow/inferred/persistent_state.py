"""What outlives a step: parameters, running statistics, and the states of optimizers."""

from __future__ import annotations

from collections.abc import Callable

from tracemine.flow.inferred.calls import NOTHING, CallTensors, Lists
from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.nodes import Leaf
from tracemine.flow.inferred.optimizers import COUNT, GRADIENT, PARAMETER, UNUSED, Update
from tracemine.flow.inferred.pools import Token
from tracemine.flow.inferred.wiring_record import Need, Wiring
from tracemine.ops.infer import TensorSpec

_STATE, _PERHAPS = "of the optimizer", "of the optimizer, perhaps"


class Lasting:
    """Tensors from outside by who reads them in a step, and what optimizers keep.

    A step that calls what the one before it called, in the same order, reads the same parameters; that is looked at
    once an optimizer has run.
    """

    def __init__(self, keys: Keys, outside: Callable[[Need], Token], gradients: list[Leaf]) -> None:
        self.keys, self.outside = keys, outside
        self.gradients = gradients  # of the last backward pass, in the order in which they were accumulated
        self._trains = False
        self._equal = False  # to the step before, so far
        self._ran: list[int] = []  # numbers of the wirings of this step
        self._ran_before: list[int] = []
        self._read: dict[tuple[int, int], Token] = {}  # by how far into the step, and which input
        self._read_before: dict[tuple[int, int], Token] = {}
        self._by_root: dict[tuple[int, int], tuple[Token, bool]] = {}  # of this step, by root and input
        self._kept: dict[tuple[tuple[int, int], str, int], Token] = {}  # by sequence, letter, and place in a list
        self._turn = -1
        self.lives: Lives | None = None
        self.overwritten = False  # parameters, perhaps, since an optimizer wrote them: a list that the profiler has cut
        self.perhaps_written = False  # the gradients, since they were accumulated: clipped, unscaled, reduced
        self._ordered = False  # in which order the optimizer goes through its parameters is known
        self._order: list[int] = []  # and then their storages
        self._cut = False  # lists of this step were: the order of their members is unknown
        self._left: list[Leaf] = []  # that no parameter of this step has been found for
        self._of: dict[tuple[tuple[int, int], int], Leaf] = {}  # by sequence and place in a list

    def step(self) -> None:
        """A step of the program begins."""
        self._equal = self._trains and bool(self._ran)
        self._ran_before, self._ran = self._ran, []
        self._read_before, self._read = self._read, {}
        self._by_root.clear()

    def begin(self, wiring: Wiring) -> None:
        """The next operator begins."""
        at = len(self._ran)
        self._ran.append(wiring.number)
        self._equal &= at < len(self._ran_before) and self._ran_before[at] == wiring.number

    def before(self, need: Need, slot: int) -> Token | None:
        """Return what the same operator took from outside in the step before."""
        if not self._equal or self.overwritten:
            return None
        token = self._read_before.get((len(self._ran) - 1, slot))
        return token if token is not None and token.lasts and token.key == need.key else None

    def took(self, root: int, slot: int, token: Token, sure: bool) -> None:
        """An operator takes something from outside, or may do so."""
        self._read[len(self._ran) - 1, slot] = token
        self._by_root[root, slot] = token, sure

    # --- optimizers --------------------------------------------------------------------------------------------------

    def lists(self, update: Update, call: CallTensors) -> Lists:
        """Return what the members of lists are that the profiler has cut: one for each gradient of the last pass."""
        self._begin(update)
        if not (update.lists and update.alone and self.gradients):
            return NOTHING
        specs = [self.keys.spec_of[look] for look in self._looks(update)]
        counts = tuple(TensorSpec((), specs[0].dtype, ()) for _ in specs)
        used = [(at, source) for at, source in zip(call.lists, update.sources, strict=True) if source != UNUSED]
        self._cut |= not {at for at, _ in used} <= {slot.position for slot in call.slots}
        members = tuple((at, counts if source == COUNT else tuple(specs)) for at, source in used)
        return Lists(specs[0].dtype, members)

    def _looks(self, update: Update) -> list[int]:
        """Return what an optimizer's parameters look like, in the order of the step before, or of their gradients."""
        kept = [self._kept.get((update.instance, PARAMETER, at)) for at in range(len(self.gradients))]
        before = [token.key for token in kept if token is not None]
        return before if len(before) == len(kept) else [self._look(leaf) for leaf in self._in_order()[0]]

    def update(self, update: Update, need: Need, slot: int, wiring: Wiring) -> tuple[Token, str]:
        """Return what an operator of an optimizer takes."""
        self._begin(update)
        at = wiring.call.lists.index(need.position) if update.lists else slot
        index = max(need.index, 0)
        source = update.sources[at]
        if source == GRADIENT:
            return self._gradient(update, need, index)
        token = self._kept.get((update.instance, source, index))
        if token is None or not self._alike(token, need):
            lost = token is not None  # what was there in the step before is another one
            token = self._parameter(update, need, index) if source == PARAMETER else self.outside(need)
            token.sure &= not lost and (update.whole or source == PARAMETER)
            self._kept[update.instance, source, index] = token
        return token, _STATE if token.sure and update.whole else _PERHAPS

    def updated(self, update: Update, gave: list[Token]) -> None:
        """An operator of an optimizer has run."""
        for index, token in enumerate(gave if update.gives else ()):
            self._kept[update.instance, update.gives, index] = token

    def _begin(self, update: Update) -> None:
        if update.turn != self._turn:
            self._turn, self._trains, self._cut, self.overwritten = update.turn, True, False, False
            self._of.clear()
            for leaf in self.gradients:
                leaf.parameter, leaf.guessed = None, False
                if leaf.read in self._by_root:
                    leaf.parameter, sure = self._by_root[leaf.read]
                    leaf.guessed = not sure
            self._left, self._ordered = self._in_order()

    def _in_order(self) -> tuple[list[Leaf], bool]:
        """The leaves as the optimizer goes through them, and whether that is known: by the order in which it lets go
        of their gradients, or as in the step before. Else as they are used, which is likely."""
        leaves = self._by_freeing() or self._as_before()
        if leaves is None:
            return self.gradients[::-1], False
        self._order = [-1 if leaf.parameter is None else leaf.parameter.storage for leaf in leaves]
        return leaves, True

    def _by_freeing(self) -> list[Leaf] | None:
        """Return the leaves in the order in which their gradients were freed; None where that is not recorded."""
        if self.lives is None:
            return None
        freed = {self.lives.cleared(leaf.gradient.storage): leaf for leaf in self.gradients}
        if None in freed or len(freed) < len(self.gradients):
            return None
        return [freed[when] for when in sorted(each for each in freed if each is not None)]

    def _as_before(self) -> list[Leaf] | None:
        """Return the leaves in the order of the step before; None where these are others."""
        of_storage = {leaf.parameter.storage: leaf for leaf in self.gradients if leaf.parameter is not None}
        fits = len(of_storage) == len(self.gradients) == len(self._order) and of_storage.keys() == {*self._order}
        return [of_storage[storage] for storage in self._order] if fits and self._order else None

    def _look(self, leaf: Leaf) -> int:
        return leaf.gradient.key if leaf.parameter is None else leaf.parameter.key

    def _alike(self, token: Token, need: Need) -> bool:
        return self.keys.loose_of[token.key] == need.loose if need.listed else token.key == need.key

    def _leaf(self, update: Update, need: Need, index: int, parameter: Token | None) -> Leaf | None:
        """Return the gradient that belongs to a parameter of an optimizer, by its storage or by what it looks like."""
        found = self._of.get((update.instance, index))
        if found is not None:
            return found
        fits = [leaf for leaf in self._left if self._alike_leaf(leaf, need)]
        own = [leaf for leaf in fits if leaf.parameter and parameter and leaf.parameter.storage == parameter.storage]
        if not fits:
            return None
        found = (own or fits)[0]
        known = self._ordered and (update.alone or not update.lists)
        found.alone = known or (not self._cut and sum(self._alike_leaf(leaf, need) for leaf in self.gradients) == 1)
        self._left.remove(found)
        self._of[update.instance, index] = found
        return found

    def _alike_leaf(self, leaf: Leaf, need: Need) -> bool:
        loose_of = self.keys.loose_of
        look = self._look(leaf)
        return loose_of[look] == need.loose if need.listed else look == need.key

    def _parameter(self, update: Update, need: Need, index: int) -> Token:
        leaf = self._leaf(update, need, index, None)
        token = self.outside(need)
        if leaf is not None and leaf.parameter is not None:
            # Which one of those that look the same does not matter where one operator writes them all.
            leaf.parameter.sure &= leaf.alone or update.lists
            leaf.parameter.lasts = True
            token.storage, token.offset, token.key = leaf.parameter.value
            token.sure = not leaf.guessed
        return token

    def _gradient(self, update: Update, need: Need, index: int) -> tuple[Token, str]:
        leaf = self._leaf(update, need, index, self._kept.get((update.instance, PARAMETER, index)))
        if leaf is None:
            return self.outside(need), "no gradient known"
        sure = leaf.sure and leaf.alone and not self.perhaps_written
        return leaf.gradient, "gradient" if sure else "one of several gradients"
