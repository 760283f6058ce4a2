"""One node of autograd while it runs: what its operators take, and which gradients it gives.

What derivatives.toml says: how autograd's nodes compute, and which of their operators takes what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct, field

from tracemine.flow.inferred.keys import Keys
from tracemine.flow.inferred.pools import Token, Value
from tracemine.flow.inferred.wiring_record import Need, Wiring
from tracemine.tables import table_beside

_NAMES, _BACKWARD = "aten::", "_backward"
Found = tuple[Token, str]  # and how it was found
Maker = tuple[int, int]  # a node, and which of its forward operator's results
# One way to compute one gradient: whose gradient it is, and operators one after the other, with what each takes. None:
# the node's own gradient is handed on.
GradientFormula = tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]
GRADIENT, RESULT = "grad", "result"


class ForwardInput(Struct):
    """A tensor that a forward operator took."""

    name: str  # of the argument
    token: Token
    maker: Maker | None  # where its gradient goes; None: to a leaf, or nowhere
    read: tuple[int, int]  # the root around the operator, and which of what that takes it is; below 0: none of them
    place: int  # of that read in Bound, −1: none
    either: bool  # the operator does not tell it from what else it takes


class Forward(Struct):
    """A forward operator that has a node."""

    took: list[ForwardInput]
    made: list[Token | None]

    def argument(self, name: str) -> ForwardInput | None:
        return next((took for took in self.took if took.name == name), None)

    def either(self, name: str) -> bool:
        """Return whether an argument may be another one's tensor: they look the same, and the operator may
        take either."""
        took = self.argument(name)
        if took is None or not took.either:
            return False
        token = took.token
        return any(other.token.key == token.key and other.token.value != token.value for other in self.took)


class Gradient(Struct):
    """A gradient on its way."""

    token: Token
    sure: bool
    of: ForwardInput
    reads: list[tuple[int, int]]  # of the tensor that it is of, where these were not sure
    turn: int  # which node gave it, counted
    gone: bool = False
    unexplained: bool = False  # perhaps it was summed with another one
    either: bool = False  # the operator that took the tensor does not tell it from another one
    swapped: bool = False  # perhaps it is the gradient of that other one

    @property
    def known(self) -> bool:
        """Whether it is known to be this tensor's gradient."""
        return self.sure and not self.swapped

    @property
    def why(self) -> str:
        """How it was found, by whoever takes it."""
        return "gradient" if self.known else "a gradient, perhaps"


class Leaf(Struct):
    """A gradient that was accumulated into a tensor that no operator made."""

    gradient: Token
    sure: bool
    read: tuple[int, int] | None  # of the tensor, by root and which of its inputs
    parameter: Token | None = None
    guessed: bool = False  # whoever read the parameter may have read another tensor
    alone: bool = False  # no other leaf looks like it


class Running(Struct):
    """The node that runs now."""

    keys: Keys
    turn: int  # which node it is, counted
    name: str
    accumulates: bool
    forward: Forward | None
    grads: list[Token]
    sure: bool  # of what it takes
    saved: list[Token]
    sources: list[tuple[str, ...]] | None = None  # for each of its operators what it takes, where a formula fits
    products: dict[str, int] = field(default_factory=dict)  # argument → what gives its gradient, −1: handed on
    made: list[Token] = field(default_factory=list)
    results: list[Token | None] = field(default_factory=list)  # of each of its operators
    consumed: set[Value] = field(default_factory=set)
    given: list[Gradient] | None = None  # once its own operators have run
    unexplained: bool = False  # something was summed behind it, and it is not known what
    summed: tuple[Gradient, Gradient] | None = None  # whose sum runs now, the new one first
    reduced: Gradient | None = None

    def takes(self, need: Need, number: int, name: str, *, recorded: bool) -> Found | None:
        """Return what one of its operators takes: by the formula, by the argument's name, or by what it looks like.

        recorded: autograd notes the operator, as of a forward pass that runs once more; it takes what that made.
        """
        sure = "" if self.sure else ", perhaps"
        found = self._by_source(need, number, sure)
        if found is not None:
            return found
        if need.name.startswith("grad") and len(self.grads) == 1 and self.grads[0].key == need.key:
            return self.grads[0], "gradient" + sure
        if recorded and self.sources is None:
            return None
        # Only operators made for it call what they take as the forward operator does.
        named = self._named(need) if _BACKWARD in name else None
        return self._by_look(need, sure) if named is None else (named, "saved")

    def _by_source(self, need: Need, number: int, sure: str) -> Found | None:
        """Return what the formula says, where one fits."""
        at = len(self.results)
        if self.sources is None or at >= len(self.sources):
            return None
        source = self.sources[at][number]
        token = self._source(source)
        if token is None or token.key != need.key:
            return None
        return token, self._kind(source) + (sure if source == GRADIENT else "")

    def _by_look(self, need: Need, sure: str) -> Found | None:
        """Return what looks right of all that the node has; only a gradient is called one."""
        parts: tuple[tuple[list[Token], str], ...] = (
            (self.grads, "gradient" + sure),
            (self.made, "made for the gradient"),
            (self.saved, "saved"),
        )
        if need.name.startswith("grad"):
            parts = parts[:2]
        found = [(token, why) for part, why in parts for token in part if token.key == need.key]
        if len({token.storage for token, _ in found}) == 1:
            return found[-1]
        return (found[0][0], "one of the gradient's") if found else None

    def _kind(self, source: str) -> str:
        """Return what a formula's source is."""
        if source[0] == "#":
            return "made for the gradient"
        if source == GRADIENT:
            return "gradient"
        return "saved, or its like" if self.forward is not None and self.forward.either(source) else "saved"

    def _source(self, source: str) -> Token | None:
        if source == GRADIENT:
            return self.grads[0] if self.grads else None
        if source[0] == "#":
            return self.results[int(source[1:])]
        forward = self.forward
        if forward is None:
            return None
        if source == RESULT:
            return forward.made[0] if forward.made else None
        took = forward.argument(source)
        return took.token if took is not None else None

    def _named(self, need: Need) -> Token | None:
        """Return what an operator takes by the name of its argument."""
        forward = self.forward
        if forward is None:
            return None
        took = forward.argument(need.name)
        result = derivatives()["results"].get(need.name)
        found = took.token if took is not None else None
        if found is None and result is not None and result < len(forward.made):
            found = forward.made[result]
        return found if found is not None and found.key == need.key else None

    def choose(self, roots: Sequence[Wiring]) -> None:
        """Find the formula that the node's operators follow."""
        if self.forward is None or len(self.grads) != 1:
            return
        arguments = {took.name: took for took in self.forward.took}
        names = [root.call.name.removeprefix(_NAMES) for root in roots]
        fitting = [one for one in programs(self.name, names, arguments) if self._follows(roots, one)]
        odd = [_odd(one, arguments) for one in fitting]
        best = [one for one, how_odd in zip(fitting, odd, strict=True) if how_odd == min(odd)]
        if len(best) != 1:
            return
        self.sources = []
        for (argument, calls), at in best[0]:
            self.sources += [_shifted(sources, at) for _, sources in calls]
            self.products[argument] = at + len(calls) - 1 if calls else -1

    def _follows(self, roots: Sequence[Wiring], program: list[tuple[GradientFormula, int]]) -> bool:
        """Return whether what each operator takes looks like what the formula says."""
        for (_, calls), at in program:
            for (_, sources), root in zip(calls, roots[at:], strict=False):
                if len(sources) != len(root.needs):
                    return False
                for source, need in zip(sources, root.needs, strict=True):
                    if source[0] == "#":
                        gives = roots[at + int(source[1:]) - 1].gives
                        key = gives[0].key if gives else -1
                    else:
                        token = self._source(source)
                        key = -1 if token is None else token.key
                    if key != need.key:
                        return False
        return True

    def gives(self) -> list[Gradient]:
        """Return a gradient for each tensor that the forward operator took, as far as it is known which one."""
        if self.given is None:
            self.given = []
            if self.forward is not None:
                self.given = self._by_formula() if self.products else self._by_shape()
            _forget_order(self.given)
        return self.given

    def _by_formula(self) -> list[Gradient]:
        found: list[Gradient] = []
        if self.forward is None:
            return found
        for took in self.forward.took:
            at = self.products.get(took.name)
            token = None if at is None else self.results[at] if 0 <= at < len(self.results) else None
            if at == -1 and self.grads:
                token = self.grads[0]
            if token is not None:
                gradient = self._gradient(token, token.sure and (at != -1 or self.sure), took)
                gradient.swapped = at != -1 and self.forward.either(took.name)
                found.append(gradient)
        return found

    def _by_shape(self) -> list[Gradient]:
        shape_of, dtype_of = self.keys.shape_of, self.keys.dtype_of
        last = {token.value: token for token in self.made if token.value not in self.consumed}
        made = list(last.values())
        took = [one for one in self._forward_took() if _is_real(dtype_of[one.token.key])]
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
            elif not last and len(self.grads) == 1 and shape_of[self.grads[0].key] == shape:
                found.append(self._gradient(self.grads[0], self.grads[0].sure and self.sure, one))
        return found

    def _forward_took(self) -> list[ForwardInput]:
        return [] if self.forward is None else self.forward.took

    def _gradient(self, token: Token, sure: bool, of: ForwardInput) -> Gradient:
        reads = [] if of.token.sure else [of.read]
        return Gradient(token, sure, of, reads, self.turn, either=of.either)


def _odd(program: list[tuple[GradientFormula, int]], arguments: Mapping[str, ForwardInput]) -> int:
    """Count what speaks against a program: who has a node wants a gradient; who has none may be a leaf."""
    wanted = {argument for (argument, _), _ in program}
    return sum((took.maker is not None) != (name in wanted) for name, took in arguments.items())


def _forget_order(given: list[Gradient]) -> None:
    """One gradient for two tensors does not tell which of them the operator took first."""
    for one in given:
        if any(one.reads and other.reads and other is not one and other.token is one.token for other in given):
            one.reads = one.reads if one.either else []


def _shifted(sources: tuple[str, ...], by: int) -> tuple[str, ...]:
    """Return numbers of operators counted from the node's first one."""
    return tuple(f"#{int(source[1:]) - 1 + by}" if source[0] == "#" else source for source in sources)


def _is_real(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("float", "bfloat", "complex"))


@cache
def derivatives() -> dict[str, Any]:
    """Return derivatives.toml, read once, which says what each of it means."""
    return table_beside(__file__, "derivatives.toml")


@cache
def formulas(kind: str) -> tuple[tuple[GradientFormula, ...], ...]:
    """Return by argument the ways to compute the gradients of a kind of node; none where they are not known.

    >>> [calls for _, calls in formulas("Bmm")[1]]
    [(('transpose', ('mat2',)), ('bmm', ('grad', '#1')))]
    """
    parts = derivatives()["formulas"].get(kind, {})
    return tuple(tuple(_part(argument, text) for text in ways) for argument, ways in parts.items())


def _part(argument: str, text: str) -> GradientFormula:
    calls = [call.split() for call in text.split(",") if call.strip()]
    return argument, tuple((name, tuple(sources)) for name, *sources in calls)


def programs(
    kind: str, names: Sequence[str], arguments: Mapping[str, object]
) -> Iterator[list[tuple[GradientFormula, int]]]:
    """Yield every way in which a node of this kind can run operators of these names: its parts, and where each begins.

    arguments: those of the forward operator that are tensors.

    >>> [[argument for (argument, _), _ in found] for found in programs("Mul", ["mul"], {"self": 0, "other": 0})]
    [['other'], ['self'], ['self']]
    """
    choices = [[way for way in ways if way[0] in arguments] for ways in formulas(kind)]

    def parts(number: int, at: int) -> Iterator[list[tuple[GradientFormula, int]]]:
        if number == len(choices):
            if at == len(names):
                yield []
            return
        for way in choices[number]:
            wanted = [name for name, _ in way[1]]
            if list(names[at : at + len(wanted)]) == wanted:
                for rest in parts(number + 1, at + len(wanted)):
                    yield [(way, at), *rest]
        if all(calls for _, calls in choices[number]):  # it is not needed
            yield from parts(number + 1, at)

    if any(choices):
        yield from parts(0, 0)
