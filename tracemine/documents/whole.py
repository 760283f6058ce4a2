"""What every long report says of a scan beside its findings: facts, what was refuted, what is no one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracemine.documents import verdict_words, words
from tracemine.documents.headline import serving_texts
from tracemine.documents.step_words import device_texts, is_sums, nothing_text, payback_text, step_texts
from tracemine.documents.trust import is_unusable
from tracemine.units import bytes_text, percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan


def facts(scan: Scan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what is known of the step, the first of it what it takes; nothing where next to nothing ran."""
    summary, step = scan.summary, scan.summary.per_step
    if not scan.trace.activities or is_unusable(scan) or nothing_text(scan):
        return
    takes = [words.unprofiled_text(summary), *([words.busy_text(summary)] if step is None else step_texts(step))]
    for label, texts in (
        ("in all" if step is None else "step", (*takes, *serving_texts(summary.serving))),
        ("devices", device_texts(summary)),
        ("can save", (_together(scan),)),
        ("limit", (words.ceiling_text(scan),)),
        ("memory", (words.memory_text(scan),)),
        ("compile", (payback_text(scan),)),
        ("verdicts", (verdict_words.evidence_text(scan),)),
    ):
        if said := tuple(filter(None, texts)):
            yield label, said


def _together(scan: Scan) -> str:
    """Return what all findings shown save together; what hidden ones do, stands with their number."""
    step, whole_ns = words.all_of(scan, "step_saving_ns"), verdict_words.unprofiled_ns(scan.summary)
    if is_sums(scan.summary):
        gpu = words.all_of(scan, "gpu_saving_ns")
        return f"GPU {time_text(gpu.mid)} ({range_text(gpu.low, gpu.high)}) together, {words.gpu_text(gpu.mid, scan)}"
    if not step.high:
        return ""
    share = "" if whole_ns is None else f", {percent_text(step.mid, whole_ns)} of {words.share_of_text(scan)}"
    after = f": {text}" if (text := verdict_words.saved_text(scan)) else ""
    return f"{time_text(step.mid)} ({range_text(step.low, step.high)}) together{share}{after}"


def refuted(scan: Scan) -> Iterator[tuple[str, Finding, str]]:
    """Yield what verdicts took away: the GPU time that was predicted, the finding, and why."""
    for finding in scan.reported:
        if finding.refuted and finding.verdict is not None:
            yield time_text(verdict_words.refuted_ns(finding)), finding, verdict_words.refuted_text(finding.verdict)


def separate(scan: Scan) -> Iterator[tuple[tuple[str, str], tuple[str, str], str]]:
    """Yield what shares data and is not one kernel: its bytes and how often, both operators, and why."""
    for pair in scan.refused or ():
        names = words.operator_name(pair.first), words.operator_name(pair.second)
        yield ("?" if pair.bytes is None else bytes_text(pair.bytes), f"{pair.occurrences:,}"), names, pair.reason
