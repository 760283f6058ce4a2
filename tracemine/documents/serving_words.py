"""Say in words what an engine that generates text did: batches, time per output token, graphs and their padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracemine.rows.engines import engine_named
from tracemine.units import count_text, percent_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracemine.findings.record import ReplayedBatch, Serving, ServingKind

_PHASES: Final = {"": "batches", "mixed": "prefill and decode"}
_SHOWN: Final = 4  # numbers of tokens that are listed
_PADDED: Final = 0.1  # of what a graph computes: worth a size of its own


def serving_lead(serving: Serving | None) -> str:
    """Return what the engine did most, in a few words; "" where no engine is known or it ran nothing.

    >>> from tracemine.findings.record import Serving, ServingKind
    >>> kind = ServingKind(phase="decode", count=8, sequences=32, prompt_tokens=None, tokens=32, gpu_busy_ns=9_000_000,
    ...     step_ns=12_000_000, token_ns=12_000_000)
    >>> serving_lead(Serving(engine="vllm", title="vLLM", captures=0, kinds=(kind,), replayed=()))
    'vLLM decode of 32 sequences: 12.0 ms a token as profiled'
    """
    if serving is None:
        return ""
    if serving.captures:
        graphs = count_text(serving.captures, "time")
        return f"{serving.title} captures CUDA graphs here ({graphs}): nothing is meant to run"
    return f"{serving.title} {_kind_text(serving.kinds[0])}" if serving.kinds else ""


def _kind_text(kind: ServingKind) -> str:
    """Return a phase, its batch and how long it takes: a token, an iteration, or, of one alone, its GPU work."""
    about = [_PHASES.get(kind.phase, kind.phase)]
    if kind.sequences is not None:
        noun = "prompt" if kind.phase == "prefill" else "sequence"
        about.append(f"of {count_text(kind.sequences, noun)}")
    text = " ".join(about)
    if kind.phase != "decode" and kind.tokens is not None:
        text += f", {count_text(kind.tokens, 'token')}"
    each = "a token" if kind.phase == "decode" and kind.sequences == kind.tokens and kind.tokens else "a batch"
    if kind.step_ns is not None:
        return f"{text}: {time_text(kind.step_ns)} {each} as profiled"
    return f"{text}: {time_text(kind.gpu_busy_ns)} of GPU work {each}"


def serving_texts(serving: Serving | None) -> Iterator[str]:
    """Yield what the engine did, a line a phase, and what its graphs were captured for."""
    if serving is None or not (serving.kinds or serving.captures):
        return
    yield serving_lead(serving)
    for kind in serving.kinds[1:]:
        yield f"{count_text(kind.count, 'iteration')} of {_kind_text(kind)}"
    if any(kind.count == 1 and kind.step_ns is None for kind in serving.kinds):
        yield "one iteration was recorded: how long it is until the next is not known, so its GPU work is the least"
    engine = engine_named(serving.engine)
    for each in serving.replayed:
        sizes = None if engine is None or (each.padded_share or 0) < _PADDED else engine.sizes
        yield _replayed_text(each) + ("" if sizes is None else f"; capture a size between: {sizes}")


def _replayed_text(each: ReplayedBatch) -> str:
    """Return what a graph was captured for, and what was served by it.

    >>> from tracemine.findings.record import ReplayedBatch
    >>> _replayed_text(ReplayedBatch(rows=32, graphs=1, iterations=4, tokens=(29, 30), padded_share=0.08))
    '4 iterations replay 1 graph captured for 32 tokens, and serve 29, 30: 8.0% of what it computes is padding'
    """
    text = f"{count_text(each.iterations, 'iteration')} replay {count_text(each.graphs, 'graph')}"
    if each.iterations == 1:
        text = text.replace("replay", "replays", 1)
    if each.rows is not None:
        text += f" captured for {count_text(each.rows, 'token')}"
    if each.tokens:
        more = ", …" if len(each.tokens) > _SHOWN else ""
        text += f", and serve{'s' if each.iterations == 1 else ''} "
        text += f"{', '.join(f'{count:,}' for count in each.tokens[:_SHOWN])}{more}"
    if each.padded_share:
        text += f": {percent_text(each.padded_share, 1)} of what it computes is padding"
    return text
