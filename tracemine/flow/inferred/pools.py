"""Tensors that are alive in the simulation, by what they look like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.wiring import ANYWHERE, HOST
from tracemine.flow.inferred.wiring_record import Give, Need, Wiring

_MOST_REMEMBERED = 8  # tensors that look the same and have been read; older ones are forgotten
_MOST_UNREAD = 256  # the same of those without a consumer
_MOST_FORGOTTEN = 64  # of those the latest that are kept by name
_FURTHEST = 1 << 40  # elements from where a storage begins; only damaged views of views reach there
NO_CLAIM = -1

Value = tuple[int, int, int]  # storage, elements behind its beginning, key: what autograd takes for one tensor


class Token(Struct, eq=False):
    """A tensor that is alive in the simulation."""

    storage: int
    offset: int
    key: int
    born: int  # which root gave it, counted; of what is written in place, the root that wrote last
    sure: bool
    place: int
    outside: bool
    uses: int = 0  # so often read
    beside: bool = False  # made by an operator that is seldom applied to its own result
    taken: tuple[Token, ...] = ()  # what that took
    taken_surely: bool = False
    maker: int = -1  # the number of the wiring that made it
    readers: tuple[int, ...] = ()  # of one from outside the wirings that read it
    claim: int = NO_CLAIM  # place in Bound.sure of the read that took it for its being the newest
    claimed: int = 0  # the last root that may doubt that, counted
    backward: bool = False  # made for a gradient
    lasts: bool = False  # a parameter, or written in place from step to step
    step: int = 0  # that made it, or read it last
    step_by_guess: bool = False  # who read it in that step may have read another one
    one_of_many: bool = False  # written by one of several copies that look the same: which is unknown
    computed: bool = False  # whole, and not only allocated
    filled: bool = False  # from no tensor, and nothing else was written since
    doubted: bool = False  # someone read another one by guess, or this one
    read_by_guess: bool = False  # whoever read it may have read another one
    unread_by_guess: bool = False  # a view was made that may be one of another tensor: who reads that may not read this

    def view(self, give: Give, *, now: int, step: int, sure: bool) -> Token:
        """Return what an operator gives that shares its storage. sure: it is what the operator took."""
        return Token(
            self.storage,
            min(self.offset + give.offset, _FURTHEST),
            give.key,
            now,
            self.sure and sure and give.sure,
            self.place,
            self.outside,
            beside=self.beside,
            taken=self.taken,
            taken_surely=self.taken_surely,
            backward=self.backward,
            step=step,
        )

    @property
    def waits(self) -> bool:
        """Whether it was computed and has no consumer yet: nothing overwrites that."""
        return self.computed and not self.uses

    @property
    def value(self) -> Value:
        """What it is to autograd."""
        return self.storage, self.offset, self.key


class Pool(Struct):
    """The tensors that look the same, oldest first."""

    unread: list[Token] = field(default_factory=list)
    read: list[Token] = field(default_factory=list)
    newest_read: int = -1  # when the youngest of those that have been read was made
    host: bool = False  # some lie in host memory
    forgot: bool = False  # there were more
    forgotten: list[int] = field(default_factory=list)  # the storages of those, oldest first
    storages: dict[int, int] = field(default_factory=dict)  # of those that are there, and how many have each

    def enter(self, token: Token) -> None:
        """It is there from now on."""
        self.unread.append(token)
        self.storages[token.storage] = self.storages.get(token.storage, 0) + 1

    def forget(self, token: Token) -> None:
        """It is not looked at again; whoever guesses may have read it all the same."""
        self.forgot = True
        self._lose(token.storage)
        self.forgotten.append(token.storage)
        del self.forgotten[:-_MOST_FORGOTTEN]

    def keep(self, unread: list[Token], read: list[Token]) -> None:
        """Leave out all the others."""
        self.unread, self.read = unread, read
        self.storages = {}
        for token in (*unread, *read):
            self.storages[token.storage] = self.storages.get(token.storage, 0) + 1

    def rename(self, token: Token, storage: int) -> None:
        """Note that a tensor, where it is here, is to lie in another storage."""
        if token in self.unread or token in self.read:
            self._lose(token.storage)
            self.storages[storage] = self.storages.get(storage, 0) + 1

    def _lose(self, storage: int) -> None:
        left = self.storages[storage] - 1
        if left:
            self.storages[storage] = left
        else:
            del self.storages[storage]


class Bindings(Struct):
    """What the simulation found: one entry a root that was simulated, and one a storage of each."""

    root: list[int] = field(default_factory=list)
    wiring: list[Wiring] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sure: list[bool] = field(default_factory=list)
    alike: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by place, the storages of all that looked right
    older: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by place, those that look so and were forgotten
    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by root, storages that its numbers may be
    # Places where autograd showed what was taken, which it may have got wrong
    told: set[int] = field(default_factory=set)
    updates: set[int] = field(default_factory=set)  # roots that are part of an optimizer
    # Places where a parameter was taken that an optimizer may have written
    rewritten: set[int] = field(default_factory=set)
    unnamed: set[int] = field(default_factory=set)  # places where what was taken may be something unknown


class Ran(Struct):
    """One operator that was simulated."""

    root: int  # its position
    first: int  # place of the first that it took in Bound
    wiring: Wiring
    taken: list[Token]
    sure: list[bool]  # of each that was taken
    new: list[int]  # storages


class Pools:
    """All tensors by what they look like, with their dtype and, for members of lists, without."""

    def __init__(self, keys: Keys, lists: Iterable[int]) -> None:
        """lists: what members of lists look like, without the dtype, which was not recorded."""
        self._keys = keys
        self._by_key: defaultdict[int, Pool] = defaultdict(Pool)
        self._loose: dict[int, Pool] = {number: Pool() for number in lists}

    def of(self, need: Need) -> Pool:
        """Return those that look like what an operator takes."""
        return self._loose.get(need.loose, Pool()) if need.listed else self._by_key[need.key]

    def storages(self, need: Need) -> tuple[int, ...]:
        """The storages of all that look like what an operator takes, those included whose strides are not known."""
        if need.listed:
            return tuple(self.of(need).storages)
        return self._of_keys(self._keys.perhaps_equal(need.key)) or self.of_shape(need)

    def of_shape(self, need: Need) -> tuple[int, ...]:
        """Return the storages of all of its shape and dtype, whatever strides they were taken to have."""
        return self._of_keys(self._keys.of_shape(need.key))

    def _of_keys(self, keys: Sequence[int]) -> tuple[int, ...]:
        if len(keys) == 1:
            return self.looking(keys[0])
        pools = [pool for key in keys if (pool := self._by_key.get(key)) is not None and pool.storages]
        return tuple(pools[0].storages) if len(pools) == 1 else tuple(one for pool in pools for one in pool.storages)

    def looking(self, key: int) -> tuple[int, ...]:
        """Return the storages of all that look so."""
        pool = self._by_key.get(key)
        return () if pool is None else tuple(pool.storages)

    def both(self, need: Need) -> list[Pool]:
        """Return the same, with and without the dtype."""
        loose = self._loose.get(need.loose)
        return [self._by_key[need.key]] if loose is None else [self._by_key[need.key], loose]

    def around(self, token: Token) -> tuple[Pool, ...]:
        """Return where a tensor is."""
        loose = self._loose.get(self._keys.loose_of[token.key])
        return (self._by_key[token.key],) if loose is None else (self._by_key[token.key], loose)

    def sort(self, token: Token) -> None:
        """Put it where it belongs after its uses have changed."""
        for pool in self.around(token):
            if token.uses > 0:
                if token in pool.unread:
                    pool.unread.remove(token)
                    pool.read.append(token)
                    pool.newest_read = max(pool.newest_read, token.born)
                    if len(pool.read) > _MOST_REMEMBERED:
                        pool.forget(pool.read.pop(0))
            elif token in pool.read:
                pool.read.remove(token)
                pool.unread.append(token)

    def rename(self, token: Token, storage: int) -> None:
        """Note that a tensor is taken to lie in another storage."""
        for pool in self.around(token):
            pool.rename(token, storage)
        token.storage = storage

    def remember(self, token: Token) -> None:
        """A tensor is there from now on."""
        for pool in self.around(token):
            pool.enter(token)
            pool.host |= token.place == HOST
            if len(pool.unread) > _MOST_UNREAD:
                pool.forget(pool.unread.pop(0))

    def forget_since(self, need: Need, born: int) -> None:
        """What looks so and was made later is not looked at again."""
        for pool in self.both(need):
            kept = [[token for token in side if token.born <= born] for side in (pool.unread, pool.read)]
            pool.forgot |= len(kept[0]) + len(kept[1]) < len(pool.unread) + len(pool.read)
            pool.keep(*kept)


def fitting(pool: Pool | None, tokens: list[Token], need: Need, taken: list[Token]) -> list[Token]:
    """Return those that look right, lie where they should, and that the operator has not taken already."""
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
