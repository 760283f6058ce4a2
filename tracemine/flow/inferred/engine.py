"""Autograd's engine, simulated: which gradient each node of a backward pass takes, and what else its operators do.

A node gives a gradient for each tensor that its forward operator took, and it goes to the node whose forward operator
made that tensor. Where a second one arrives they are summed at once, by an operator that is recorded: so a sum, or that
there is none, tells where a gradient went of which the forward pass alone did not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tracemine.flow.inferred.autograd import GradientNode
from tracemine.flow.inferred.formulas import GRADIENT, RESULT, Part, derivatives, programs
from tracemine.flow.inferred.pools import Bound, Pools, Ran, Token, Value, fitting
from tracemine.flow.inferred.rules import rules
from tracemine.flow.inferred.wiring import Inside, Keys, Need, Wiring

_MOST_IN_FLIGHT = 512  # gradients of which it is not known where they went
_NAMES = "aten::"

Found = tuple[Token, str]
_Maker = tuple[int, int]  # a node, and which of its forward operator's results


@dataclass(slots=True)
class _Took:
    """A tensor that a forward operator took."""

    name: str  # of the argument
    token: Token
    maker: _Maker | None  # where its gradient goes; None: to a leaf, or nowhere
    read: tuple[int, int]  # the root around the operator, and which of what that takes it is; below 0: none of them
    place: int  # of that read in Bound, −1: none
    either: bool  # the operator does not tell it from what else it takes


@dataclass(slots=True)
class _Forward:
    """A forward operator that has a node."""

    took: list[_Took]
    made: list[Token | None]

    def argument(self, name: str) -> _Took | None:
        return next((took for took in self.took if took.name == name), None)


@dataclass(slots=True)
class _Gradient:
    """A gradient on its way."""

    token: Token
    sure: bool
    of: _Took
    reads: list[tuple[int, int]]  # of the tensor that it is of, where these were not sure
    turn: int  # which node gave it, counted
    gone: bool = False
    unexplained: bool = False  # perhaps it was summed with another one
    either: bool = False  # the operator that took the tensor does not tell it from another one


@dataclass(slots=True)
class Leaf:
    """A gradient that was accumulated into a tensor that no operator made."""

    gradient: Token
    sure: bool
    read: tuple[int, int] | None  # of the tensor, by root and which of its inputs
    parameter: Token | None = None
    alone: bool = False  # no other leaf looks like it


@dataclass(slots=True)
class _Running:
    """The node that runs now."""

    name: str
    accumulates: bool
    forward: _Forward | None
    grads: list[Token]
    sure: bool  # of what it takes
    saved: list[Token]
    sources: list[tuple[str, ...]] | None  # for each of its operators what it takes, where a formula fits
    products: dict[str, int]  # argument → the operator that gives its gradient, −1: its own is handed on
    made: list[Token] = field(default_factory=list)
    results: list[Token | None] = field(default_factory=list)  # of each of its operators
    consumed: set[Value] = field(default_factory=set)
    given: list[_Gradient] | None = None  # once its own operators have run
    unexplained: bool = False  # something was summed behind it, and it is not known what
    summed: tuple[_Gradient, _Gradient] | None = None  # whose sum runs now, the new one first
    reduced: _Gradient | None = None


@dataclass(slots=True)
class Engine:
    """Told of forward operators, nodes and what runs in them, in the order in which they ran."""

    keys: Keys
    pools: Pools
    bound: Bound  # where reads that were sure may have become doubtful
    outside: Callable[[Need], Token]  # one that nobody has seen
    running: _Running | None = None
    accumulated: list[Leaf] = field(default_factory=list)  # in the last backward pass
    own: set[int] = field(default_factory=set)  # roots with parameters that no other operator takes
    resolved: list[tuple[tuple[int, int], int]] = field(default_factory=list)  # a read, and the storage that it is of
    _forwards: dict[int, _Forward] = field(default_factory=dict)
    _makers: dict[Value, _Maker] = field(default_factory=dict)
    _buffers: dict[_Maker, _Gradient] = field(default_factory=dict)
    _in_flight: list[_Gradient] = field(default_factory=list)
    _leaves: list[_Gradient] = field(default_factory=list)
    _turn: int = 0
    _passes: bool = False  # a backward pass is under way

    def forward(self, node: int, inside: Inside, ran: Ran, took: list[Token | None], made: list[Token | None]) -> None:
        """A forward operator has run to which a node belongs."""
        inputs = [
            _Took(
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
        self._forwards[node] = _Forward(inputs, made)
        for number, token in enumerate(made):
            if token is not None:
                self._makers[token.value] = node, number

    def begin(
        self, node: int, gradient: GradientNode, record: Wiring | None, roots: Sequence[Wiring], now: int
    ) -> None:
        """A node begins. record: the operator that is given the gradients; roots: those inside that."""
        self.end()
        if not self._passes:
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
        self.running = _Running(gradient.kind, gradient.accumulates, forward, grads, sure, saved, None, {})
        self._choose(self.running, roots)

    def _recheck(self, forward: _Forward) -> None:
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
        for given in self._given(running):
            given.unexplained = running.unexplained
            if not given.gone:
                self._deliver(given)

    def backward_ends(self) -> None:
        """No node runs any more."""
        self.end()
        self._passes = False
        self._buffers.clear()
        self._in_flight.clear()
        self._leaves.clear()

    # --- what a node is given ----------------------------------------------------------------------------------------

    def _arrived(
        self,
        node: int,
        need: Need,
        gradient: GradientNode,
        forward: _Forward | None,
        grads: list[Token],
        now: int,
    ) -> Found:
        """The gradient that a node takes."""
        if gradient.accumulates:
            leaves = [one for one in self._leaves if one.token.key == need.key]
            if leaves:
                last = leaves[-1]
                self._leaves.remove(last)
                alone = sum(one.turn == last.turn for one in leaves) == 1
                if not last.unexplained:
                    self.own.add(last.of.read[0])
                self.accumulated.append(Leaf(last.token, last.sure and alone, last.of.read))
                return last.token, "gradient" if alone and last.sure else "one of several gradients"
        arrived = self._buffers.pop((node, need.position), None)
        if arrived is not None and arrived.token.key == need.key:
            return arrived.token, "gradient" if arrived.sure else "a gradient, perhaps"
        result = None
        if forward is not None and need.position < len(forward.made):
            result = forward.made[need.position]
        if result is not None:
            coming = [one for one in self._in_flight if one.token.key == need.key and one.of.token.key == result.key]
            if coming:
                last = coming[-1]
                self._in_flight.remove(last)
                if any(one.token.storage != last.token.storage for one in coming):
                    for one in coming:  # what is left may be this one's
                        one.sure = False
                    return last.token, "one of several gradients"
                if last.sure and result.sure and (len(coming) == 1 or last.either):
                    self._resolve(last, result.storage)
                return last.token, "gradient" if last.sure else "a gradient, perhaps"
        token, why = self._any(need, grads, now)
        if gradient.accumulates:
            self.accumulated.append(Leaf(token, False, None))
        return token, why

    def _any(self, need: Need, taken: list[Token], now: int) -> Found:
        pool = self.pools.of(need)
        tokens = fitting(pool, pool.read, need, taken) + fitting(pool, pool.unread, need, taken)
        if tokens and tokens[-1].uses <= 0 and tokens[-1].born == now:
            return tokens[-1], "gradient"  # the first one, made just before
        unread = [token for token in fitting(pool, pool.unread, need, taken) if token.backward]
        if unread or tokens:
            return (unread or tokens)[-1], "one of several gradients"
        return self.outside(need), "no gradient known"

    # --- what its operators take -------------------------------------------------------------------------------------

    def take(self, need: Need, number: int, wiring: Wiring, *, apart: bool) -> Found | None:
        """What an operator takes that runs in a node, or behind it to sum gradients (apart); None: it is not known."""
        running = self.running
        if running is None or need.listed:
            return None
        found = self._apart(running, need, number, wiring) if apart else self._inside(running, need, number)
        if found is not None:
            running.consumed.add(found[0].value)
        return found

    def ran(self, gave: Sequence[Token], *, apart: bool) -> None:
        """An operator has run in the node, or behind it."""
        running = self.running
        if running is None:
            return
        running.made += gave
        if not apart:
            running.results.append(gave[0] if gave else None)
        elif gave and running.summed is not None:
            new, there = running.summed
            there.token, there.sure = gave[0], there.sure and new.sure
            running.summed = None
        elif gave and running.reduced is not None:
            running.reduced.token = gave[0]
            running.reduced = None

    def _inside(self, running: _Running, need: Need, number: int) -> Found | None:
        sure = "" if running.sure else ", perhaps"
        at = len(running.results)
        if running.sources is not None and at < len(running.sources):
            source = running.sources[at][number]
            token = self._source(running, source)
            if token is not None and token.key == need.key:
                kind = "made for the gradient" if source[0] == "#" else "gradient" if source == GRADIENT else "saved"
                return token, kind + (sure if source == GRADIENT else "")
        if need.name.startswith("grad") and len(running.grads) == 1 and running.grads[0].key == need.key:
            return running.grads[0], "gradient" + sure
        named = self._named(running, need)
        if named is not None:
            return named, "saved"
        parts: tuple[tuple[list[Token], str], ...] = (
            (running.grads, "gradient" + sure),
            (running.made, "made for the gradient"),
            (running.saved, "saved"),
        )
        if need.name.startswith("grad"):
            parts = parts[:2]
        found = [(token, why) for part, why in parts for token in part if token.key == need.key]
        if len({token.storage for token, _ in found}) == 1:
            return found[-1]
        return (found[0][0], "one of the gradient's") if found else None

    def _source(self, running: _Running, source: str) -> Token | None:
        if source == GRADIENT:
            return running.grads[0] if running.grads else None
        if source[0] == "#":
            return running.results[int(source[1:])]
        forward = running.forward
        if forward is None:
            return None
        if source == RESULT:
            return forward.made[0] if forward.made else None
        took = forward.argument(source)
        return took.token if took is not None else None

    def _named(self, running: _Running, need: Need) -> Token | None:
        """What an operator takes by the name of its argument."""
        forward = running.forward
        if forward is None:
            return None
        took = forward.argument(need.name)
        result = derivatives().results.get(need.name)
        found = took.token if took is not None else None
        if found is None and result is not None and result < len(forward.made):
            found = forward.made[result]
        return found if found is not None and found.key == need.key else None

    def _choose(self, running: _Running, roots: Sequence[Wiring]) -> None:
        """Find the formula that the node's operators follow."""
        if running.forward is None or len(running.grads) != 1:
            return
        arguments = {took.name: took for took in running.forward.took}
        fitting_ones: list[tuple[int, list[tuple[Part, int]]]] = []
        names = [root.call.name.removeprefix(_NAMES) for root in roots]
        for program in programs(running.name, names, arguments):
            if self._follows(running, roots, program):
                wanted = {part.argument for part, _ in program}
                # Who has a node wants a gradient; who has none may be a leaf.
                odd = sum((took.maker is not None) != (name in wanted) for name, took in arguments.items())
                fitting_ones.append((odd, program))
        least = min((odd for odd, _ in fitting_ones), default=0)
        best = [program for odd, program in fitting_ones if odd == least]
        if len(best) != 1:
            return
        running.sources = []
        for part, at in best[0]:
            running.sources += [_shifted(sources, at) for _, sources in part.calls]
            running.products[part.argument] = at + len(part.calls) - 1 if part.calls else -1

    def _follows(self, running: _Running, roots: Sequence[Wiring], program: list[tuple[Part, int]]) -> bool:
        """Whether what each operator takes looks like what the formula says."""
        for part, at in program:
            for (_, sources), root in zip(part.calls, roots[at:], strict=False):
                if len(sources) != len(root.needs):
                    return False
                for source, need in zip(sources, root.needs, strict=True):
                    if source[0] == "#":
                        gives = roots[at + int(source[1:]) - 1].gives
                        key = gives[0].key if gives else -1
                    else:
                        token = self._source(running, source)
                        key = -1 if token is None else token.key
                    if key != need.key:
                        return False
        return True

    # --- what it gives -----------------------------------------------------------------------------------------------

    def _given(self, running: _Running) -> list[_Gradient]:
        """A gradient for each tensor that the forward operator took, as far as it is known which one."""
        if running.given is None:
            running.given = []
            if running.forward is not None:
                running.given = self._by_formula(running) if running.products else self._by_shape(running)
            _forget_order(running.given)
        return running.given

    def _by_formula(self, running: _Running) -> list[_Gradient]:
        found = []
        for took in running.forward.took if running.forward is not None else ():
            at = running.products.get(took.name)
            token = None if at is None else running.results[at] if 0 <= at < len(running.results) else None
            if at == -1 and running.grads:
                token = running.grads[0]
            if token is not None:
                found.append(self._gradient(token, token.sure and (at != -1 or running.sure), took))
        return found

    def _by_shape(self, running: _Running) -> list[_Gradient]:
        shape_of, dtype_of = self.keys.shape_of, self.keys.dtype_of
        last = {token.value: token for token in running.made if token.value not in running.consumed}
        made = list(last.values())
        took = [one for one in running.forward.took if _is_real(dtype_of[one.token.key])] if running.forward else []
        found = []
        for one in took:
            shape = shape_of[one.token.key]
            same = [token for token in made if shape_of[token.key] == shape]
            alike = [other for other in took if shape_of[other.token.key] == shape]
            if same:
                made.remove(same[0])
                left = alike[alike.index(one) :]
                alone = len(same) == len(left) or (len(same) == 1 and one.maker is not None and len(left) == 1)
                found.append(self._gradient(same[0], same[0].sure and alone, one))
            elif not last and len(running.grads) == 1 and shape_of[running.grads[0].key] == shape:
                found.append(self._gradient(running.grads[0], running.grads[0].sure and running.sure, one))
        return found

    def _gradient(self, token: Token, sure: bool, of: _Took) -> _Gradient:
        reads = [] if of.token.sure else [of.read]
        return _Gradient(token, sure, of, reads, self._turn, either=of.either)

    def _apart(self, running: _Running, need: Need, number: int, wiring: Wiring) -> Found | None:
        """Behind a node gradients are reduced that were broadcast, and then summed where one is there already."""
        given = [one for one in self._given(running) if not one.gone]
        if len(wiring.needs) == 1:
            shape_of = self.keys.shape_of
            reduced = [
                one
                for one in given
                if one.token.key == need.key and shape_of[one.token.key] != shape_of[one.of.token.key]
            ]
            if not reduced:
                return None
            running.reduced = reduced[0]
            alone = len({one.token.storage for one in reduced}) == 1 and reduced[0].sure
            return reduced[0].token, "gradient" if alone else "one of several gradients"
        if len(wiring.needs) != 2:
            return None
        if number == 1 and running.summed is not None:
            one = running.summed[0]
            return one.token, "gradient" if one.sure else "a gradient, perhaps"
        found = self._sum(running, given, wiring)
        running.unexplained |= found is None
        return found

    def _sum(self, running: _Running, given: list[_Gradient], wiring: Wiring) -> Found | None:
        """A gradient arrives where one is: the sum takes that first, then the new one."""
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
        why = "gradient" if there.sure else "a gradient, perhaps"
        self._same_tensor(one, there)
        return before, why

    def _met(self, one: _Gradient) -> list[_Gradient]:
        """Gradients on their way to where this one goes, or may go."""
        if one.of.maker is None:
            return [other for other in self._leaves if other.of.token.value == one.of.token.value]
        waiting = [other for other in self._in_flight if other.of.token.key == one.of.token.key]
        if not one.of.token.sure:
            return [*self._of_key(one.of.token.key), *waiting]
        there = self._buffers.get(one.of.maker)
        return waiting if there is None else [there]

    def _of_key(self, key: int) -> list[_Gradient]:
        return [one for one in self._buffers.values() if one.of.token.key == key]

    def _same_tensor(self, one: _Gradient, there: _Gradient) -> None:
        """Both are gradients of one tensor; who knows of which it is, tells of the other."""
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

    def _resolve(self, one: _Gradient, storage: int) -> None:
        self.resolved += [(read, storage) for read in one.reads]
        one.reads = []

    def _deliver(self, given: _Gradient) -> None:
        took = given.of
        if took.maker is None:
            self._leaves.append(given)
        elif not took.token.sure:
            self._in_flight.append(given)
            del self._in_flight[:-_MOST_IN_FLIGHT]
        else:
            if took.maker in self._buffers:  # a sum of the two was to be seen
                given.sure = False
            self._buffers[took.maker] = given


def _forget_order(given: list[_Gradient]) -> None:
    """One gradient for two tensors does not tell which of them the operator took first."""
    for one in given:
        if any(one.reads and other.reads and other is not one and other.token is one.token for other in given):
            one.reads = one.reads if one.either else []


def _shifted(sources: tuple[str, ...], by: int) -> tuple[str, ...]:
    """Numbers of operators counted from the node's first one."""
    return tuple(f"#{int(source[1:]) - 1 + by}" if source[0] == "#" else source for source in sources)


def _is_real(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("float", "bfloat", "complex"))
