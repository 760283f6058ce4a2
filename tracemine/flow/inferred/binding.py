"""Which tensor each operator takes: the simulation.

An input takes a live tensor of the same shape, dtype and strides. Where several fit, the rules here say which, and
whether that is evidence or a guess: `CONSISTENT` names the rules that leave one candidate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tracemine.flow.inferred.wiring import ANYWHERE, HOST, Give, Keys, Need, Wiring

_MOST_REMEMBERED = 8  # tensors that look alike and have been read; older ones are forgotten

_MOST_UNREAD = 256  # the same of those that nobody has read
_MOST_READERS = 16  # of one tensor from outside are remembered
_SOON = 4  # roots
_NO_CLAIM = -1
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
    }
)


@dataclass(slots=True, eq=False)
class Token:
    """A tensor that is alive in the simulation."""

    storage: int
    offset: int
    key: int
    born: int  # which root gave it, counted; of what is written in place, the root that wrote last
    sure: bool
    place: int
    outside: bool
    uses: int = 0  # so often read; below 0, as autograd hands it to several
    beside: bool = False  # made by an operator that is seldom applied to its own result
    taken: tuple[Token, ...] = ()  # what that took
    taken_surely: bool = False
    maker: int = -1  # the number of the wiring that made it
    readers: tuple[int, ...] = ()  # of one from outside the wirings that read it
    claim: int = _NO_CLAIM  # place in Bound.sure of the read that took it for its being the newest
    claimed: int = 0  # which root that was, counted
    backward: bool = False  # made for a gradient
    step: int = 0


@dataclass(slots=True)
class Pool:
    """The tensors that look alike, oldest first."""

    unread: list[Token] = field(default_factory=list)
    read: list[Token] = field(default_factory=list)
    newest_read: int = -1  # when the youngest of those that have been read was made
    host: bool = False  # some lie in host memory
    forgot: bool = False  # there were more


@dataclass(slots=True)
class Bound:
    """What the simulation found: one entry a root that was simulated, and one a storage of each."""

    root: list[int] = field(default_factory=list)
    wiring: list[Wiring] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sure: list[bool] = field(default_factory=list)


@dataclass(slots=True)
class Ran:
    """One operator that was simulated."""

    wiring: Wiring
    taken: list[Token]
    sure: list[bool]  # of each that was taken
    new: list[int]  # storages


@dataclass(slots=True)
class _Gradient:
    """The node of autograd that runs now."""

    grads: list[Token]
    saved: list[Token]
    made: list[Token] = field(default_factory=list)
    product: bool = False  # of a product: each factor's gradient is a product with the other
    turns: int = 0


class Simulation:
    """Tensors by what they look like, and who reads them."""

    def __init__(self, keys: Keys, lists: Iterable[int]) -> None:
        """lists: what members of lists look like, without the dtype, which nobody recorded of them."""
        self._keys = keys
        self._pools: defaultdict[int, Pool] = defaultdict(Pool)
        self._loose: dict[int, Pool] = {number: Pool() for number in lists}  # without the dtype
        self.bound = Bound()
        self.reasons: list[str] | None = None  # a list: why each was taken is noted there
        self.storages = 0
        self._now = 0
        self._step = 0
        self._gradient: _Gradient | None = None
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

    def step(self, number: int) -> None:
        """A step of the program begins."""
        self._step = number
        self._updates = None

    def list_dtype(self, wiring: Wiring) -> str | None:
        """The dtype that the members of a list are likely to have."""
        for need in wiring.needs:
            if need.listed:
                pool = self._loose[need.loose]
                if pool.unread or pool.read:
                    return self._keys.dtype_of[(pool.unread or pool.read)[-1].key]
        return None

    def run(self, root: int, wiring: Wiring, *, apart: bool = False) -> Ran:
        """One operator: bind what it takes, enter what it gives.

        apart: autograd itself does it, behind a node, to sum gradients.
        """
        self._apart = apart
        self._now += 1
        bound = self.bound
        taken: list[Token] = []
        sure: list[bool] = []
        for need in wiring.needs:
            token, why = self._bind(need, wiring, taken)
            token.claim = _NO_CLAIM
            if why == _NEWEST and wiring.call.op_class == "pointwise":
                token.claim, token.claimed = len(bound.sure) + len(sure), self._now
            taken.append(token)
            sure.append(token.sure and why in CONSISTENT)
            if self.reasons is not None:
                self.reasons.append(why)
        new = list(range(self.storages, self.storages + wiring.new))
        self.storages += wiring.new
        bound.root.append(root)
        bound.wiring.append(wiring)
        bound.storages += [token.storage for token in taken]
        bound.offsets += [token.offset for token in taken]
        bound.sure += sure
        if new:
            bound.storages += new
            bound.offsets += [0] * len(new)
            bound.sure += [True] * len(new)
            if self.reasons is not None:
                self.reasons += ["inside"] * len(new)
        for token in taken:
            token.step = self._step
            if token.outside:
                token.readers = (*token.readers[1 - _MOST_READERS :], wiring.number)
            token.uses += 1
            if token.uses == 1:
                self._sort(token)
        if wiring.barrier:
            self._unknown_made = self._now
            self._unknown_unseen += 1
        if wiring.wrote_unknown:
            self._unknown_wrote = self._now
        for number in wiring.mutated:
            self._write(taken[number], sure[number])
        if not wiring.call.known:
            for token in taken:  # perhaps it writes them
                token.sure = False
        if wiring.partner is not None:
            self._last[wiring.call.name] = taken[0], self._now
        if wiring.beside:
            self._beside = wiring.number, {token.storage for token in taken}
        self._surely = all(sure)
        for give in wiring.gives:
            self._enter(give, wiring, taken, sure, new)
        return Ran(wiring, taken, sure, new)

    def unknown(self) -> None:
        """Something with operators inside begins, of which nobody knows what it makes."""
        self._now += 1
        self._unknown_made = self._unknown_around = self._now

    def backward(self, wiring: Wiring | None, saved: list[Token], name: str, passes: int) -> None:
        """A node of autograd begins. `passes`: to so many it hands on what it takes, as it is."""
        grads: list[Token] = []
        self._gradient = self._updates = None
        for need in wiring.needs if wiring is not None else ():
            token, why = self._grad(need, grads)
            if not (token.sure and why in CONSISTENT):
                token = Token(token.storage, token.offset, token.key, token.born, False, token.place, token.outside)
            else:
                token.step = self._step
                token.uses += 1 - passes
                self._sort(token)
            grads.append(token)
        self._gradient = _Gradient(grads, saved, product=name.startswith("Mul"))

    def forward(self) -> None:
        """No node of autograd runs any more: what is written in place until the step ends are parameters' updates."""
        self._gradient = None
        self._updates, self._updating = defaultdict(set), self._now

    # --- binding -----------------------------------------------------------------------------------------------------

    def _bind(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        if need.position in wiring.parameters:
            return self._parameter(need)
        if self._gradient is not None and not need.listed:
            found = self._for_gradient(self._gradient, need, taken)
            if found is not None:
                return found
        token, why = self._any(need, wiring, taken)
        if self._updates is None or need.listed or len(taken) not in wiring.mutated:
            return token, why
        if wiring.number in self._updates[need.key]:
            self._updates[need.key].clear()
            self._next_parameter(need)
            token, why = self._any(need, wiring, taken)
        self._updates[need.key].add(wiring.number)
        return token, why

    def _next_parameter(self, need: Need) -> None:
        """The same operator writes in place once more, as optimizers do, a parameter at a time. What was made for the
        one before, or written, is not looked at again: no tensor is better than a wrong one, which would join them."""
        for pool in (self._pools[need.key], self._loose.get(need.loose)):
            if pool is not None:
                kept = [[token for token in side if token.born <= self._updating] for side in (pool.unread, pool.read)]
                pool.forgot |= len(kept[0]) + len(kept[1]) < len(pool.unread) + len(pool.read)
                pool.unread, pool.read = kept

    def _any(self, need: Need, wiring: Wiring, taken: list[Token]) -> tuple[Token, str]:
        pool = self._loose[need.loose] if need.listed else self._pools[need.key]
        unread = _fitting(pool, pool.unread, need, taken)
        if not unread or wiring.partner is not None or (len(unread) == 1 and unread[0].beside and wiring.beside):
            read = _fitting(pool, pool.read, need, taken)
        else:
            read = pool.read
        if not unread:
            if not read:
                return self._none(need, pool, taken)
            current = [token for token in read if token.step == self._step or token.outside]
            read = current or read
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
        if token.backward and self._gradient is None:
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
        if len(unread) < need.left and self._gradient is None:
            self._doubt(read)
        if not unread:
            alone = len(read) == 1 and need.twins == 1 and (bool(current) or token.outside)
            if not alone and token.outside and len(taken) not in wiring.mutated:  # of several: perhaps each its own
                return self._outside(need, remember=False), "one of those from outside"
            if token.outside and wiring.number in token.readers and len(taken) not in wiring.mutated:
                # The same operator once more takes another one that looks alike, as each layer has its own cache.
                token.storage, self.storages = self.storages, self.storages + 1
                token.readers = ()
            return token, "the only one" if alone else "read before"
        if token.step != self._step and not token.outside and self._gradient is None:
            return token, "unread since another step"
        if len(unread) != need.left:
            return token, "one of several unread"
        if need.twins > 1:
            return token, "all unread" if need.left == need.twins or need.left == 1 else "some unread"
        if not pool.read:
            return token, "the only one unread"
        return token, _NEWEST if token.born >= pool.newest_read else "unread, but not the newest"

    def _doubt(self, read: list[Token]) -> None:
        """Something is read once more: perhaps it waited until now, and who took it for the newest had read another."""
        for token in read:
            if token.claim != _NO_CLAIM and self._now - token.claimed <= _SOON:
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

    def _for_gradient(self, node: _Gradient, need: Need, taken: list[Token]) -> tuple[Token, str] | None:
        """What a node of autograd takes: its gradient, what was saved for it, or what it made."""
        named = need.name.startswith("grad")
        if node.product and not named and need.twins == 2:
            grads = [token for token in node.grads if token.key == need.key]
            factors = [token for token in node.saved if token.key == need.key]
            if len(grads) == 1 and need.left == 2:
                return grads[0], "gradient"
            if len(grads) == 1 and len(factors) in (2, 3):
                node.turns += 1
                return factors[0 if node.turns == 1 else 1], "saved"
            return None
        if self._apart and need.twins > 1:  # two gradients become one
            pool = self._pools[need.key]
            unread = [token for token in _fitting(pool, pool.unread, need, taken) if token.backward]
            if not unread:
                return None
            return unread[-min(need.left, len(unread))], "gradient" if len(unread) == need.left else "some gradient"
        parts: tuple[tuple[list[Token], str], ...] = (
            (node.grads, "gradient"),
            (node.made, "made for the gradient"),
            (node.saved, "saved"),
        )
        if named or self._apart:
            parts = parts[:2]
        found = [(token, why) for part, why in parts for token in _fitting(None, part, need, taken)]
        storages = {token.storage for token, _ in found}
        if len(storages) == 1:
            return found[-1]
        if found:
            open_ones = [token for token, _ in found if token.uses <= 0]
            return (open_ones or [found[0][0]])[0], "one of the gradient's"
        return None

    def _grad(self, need: Need, taken: list[Token]) -> tuple[Token, str]:
        pool = self._pools[need.key]
        unread = [token for token in _fitting(pool, pool.unread, need, taken) if token.backward]
        if len(unread) == need.left:
            return unread[0], "gradient"
        if unread:
            return unread[-1], "one of several gradients"
        tokens = _fitting(pool, pool.read, need, taken) + _fitting(pool, pool.unread, need, taken)
        if tokens and tokens[-1].uses <= 0 and tokens[-1].born == self._now:  # the first gradient, made just before
            return tokens[-1], "gradient"
        return (tokens[-1] if tokens else self._outside(need, remember=True)), "no gradient known"

    def _parameter(self, need: Need) -> tuple[Token, str]:
        inside = [token for token in self._pools[need.key].unread if not token.outside and not token.backward]
        if inside:
            return inside[-1], "parameter made inside"
        token = self._outside(need, remember=False)
        if self._unknown_wrote >= 0 or need.loose in self._written:
            token.sure = False
            return token, "parameter, perhaps written"
        return token, "parameter"

    def _outside(self, need: Need, *, remember: bool) -> Token:
        token = Token(self.storages, 0, need.key, self._now, True, need.place, True, step=self._step)
        self.storages += 1
        if remember:
            self._remember(token)
        return token

    # --- what happens to tokens --------------------------------------------------------------------------------------

    def _pools_of(self, token: Token) -> tuple[Pool, ...]:
        loose = self._loose.get(self._keys.loose_of[token.key])
        return (self._pools[token.key],) if loose is None else (self._pools[token.key], loose)

    def _sort(self, token: Token) -> None:
        """Put it where it belongs after its uses have changed."""
        for pool in self._pools_of(token):
            if token.uses > 0:
                if token in pool.unread:
                    pool.unread.remove(token)
                    pool.read.append(token)
                    pool.newest_read = max(pool.newest_read, token.born)
                    if len(pool.read) > _MOST_REMEMBERED:
                        del pool.read[0]
                        pool.forgot = True
            elif token in pool.read:
                pool.read.remove(token)
                pool.unread.append(token)

    def _write(self, token: Token, sure: bool) -> None:
        loose = self._keys.loose_of[token.key]
        if token.outside or not sure:
            self._written.add(loose)
        if not sure:  # it may have been another one
            for pool in self._pools_of(token):
                for other in (*pool.unread, *pool.read):
                    other.sure = False
        token.uses = 0
        token.born = self._now
        token.sure = token.sure and sure
        self._sort(token)

    def token(self, give: Give, ran: Ran) -> Token:
        """What an operator gives, or has inside."""
        return self._token(give, ran.wiring, ran.taken, ran.new, give.slot < 0 or ran.sure[give.slot])

    def _token(self, give: Give, wiring: Wiring, taken: list[Token], new: list[int], sure: bool) -> Token:
        if give.slot >= 0:
            source = taken[give.slot]
            return Token(
                source.storage,
                min(source.offset + give.offset, _FURTHEST),
                give.key,
                self._now,
                source.sure and sure and give.sure,
                source.place,
                source.outside,
                beside=source.beside,
                taken=source.taken,
                taken_surely=source.taken_surely,
                backward=source.backward,
                step=self._step,
            )
        return Token(
            new[give.new],
            give.offset,
            give.key,
            self._now,
            give.sure,
            give.place,
            False,
            beside=wiring.beside,
            taken=tuple(taken) if wiring.beside else (),
            taken_surely=self._surely,
            maker=wiring.number,
            backward=self._gradient is not None,
            step=self._step,
        )

    def _enter(self, give: Give, wiring: Wiring, taken: list[Token], sure: list[bool], new: list[int]) -> None:
        if give.slot >= 0 and not give.offset and give.key == taken[give.slot].key:
            token = taken[give.slot]
            token.uses = 0
            self._sort(token)
        else:
            token = self._token(give, wiring, taken, new, give.slot < 0 or sure[give.slot])
            self._remember(token)
            if self._keys.vague[give.key]:
                self._vague.add(self._keys.shape_of[give.key])
        if self._gradient is not None:
            self._gradient.made.append(token)

    def _remember(self, token: Token) -> None:
        for pool in self._pools_of(token):
            pool.unread.append(token)
            pool.host |= token.place == HOST
            if len(pool.unread) > _MOST_UNREAD:
                del pool.unread[0]
                pool.forgot = True


def _fitting(pool: Pool | None, tokens: list[Token], need: Need, taken: list[Token]) -> list[Token]:
    """Those that look right, lie where they should, and that the operator has not taken already."""
    if pool is not None and not pool.host and need.place != HOST and need.twins == 1 and not need.listed:
        return tokens
    place = need.place
    return [
        token
        for token in tokens
        if (token.key == need.key or need.listed)
        and (place == ANYWHERE or token.place == ANYWHERE or token.place == place)
        and token not in taken
    ]


__all__ = ["CONSISTENT", "Bound", "Ran", "Simulation", "Token"]
