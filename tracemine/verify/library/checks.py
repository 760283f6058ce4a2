"""What must hold besides a pattern, so that a call computes the same. Each check gives the reason where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable

from tracemine.codegen.graph import LiteralArg
from tracemine.verify.library.pattern import Binding
from tracemine.verify.library.terms import Terms

MASKS = ("mask", "bias")  # what is added to scores
LEAST = -1e4  # a score that is as low as this has no weight next to one that is not: exp(−10⁴) is 0 in any type

Check = Callable[[Terms, Binding, int], str | None]


def reason(need: str, terms: Terms, bound: Binding, root: int) -> str | None:
    """Return why a need of the table is not met by a match with that root; None where it is."""
    return _CHECKS[need](terms, bound, root)


def axes(terms: Terms, bound: Binding) -> tuple[int, ...] | None:
    """Return the axes that `dims` names, counted from the end; None where they are not the last ones of x, in order."""
    dims = bound.literals["dims"].value
    rank = len(terms.terms[bound.tensors["x"]].spec.shape)
    if not isinstance(dims, tuple) or not dims:
        return None
    found = tuple(sorted(int(d) % rank - rank for d in dims)) if rank else ()
    return found if found == tuple(range(-len(dims), 0)) else None


def _last_axes(terms: Terms, bound: Binding, root: int) -> str | None:
    if axes(terms, bound) is None:
        return "the mean goes over other axes than the last"
    same = terms.terms[root].spec.shape == terms.terms[bound.tensors["x"]].spec.shape
    return None if same else "the result has another shape than what is normalised"


def _shaped(name: str) -> Check:
    def check(terms: Terms, bound: Binding, root: int) -> str | None:
        if name not in bound.tensors:
            return None
        last = terms.terms[bound.tensors["x"]].spec.shape[-len(axes(terms, bound) or ()) :]
        same = terms.terms[bound.tensors[name]].spec.shape == last
        return None if same else f"the {name} has another shape than the axes that the mean goes over"

    return check


def _epsilon(terms: Terms, bound: Binding, root: int) -> str | None:
    eps = bound.scalars["eps"]
    good = not eps.recorded or (math.isfinite(eps.value) and eps.value > 0)
    return None if good else "the epsilon is not a positive number"


def _by_the_count(terms: Terms, bound: Binding, root: int) -> str | None:
    correction = bound.literals.get("none", LiteralArg(0))
    return None if correction.value == 0 else "the variance is divided by one less than the count"


def _bias(terms: Terms, bound: Binding, root: int) -> str | None:
    left, right, bias = (terms.terms[bound.tensors[name]].spec for name in ("left", "right", "bias"))
    shape = terms.terms[root].spec.shape
    if len(left.shape) != 2 or len(right.shape) != 2 or not shape or shape[-1] != right.shape[1]:
        return "the product is seen in another shape than rows and columns"
    if bias.shape != (right.shape[1],):
        return "the bias is not one number a column"
    kinds = {spec.dtype for spec in (left, right, bias, terms.terms[root].spec)}
    return None if len(kinds) == 1 else "the product, its bias and its result have several dtypes"


def _as_large(terms: Terms, bound: Binding, root: int) -> str | None:
    left, right, other, result = (
        terms.terms[number].spec for number in (*(bound.tensors[name] for name in ("left", "right", "other")), root)
    )
    if len(left.shape) != 2 or len(right.shape) != 2 or result.shape != (left.shape[0], right.shape[1]):
        return "the product is seen in another shape than rows and columns"
    same = other.shape == result.shape and len({spec.dtype for spec in (left, right, other, result)}) == 1
    return None if same else "what is added has another shape or type than the product"


def heads(terms: Terms, bound: Binding) -> tuple[int, ...] | None:
    """Return the leading axes of the scores: batch and heads. None where the products are not over those."""
    query, key, value = (terms.terms[bound.tensors[name]].spec.shape for name in ("query", "key", "value"))
    if any(len(s) != 3 for s in (query, key, value)):
        return None
    if key[0] != query[0] or value[0] != query[0] or key[1] != query[2] or value[1] != key[2]:
        return None
    for number in sorted(bound.taken, reverse=True):  # the softmax is the term nearest to the root that has these ends
        term = terms.terms[number]
        if term.operator == "_softmax":
            shape = term.spec.shape
            lead = shape[:-2] if len(shape) == 4 else (1, *shape[:-2])
            fits = len(lead) == 2 and shape[-2:] == (query[1], key[2]) and math.prod(lead) == query[0]
            return lead if fits else None
    return None


def _heads(terms: Terms, bound: Binding, root: int) -> str | None:
    return None if heads(terms, bound) is not None else "the products are not over batch and heads"


def _along_keys(terms: Terms, bound: Binding, root: int) -> str | None:
    for number in bound.taken:
        term = terms.terms[number]
        if term.operator == "_softmax":
            axis = bound.literals["axis"].value
            last = axis in (-1, len(term.spec.shape) - 1) and not isinstance(axis, bool)
            return None if last else "the softmax goes along another axis than the keys"
    return "there is no softmax"


def _masks(terms: Terms, bound: Binding, root: int) -> str | None:
    return next((why for name in MASKS if name in bound.tensors and (why := _mask(name, terms, bound))), None)


def _mask(name: str, terms: Terms, bound: Binding) -> str | None:
    stages = {terms.terms[k].spec.dtype for k in (bound.tensors[name], *bound.seen[name])}
    kinds = {terms.terms[bound.tensors[other]].spec.dtype for other in ("query", "key", "value")}
    if kinds != stages:  # what is the least of float32 would be −inf in bfloat16
        return "the mask has another dtype than the query"
    lead = heads(terms, bound)
    shape = terms.terms[bound.tensors[name]].spec.shape
    query, key = (terms.terms[bound.tensors[other]].spec.shape for other in ("query", "key"))
    if lead is None or len(shape) > 4:
        return "the mask is not for batch, heads, queries and keys"
    if together(shape, lead):
        shape = (*lead, *shape[1:])
    padded = (1,) * (4 - len(shape)) + shape
    fits = all(n in (1, m) for n, m in zip(padded, (*lead, query[1], key[2]), strict=True))
    return None if fits else "the mask is not for batch, heads, queries and keys"


def _hidden(terms: Terms, bound: Binding, root: int) -> str | None:
    """Return booleans for queries and keys, and a number that masks a score: −inf, or near a type's least."""
    if "hidden" not in bound.tensors:
        return None
    lowest, spec = bound.scalars["lowest"], terms.terms[bound.tensors["hidden"]].spec
    query, key = (terms.terms[bound.tensors[name]].spec.shape for name in ("query", "key"))
    lead = heads(terms, bound) or ()
    padded = (1,) * (4 - len(spec.shape)) + spec.shape
    fits = len(padded) == 4 and all(n in (1, m) for n, m in zip(padded, (*lead, query[1], key[2]), strict=False))
    if str(spec.dtype) != "bool" or not fits:
        return "the mask is not boolean for batch, heads, queries and keys"
    return (
        None if lowest.recorded and lowest.value <= LEAST else "what hidden scores are set to is not known to hide them"
    )


def together(shape: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Return whether a tensor has batch and heads as one axis."""
    return len(shape) == 3 and shape[0] == math.prod(lead)


_CHECKS: dict[str, Check] = {
    "dims are the last axes of x": _last_axes,
    "weight has the shape of dims": _shaped("weight"),
    "bias has the shape of dims": _shaped("bias"),
    "eps is positive and finite": _epsilon,
    "the variance is divided by the count": _by_the_count,
    "the bias is one number a column": _bias,
    "what is added has the product's shape": _as_large,
    "heads are the leading axes": _heads,
    "the softmax goes along the keys": _along_keys,
    "the mask is one for the query's type": _masks,
    "the mask is boolean, and hidden scores get the lowest number": _hidden,
}
