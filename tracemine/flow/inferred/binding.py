"""Which tensor each operator takes: the simulation.

An input takes a live tensor of the same shape, dtype and strides: what an earlier simulation, autograd, an optimizer or
the step before tell, or else what is chosen of those that look right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tracemine.flow.inferred.autograd import GradientNode
from tracemine.flow.inferred.autograd_engine import Engine
from tracemine.flow.inferred.calls import NOTHING, Lists
from tracemine.flow.inferred.choices import CONSISTENT, NEWEST, REWRITTEN, TOLD, UNNAMED, Choices
from tracemine.flow.inferred.hints import Hints, Origins
from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.optimizers import Update
from tracemine.flow.inferred.persistent_state import Lasting
from tracemine.flow.inferred.pools import NO_CLAIM, Bindings, Pools, Ran, Token, fitting
from tracemine.flow.inferred.wiring_record import Give, InnerCall, Need, Wiring

_MOST_READERS = 16  # of one tensor from outside are remembered
_COPIES_WITHIN = 16  # roots: several copies after one another, of what different threads run in between


class Simulation:
    """Tensors by what they look like, and who reads them."""

    def __init__(self, keys: Keys, lists: Iterable[int], lives: Lives | None, hints: Hints, *, trains: bool) -> None:
        """lists: what members of lists look like, without the dtype, which was not recorded. lives: how long
        tensors live, where that was recorded. hints: what an earlier simulation has learnt. trains: an optimizer runs.
        """
        self._keys = keys
        self._lists = tuple(lists)
        self.bound = Bindings()
        self._lives = lives
        self._trains = trains
        self._hints = hints
        self._origins = Origins()
        self._begin()
        self._noted = {  # by how something was found: the places where it was found so
            **dict.fromkeys(UNNAMED, self.bound.unnamed),
            **dict.fromkeys(TOLD, self.bound.told),
            REWRITTEN: self.bound.rewritten,
        }

    def _begin(self) -> None:
        self._pools = Pools(self._keys, self._lists)
        self._choices = choices = Choices(self._keys, self._pools, self.bound, self._lives, self._hints.own)
        self._engine = Engine(self._keys, self._pools, self.bound, lambda need: choices.outside(need, remember=True))
        lasting = Lasting(self._keys, lambda need: choices.outside(need, remember=False), self._engine.accumulated)
        self._lasting = lasting
        self._lasting.lives = self._lives
        self._updates: defaultdict[int, set[int]] | None = None  # behind it, by key: the wirings that wrote in place
        self._updating = 0  # and since when
        self._surely = False
        self._copied: dict[int, tuple[int, Token | None]] = {}  # by wiring of a copy: when, and what it wrote by guess

    def apart(self) -> None:
        """Begin anew: what follows is of another process, or another device's thread, and shares no tensor."""
        before, engine = self._choices, self._engine
        self._begin()
        self._choices.storages, self._choices.now = before.storages, before.now
        self._engine.resolved, self._engine.own = engine.resolved, engine.own

    def step(self) -> None:
        """A step of the program begins."""
        self._choices.step += 1
        self._choices.again = False
        self._updates = None
        self._lasting.step()

    def list_dtype(self, wiring: Wiring) -> Lists:
        """Return the dtype that the members of a list are likely to have."""
        for need in wiring.needs:
            if need.listed:
                pool = self._pools.of(need)
                if pool.unread or pool.read:
                    return Lists(self._keys.dtype_of[(pool.unread or pool.read)[-1].key])
        return NOTHING

    def lists(self, update: Update, wiring: Wiring) -> Lists:
        """Return what members of lists an operator of an optimizer takes, where the profiler has cut them."""
        found = self._lasting.lists(update, wiring.call)
        return found if found.members else self.list_dtype(wiring)

    def run(
        self, root: int, wiring: Wiring, *, apart: bool = False, recorded: bool = False, update: Update | None = None
    ) -> Ran:
        """One operator: bind what it takes, enter what it gives.

        apart: autograd itself does it, behind a node, to sum gradients. recorded: autograd notes it for a backward
        pass. update: it is part of an optimizer.
        """
        self._choices.now += 1
        self._choices.root = root
        bound = self.bound
        if update is not None:
            bound.updates.add(root)
        if self._trains:
            self._lasting.begin(wiring)
        again = self._copies_again(wiring)
        taken, sure = self._takes(wiring, apart=apart, recorded=recorded, update=update)
        for look in wiring.numbers:
            if storages := self._pools.looking(look):
                self.bound.numbers[root] = (*self.bound.numbers.get(root, ()), *storages)
        ran = self._recorded(root, wiring, taken, sure)
        self._taken(ran)
        self._written_by(ran, update)
        if wiring.copies and update is None:
            self._note_copy(ran, again=again)
        gave = [self._enter(give, ran) for give in wiring.gives]
        self._begin_lives(root, wiring, ran)
        if self._engine.running:
            self._engine.ran(gave, apart=apart)
        if update is not None:
            self._lasting.updated(update, gave)
            self._choices.unknown_wrote = self._choices.now
        return ran

    def _takes(
        self, wiring: Wiring, *, apart: bool, recorded: bool, update: Update | None
    ) -> tuple[list[Token], list[bool]]:
        """Return what an operator takes, and whether each is sure."""
        bound = self.bound
        taken: list[Token] = []
        sure: list[bool] = []
        for need in wiring.needs:
            alike = self._pools.storages(need)
            token, why = self._bind(need, wiring, taken, apart=apart, recorded=recorded, update=update)
            place = len(bound.sure) + len(sure)
            if alike and alike != (token.storage,):
                bound.alike[place] = alike
            if why in self._noted:
                self._noted[why].add(place)
            why = self._choices.as_before(why, wiring, len(taken))
            token.claim = NO_CLAIM
            if why == NEWEST and (until := self._choices.claimed_until(wiring)) >= 0:
                token.claim, token.claimed = place, until
            taken.append(token)
            sure.append(token.sure and why in CONSISTENT)
            if not sure[-1]:
                self._doubt(need, token, place)
        return taken, sure

    def _doubt(self, need: Need, token: Token, place: int) -> None:
        """Note that a guess, which took this one, may have read each of the others that look so."""
        pool = self._pools.of(need)
        if pool.forgotten:
            self.bound.older[place] = tuple(pool.forgotten)
        for other in pool.unread:
            other.doubted |= other is not token

    def _begin_lives(self, root: int, wiring: Wiring, ran: Ran) -> None:
        if self._lives is not None and ran.new:
            fresh = [give for give in wiring.gives if give.slot < 0]
            specs = [self._keys.spec_of[give.key] for give in fresh]
            self._lives.made(root, [ran.new[give.new] for give in fresh], specs)

    def _copies_again(self, wiring: Wiring) -> bool:
        """Whether the same copy has just run, into another tensor: which of the two each consumer takes is unknown."""
        if not wiring.copies:
            return False
        when, written = self._copied.get(wiring.number, (-_COPIES_WITHIN, None))
        again = self._choices.now - when < _COPIES_WITHIN
        if again and written is not None:
            written.one_of_many = True
        return again

    def _note_copy(self, ran: Ran, *, again: bool) -> None:
        """Note that a copy ran, and what it wrote by guess; again: the same one has just run."""
        slot = ran.wiring.mutated[0]
        token = ran.taken[slot]
        written = token if token.outside or not ran.sure[slot] else None
        if written is not None:
            written.one_of_many = again
        self._copied[ran.wiring.number] = self._choices.now, written

    def _recorded(self, root: int, wiring: Wiring, taken: list[Token], sure: list[bool]) -> Ran:
        """Note what an operator takes, and number what it makes."""
        bound, first = self.bound, len(self.bound.sure)
        new = list(range(self._choices.storages, self._choices.storages + wiring.new))
        bound.root.append(root)
        bound.wiring.append(wiring)
        bound.storages += [token.storage for token in taken]
        bound.offsets += [token.offset for token in taken]
        bound.sure += sure
        if new:
            self._origins.made(root, self._choices.storages, wiring.new)
            self._choices.storages += wiring.new
            bound.storages += new
            bound.offsets += [0] * len(new)
            bound.sure += [True] * len(new)
        return Ran(root, first, wiring, taken, sure, new)

    def _taken(self, ran: Ran) -> None:
        """What an operator took has been read."""
        wiring, taken = ran.wiring, ran.taken
        for slot, token in enumerate(taken):
            token.step_by_guess = not ran.sure[slot] and (token.step_by_guess or token.step != self._choices.step)
            token.step = self._choices.step
            if token.outside:
                if self._trains:
                    self._lasting.took(ran.root, slot, token, ran.sure[slot])
                token.readers = (*token.readers[1 - _MOST_READERS :], wiring.number)
            token.uses += 1
            token.read_by_guess = not ran.sure[slot] and (token.uses == 1 or token.read_by_guess)
            if token.uses == 1:
                token.unread_by_guess = False
                self._pools.sort(token)
        if wiring.partner is not None:
            self._choices.last[wiring.call.name] = taken[0], self._choices.now
        if wiring.beside:
            self._choices.beside = wiring.number, {token.storage for token in taken}
        self._surely = all(ran.sure)

    def _written_by(self, ran: Ran, update: Update | None) -> None:
        """What an operator wrote, or may have written."""
        wiring = ran.wiring
        if wiring.barrier:
            self._choices.unknown_made = self._choices.now
            self._choices.unknown_unseen += 1
        if wiring.wrote_unknown:
            self._choices.unknown_wrote = self._choices.now
        for number in wiring.mutated:
            self._write(ran.taken[number], ran.sure[number] or update is not None)
            by_hand = update is None and wiring.needs[number].position not in wiring.parameters
            if by_hand and self._updates is not None:
                self._choices.updated.add(self._keys.loose_of[ran.taken[number].key])
            ran.taken[number].filled = wiring.fills
        if update is None and (wiring.nodes or wiring.barrier):
            self._perhaps_lasting_written(ran)
        if not wiring.call.known:
            for token in ran.taken:  # perhaps it writes them
                token.sure = False

    def _perhaps_lasting_written(self, ran: Ran) -> None:
        """Note that parameters or gradients may have been written, by what is part of no optimizer."""
        wiring = ran.wiring
        unsure = wiring.barrier or wiring.wrote_unknown or not all(ran.sure[number] for number in wiring.mutated)
        reduces = wiring.call.op_class == "collective"
        self._lasting.overwritten |= wiring.wrote_unknown
        self._lasting.perhaps_written |= reduces or (unsure and not self._choices.in_backward)

    def unknown(self) -> None:
        """Note that something with operators inside begins whose results are unknown."""
        self._choices.now += 1
        self._choices.unknown_made = self._choices.unknown_around = self._choices.now

    def saved(self, node: int, inside: InnerCall, ran: Ran) -> None:
        """A forward operator has run, in what ran last, to which a node of autograd belongs."""
        took, made = (
            [None if give is None else self._token(give, ran) for give in side] for side in (inside.took, inside.made)
        )
        self._engine.forward(node, inside, ran, took, made)

    def backward(self, position: int, gradient: GradientNode, record: Wiring | None, roots: Sequence[Wiring]) -> None:
        """A node of autograd begins. record: the operator that is given the gradients; roots: those inside that."""
        self._updates = None
        self._lasting.perhaps_written &= self._choices.in_backward
        self._choices.in_backward = True
        self._engine.begin(position, gradient, record, roots, self._choices.now)

    def forward(self) -> None:
        """No node of autograd runs any more: what is written in place until the step ends are parameters' updates."""
        self._engine.backward_ends()
        self._choices.in_backward, self._choices.again = False, True
        self._updates, self._updating = defaultdict(set), self._choices.now

    # --- binding -----------------------------------------------------------------------------------------------------

    def _bind(
        self, need: Need, wiring: Wiring, taken: list[Token], *, apart: bool, recorded: bool, update: Update | None
    ) -> tuple[Token, str]:
        # A fused step also takes single tensors (a gradient scaler's): those are bound as any operator's are.
        if update is not None and (not update.lists or need.position in wiring.call.lists):
            return self._lasting.update(update, need, len(taken), wiring)
        bound = self._told(need, wiring, taken) if self._hints.reads else None
        if bound is None:
            bound = self._lasts(need, len(taken), wiring)
        if bound is None and self._engine.running:
            bound = self._engine.take(need, len(taken), wiring, apart=apart, recorded=recorded)
            if bound is None and apart:  # a sum that the engine does not explain
                bound = self._choices.any(need, wiring, taken)[0], "a gradient, perhaps"
        return bound if bound is not None else self._chosen(need, wiring, taken)

    def _lasts(self, need: Need, slot: int, wiring: Wiring) -> tuple[Token, str] | None:
        """Return what it takes that outlives a step: as in the step before, or a parameter by its position."""
        written = slot in wiring.mutated
        before = self._lasting.before(need, slot) if self._trains else None
        if before is not None and not (written and need.key in self._choices.shared):
            return before, "as in the step before"
        return self._choices.parameter(need, written=written) if need.position in wiring.parameters else None

    def _chosen(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        """Return what it takes of all that look right."""
        token, why = self._choices.any(need, wiring, taken)
        if self._updates is None or need.listed or len(taken) not in wiring.mutated:
            return token, why
        if wiring.number in self._updates[need.key]:
            # The same operator writes in place once more, as optimizers do, a parameter at a time. What was made for
            # the one before, or written, is not looked at again: no tensor is better than a wrong one, which would
            # join them.
            self._updates[need.key].clear()
            self._pools.forget_since(need, self._updating)
            token, why = self._choices.any(need, wiring, taken)
        self._updates[need.key].add(wiring.number)
        return token, why

    def _told(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str] | None:
        """Return what an earlier simulation has learnt that it takes."""
        slot = len(taken)
        own = self._hinted(need, slot, taken)
        if own is not None:
            return own, "by its gradient"
        if need.left == 1:
            return None
        # What the others have to take is not for this one.
        later = [self._hinted(other, slot + at, []) for at, other in enumerate(wiring.needs[slot + 1 :], 1)]
        others = [token for token in later if token is not None]
        return self._choices.any(replace(need, left=1), wiring, [*taken, *others]) if others else None

    def _hinted(self, need: Need, slot: int, taken: list[Token]) -> Token | None:
        made = self._hints.reads.get((self._choices.root, slot))
        storage = None if made is None else self._origins.storage(made)
        if storage is None:
            return None
        pool = self._pools.of(need)
        found = [token for side in (pool.unread, pool.read) for token in fitting(pool, side, need, taken)]
        return next((token for token in found if token.storage == storage), None)

    def hints(self) -> Hints:
        """Return what was known before, and what backward passes have shown."""
        return self._origins.hints(self._hints, self._engine.resolved, self._engine.own)

    # --- what happens to tokens --------------------------------------------------------------------------------------

    def _write(self, token: Token, sure: bool) -> None:
        loose = self._keys.loose_of[token.key]
        if token.outside or not sure:
            self._choices.written.add(loose)
        if not sure:  # it may have been another one
            for pool in self._pools.around(token):
                for other in (*pool.unread, *pool.read):
                    other.sure = False
        token.uses = 0
        token.doubted = token.read_by_guess = False
        token.born = self._choices.now
        token.sure = token.sure and sure
        token.lasts |= token.outside
        self._pools.sort(token)

    def _token(self, give: Give, ran: Ran) -> Token:
        """Return what an operator gives, or has inside."""
        wiring = ran.wiring
        if give.slot >= 0:
            now, step = self._choices.now, self._choices.step
            return ran.taken[give.slot].view(give, now=now, step=step, sure=ran.sure[give.slot])
        return Token(
            ran.new[give.new],
            give.offset,
            give.key,
            self._choices.now,
            give.sure,
            give.place,
            False,
            beside=wiring.beside,
            taken=tuple(ran.taken) if wiring.beside else (),
            taken_surely=self._surely,
            maker=wiring.number,
            backward=self._engine.running is not None,
            step=self._choices.step,
            computed=wiring.call.op_class != "allocate",
            filled=wiring.call.op_class == "fill",
        )

    def _enter(self, give: Give, ran: Ran) -> Token:
        if give.slot >= 0 and not give.offset and give.key == ran.taken[give.slot].key:
            token = ran.taken[give.slot]
            token.uses = 0
            token.unread_by_guess = not ran.sure[give.slot]
            self._pools.sort(token)
            return token
        token = self._token(give, ran)
        self._pools.remember(token)
        if self._keys.vague[give.key]:
            self._choices.vague.add(self._keys.shape_of[give.key])
        return token


__all__ = ["CONSISTENT", "Simulation"]
