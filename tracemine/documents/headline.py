"""What bounds the step, in the words and figures of the bar below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.documents.bar import IDLE, bar_parts
from tracemine.documents.serving_words import serving_lead
from tracemine.documents.step_words import nothing_text
from tracemine.findings.summary import SUMS
from tracemine.units import bytes_text

if TYPE_CHECKING:
    from tracemine.findings.record import Bound, Parts, Scan, Transfers

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
