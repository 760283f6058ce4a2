"""Which of the tensors that look right an input takes, and whether that is evidence or a guess.

`CONSISTENT` names the rules that leave one candidate.
"""

from __future__ import annotations

from msgspec.structs import replace

from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.pools import NO_CLAIM, Bindings, Pool, Pools, Token, fitting
from tracemine.flow.inferred.wiring_record import Need, Wiring

_SOON = 4  # roots
_LATER = 64  # the same, where a product of the same shape ran before: its result may wait for the second one's

# Their result exists together with what they took for long, as a product's or a norm's does not.
_LEAVE = frozenset({"pointwise", "view", "reduction", "copy", "gather", "sort"})

NEWEST = "the newest, the only one unread"
TURN = "the newest, where an equal operator's was a guess"
MADE_FOR_IT = "parameter made right before, the only one unread"

# How an input was found, and whether exactly one candidate was left by then.
CONSISTENT = frozenset(
    {
        "parameter",
        "none fits",
        "the only one",
        "the only one unread",
        NEWEST,
        MADE_FOR_IT,
        "all unread",
        "side by side",
        "partner",
        "gradient",
        "saved",
        "made for the gradient",
        "of the optimizer",
        "as in the step before",
        "by its gradient",
    }
)

# What was taken, or made for it, may be what an operator made whose results are unknown.
UNNAMED = frozenset({"before an unknown one", "made by an unknown one", "none fits that is known", "the same again"})

# A gate and what it gates look the same, and nothing says that what is read with a result was read to make it.
PERHAPS_ANOTHER = "one of those from outside, or the same again"

# What is written in place is seldom what is read with it: a state and its gradient are two.
BESIDE_WRITTEN = "next to what is written in place, which is another"

# Autograd tells them; a hook, or a function that is written by hand, may have taken another one.
TOLD = frozenset({"by its gradient", "made for the gradient"})
REWRITTEN = "parameter, perhaps written"
# A view that was guessed to be of a tensor in host memory may be one of another.
ELSEWHERE = "the only one there, but for a view that was guessed to lie elsewhere"

# Copies that look the same wrote one tensor each, as a broadcast of buffers does: size alone tells no one from another.
ONE_OF_MANY = "one of those that copies wrote, or another"


def _candidates(pool: Pool, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[list[Token], list[Token]]:
    """Return the tensors that fit and were not read, and those that were: all, where they do not decide."""
    unread = [token for token in fitting(pool, pool.unread, need, taken) if not token.one_of_many]
    if not unread or wiring.partner is not None or (len(unread) == 1 and unread[0].beside and wiring.beside):
        return unread, fitting(pool, pool.read, need, taken)
    return unread, pool.read


def _narrowed(need: Need, unread: list[Token], either: bool, overwritten: bool) -> tuple[Need, list[Token]]:
    """Leave out what waits where something is overwritten; of equal inputs in either order one is looked for."""
    if need.left > 1 and overwritten:
        there = [token for token in unread if not token.waits]
        if there and len(there) < len(unread):
            unread, need = there, replace(need, left=1)
    if either and len(unread) == 1:  # it is one of the two, and which makes no difference
        need = replace(need, left=1, twins=1)
    return need, unread


class Choices:
    """The tensors that are there, and what is known of those that were not seen."""

    def __init__(self, keys: Keys, pools: Pools, bound: Bindings, lives: Lives | None, own: frozenset[int]) -> None:
        """own: roots with parameters that no other operator takes."""
        self._keys = keys
        self._pools = pools
        self._bound = bound
        self._lives = lives
        self._own = own
        self.storages = 0  # so many are numbered
        self.now = 0  # roots, counted
        self.root = -1  # position of the one that runs
        self.step = 0
        self.in_backward = False  # a node of autograd runs
        self.again = False  # a backward pass has run in this step
        self.shared: set[int] = set()  # by key, running statistics that several passes of a step write
        self.unknown_made = -1  # root that last gave something unknown
        self.unknown_unseen = 0  # so many of those gave something without a consumer yet
        self.unknown_around = -1  # when the last of those began that has operators inside
        self.unknown_wrote = -1  # root that last wrote something unknown
        self.written: set[int] = set()  # of what look, without the dtype, tensors from outside were written
        self.updated: set[int] = set()  # the same, written behind a backward pass, as parameters by hand are
        self._guessed: set[tuple[int, int]] = set()  # wirings, and slots of them of which it was a guess what they take
        self.vague: set[int] = set()  # shapes of which something was made whose strides are not known
        self.last: dict[str, tuple[Token, int]] = {}  # what each partner took last, and when
        self.beside: tuple[int, set[int]] = -1, set()  # the last wiring that is `beside`, and storages that it took

    def any(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        """What an input takes of all that looks like it, and how that was found. taken: what those before it take."""
        pool = self._pools.of(need)
        many = [token for token in pool.unread if token.one_of_many]
        if many and len(fitting(pool, many, need, taken)) == len(fitting(pool, pool.unread, need, taken)):
            made = self.outside(need, remember=False)
            made.sure = False
            return made, ONE_OF_MANY
        guessed = [token for token in pool.unread if not token.sure]
        elsewhere = len(fitting(pool, guessed, need, [])) < len(guessed)
        token, why = self._of_all(need, wiring, taken)
        if why in CONSISTENT and (many or elsewhere):
            why = ONE_OF_MANY if many else ELSEWHERE
        return token, why

    def _of_all(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        pool = self._pools.of(need)
        unread, read = self._there(pool, need, wiring, taken)
        if not unread and not read:
            return self._none(need, wiring, pool, taken)
        if not unread and self._read_side_by_side(need, wiring, read[-1], taken):
            return read[-1], "side by side"
        either = need.twins == 2 and wiring.commutes
        too_few = len(unread) < need.left
        need, unread = _narrowed(need, unread, either, len(taken) in wiring.call.overwritten)
        token = unread[-min(need.left, len(unread))] if unread else read[-1]
        special = self._made_by_unknown(need, token) or self._expected(need, wiring, token, unread, read)
        if special is not None:
            return special
        if too_few:
            self._doubt(read)
        if unread:
            return token, self._why_unread(need, wiring, token, unread, pool)
        only = len(read) == 1 and (need.twins == 1 or either)
        return self._read_again(need, wiring, token, only, keeps=len(taken) not in wiring.mutated)

    def as_before(self, why: str, wiring: Wiring, slot: int) -> str:
        """Return how an input was found: by guess also where the same input of an equal operator was.

        Each iteration of a loop reads what those before it read, also where one leaves a single candidate.
        """
        if self.in_backward:  # formulas tell
            return why
        if why not in CONSISTENT:
            self._guessed.add((wiring.number, slot))
        return TURN if why == NEWEST and (wiring.number, slot) in self._guessed else why

    def _there(self, pool: Pool, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[list[Token], list[Token]]:
        """Return the candidates not read so far, and those that were; of these first those of this step or outside."""
        if self._lives is not None:
            self._bury(pool, self._lives)
        unread, read = _candidates(pool, need, wiring, taken)
        if not self.in_backward:  # a gradient waits for what is behind all forward passes
            unread = [token for token in unread if not token.backward] or unread
        recent = [] if unread else [token for token in read if token.step == self.step or token.outside]
        return unread, recent or read

    def _read_side_by_side(self, need: Need, wiring: Wiring, token: Token, taken: list[Token]) -> bool:
        """Return whether the same product has just read it, as products of one input with several weights do."""
        before, took = self.beside
        again = wiring.call.op_class == "gemm" and wiring.number == before and need.twins == 1 and not taken
        return again and token.storage in took

    def _made_by_unknown(self, need: Need, token: Token) -> tuple[Token, str] | None:
        """Return what stands in for a candidate that is older than an operator whose results are unknown."""
        if token.born >= self.unknown_made:
            return None
        if not self.unknown_unseen and token.born > self.unknown_around:
            return token, "before an unknown one"
        # Likelier what an operator without an output rule made: no bridge over it. Each is taken to make one,
        # one with others inside any number.
        self.unknown_unseen = max(self.unknown_unseen - 1, 0)
        made = self.outside(need, remember=True)
        made.sure = False
        return made, "made by an unknown one"

    def _expected(
        self, need: Need, wiring: Wiring, token: Token, unread: list[Token], read: list[Token]
    ) -> tuple[Token, str] | None:
        """Return the candidate that the operator's neighbours point to: a gradient, a partner's, one side by side."""
        if token.backward and not self.in_backward:
            return token, "a gradient, perhaps"
        partner = None if wiring.partner is None else self.last.get(wiring.partner)
        if partner is not None and partner[0] in read and self.now - partner[1] <= _SOON:
            return partner[0], "partner"
        if token.beside and wiring.beside and need.twins == 1 and len(unread) < 2:
            return self._input_of(need, wiring, token, read)
        return None

    def _input_of(self, need: Need, wiring: Wiring, token: Token, read: list[Token]) -> tuple[Token, str] | None:
        """Return what the operator that made a candidate took: this one is likely to stand next to it."""
        given = next((given for given in token.taken if given.key == need.key), None)
        if given is None or given not in read:
            return None
        before, took = self.beside
        alike = wiring.number == token.maker or (wiring.number == before and given.storage in took)
        return given, "side by side" if token.taken_surely and alike else "side by side, perhaps"

    def _read_again(self, need: Need, wiring: Wiring, token: Token, only: bool, keeps: bool) -> tuple[Token, str]:
        """Return what an input takes where all candidates were read. only: there is one; keeps: it is not written."""
        if keeps and need.twins > 1 and (token.outside or token.step_by_guess):
            return self.outside(need, remember=False), PERHAPS_ANOTHER
        # Beside what was made, another may be there from outside; but what is still allocated waits to be read.
        only &= token.outside or self._lives is not None
        # What an optimizer has written is not distinguished from what looks like it.
        only &= not (token.outside and self.unknown_wrote >= 0 and need.loose in self.written)
        if not only and token.outside and keeps:  # of several: perhaps each its own
            return self.outside(need, remember=False), "one of those from outside"
        if token.outside and wiring.number in token.readers and keeps:
            # The same operator once more takes another one that looks the same, as each layer has its own cache. Of
            # one that was written meanwhile it is a guess: there may be no other.
            if token.lasts:
                token.sure = only = False
            self._pools.rename(token, self.storages)
            self.storages += 1
            token.readers = ()
        return token, "the only one" if only else "read before"

    def _why_unread(self, need: Need, wiring: Wiring, token: Token, unread: list[Token], pool: Pool) -> str:
        """Say why a candidate that was not read is taken."""
        if token.unread_by_guess:
            return "unread, if a view that was guessed is one of it"
        if token.filled and token.outside:
            return "filled, as gradients are before a backward pass"
        if token.step != self.step and not token.outside and not self.in_backward:
            return "unread since another step"
        if len(unread) != need.left:
            return "one of several unread"
        if need.twins > 1:
            return self._why_of_twins(need, wiring, unread, pool)
        if not pool.read:
            return "the only one unread"
        if token.filled:  # a sum begins so, and waits for what is added; a constant stays
            return "filled, and waits perhaps"
        return NEWEST if token.born >= pool.newest_read else "unread, but not the newest"

    def _why_of_twins(self, need: Need, wiring: Wiring, unread: list[Token], pool: Pool) -> str:
        # The value is often made before the key is rotated; what is written may be a part that looks like it.
        vague = wiring.mutated and self._keys.vague[need.key]
        if wiring.call.op_class == "attention" or vague or not (wiring.commutes or need.index >= 0):
            return "all unread, in some order"
        guessed = any(token.read_by_guess and token.step == self.step for token in pool.read)
        if guessed or any(token.doubted for token in unread):
            return "all unread, unless a guess was wrong"
        return "all unread" if need.left in (1, need.twins) else "some unread"

    def _bury(self, pool: Pool, lives: Lives) -> None:
        """What was freed before the operator began, it does not take."""
        root = self.root
        if any(lives.ended(storage, root) for storage in pool.storages):
            sides = (pool.unread, pool.read)
            pool.keep(*([token for token in side if not lives.ended(token.storage, root)] for side in sides))

    def claimed_until(self, wiring: Wiring) -> int:
        """Return the last root that may doubt that an operator takes what is the newest; −1: none may."""
        if wiring.call.op_class in _LEAVE:
            return self.now + _SOON
        return self.now + _LATER if wiring.call.op_class == "gemm" and wiring.number == self.beside[0] else -1

    def _doubt(self, read: list[Token]) -> None:
        """Something is read once more: perhaps it waited until now, and who took it for the newest had read another."""
        if self.in_backward:
            return
        for token in read:
            if token.claim != NO_CLAIM and self.now <= token.claimed:
                self._bound.sure[token.claim] = False

    def _none(self, need: Need, wiring: Wiring, pool: Pool, taken: list[Token]) -> tuple[Token, str]:
        """Nothing that was seen looks like it."""
        twins = [token for token in taken if token.key == need.key]
        if twins[:1] == taken[:1] and len(twins) == 1 and 0 in wiring.mutated and not need.listed:
            return self.outside(need, remember=False), BESIDE_WRITTEN
        if twins:  # the same once more, or one from outside
            return twins[-1], "the same again"
        vague = self._keys.shape_of[need.key] in self.vague
        self.unknown_unseen = max(self.unknown_unseen - 1, 0)
        alike = vague or need.listed or pool.forgot or self._pools.of_shape(need)
        known = self.unknown_made < 0 and not alike
        return self.outside(need, remember=True), "none fits" if known else "none fits that is known"

    def parameter(self, need: Need, *, written: bool) -> tuple[Token, str]:
        """Return what an input takes that is a parameter by its position; written: the operator writes it, as norms do
        with running statistics."""
        inside = [token for token in self._pools.of(need).unread if not token.outside and not token.backward]
        if inside:
            return inside[-1], MADE_FOR_IT if self._made_for_it(need, inside) else "parameter made inside"
        token = self.outside(need, remember=False)
        if written and self.again:  # as the pass before did
            self.shared.add(need.key)
        doubt = self._another_parameter(need, written=written)
        token.sure = doubt is None
        return token, doubt or "parameter"

    def _another_parameter(self, need: Need, *, written: bool) -> str | None:
        """Return why a parameter from outside may be something that was written or made here; None: it is none."""
        own = self.root in self._own and not (written and need.key in self.shared) and need.loose not in self.updated
        if self.unknown_wrote >= 0 or (need.loose in self.written and not own):
            return REWRITTEN
        made = (token for token in self._pools.of(need).read if not token.outside and not token.backward)
        return "parameter, unless one made inside waits still" if any(token.read_by_guess for token in made) else None

    def _made_for_it(self, need: Need, inside: list[Token]) -> bool:
        """Return whether one alone was made right before, and no input looks like it, which may wait for another."""
        token = inside[-1]
        return len(inside) == 1 and not need.twins and token.step == self.step and self.now - token.born <= _SOON

    def outside(self, need: Need, *, remember: bool) -> Token:
        """Return a tensor from outside that was not seen; remember: others may take it too."""
        token = Token(self.storages, 0, need.key, self.now, True, need.place, True, step=self.step)
        self.storages += 1
        if remember:
            self._pools.remember(token)
        return token
