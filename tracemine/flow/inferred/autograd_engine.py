"""Autograd's engine, simulated: which gradient each node of a backward pass takes, and what else its operators do.

A node gives a gradient for each tensor that its forward operator took, and it goes to the node whose forward operator
made that tensor. Where a second one arrives they are summed at once, by an operator that is recorded: so a sum, or that
there is none, tells where a gradient went of which the forward pass alone did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracemine.flow.inferred.autograd import GradientNode
from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.nodes import Forward, ForwardInput, Found, Gradient, Leaf, Maker, Running
from tracemine.flow.inferred.pools import Bindings, Pools, Ran, Token, Value, fitting
from tracemine.flow.inferred.rules import rules
from tracemine.flow.inferred.wiring_record import InnerCall, Need, Wiring

_MOST_IN_FLIGHT = 512  # gradients of which it is not known where they went


class Engine:
    """Receives forward operators, nodes and what runs in them, in the order in which they ran."""

    def __init__(self, keys: Keys, pools: Pools, bound: Bindings, outside: Callable[[Need], Token]) -> None:
        self.keys, self.pools = keys, pools
        self.bound = bound  # where reads that were sure may have become doubtful
        self.outside = outside  # one that was not seen
        self.running: Running | None = None
        self.accumulated: list[Leaf] = []  # in the last backward pass
        self._before: list[Leaf] = []  # the same of the one before
        self.own = set[int]()  # roots with parameters that no other operator takes
        self.resolved: list[tuple[tuple[int, int], int]] = []  # a read, and the storage that it is of
        self._forwards: dict[int, Forward] = {}
        self._makers: dict[Value, Maker] = {}
        self._buffers: dict[Maker, Gradient] = {}
        self._in_flight: list[Gradient] = []
        self._leaves: list[Gradient] = []
        self._kept = set[int]()  # storages given where gradients are accumulated: none goes on to a node
        self._turn = 0
        self._passes = False  # a backward pass is under way

    def forward(
        self, node: int, inside: InnerCall, ran: Ran, took: list[Token | None], made: list[Token | None]
    ) -> None:
        """A forward operator has run to which a node belongs."""
        inputs = [
            ForwardInput(
                inside.call.argument(number),
                token,
                self._makers.get(token.value),
                (ran.root, give.slot),
                ran.first + give.slot if give.slot >= 0 else -1,
                inside.call.name in rules().commutes,
            )
            for number, (give, token) in enumerate(zip(inside.took, took, strict=True))
            if token is not None and give is not None
        ]
        self._forwards[node] = Forward(inputs, made)
        for number, token in enumerate(made):
            if token is not None:
                self._makers[token.value] = node, number

    def begin(
        self, node: int, gradient: GradientNode, record: Wiring | None, roots: Sequence[Wiring], now: int
    ) -> None:
        """A node begins. record: the operator that is given the gradients; roots: those inside that."""
        self.end()
        if not self._passes:
            self._before = self.accumulated.copy()
            self.accumulated.clear()
        self._passes = True
        self._turn += 1
        forward = self._forwards.pop(node, None)
        if forward is not None:
            self._recheck(forward)
        grads: list[Token] = []
        sure = True
        for need in record.needs if record is not None else ():
            token, why = self._arrived(node, need, gradient, forward, grads, now)
            sure &= why == "gradient" and token.sure
            token.uses += 1
            self.pools.sort(token)
            grads.append(token)
        saved: list[Token] = []
        if forward is not None and gradient.keeps:
            saved = [took.token for took in forward.took]
            saved += [made for made in forward.made if made is not None] if gradient.keeps_results else []
        self.running = Running(self.keys, self._turn, gradient.kind, gradient.accumulates, forward, grads, sure, saved)
        self.running.choose(roots)

    def _recheck(self, forward: Forward) -> None:
        """What was sure when it was read may have become doubtful since, and so may views of it."""
        doubtful = set()
        for took in forward.took:
            if took.place >= 0 and not self.bound.sure[took.place]:
                took.token.sure = False
                doubtful.add(took.token.storage)
        for made in forward.made:
            if made is not None and made.storage in doubtful:
                made.sure = False

    def end(self) -> None:
        """The node that ran has ended: what it gave goes where it belongs."""
        running, self.running = self.running, None
        if running is None:
            return
        if running.accumulates and running.made and self.accumulated:  # a copy, or the sum with what was there
            leaf, kept = self.accumulated[-1], running.made[-1]
            leaf.gradient, leaf.sure = kept, leaf.sure and kept.sure and running.sure
        for given in running.gives():
            given.unexplained = running.unexplained
            given.sure &= not running.unexplained
            if not given.gone:
                self._deliver(given)

    def backward_ends(self) -> None:
        """No node runs any more."""
        self.end()
        self._passes = False
        self._buffers.clear()
        self._in_flight.clear()
        self._leaves.clear()
        self._kept.clear()

    # --- what a node is given ----------------------------------------------------------------------------------------

    def _arrived(
        self, node: int, need: Need, gradient: GradientNode, forward: Forward | None, grads: list[Token], now: int
    ) -> Found:
        """Return the gradient that a node takes."""
        found = self._of_leaf(need) if gradient.accumulates else None
        if found is not None:
            return found
        arrived = self._buffers.pop((node, need.position), None)
        if arrived is not None and arrived.token.key == need.key:
            return arrived.token, arrived.why
        made = () if forward is None else forward.made
        result = made[need.position] if need.position < len(made) else None
        found = None if result is None else self._on_its_way(need, result)
        if found is not None:
            return found
        token, why = self._any(need, grads, now)
        if gradient.accumulates:
            self.accumulated.append(Leaf(token, False, None))
        return token, why

    def _of_leaf(self, need: Need) -> Found | None:
        """Return the gradient that is accumulated into a leaf: the last that was given for one."""
        leaves = [one for one in self._leaves if one.token.key == need.key]
        if not leaves:
            return None
        last = leaves[-1]
        self._leaves.remove(last)
        alone = last.known and sum(one.turn == last.turn for one in leaves) == 1
        if not last.unexplained:
            self.own.add(last.of.read[0])
        self.accumulated.append(Leaf(last.token, alone, last.of.read))
        return last.token, "gradient" if alone else "one of several gradients"

    def _on_its_way(self, need: Need, result: Token) -> Found | None:
        """Return the gradient of a result, of those of which it is not known where they went."""
        coming = [one for one in self._in_flight if one.token.key == need.key and one.of.token.key == result.key]
        if not coming:
            return None
        last = coming[-1]
        self._in_flight.remove(last)
        if any(one.token.storage != last.token.storage for one in coming):
            for one in coming:  # what is left may be this one's
                one.sure = False
            return last.token, "one of several gradients"
        if last.sure and result.sure and (len(coming) == 1 or last.either):
            self._resolve(last, result.storage)
        return last.token, last.why

    def _any(self, need: Need, taken: list[Token], now: int) -> Found:
        pool = self.pools.of(need)
        tokens = fitting(pool, pool.read, need, taken) + fitting(pool, pool.unread, need, taken)
        tokens = [token for token in tokens if token.storage not in self._kept]
        if tokens and tokens[-1].uses <= 0 and tokens[-1].born == now:
            return tokens[-1], "gradient"  # the first one, made just before
        unread = [token for token in tokens if token.uses <= 0 and token.backward]
        if unread or tokens:
            return (unread or tokens)[-1], "one of several gradients"
        return self.outside(need), "no gradient known"

    # --- what its operators take -------------------------------------------------------------------------------------

    def take(self, need: Need, number: int, wiring: Wiring, *, apart: bool, recorded: bool) -> Found | None:
        """What an operator takes that runs in a node, or behind it to sum gradients (apart); None: it is not known.

        recorded: it is noted for another backward pass.
        """
        running = self.running
        if running is None or need.listed:
            return None
        if apart:
            found = self._apart(running, need, number, wiring)
        elif running.accumulates and number in wiring.mutated:
            found = self._accumulated_before(need)
        else:
            found = running.takes(need, number, wiring.call.name, recorded=recorded)
        if found is not None:
            running.consumed.add(found[0].value)
        return found

    def _accumulated_before(self, need: Need) -> Found:
        """Return the gradient of a leaf to which the one that arrived is added: from the backward pass before, in which
        leaves are likely to have had the same order."""
        turn = len(self.accumulated) - 1
        there = self._before[turn].gradient if 0 <= turn < len(self._before) else None
        if there is None or there.key != need.key:
            return self.outside(need), "no gradient known"
        return there, "a gradient, perhaps"

    def ran(self, gave: Sequence[Token], *, apart: bool) -> None:
        """An operator has run in the node, or behind it."""
        running = self.running
        if running is None:
            return
        running.made += gave
        if running.accumulates:
            self._kept.update(token.storage for token in gave)
        if not apart:
            running.results.append(gave[0] if gave else None)
        elif gave and running.summed is not None:
            new, there = running.summed
            there.token, there.sure, there.swapped = gave[0], there.sure and new.sure, there.swapped or new.swapped
            running.summed = None
        elif gave and running.reduced is not None:
            running.reduced.token = gave[0]
            running.reduced = None

    # --- what it gives -----------------------------------------------------------------------------------------------

    def _apart(self, running: Running, need: Need, number: int, wiring: Wiring) -> Found | None:
        """Behind a node gradients are reduced that were broadcast, and then summed where one is there already."""
        given = [gradient for gradient in running.gives() if not gradient.gone]
        if len(wiring.needs) == 1:
            shape_of = self.keys.shape_of
            reduced = [
                gradient
                for gradient in given
                if gradient.token.key == need.key and shape_of[gradient.token.key] != shape_of[gradient.of.token.key]
            ]
            if not reduced:
                return None
            running.reduced = reduced[0]
            alone = len({gradient.token.storage for gradient in reduced}) == 1 and reduced[0].known
            return reduced[0].token, "gradient" if alone else "one of several gradients"
        if len(wiring.needs) != 2:
            return None
        if number == 1 and running.summed is not None:
            gradient = running.summed[0]
            return gradient.token, gradient.why
        found = self._sum(running, given, wiring)
        running.unexplained |= found is None
        return found

    def _sum(self, running: Running, given: list[Gradient], wiring: Wiring) -> Found | None:
        """Return a gradient arrives where one is: the sum takes that first, then the new one."""
        first, second = wiring.needs
        options = [
            (one, there)
            for one in given
            if one.token.key == second.key
            for there in self._met(one)
            if there.token.key == first.key
        ]
        if not options:
            return None
        one, there = options[-1]
        before = there.token
        running.summed = one, there
        one.gone = True
        if len(options) > 1:
            for each in (gradient for option in options for gradient in option):
                each.sure = False
        why = there.why
        self._same_tensor(one, there)
        return before, why

    def _met(self, one: Gradient) -> list[Gradient]:
        """Gradients on their way to where this one goes, or may go."""
        if one.of.maker is None:
            return [other for other in self._leaves if other.of.token.value == one.of.token.value]
        waiting = [other for other in self._in_flight if other.of.token.key == one.of.token.key]
        if not one.of.token.sure:
            return [*self._of_key(one.of.token.key), *waiting]
        there = self._buffers.get(one.of.maker)
        return waiting if there is None else [there]

    def _of_key(self, key: int) -> list[Gradient]:
        return [one for one in self._buffers.values() if one.of.token.key == key]

    def _same_tensor(self, one: Gradient, there: Gradient) -> None:
        """Both are gradients of one tensor; who knows of which it is, knows the other."""
        if one.sure and there.sure:
            known = next((each for each in (one, there) if each.of.token.sure), None)
            if known is not None and known is one and there in self._in_flight and one.of.maker is not None:
                self._in_flight.remove(there)
                self._buffers[one.of.maker] = there
            for each in (one, there):
                if known is not None and each is not known:
                    self._resolve(each, known.of.token.storage)
            if known is None:
                there.reads += one.reads
        if one.of.token.sure and not there.of.token.sure:
            there.of = one.of

    def _resolve(self, one: Gradient, storage: int) -> None:
        self.resolved += [(read, storage) for read in one.reads]
        one.reads = []

    def _deliver(self, given: Gradient) -> None:
        took = given.of
        if took.maker is None:
            self._leaves.append(given)
            del self._leaves[:-_MOST_IN_FLIGHT]
        elif not took.token.sure:
            self._in_flight.append(given)
            del self._in_flight[:-_MOST_IN_FLIGHT]
        else:
            if took.maker in self._buffers:  # a sum of the two was to be seen
                given.sure = False
            self._buffers[took.maker] = given
