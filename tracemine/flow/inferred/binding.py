"""Which tensor each operator takes: the simulation.

An input takes a live tensor of the same shape, dtype and strides. Where several fit, the rules here say which, and
whether that is evidence or a guess: `CONSISTENT` names the rules that leave one candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracemine.flow.inferred.autograd import GradientNode
from tracemine.flow.inferred.calls import NOTHING, Lists
from tracemine.flow.inferred.engine import Engine
from tracemine.flow.inferred.hints import Hints, Origins
from tracemine.flow.inferred.lasting import Lasting
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.optimizers import Update
from tracemine.flow.inferred.pools import NO_CLAIM, Bound, Pool, Pools, Ran, Token, fitting
from tracemine.flow.inferred.wiring import Give, Inside, Keys, Need, Wiring

_MOST_READERS = 16  # of one tensor from outside are remembered
_SOON = 4  # roots
_FURTHEST = 1 << 40  # elements from where a storage begins; only damaged views of views reach there

_NEWEST = "the newest, the only one unread"

# How an input was found, and whether exactly one candidate was left by then.
CONSISTENT = frozenset(
    {
        "parameter",
        "none fits",
        "the only one",
        "the only one unread",
        _NEWEST,
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


class Simulation:
    """Tensors by what they look like, and who reads them."""

    def __init__(self, keys: Keys, lists: Iterable[int], lives: Lives | None, hints: Hints, *, trains: bool) -> None:
        """lists: what members of lists look like, without the dtype, which nobody recorded of them. lives: how long
        tensors live, where that was recorded. hints: what an earlier simulation has learnt. trains: an optimizer runs.
        """
        self._keys = keys
        self._pools = Pools(keys, lists)
        self.bound = Bound()
        self._engine = Engine(keys, self._pools, self.bound, lambda need: self._outside(need, remember=True))
        self._lasting = Lasting(keys, lambda need: self._outside(need, remember=False), self._engine.accumulated)
        self.reasons: list[str] | None = None  # a list: why each was taken is noted there
        self.storages = 0
        self._lives = self._lasting.lives = lives
        self._trains = trains
        self._hints = hints
        self._origins = Origins()
        self._now = 0
        self._root = -1
        self._step = 0
        self._updates: defaultdict[int, set[int]] | None = None  # behind it, by key: the wirings that wrote in place
        self._updating = 0  # and since when
        self._unknown_made = -1  # root that last gave what nobody can name
        self._unknown_unseen = 0  # so many of those gave something that nobody has read yet
        self._unknown_around = -1  # when the last of those began that has operators inside
        self._unknown_wrote = -1  # root that last wrote what nobody can name
        self._written: set[int] = set()  # of what look, without the dtype, tensors from outside were written
        self._vague: set[int] = set()  # shapes of which something was made whose strides are not known
        self._last: dict[str, tuple[Token, int]] = {}  # what each partner took last, and when
        self._surely = False
        self._beside: tuple[int, set[int]] = -1, set()  # the last wiring that is `beside`, and storages that it took

    def step(self) -> None:
        """A step of the program begins."""
        self._step += 1
        self._updates = None
        self._lasting.step()

    def list_dtype(self, wiring: Wiring) -> Lists:
        """The dtype that the members of a list are likely to have."""
        for need in wiring.needs:
            if need.listed:
                pool = self._pools.of(need)
                if pool.unread or pool.read:
                    return Lists(self._keys.dtype_of[(pool.unread or pool.read)[-1].key])
        return NOTHING

    def lists(self, update: Update, wiring: Wiring) -> Lists:
        """What members of lists an operator of an optimizer takes, where the profiler has cut them."""
        found = self._lasting.lists(update, wiring.call)
        return found if found.members else self.list_dtype(wiring)

    def run(self, root: int, wiring: Wiring, *, apart: bool = False, update: Update | None = None) -> Ran:
        """One operator: bind what it takes, enter what it gives.

        apart: autograd itself does it, behind a node, to sum gradients. update: it is part of an optimizer.
        """
        self._now += 1
        self._root = root
        if self._trains:
            self._lasting.begin(wiring)
        taken: list[Token] = []
        sure: list[bool] = []
        for need in wiring.needs:
            token, why = self._bind(need, wiring, taken, apart=apart, update=update)
            token.claim = NO_CLAIM
            if why == _NEWEST and wiring.call.op_class in ("pointwise", "view"):
                token.claim, token.claimed = len(self.bound.sure) + len(sure), self._now
            taken.append(token)
            sure.append(token.sure and why in CONSISTENT)
            if self.reasons is not None:
                self.reasons.append(why)
        ran = self._recorded(root, wiring, taken, sure)
        self._taken(ran)
        self._written_by(ran, update)
        gave = [self._enter(give, ran) for give in wiring.gives]
        if self._lives is not None and ran.new:
            fresh = [give for give in wiring.gives if give.slot < 0]
            specs = [self._keys.spec_of[give.key] for give in fresh]
            self._lives.made(root, [ran.new[give.new] for give in fresh], specs)
        if self._engine.running:
            self._engine.ran(gave, apart=apart)
        if update is not None:
            self._lasting.updated(update, gave)
            self._unknown_wrote = self._now
        return ran

    def _recorded(self, root: int, wiring: Wiring, taken: list[Token], sure: list[bool]) -> Ran:
        """Note what an operator takes, and number what it makes."""
        bound, first = self.bound, len(self.bound.sure)
        new = list(range(self.storages, self.storages + wiring.new))
        bound.root.append(root)
        bound.wiring.append(wiring)
        bound.storages += [token.storage for token in taken]
        bound.offsets += [token.offset for token in taken]
        bound.sure += sure
        if new:
            self._origins.made(root, self.storages, wiring.new)
            self.storages += wiring.new
            bound.storages += new
            bound.offsets += [0] * len(new)
            bound.sure += [True] * len(new)
            if self.reasons is not None:
                self.reasons += ["inside"] * len(new)
        return Ran(root, first, wiring, taken, sure, new)

    def _taken(self, ran: Ran) -> None:
        """What an operator took has been read."""
        wiring, taken = ran.wiring, ran.taken
        for slot, token in enumerate(taken):
            token.step = self._step
            if token.outside:
                if self._trains:
                    self._lasting.took(ran.root, slot, token)
                token.readers = (*token.readers[1 - _MOST_READERS :], wiring.number)
            token.uses += 1
            if token.uses == 1:
                self._pools.sort(token)
        if wiring.partner is not None:
            self._last[wiring.call.name] = taken[0], self._now
        if wiring.beside:
            self._beside = wiring.number, {token.storage for token in taken}
        self._surely = all(ran.sure)

    def _written_by(self, ran: Ran, update: Update | None) -> None:
        """What an operator wrote, or may have written."""
        wiring = ran.wiring
        if wiring.barrier:
            self._unknown_made = self._now
            self._unknown_unseen += 1
        if wiring.wrote_unknown:
            self._unknown_wrote = self._now
        for number in wiring.mutated:
            self._write(ran.taken[number], ran.sure[number] or update is not None)
        if not wiring.call.known:
            for token in ran.taken:  # perhaps it writes them
                token.sure = False

    def unknown(self) -> None:
        """Something with operators inside begins, of which nobody knows what it makes."""
        self._now += 1
        self._unknown_made = self._unknown_around = self._now

    def saved(self, node: int, inside: Inside, ran: Ran) -> None:
        """A forward operator has run, in what ran last, to which a node of autograd belongs."""
        took, made = (
            [None if give is None else self._token(give, ran) for give in side] for side in (inside.took, inside.made)
        )
        self._engine.forward(node, inside, ran, took, made)

    def backward(self, position: int, gradient: GradientNode, record: Wiring | None, roots: Sequence[Wiring]) -> None:
        """A node of autograd begins. record: the operator that is given the gradients; roots: those inside that."""
        self._updates = None
        self._engine.begin(position, gradient, record, roots, self._now)

    def forward(self) -> None:
        """No node of autograd runs any more: what is written in place until the step ends are parameters' updates."""
        self._engine.backward_ends()
        self._updates, self._updating = defaultdict(set), self._now

    # --- binding -----------------------------------------------------------------------------------------------------

    def _bind(
        self, need: Need, wiring: Wiring, taken: list[Token], *, apart: bool, update: Update | None
    ) -> tuple[Token, str]:
        if update is not None:
            return self._lasting.update(update, need, len(taken), wiring)
        if self._hints.reads:
            found = self._told(need, wiring, taken)
            if found is not None:
                return found
        before = self._lasting.before(need, len(taken)) if self._trains else None
        if before is not None:
            return before, "as in the step before"
        if need.position in wiring.parameters:
            return self._parameter(need)
        found = self._engine.take(need, len(taken), wiring, apart=apart) if self._engine.running else None
        if found is not None:
            return found
        token, why = self._any(need, wiring, taken)
        if self._updates is None or need.listed or len(taken) not in wiring.mutated:
            return token, why
        if wiring.number in self._updates[need.key]:
            # The same operator writes in place once more, as optimizers do, a parameter at a time. What was made for
            # the one before, or written, is not looked at again: no tensor is better than a wrong one, which would
            # join them.
            self._updates[need.key].clear()
            self._pools.forget_since(need, self._updating)
            token, why = self._any(need, wiring, taken)
        self._updates[need.key].add(wiring.number)
        return token, why

    def _told(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str] | None:
        """What an earlier simulation has learnt that it takes."""
        slot = len(taken)
        own = self._hinted(need, slot, taken)
        if own is not None:
            return own, "by its gradient"
        if need.left == 1:
            return None
        # What the others are told to take is not for this one.
        later = [self._hinted(other, slot + at, []) for at, other in enumerate(wiring.needs[slot + 1 :], 1)]
        others = [token for token in later if token is not None]
        return self._any(replace(need, left=1), wiring, [*taken, *others]) if others else None

    def _hinted(self, need: Need, slot: int, taken: list[Token]) -> Token | None:
        made = self._hints.reads.get((self._root, slot))
        storage = None if made is None else self._origins.storage(made)
        if storage is None:
            return None
        pool = self._pools.of(need)
        found = [token for side in (pool.unread, pool.read) for token in fitting(pool, side, need, taken)]
        return next((token for token in found if token.storage == storage), None)

    def hints(self) -> Hints:
        """What was known before, and what backward passes have told."""
        return self._origins.hints(self._hints, self._engine.resolved, self._engine.own)

    def _any(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        pool = self._pools.of(need)
        if self._lives is not None:
            self._bury(pool, self._lives)
        unread = fitting(pool, pool.unread, need, taken)
        if not unread or wiring.partner is not None or (len(unread) == 1 and unread[0].beside and wiring.beside):
            read = fitting(pool, pool.read, need, taken)
        else:
            read = pool.read
        if not unread:
            if not read:
                return self._none(need, pool, taken)
            current = [token for token in read if token.step == self._step or token.outside]
            read = current or read
            before, took = self._beside
            again = wiring.call.op_class == "gemm" and wiring.number == before and need.twins == 1 and not taken
            if again and read[-1].storage in took:
                return read[-1], "side by side"
        either = need.twins == 2 and wiring.commutes
        if either and len(unread) == 1:  # it is one of the two, and which makes no difference
            need = replace(need, left=1, twins=1)
        token = unread[-min(need.left, len(unread))] if unread else read[-1]
        if token.born < self._unknown_made:
            if not self._unknown_unseen and token.born > self._unknown_around:
                return token, "before an unknown one"
            # Likelier what an operator without an output rule made: no bridge over it. Each is taken to make one,
            # one with others inside any number.
            self._unknown_unseen = max(self._unknown_unseen - 1, 0)
            made = self._outside(need, remember=True)
            made.sure = False
            return made, "made by an unknown one"
        if token.backward and not self._engine.running:
            return token, "a gradient, perhaps"
        partner = None if wiring.partner is None else self._last.get(wiring.partner)
        if partner is not None and partner[0] in read and self._now - partner[1] <= _SOON:
            return partner[0], "partner"
        if token.beside and wiring.beside and need.twins == 1 and len(unread) < 2:
            given = next((given for given in token.taken if given.key == need.key), None)
            if given is not None and given in read:
                before, took = self._beside
                alike = wiring.number == token.maker or (wiring.number == before and given.storage in took)
                return given, "side by side" if token.taken_surely and alike else "side by side, perhaps"
        if len(unread) < need.left and not self._engine.running:
            self._doubt(read)
        if not unread:
            alone = len(read) == 1 and (need.twins == 1 or either) and (bool(current) or token.outside)
            if not alone and token.outside and len(taken) not in wiring.mutated:  # of several: perhaps each its own
                return self._outside(need, remember=False), "one of those from outside"
            if token.outside and wiring.number in token.readers and len(taken) not in wiring.mutated:
                # The same operator once more takes another one that looks alike, as each layer has its own cache.
                token.storage, self.storages = self.storages, self.storages + 1
                token.readers = ()
            return token, "the only one" if alone else "read before"
        if token.step != self._step and not token.outside and not self._engine.running:
            return token, "unread since another step"
        if len(unread) != need.left:
            return token, "one of several unread"
        if need.twins > 1:
            if wiring.call.op_class == "attention":  # the value is often made before the key is rotated
                return token, "all unread, in some order"
            return token, "all unread" if need.left == need.twins or need.left == 1 else "some unread"
        if not pool.read:
            return token, "the only one unread"
        return token, _NEWEST if token.born >= pool.newest_read else "unread, but not the newest"

    def _bury(self, pool: Pool, lives: Lives) -> None:
        """What was freed before the operator began, it does not take."""
        root = self._root
        pool.unread = [token for token in pool.unread if not lives.ended(token.storage, root)]
        pool.read = [token for token in pool.read if not lives.ended(token.storage, root)]

    def _doubt(self, read: list[Token]) -> None:
        """Something is read once more: perhaps it waited until now, and who took it for the newest had read another."""
        for token in read:
            if token.claim != NO_CLAIM and self._now - token.claimed <= _SOON:
                self.bound.sure[token.claim] = False
                if self.reasons is not None:
                    self.reasons[token.claim] = "the newest, but one like it is read again"

    def _none(self, need: Need, pool: Pool, taken: list[Token]) -> tuple[Token, str]:
        """Nothing that was seen looks like it."""
        twins = [token for token in taken if token.key == need.key]
        if twins:  # the same once more, or one from outside
            return twins[-1], "the same again"
        vague = self._keys.shape_of[need.key] in self._vague
        self._unknown_unseen = max(self._unknown_unseen - 1, 0)
        known = self._unknown_made < 0 and not (vague or need.listed or pool.forgot)
        return self._outside(need, remember=True), "none fits" if known else "none fits that is known"

    def _parameter(self, need: Need) -> tuple[Token, str]:
        inside = [token for token in self._pools.of(need).unread if not token.outside and not token.backward]
        if inside:
            return inside[-1], "parameter made inside"
        token = self._outside(need, remember=False)
        if self._unknown_wrote >= 0 or (need.loose in self._written and self._root not in self._hints.own):
            token.sure = False
            return token, "parameter, perhaps written"
        return token, "parameter"

    def _outside(self, need: Need, *, remember: bool) -> Token:
        token = Token(self.storages, 0, need.key, self._now, True, need.place, True, step=self._step)
        self.storages += 1
        if remember:
            self._pools.remember(token)
        return token

    # --- what happens to tokens --------------------------------------------------------------------------------------

    def _write(self, token: Token, sure: bool) -> None:
        loose = self._keys.loose_of[token.key]
        if token.outside or not sure:
            self._written.add(loose)
        if not sure:  # it may have been another one
            for pool in self._pools.around(token):
                for other in (*pool.unread, *pool.read):
                    other.sure = False
        token.uses = 0
        token.born = self._now
        token.sure = token.sure and sure
        token.lasts |= token.outside
        self._pools.sort(token)

    def _token(self, give: Give, ran: Ran) -> Token:
        """What an operator gives, or has inside."""
        wiring = ran.wiring
        if give.slot >= 0:
            source = ran.taken[give.slot]
            return Token(
                source.storage,
                min(source.offset + give.offset, _FURTHEST),
                give.key,
                self._now,
                source.sure and ran.sure[give.slot] and give.sure,
                source.place,
                source.outside,
                beside=source.beside,
                taken=source.taken,
                taken_surely=source.taken_surely,
                backward=source.backward,
                step=self._step,
            )
        return Token(
            ran.new[give.new],
            give.offset,
            give.key,
            self._now,
            give.sure,
            give.place,
            False,
            beside=wiring.beside,
            taken=tuple(ran.taken) if wiring.beside else (),
            taken_surely=self._surely,
            maker=wiring.number,
            backward=self._engine.running is not None,
            step=self._step,
        )

    def _enter(self, give: Give, ran: Ran) -> Token:
        if give.slot >= 0 and not give.offset and give.key == ran.taken[give.slot].key:
            token = ran.taken[give.slot]
            token.uses = 0
            self._pools.sort(token)
            return token
        token = self._token(give, ran)
        self._pools.remember(token)
        if self._keys.vague[give.key]:
            self._vague.add(self._keys.shape_of[give.key])
        return token


__all__ = ["CONSISTENT", "Simulation"]
