"""Library calls in place of a graph or of parts of it, found among its terms.

What a call does not say stays as eager calls before and after it. A part is replaced only where nothing between its
operators is wanted by anybody else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tracemine.codegen.graph import Graph, Scalar
from tracemine.ops import is_view
from tracemine.validate.record import Mutant
from tracemine.verify.library import optimizers
from tracemine.verify.library.checks import reason
from tracemine.verify.library.record import Found, Replacement
from tracemine.verify.library.source import Pick, copied, function, pick, reads, shown
from tracemine.verify.library.table import table
from tracemine.verify.library.terms import INPUT, RESHAPES, Opaque, Terms, terms

_MOST_TERMS = 2_000


def find(graph: Graph, unread: Collection[int] = (), *, heads_apart: bool = False) -> Found:
    """Return the library call that a graph or a part of it can be replaced by, or why none that comes near it can.

    unread: live values without a known consumer, whose memory lasted. heads_apart: attention's results have
    batch and heads as axes of their own, as the call gives them, not the graph's shape.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("norm")
    >>> x, w = b.input("x", (4, 64), "bfloat16"), b.input("w", (64,), "bfloat16")
    >>> wide = b.call("aten::_to_copy", x, dtype="float32")
    >>> power = b.call("aten::mean.dim", b.call("aten::pow.Tensor_Scalar", wide, 2), [-1], True)
    >>> normal = b.call("aten::mul.Tensor", wide, b.call("aten::rsqrt", b.call("aten::add.Tensor", power, 1e-6)))
    >>> narrow = b.call("aten::_to_copy", normal, dtype="bfloat16")
    >>> find(b.done(b.call("aten::mul.Tensor", w, narrow))).replacement.says
    'F.rms_norm(x, (64,), weight, 1e-06)'
    """
    try:
        found = terms(graph)
    except Opaque as why:
        return Found(refused=(str(why),))
    if found.written or found.listed:
        return optimizers.find(found, unread)
    if len(found.terms) > _MOST_TERMS:
        return Found(refused=("it has too many calls to look through",))
    found.live = tuple(None if v in unread else k for v, k in zip(graph.live, found.live, strict=True))
    return _Finding(found, heads_apart).found()


class _Finding:
    def __init__(self, terms: Terms, heads_apart: bool = False) -> None:
        self.terms, self.heads_apart = terms, heads_apart
        self.picks: list[Pick] = []
        self.refused: list[str] = []

    def found(self) -> Found:
        """Return the calls that fit, outermost first, none within another."""
        wanted = reads(self.terms, self.picks)
        roots: set[int] = set()
        for root in reversed(range(len(self.terms.terms))):
            if root in roots or root not in wanted or self.terms.terms[root].operator == INPUT:
                continue
            fits = next(self._fitting(root), None)
            if fits is not None:
                self.picks.append(fits)
                roots.add(root)
                wanted = reads(self.terms, self.picks)
        if not self.picks:
            return Found(refused=tuple(dict.fromkeys(self.refused)))
        return Found(replacement=self._written())

    def _fitting(self, root: int) -> Iterator[Pick]:
        for row in table().values():
            for form in row.forms if not row.roots else ():
                bound = next(row.pattern(form.pattern).at(self.terms, root), None)
                if bound is None:
                    continue
                why = next((w for need in row.needs if (w := reason(need, self.terms, bound, root))), None)
                fits = None if why else pick(row, form.call, bound, root, self.terms)
                if fits is not None and self._kept_apart([*self.picks, fits]):
                    yield fits
                    continue
                self.refused.append(f"{row.title}: {why or 'what stands between its operators is wanted elsewhere'}")

    def _kept_apart(self, picks: list[Pick]) -> bool:
        """Return whether what stands between the operators of the picks has no other consumer."""
        wanted = reads(self.terms, picks)
        return not any((p.bound.taken - {p.root, *p.reads.values()}) & wanted for p in picks)

    def _written(self) -> Replacement:
        first = self.picks[-1]
        rows = {row.title: row for row in (p.row for p in reversed(self.picks))}
        roots = {p.root for p in self.picks}
        wanted = reads(self.terms, self.picks) - roots
        return Replacement(
            products=any(row.through for row in rows.values()),
            call=first.call.partition("(")[0],
            says=shown(self.terms, first),
            text=function(self.terms, self.picks, heads_apart=self.heads_apart),
            eager_calls=sum(not _free(self.terms.terms[k].operator) for k in wanted)
            + sum(len(copied(self.terms, p)) for p in self.picks),
            at=self._fixed(),
            assumptions=self._assumptions(),
            differs={kind: why for row in rows.values() for kind, why in row.differs.items()},
            gpu_only=next((row.gpu_only for row in rows.values() if row.gpu_only), None),
            mutants=tuple(self._mutants()),
        )

    def _fixed(self) -> dict[str, float]:
        """Return numbers of the graph that the calls have no place for, and what they are taken to be."""
        found: dict[str, float] = {}
        for one in self.picks:
            bound = {s.name for s in one.bound.scalars.values()}
            inside = [s for k in one.bound.taken for s in self.terms.terms[k].operands if isinstance(s, Scalar)]
            found |= {s.name: one.bound.assumed.get(s.name, s.value) for s in inside if s.name not in bound}
        return found

    def _assumptions(self) -> tuple[str, ...]:
        said = [optimizers.LET_GO] if None in self.terms.live else []
        for one in self.picks:
            said += [text for what, text in one.row.assumes.items() if what in one.call]
            if one.bound.assumed:
                numbers = ", ".join(f"{value:.6g}" for value in one.bound.assumed.values())
                said.append(f"numbers that are not recorded are those of {one.row.title}: {numbers}")
            eps = one.bound.scalars.get("eps")
            if eps is not None and not eps.recorded:
                said.append("the epsilon, which is not recorded, is positive and finite")
        return tuple(dict.fromkeys(said))

    def _equivalent(self, one: Pick, text: str) -> str | None:
        """Return why a mutant may be right: one number added to all scores is taken off by the softmax."""
        if "mask" not in text or "mask" not in one.reads:
            return None
        mask = self.terms.terms[self.terms.peeled(one.reads["mask"], RESHAPES | {"expand"})]
        return "the mask is one number" if mask.operator in ("full", "zeros") else None

    def _mutants(self) -> Iterator[tuple[Mutant, str]]:
        """Generate functions with a mistake in one call, for each mistake of the table."""
        for place, picked in enumerate(self.picks):
            for way in picked.row.wrong:
                call = picked.call.replace(way.text, way.becomes, 1)
                if call != picked.call and not (way.unless and way.unless in picked.call):
                    changed = replace(picked, call=call)
                    text = function(self.terms, [*self.picks[:place], changed, *self.picks[place + 1 :]])
                    name = f"{way.text.strip(', ')} becomes {way.becomes.strip(', ')}"
                    yield Mutant(name, call, equivalent=self._equivalent(picked, way.text)), text


def _free(operator: str) -> bool:
    """Return whether a term launches nothing."""
    return operator == INPUT or is_view(f"aten::{operator}")
