"""What bounds the step, in the words and figures of the bar below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracemine.documents.bar import IDLE, bar_parts
from tracemine.documents.step_words import nothing_text
from tracemine.findings.summary import SUMS
from tracemine.rows.engines import engine_named
from tracemine.units import bytes_text, count_text, percent_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracemine.findings.record import Bound, Parts, ReplayedBatch, Scan, Serving, ServingKind, Transfers

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


_MOST_PARTS = 3
_LEAST_PERCENT = 10  # of the step, that a part has which is named
_OF = {"communication": "communication", "transfer": "copies"}  # what a bound has said of the bar already


def bound_headline(scan: Scan) -> str:
    """Return one line: what an engine did, who waits for whom, the largest parts of the step; "" where nothing ran."""
    served, bound = serving_lead(scan.summary.serving), _bound(scan)
    if scan.summary.serving is not None and scan.summary.serving.captures:
        return served
    return f"{served}. {bound[:1].upper()}{bound[1:]}" if served and bound else served or bound


def _bound(scan: Scan) -> str:
    bound, parts = scan.summary.bound, scan.summary.parts
    if bound is None:
        return nothing_text(scan)
    step = "the step" if scan.summary.per_step is not None else "the recorded time"
    shares = {part.name: part.share for part in bar_parts(parts)}
    if parts is None:  # stored by a version that did not know them
        known = {IDLE: bound.idle_share, "communication": bound.bare_communication_share}
        shares = {name: f"{100 * share:.0f}%" for name, share in known.items()}
    if bound.by == SUMS:
        return f"GPU time summed (a tree has no timeline): {_largest(parts, set())}"
    said = _OF.get(bound.by, IDLE)
    work = _largest(parts, {said})
    if scan.trace.format in _NO_GAPS:
        return f"{_NO_GAPS[scan.trace.format]}: {work} of {step}"
    if bound.by in ("gpu", "unclear"):
        lead = f"{_BUSY[bound.by]}, {_busy(shares)} busy"
        return f"{lead}: {work} of {step}" if work else lead
    lead = _LEADS.get(bound.by, _waiting)(bound, shares, step)
    return f"{lead}; {work}" if work else lead


# Recordings of which idle time is not known, and what their first line says instead.
_NO_GAPS = {"tensorrt": "Layers of an engine, gaps not known"}
_BUSY = {"gpu": "GPU-bound", "unclear": "GPU-bound or host-bound, cannot tell"}


def _busy(shares: dict[str, str]) -> str:
    """Return the rest of what idles, in the bar's own per cents.

    >>> _busy({"idle": "13%"}), _busy({}), _busy({"idle": "<1%"}), _busy({"idle": ">99%"})
    ('87%', '100%', '>99%', '<1%')
    """
    idle = shares.get(IDLE, "0%")
    if idle[0] in "<>":
        return {"<1%": ">99%", ">99%": "<1%"}[idle]
    return f"{100 - int(idle.rstrip('%'))}%"


def _host(bound: Bound, shares: dict[str, str], step: str) -> str:
    return f"Host-bound: the GPU idles {shares.get(IDLE, '0%')} of {step}"


def _communication(bound: Bound, shares: dict[str, str], step: str) -> str:
    return f"Communication-bound: exposed communication is {shares.get('communication', '0%')} of {step}"


def _transfer(bound: Bound, shares: dict[str, str], step: str) -> str:
    moved = "" if bound.transfers is None else f" ({_moved(bound.transfers)})"
    return f"Transfer-bound: copies are {shares.get('copies', '0%')} of {step}{moved}"


def _moved(transfers: Transfers) -> str:
    memory = "" if transfers.memory is None else f", {transfers.memory} host memory"
    return f"{bytes_text(transfers.bytes)} at {bytes_text(transfers.bytes_per_s)}/s{memory}"


def _waiting(bound: Bound, shares: dict[str, str], step: str) -> str:
    idles = f"The GPU idles {shares.get(IDLE, '0%')} of {step}"
    if bound.by != "unknown":
        return f"{idles}, mostly for {bound.by}"
    return (
        f"{idles}, cause not recorded" if bound.held is None else f"{idles}, mostly while the host is in {bound.held}"
    )


_LEADS = {"host": _host, "communication": _communication, "transfer": _transfer}


def _largest(parts: Parts | None, but: set[str]) -> str:
    """Return the largest parts with their shares, most first, without some."""
    shown = sorted((part for part in bar_parts(parts) if part.name not in but), key=lambda part: -part.ns)
    least = 0 if parts is None else _LEAST_PERCENT * max(parts.ns, 1)
    return ", ".join([part.label for part in shown if 100 * part.ns >= least][:_MOST_PARTS])
