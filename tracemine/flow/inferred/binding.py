"""Which tensor each operator takes: the simulation.

An input takes a live tensor of the same shape, dtype and strides. Where several fit, the rules here say which, and
whether that is evidence or a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

from tracemine.flow.inferred.calls import Call
from tracemine.flow.inferred.wiring import ANYWHERE, GPU, Local, Wiring, key_of, loose_key_of
from tracemine.ops.infer import TensorSpec

_MOST_REMEMBERED = 64  # tensors of one signature
DEBUG = False

# Inputs that are parameters or running statistics, by position.
PARAMETERS: dict[str, frozenset[int]] = {
    f"aten::{name}": frozenset(positions)
    for name, positions in (
        ("linear", (1, 2)),
        ("layer_norm", (2, 3)),
        ("native_layer_norm", (2, 3)),
        ("rms_norm", (2,)),
        ("_fused_rms_norm", (2,)),
        ("embedding", (0,)),
        ("embedding_bag", (0,)),
        ("conv1d", (1, 2)),
        ("conv2d", (1, 2)),
        ("conv3d", (1, 2)),
        ("conv_transpose1d", (1, 2)),
        ("conv_transpose2d", (1, 2)),
        ("conv_transpose3d", (1, 2)),
        ("convolution", (1, 2)),
        ("_convolution", (1, 2)),
        ("batch_norm", (1, 2, 3, 4)),
        ("group_norm", (2, 3)),
        ("instance_norm", (1, 2, 3, 4)),
        ("prelu", (1,)),
        ("_grouped_mm", (1,)),
    )
}
# What is seldom applied to its own result: several of them take one tensor rather.
_SIDE_BY_SIDE = frozenset({"gemm", "conv"})


@dataclass(slots=True, eq=False)
class Token:
    """A tensor that is alive in the simulation."""

    storage: int
    offset: int
    spec: TensorSpec
    born: int  # which root gave it, counted; of what is written in place, the root that wrote last
    sure: bool
    place: int
    outside: bool
    uses: int = 0
    maker: Call | None = None  # that gave its storage
    taken: tuple[Token, ...] = ()  # what that took
    root: int = -1


@dataclass(slots=True)
class Bound:
    """What the simulation found: one entry a root that was simulated, and one a storage of each."""

    root: list[int] = field(default_factory=list)
    wiring: list[Wiring] = field(default_factory=list)
    storages: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sure: list[bool] = field(default_factory=list)
    reasons: list[object] = field(default_factory=list)


class Simulation:
    """Tensors by signature, and who read them."""

    def __init__(self) -> None:
        self.tokens: dict[Hashable, list[Token]] = defaultdict(list)
        self.loose: dict[Hashable, list[Token]] = defaultdict(list)
        self.bound = Bound()
        self.storages = 0
        self.now = 0
        self.unknown_made = -1  # root that last gave what nobody can name
        self.unknown_wrote = -1  # root that last wrote what nobody can name
        self.written: set[Hashable] = set()  # signatures of tensors from outside that were written

    def storage(self) -> int:
        """A new one."""
        self.storages += 1
        return self.storages - 1

    def list_dtype(self, wiring: Wiring) -> str | None:
        """The dtype that the members of a list are likely to have."""
        for slot in wiring.call.slots:
            if slot.list_index >= 0:
                fitting = self.loose.get(loose_key_of(slot.spec), ())
                unread = [token for token in fitting if not token.uses]
                if fitting:
                    return (unread or fitting)[-1].spec.dtype
        return None

    def run(self, root: int, wiring: Wiring, *, backward: bool = False) -> None:
        """One operator: bind what it takes, enter what it gives."""
        self.now += 1
        self.root = root
        call, bound = wiring.call, self.bound
        taken: list[Token] = []
        sure: list[bool] = []
        for number, slot in enumerate(call.slots):
            token, why = self._bind(slot.spec, wiring, number, taken)
            taken.append(token)
            sure.append(token.sure and why in SURE and not backward)
            reason: object = why
            if DEBUG:
                reason = (why, self.dbg, number, call.name, root, token.storage)
            bound.reasons.append(reason)
        new = [self.storage() for _ in range(wiring.new)]
        bound.root.append(root)
        bound.wiring.append(wiring)
        bound.storages += [token.storage for token in taken] + new
        bound.offsets += [token.offset for token in taken] + [0] * len(new)
        bound.sure += sure + [True] * len(new)
        bound.reasons += [""] * len(new)
        for token in taken:
            token.uses += 1
        if wiring.barrier:
            self.unknown_made = self.now
        if wiring.wrote_unknown:
            self.unknown_wrote = self.now
        for number in wiring.mutated:
            self._written(taken[number], sure[number], call)
        if not call.known:
            for token in taken:  # perhaps it writes them
                token.sure = False
        for local in wiring.results:
            self._enter(local, wiring, taken, sure, new)

    def _written(self, token: Token, sure: bool, call: Call) -> None:
        token.uses = 0
        token.born = self.now
        token.sure = sure
        token.root = self.root
        if token.outside:
            self.written.add(key_of(token.spec))
        for among, key in ((self.tokens, key_of(token.spec)), (self.loose, loose_key_of(token.spec))):
            tokens = among[key]
            if not sure:  # it may have been another one
                for other in tokens:
                    other.sure = False
            if token in tokens:
                tokens.remove(token)
                tokens.append(token)

    def _bind(self, spec: TensorSpec, wiring: Wiring, number: int, taken: list[Token]) -> tuple[Token, str]:
        call = wiring.call
        slot = call.slots[number]
        wanted = wiring.place.get(number, ANYWHERE)
        key = key_of(spec)
        among = self.loose if spec.dtype is None else self.tokens
        fitting = [
            token
            for token in among.get(loose_key_of(spec) if spec.dtype is None else key, ())
            if token not in taken and (not wanted or not token.place or token.place == wanted)
        ]
        self.dbg = (
            [
                (t.root, t.uses, t.outside, t.maker.name if t.maker else "", "", t.storage, t.born, self.now)
                for t in fitting
            ]
            if DEBUG
            else []
        )
        if slot.position in PARAMETERS.get(call.name, ()):
            return self._parameter(spec, key, fitting, wanted)
        if not fitting:
            return self._outside(spec, wanted, remember=True), "none" if self.unknown_made < 0 else "none, unknown made"
        unread = [token for token in fitting if not token.uses]
        left = sum(key_of(other.spec) == key for other in call.slots[number:])
        twins = sum(key_of(other.spec) == key for other in call.slots)
        if unread:
            token = unread[-min(left, len(unread))]
            made_alike = token.maker is not None and token.maker.op_class in _SIDE_BY_SIDE
            if len(unread) == left == 1 and made_alike and call.op_class in _SIDE_BY_SIDE:
                given = next((given for given in token.taken if given in fitting), None)
                if given is not None:
                    return given, "side by side"
            why = f"unread {min(len(unread), 3)}/{min(left, 3)}"
            if token.born < self.unknown_made:
                return token, why + ", unknown made"
            if twins != left:
                why += " second"
            if len({other.storage for other in fitting}) == 1:
                why += " only"
            elif token is fitting[-1]:
                why += " newest"
            return token, why
        token = fitting[-1]
        if token.born < self.unknown_made:
            return token, "read, unknown made"
        if len({other.storage for other in fitting}) == 1:
            return token, "read only" if twins == 1 else "read only, twins"
        return token, "read"

    def _parameter(self, spec: TensorSpec, key: Hashable, fitting: list[Token], place: int) -> tuple[Token, str]:
        inside = [token for token in fitting if not token.outside and not token.uses]
        if inside:
            return inside[-1], "parameter made inside"
        token = self._outside(spec, place, remember=False)
        if self.unknown_wrote >= 0 or key in self.written:
            return token, "parameter that may have been written"
        return token, "parameter"

    def _outside(self, spec: TensorSpec, place: int, *, remember: bool) -> Token:
        token = Token(self.storage(), 0, spec, self.now, True, place, True)
        if remember:
            self._remember(token)
        return token

    def _enter(self, local: Local, wiring: Wiring, taken: list[Token], sure: list[bool], new: list[int]) -> None:
        slots = len(taken)
        if local.storage < slots:
            source = taken[local.storage]
            if not local.offset and key_of(local.spec) == key_of(source.spec):
                return
            token = Token(
                source.storage,
                source.offset + local.offset,
                local.spec,
                self.now,
                sure[local.storage] and local.sure,
                source.place,
                source.outside,
                maker=source.maker,
                taken=source.taken,
                root=source.root,
            )
        else:
            place = wiring.place.get(local.storage, ANYWHERE)
            token = Token(
                new[local.storage - slots],
                0,
                local.spec,
                self.now,
                local.sure,
                place,
                False,
                maker=wiring.call,
                taken=tuple(taken),
                root=self.root,
            )
        self._remember(token)

    def _remember(self, token: Token) -> None:
        for among, key in ((self.tokens, key_of(token.spec)), (self.loose, loose_key_of(token.spec))):
            tokens = among[key]
            tokens.append(token)
            if len(tokens) > _MOST_REMEMBERED:
                del tokens[: _MOST_REMEMBERED // 2]


SURE = frozenset(
    {
        "parameter",
        "none",
        "read only",
        "side by side",
        "unread 1/1 only",
        "unread 1/1 newest",
        "unread 2/2 newest",
        "unread 1/1 second newest",
    }
)

__all__ = ["GPU", "SURE", "Bound", "Simulation"]
