"""The answer in words: whether a graph works, what has to go first, and what to write."""

from __future__ import annotations

import keyword
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from tracemine.findings.graphs.record import Effect, Graphs, Obstacle, Span, WayName
from tracemine.patterns import deferred
from tracemine.units import time_text

Kind = Literal["already", "works", "little", "part", "fails", "unknown"]
KINDS_OF_ANSWER: Final[tuple[Kind, ...]] = get_args(Kind)
_LEAST: Final = 0.05  # of the step: less is noise
_MUCH: Final = 0.2  # of the step: calls of what is compiled may cost the host as much as a smaller saving
_NEAR: Final = 0.9  # of the largest saving: as good, and rather the model than a function in it
_MOST_NAMED: Final = 2
_UNCOUNTED: Final = (
    "operators", "sizes", "few_sizes", "several_calls", "perhaps_several", "derived_twice", "optimizer"
)  # fmt: skip
_GROWS: Final = deferred(r"^sizes that differ from call to call: (cat|concat)\b")
_FIRST: Final[tuple[Effect, ...]] = ("raises", "stale", "breaks", "overwrites", "records_again")
_GRAPHS: Final[tuple[WayName, ...]] = ("reduce_overhead", "graphs_by_step")
_MARKED: Final = """
for batch in batches:
    torch.compiler.cudagraph_mark_step_begin()    # in front of each step
    step(batch)"""
_PLAIN: Final = deferred(r"[\w./\\:<> -]{1,200}", re.ASCII)
_SAID: Final = deferred(r"[\w./\\:<>()\[\]`,'= -]{1,200}", re.ASCII)
_STATIC: Final = (
    'model.generation_config.cache_implementation = "static"; '
    'model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)'
)
_ROWS: Final = "keys.index_copy_(2, position, new_keys)    # and values; not: keys = torch.cat((keys, new_keys), 2)"
_ALREADY: Final = (
    "Graphs are replayed there already: another capture gains nothing.",
    "Graphs are being captured there: record a step that replays them.",
)
_BY_HAND: Final = "with torch.cuda.graph(graph): step()    # after a warm-up; then each step: graph.replay()"


class GraphAnswer(Struct, frozen=True):
    """Whether a graph works. `part`: what launches much in the step can be one, and the step itself not."""

    kind: Kind
    says: str
    code: str | None  # lines; None: nothing that is known to work
    held: float = 1.0  # share of the step's launches that the code makes a graph of; of `fails` none

    @property
    def advice(self) -> str:
        """Return the answer as a rule's text: a paragraph, and the code that it leads up to."""
        if self.code is None:
            return self.says
        return f"{self.says.removesuffix('.')}:\n\n{textwrap.indent(self.code, '    ')}"


def answer(graphs: Graphs, whole_ns: int, basis: str = "unprofiled") -> GraphAnswer:
    """Return the answer. whole_ns: how long all steps take; where none are known all that was recorded. basis: without
    the profiler, or, where what recording costs is not known, as recorded.
    """
    steps = max(graphs.steps, 1)
    step, captured = graphs.step, graphs.step.way("cuda_graph")
    if captured.effect == "already":
        return GraphAnswer("already", _ALREADY[captured.by == "captured"], None)
    if not graphs.steps and captured.outcome == "works":
        return GraphAnswer("unknown", "Not known: no steps are, of which a graph could hold one.", None)
    part, way = _best(graphs, _LEAST * whole_ns, _GRAPHS)
    first = _first(step, "cuda_graph", steps)
    if graphs.generates or any(_GROWS.match(one.says) for span in (step, *graphs.spans) for one in span.obstacles):
        return _of_decoding(graphs, first)
    if captured.outcome == "works":
        return _whole(graphs, part, way, steps, whole_ns, basis)
    says = _obstacle_text(first, fails=captured.outcome == "fails")
    if part is not None:
        says = f"{says} What can be one now is {name_of(part)}, {_worth(part, way, steps)}.{_how(part, way)}"
        return GraphAnswer("part", says, code_of(part, way), part.share)
    compiled, _ = _best(graphs, _MUCH * whole_ns, ("default",))
    kind: Kind = "fails" if captured.outcome == "fails" else "unknown"
    held = 0.0 if kind == "fails" else 1.0
    if compiled is None:
        return GraphAnswer(kind, says, None, held)
    says = f"{says} Fewer kernels are possible in {name_of(compiled)}, {_worth(compiled, 'default', steps)}."
    return GraphAnswer(kind, says, code_of(compiled, "default"), held)


def _obstacle_text(first: str | None, *, fails: bool) -> str:
    """Return what stands in the way of a graph of the step, as a sentence.

    >>> _obstacle_text("`.item()` (train.py:7)", fails=True)
    'A CUDA graph of the step fails at `.item()` (train.py:7): change that first.'
    """
    if fails:
        return f"A CUDA graph of the step fails at {first}: change that first."
    return (
        f"A CUDA graph of the step is not known to take {first}." if first else "Not known: no operators were recorded."
    )


def _worth(span: Span, way: WayName, steps: int) -> str:
    """Return how much of the step a span is, and what that way saves of it."""
    saving = span.way(way).saving_ns
    saved = "" if saving is None else f", {time_text(saving.mid / steps)} a step"
    return f"{span.share:.0%} of the launches{saved}"


def _how(part: Span, way: WayName) -> str:
    """Return what to do, in a sentence, where the code alone does not say it."""
    if way != "graphs_by_step":
        return ""
    return f" Compile `{_short(part)}` with CUDA graphs, and mark where each step begins."


def _whole(graphs: Graphs, part: Span | None, way: WayName, steps: int, whole_ns: int, basis: str) -> GraphAnswer:
    saving, code = graphs.step.saving_ns, _BY_HAND if part is None else code_of(part, way)
    how = "" if part is None else _how(part, way)
    if saving is None:
        return GraphAnswer("works", f"One CUDA graph can hold the step.{how}", code)
    before, after = (time_text(each / steps) for each in (whole_ns, max(whole_ns - saving.mid, 0)))
    if saving.mid < _LEAST * whole_ns:
        says = f"One CUDA graph can hold the step and gains little: {before}, then {after} {basis}."
        return GraphAnswer("little", says, None)
    return GraphAnswer("works", f"One CUDA graph can hold the step: {before}, then {after} {basis}.{how}", code)


def _of_decoding(graphs: Graphs, first: str) -> GraphAnswer:
    """Return the answer where a cache grows from token to token."""
    met = f" To be removed first: {first}." if first else ""
    says = f"One token's step can be a graph once its cache has its full length from the start; the loop cannot.{met}"
    return GraphAnswer("part", says, _STATIC if graphs.generates else _ROWS)


def _best(graphs: Graphs, least_ns: float, ways: Sequence[WayName]) -> tuple[Span | None, WayName]:
    """Return the span of which modes of torch.compile save most, and the mode; None: they work nowhere, or save little.

    Of modes that save as much the first one.
    """
    classes = [span.name.rpartition("_")[0] for span in graphs.spans if span.kind == "module"]
    alike = {
        name for name in classes if classes.count(name) > 1
    }  # one graph a layer takes the memory of the one before
    every = [
        (math.inf if (saving := span.way(way).saving_ns) is None else saving.mid, span, way)
        for span in graphs.spans
        for way in ways
        if span.way(way).outcome == "works" and _written(span) and span.name.rpartition("_")[0] not in alike
    ]
    most = max((saving for saving, *_ in every), default=0)
    for each in ways:
        near = [span for saving, span, way in every if way == each and saving >= max(_NEAR * most, least_ns)]
        if near:
            return max(near, key=lambda span: (span.kind == "module", span.launches)), each
    return None, ways[0]


def _written(span: Span) -> bool:
    """Return whether a span has a name that code can name."""
    return span.kind == "module" or (
        span.name.isascii() and span.name.isidentifier() and not keyword.iskeyword(span.name)
    )


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
    where = [] if one.line is None else [plain(one.line)]
    if one.kind not in _UNCOUNTED:
        where.append(f"{often:,.0f} a step" if often >= 1 else f"{one.times:,} in all")
    says = one.says if _SAID.fullmatch(one.says) else "what has no plain name"
    return f"{says} ({', '.join(where)})" if where else says


def name_of(span: Span) -> str:
    """Return a span's name with its line."""
    return f"`{plain(span.name)}`" + (f" ({plain(span.line.rpartition(' ')[0])})" if span.line else "")


def _short(span: Span) -> str:
    """Return a function's name or a module's class."""
    return plain(span.name.rpartition("_")[0] if span.kind == "module" else span.name)


def code_of(span: Span, way: WayName) -> str:
    """Return what compiles a span in a mode."""
    mode = ', mode="reduce-overhead"' if way in _GRAPHS else ""
    marked = _MARKED if way == "graphs_by_step" else ""
    if span.kind == "function":
        return f"{span.name} = torch.compile({span.name}{mode}){marked}"
    return f"model = torch.compile(model{mode})    # model: the {_short(span)}{marked}"


def plain(text: str) -> str:
    """Return a text of the trace's that is to stand in a fix: what is more than a name, a path or a line is left out.

    >>> plain("model/llama.py:71 forward"), plain("x`\x1b[0m")
    ('model/llama.py:71 forward', 'not named')
    """
    return text if _PLAIN.fullmatch(text) else "not named"
