"""Whether a CUDA graph would work, as text of a screen and as rows of CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tracemine.findings.graphs import Span, WayOutcome, obstacle_text
from tracemine.report.escape import line, shorten
from tracemine.report.top_lines import Shown, about, aligned, often
from tracemine.top import GraphTop
from tracemine.units import count_text, time_text

_EFFECTS: Final[Mapping[str | None, str]] = {
    None: "yes",
    "raises": "raises",
    "breaks": "breaks",
    "skips": "no replay",
    "stale": "stale",
    "overwrites": "overwritten",
    "records_again": "each anew",
    "recompiles": "recompiles",
    "already": "there",
    "not_known": "?",
}
_HEADS: Final = ("launches", "calls", "graph", "compile", "reduce-overhead", "by step", "max-autotune")
_MOST_ROWS, _MOST_OBSTACLES, _MOST_PARTS, _MOST_NAME, _MOST_LINES = 6, 4, 3, 400, 24
_LEGEND: Final[Mapping[str, str]] = {
    "raises": "an error",
    "breaks": "in pieces",
    "no replay": "compiled, launched one by one",
    "overwritten": "the next call overwrites its result; by step: not where a mark says that a step begins",
    "stale": "replays old values",
    "each anew": "recorded again for each call",
    "recompiles": "once more for each size",
}


def csv_rows(top: GraphTop) -> Iterator[Sequence[object]]:
    """Yield a header and a row a span."""
    ways = [name for way in top.step.ways for name in (way.way, f"{way.way}_effect")]
    yield "kind", "name", "line", "calls", "launches", "share", *ways, "saving_ns", "per", "steps"
    for span in (top.step, *top.spans):
        told = [text for way in span.ways for text in (way.outcome, way.effect)]
        saving = "" if span.saving_ns is None else span.saving_ns.mid
        known = (span.kind, span.name, span.line, span.calls, span.launches, span.share)
        yield *known, *told, saving, top.per, top.steps


def render_text(top: GraphTop, shown: Shown) -> str:
    """Return the answer, then each span, what is in the way, and the parts that can be captured: 24 lines at most."""
    head = about(top)
    if top.unprofiled_ns is not None:
        head.append(f"{count_text(top.steps, top.per)}, {time_text(top.unprofiled_ns)} unprofiled")
    told = textwrap.wrap(line(top.answer, 2 * _MOST_NAME), max(shown.width, 60))[:4]
    text = [" · ".join(head), "", *told, *(f"    {line(each, _MOST_NAME)}" for each in (top.fix or "").splitlines())]
    text += ["", *_table(top, shown.width)]
    if top.step.obstacles:
        text += ["", "in the way of the step:"]
        met = top.step.obstacles[:_MOST_OBSTACLES]
        text += [shorten(f"  {line(obstacle_text(one, top.steps), _MOST_NAME)}", shown.width) for one in met]
        text += _parts(top, shown.width)
    text += [*top.step.notes[: max(_MOST_LINES - 2 - len(text), 0)], *_legend(top, shown.width)]
    return "\n".join(text) + "\n"


def _legend(top: GraphTop, width: int) -> list[str]:
    """Return what the words in the table mean, those that stand there."""
    met = {_told(way, top.steps) for span in (top.step, *_apart(top)) for way in span.ways}
    said = [f"{word}: {means}" for word, means in _LEGEND.items() if word in met]
    return textwrap.wrap(" · ".join(["a time: works, and what a step saves", *said]), width)[:2]


def _table(top: GraphTop, width: int) -> Iterator[str]:
    rows = [top.step, *_apart(top)][:_MOST_ROWS]
    cells = aligned([_HEADS, *(_cells(span, top.steps) for span in rows)], 2)
    room = max(width - len(cells[0]) - 2, 16)
    for row, name in zip(cells, ("what", *map(_name, rows)), strict=True):
        yield f"{row}  {shorten(line(name, _MOST_NAME), room)}".rstrip()


def _apart(top: GraphTop) -> Iterator[Span]:
    """Yield spans but for those that say what one before them does: of many equal modules the first."""
    seen = {_says(top.step)}
    for span in top.spans:
        says = (span.kind, span.name.rpartition("_")[0]) if span.kind == "module" else _says(span)
        if says not in seen:
            seen.add(says)
            yield span


def _says(span: Span) -> tuple[object, ...]:
    return (span.launches, *(way.effect for way in span.ways))


def _cells(span: Span, steps: int) -> tuple[str, ...]:
    return f"{span.share:.0%}", often(span.calls / steps), *(_told(way, steps) for way in span.ways)


def _told(way: WayOutcome, steps: int) -> str:
    """Return what a way comes to, in a word; where it works what a step saves."""
    if way.saving_ns is None or way.outcome != "works":
        return _EFFECTS[way.effect]
    return time_text(way.saving_ns.mid / steps) if way.saving_ns.mid else "no gain"


def _name(span: Span) -> str:
    return span.name if span.line is None else span.line if span.kind == "function" else f"{span.name} {span.line}"


def _parts(top: GraphTop, width: int) -> list[str]:
    """Return what can be captured between what is in the way."""
    text = []
    for part in top.parts[:_MOST_PARTS]:
        lines = " … ".join(dict.fromkeys(each or "?" for each in (part.first, part.last)))
        saves = "" if part.saving_ns is None else f", saves {time_text(part.saving_ns.mid / top.steps)}"
        each = count_text(round(part.launches / max(part.times, 1)), "launch")
        often = f"{part.times / top.steps:,.3g} a step"
        text.append(shorten(f"  {often}, {each}{saves}: {line(lines, _MOST_NAME)}", width))
    return ["between that, each one graph:", *text] if text else []
