"""The answer in words: whether a graph works, what has to go first, and what to write."""

from __future__ import annotations

import keyword
import math
import re
from typing import Final, Literal

from msgspec import Struct

from tracemine.findings.graphs.record import Effect, Graphs, Obstacle, Span, WayName
from tracemine.units import time_text

Kind = Literal["already", "works", "little", "part", "fails", "unknown"]
_LEAST: Final = 0.05  # of the step: less is noise
_NEAR: Final = 0.9  # of the largest saving: as good, and rather the model than a function in it
_MOST_NAMED: Final = 3
_UNCOUNTED: Final = (
    "operators", "sizes", "few_sizes", "several_calls", "perhaps_several", "derived_twice", "optimizer"
)  # fmt: skip
_GROWS: Final = re.compile(r"^sizes that differ from call to call: (cat|concat)\b")
_FIRST: Final[tuple[Effect, ...]] = ("raises", "stale", "breaks", "overwrites", "records_again")
_STATIC: Final = (
    'model.generation_config.cache_implementation = "static"; '
    'model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)'
)
_ALREADY: Final = (
    "Graphs are replayed there already: another capture gains nothing.",
    "Graphs are being captured there: record a step that replays them.",
)
_BY_HAND: Final = "with torch.cuda.graph(graph): step()    # after a warm-up; then each step: graph.replay()"


class Answer(Struct, frozen=True):
    """Whether a graph works. `part`: what launches much in the step can be one, and the step itself not."""

    kind: Kind
    says: str
    code: str | None  # a line; None: nothing that is known to work


def answer(graphs: Graphs, whole_ns: int) -> Answer:
    """Return the answer. whole_ns: how long all steps take unprofiled; where none are known all that was recorded."""
    steps = max(graphs.steps, 1)
    step, way = graphs.step, graphs.step.way("cuda_graph")
    if way.effect == "already":
        return Answer("already", _ALREADY[way.by == "captured"], None)
    if not graphs.steps and way.outcome == "works":
        return Answer("unknown", "Not known: no steps are, of which a graph could hold one.", None)
    part = _best(graphs, _LEAST * whole_ns)
    first = _first(step, "cuda_graph", steps)
    if graphs.generates or any(_GROWS.match(one.says) for span in (step, *graphs.spans) for one in span.obstacles):
        return _of_decoding(graphs, first)
    if way.outcome == "works":
        return _whole(graphs, part, steps, whole_ns)
    if way.outcome == "unknown":
        says = f"Not known: {first}." if first else "Not known: no operators were recorded."
        return Answer("unknown", says, None if part is None else code_of(part))
    says = f"Not the step as it is. To be removed first: {first}."
    if part is None:
        return Answer("fails", says, None)
    saving = part.way("reduce_overhead").saving_ns
    saved = "" if saving is None else f", and saves {time_text(saving.mid / steps)} a step"
    says = f"{says} What can be a graph now: {name_of(part)}, {part.share:.0%} of the launches{saved}."
    return Answer("part", says, code_of(part))


def _whole(graphs: Graphs, part: Span | None, steps: int, whole_ns: int) -> Answer:
    saving = graphs.step.saving_ns
    code = _BY_HAND if part is None or part.kind == "step" else code_of(part)
    if saving is None:
        return Answer("works", "One CUDA graph can hold the step.", code)
    before, after = (time_text(each / steps) for each in (whole_ns, max(whole_ns - saving.mid, 0)))
    if saving.mid < _LEAST * whole_ns:
        says = f"One CUDA graph can hold the step and gains little: {before}, then {after} unprofiled."
        return Answer("little", says, None)
    return Answer("works", f"One CUDA graph can hold the step: {before}, then {after} unprofiled.", code)


def _of_decoding(graphs: Graphs, first: str) -> Answer:
    """Return the answer where a cache grows from token to token."""
    met = f" To be removed first: {first}." if first else ""
    says = f"Not the loop over tokens.{met} One token's step can be a graph, with a cache of fixed size."
    return Answer("part", says, _STATIC if graphs.generates else None)


def _best(graphs: Graphs, least_ns: float) -> Span | None:
    """Return what torch.compile replays as a graph for the largest saving; None: nothing, or it saves too little."""
    classes = [span.name.rpartition("_")[0] for span in graphs.spans if span.kind == "module"]
    alike = {
        name for name in classes if classes.count(name) > 1
    }  # one graph a layer takes the memory of the one before
    every = [
        span
        for span in graphs.spans
        if span.way("reduce_overhead").outcome == "works"
        and _written(span)
        and span.name.rpartition("_")[0] not in alike
    ]
    saved = {id(span): _saving_ns(span) for span in every}
    most = max(saved.values(), default=0)
    near = [span for span in every if saved[id(span)] >= max(_NEAR * most, least_ns)]
    return max(near, key=lambda span: (span.kind == "module", span.launches), default=None)


def _saving_ns(span: Span) -> float:
    """Return what a span saves as a graph of torch.compile's; where that was not asked all counts."""
    saving = span.way("reduce_overhead").saving_ns
    return math.inf if saving is None else saving.mid


def _written(span: Span) -> bool:
    """Return whether a span has a name that code can name."""
    return span.kind == "module" or (span.name.isidentifier() and not keyword.iskeyword(span.name))


def _first(span: Span, way: WayName, steps: int) -> str:
    """Return what stops a way, in words, what is met most often first."""
    met = [one for one in span.obstacles if one.effects.get(way) in _FIRST] or [
        one for one in span.obstacles if way in one.effects
    ]
    more = f"; {len(met) - _MOST_NAMED} more" if len(met) > _MOST_NAMED else ""
    return "; ".join(obstacle_text(one, steps) for one in met[:_MOST_NAMED]) + more


def obstacle_text(one: Obstacle, steps: int) -> str:
    """Return an obstacle with its line and how often a step meets it."""
    often = one.times / steps
    where = [] if one.line is None else [one.line]
    if one.kind not in _UNCOUNTED:
        where.append(f"{often:,.0f} a step" if often >= 1 else f"{one.times:,} in all")
    return f"{one.says} ({', '.join(where)})" if where else one.says


def name_of(span: Span) -> str:
    """Return a span's name with its line."""
    return f"`{span.name}`" + (f" ({span.line.rpartition(' ')[0]})" if span.line else "")


def code_of(span: Span) -> str:
    """Return what compiles a span so that it is replayed as a graph."""
    if span.kind == "function":
        return f'{span.name} = torch.compile({span.name}, mode="reduce-overhead")'
    return f'model = torch.compile(model, mode="reduce-overhead")    # model: the {span.name.rpartition("_")[0]}'
