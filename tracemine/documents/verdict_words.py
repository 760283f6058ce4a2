"""Say in words what verdicts came to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tracemine.documents.words import all_of
from tracemine.findings.record import CALL, IN_STEP, KERNEL, PINNED
from tracemine.units import count_text, range_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracemine.findings.record import Finding, Scan, Summary, Variant, Verified

_WINS = 0.95  # of eager's time: what is worth a word; whether it is more than noise is not judged here
# What became of verdicts that change nothing here: keys of a scan's `evidence`.
_UNUSED = {
    "repeated": "repeated on the same finding",
    "other_gpu": "of another GPU",
    "no_finding": "on no finding of this trace",
}
_BY = {KERNEL: "one kernel", PINNED: "pinned", CALL: "another way"}


def unprofiled_ns(summary: Summary) -> int | None:
    """Return the unprofiled step's time, or that of all where no steps are known; None: not recorded."""
    of = summary.unprofiled_ns if summary.per_step is None else summary.per_step.unprofiled_ns
    return None if of is None else of.mid


def refuted_ns(finding: Finding) -> int:
    """Return what was predicted of GPU time that verdicts took away."""
    verdicts = [one.verdict for one in finding.variants or (finding,)]
    return sum(verdict.predicted_ns.mid for verdict in verdicts if verdict is not None)


def saved_text(scan: Scan) -> str:
    """Return how long a step takes as it is and once all findings shown are fixed; "" where that is not known."""
    before = unprofiled_ns(scan.summary)
    if before is None or scan.summary.parts is None:
        return ""
    return f"{time_text(before)} → {time_text(max(before - all_of(scan, 'step_saving_ns').mid, 0))}"


def said_text(verified: Verified) -> str:
    """Say how far a verdict got, what it says, and the levels that were not tried, in a line."""
    untried = ", ".join(text.partition(":")[0] for text in verified.not_tested)
    by = "" if verified.by == "kernel" else f" · with {verified.by}"
    return f"{verified.level}, {verified.says}{by}" + (f" · not tested: {untried}" if untried else "")


def times_text(verified: Verified) -> str:
    """Return what one occurrence took where it was run, in a line; "" where nothing was timed.

    >>> from tracemine.findings.record import NOTHING, Verified
    >>> times_text(Verified(basis="measured", level="L4", says="", device="NVIDIA H200", state="cold", eager_ns=30_000,
    ...     fused_ns=18_000, compiled_ns=17_000, saved_share=None, predicted_ns=NOTHING, occurrences=34, assumptions=(),
    ...     not_tested=(), file="v.json"))
    'NVIDIA H200, cache cold: eager 30.0 µs, one kernel 18.0 µs, torch.compile 17.0 µs'
    """
    times = [
        f"{name} {time_text(ns)}"
        for name, ns in (
            ("eager", verified.eager_ns),
            (_BY.get(verified.by, "one kernel"), verified.fused_ns),
            (verified.library or "a library's call", verified.library_ns),
            ("torch.compile", verified.compiled_ns),
        )
        if ns is not None
    ]
    return f"{verified.device}, cache {verified.state}: {', '.join(times)}" if times else ""


def refuted_text(verified: Verified) -> str:
    """Return why a claim is taken away, in a line; or that torch.compile's kernels win, which is not claimed.

    >>> from tracemine.findings.record import NOTHING, Verified
    >>> print(refuted_text(Verified(basis="refuted", level="L3", says="this fusion loses", device="NVIDIA H200",
    ...     state="cold", eager_ns=20_000, fused_ns=24_000, compiled_ns=5_000, saved_share=None, predicted_ns=NOTHING,
    ...     occurrences=2, assumptions=(), not_tested=(), file="v.json")))
    this fusion loses · NVIDIA H200, cache cold: eager 20.0 µs, one kernel 24.0 µs, torch.compile 5.00 µs, which wins
    """
    eager, compiled = verified.eager_ns, verified.compiled_ns
    wins = eager is not None and compiled is not None and compiled < _WINS * eager
    return " · ".join(text for text in (verified.says, times_text(verified)) if text) + (", which wins" if wins else "")


def error_text(finding: Finding | Variant) -> str:
    """Return predicted GPU time over the trace, and how far off the measured is; "" where nothing was measured."""
    verified = finding.verdict
    if verified is None or verified.basis != "measured":
        return ""
    predicted, measured = verified.predicted_ns, finding.gpu_saving_ns.mid
    off = measured - predicted.mid
    where = "within" if predicted.low <= measured <= predicted.high else "outside"
    return (
        f"predicted {time_text(predicted.mid)} over the trace ({range_text(predicted.low, predicted.high)}), off by "
        f"{'+' if off > 0 else ''}{time_text(off)}: {where} its interval"
    )


def not_tested_text(verified: Verified) -> str:
    """Return the levels that were not tried, and why, those with one reason together.

    >>> from tracemine.findings.record import NOTHING, Verified
    >>> not_tested_text(Verified(basis="predicted", level="L2", says="", device=None, state=None, eager_ns=None,
    ...     fused_ns=None, compiled_ns=None, saved_share=None, predicted_ns=NOTHING, occurrences=1, assumptions=(),
    ...     not_tested=("L3: no GPU", "L4: no GPU", "L6: no step"), file="v.json"))
    'L3, L4: no GPU; L6: no step'
    """
    reasons: dict[str, list[str]] = {}
    for text in verified.not_tested:
        level, _, reason = text.partition(": ")
        reasons.setdefault(reason, []).append(level)
    return "; ".join(f"{', '.join(levels)}: {reason}" for reason, levels in reasons.items())


def evidence_text(scan: Scan) -> str:
    """Say how many findings rest on what, and which verdicts change nothing here; "" where there are none."""
    if scan.evidence is None:
        return ""
    variants = [variant for finding in scan.findings for variant in finding.variants or (finding,)]
    parts = _judged_texts([(one, one.verdict) for one in variants if one.verdict is not None])
    unused = [f"{scan.evidence[name]:,} {text}" for name, text in _UNUSED.items() if scan.evidence.get(name)]
    if unused:
        parts.append(f"verdicts not used: {', '.join(unused)}")
    return "; ".join(parts) or "no verdicts"


def _judged_texts(known: Sequence[tuple[Finding | Variant, Verified]]) -> list[str]:
    measured = [one.gpu_saving_ns.mid for one, verdict in known if verdict.basis == "measured"]
    refuted = [verdict.predicted_ns.mid for _, verdict in known if verdict.basis == "refuted"]
    parts = []
    if measured:
        parts.append(f"{count_text(len(measured), 'variant')} measured: GPU {time_text(sum(measured))}")
    if refuted:
        parts.append(f"{len(refuted):,} refuted: GPU {time_text(sum(refuted))} less than predicted")
    open_ = [verdict for _, verdict in known if verdict.basis == "predicted"]
    parts += _reached_text([one.level for one in open_ if one.eager_ns is not None], "timed, and not settled")
    parts += _reached_text([one.level for one in open_ if one.level == IN_STEP], "measured in your step")
    return parts + _reached_text([v.level for v in open_ if v.eager_ns is None and v.level != IN_STEP], "not timed")


def _reached_text(levels: Sequence[str], says: str) -> list[str]:
    """Count verdicts by the level that they reached; nothing where there are none."""
    counts = Counter(levels)
    reached = ", ".join(f"{counts[level]:,} {level}" for level in sorted(counts, reverse=True))
    return [f"{len(levels):,} {says}: {reached}"] if levels else []
