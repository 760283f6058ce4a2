"""What the reports for people say in the same words."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from textwrap import dedent
from typing import TYPE_CHECKING

from tracemine.findings.record import PINNED
from tracemine.units import bytes_text, count_text, percent_text, range_text, ratio_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracemine.findings.record import Counted, Finding, Scan, TraceSummary, Verified

# What an evidence level rests on.
EVIDENCE = {
    "proven": "it follows from what the profiler recorded",
    "consistent": "the one reading that fits by shape, dtype, stride and order",
    "adjacent": "they are neighbours, or who feeds whom is the likeliest of several readings",
}

# Keys of a scan's `dropped` that read badly as they are.
_DROPPED = {
    "below_threshold": "below --min-saving",
    "claimed_by_another_rule": "within findings of other rules",
    "nothing_to_win": "with nothing to win",
    "spread_out": "spread over more than a hundred times their own time",
    "device_unknown": "on a GPU that is not in the device table",
    "compute_bound": "bound by arithmetic",
    "bytes_unknown": "whose size is not recorded",
}


def summary_parts(trace: TraceSummary) -> tuple[str, ...]:
    """What was read: format, GPU, steps, activities."""
    unattributed = f" ({trace.unattributed:,} without an operator)" if trace.unattributed else ""
    return (
        trace.format,
        trace.gpu or "GPU not named",
        count_text(trace.steps, "step"),
        count_text(trace.activities, "activity") + unattributed,
    )


def counted_text(counted: Counted) -> str:
    """What Nsight Compute counted of a finding's kernels, in a line.

    >>> from tracemine.findings.record import Counted
    >>> counted_text(Counted(kernels=8, known=8, exact=8, dram_bytes=164_000_000, derived=False, flops=656_000_000,
    ...                      arithmetic_intensity=4.0, ridge=14.0, bounds={"memory": 6, "latency": 2}))
    '8 of 8 kernels: 164 MB of DRAM traffic, 4 FLOP a byte (ridge 14) · bound by memory 6, latency 2'
    """
    known = f"{counted.known:,} of {count_text(counted.kernels, 'kernel')}"
    facts = []
    if counted.dram_bytes is not None:
        facts.append(f"{bytes_text(counted.dram_bytes)} of DRAM traffic{' (derived)' if counted.derived else ''}")
    if counted.arithmetic_intensity is not None:
        ridge = "" if counted.ridge is None else f" (ridge {ratio_text(counted.ridge)})"
        facts.append(f"{ratio_text(counted.arithmetic_intensity)} FLOP a byte{ridge}")
    if counted.bounds:
        facts[-1:] = [" · ".join((*facts[-1:], "bound by " + ", ".join(_bounds(counted.bounds))))]
    if counted.exact < counted.known:
        facts.append(f"{counted.known - counted.exact:,} found by name and grid only")
    return f"{known}: {', '.join(facts)}" if facts else known


def _bounds(bounds: Mapping[str, int]) -> Iterator[str]:
    for name, count in sorted(bounds.items(), key=lambda each: -each[1]):
        yield f"{'no single unit' if name == 'neither' else name} {count:,}"


_WINS = 0.95  # of eager's time: what is worth a word; whether it is more than noise nobody judged here
# What became of verdicts that change nothing here: keys of a scan's `evidence`.
_UNUSED = {
    "repeated": "beside another on the same finding",
    "other_gpu": "of another GPU",
    "no_finding": "on no finding of this trace",
}


def said_text(verified: Verified) -> str:
    """How far a verdict got, what it says, and the levels that nobody tried, in a line."""
    untried = ", ".join(text.partition(":")[0] for text in verified.not_tested)
    by = "" if verified.by == "kernel" else f" · with {verified.by}"
    return f"{verified.level}, {verified.says}{by}" + (f" · not tested: {untried}" if untried else "")


def times_text(verified: Verified) -> str:
    """What one occurrence took where it was run, in a line; "" where nothing was timed.

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
            ("one kernel" if verified.by != PINNED else "pinned", verified.fused_ns),
            (verified.library or "a library's call", verified.library_ns),
            ("torch.compile", verified.compiled_ns),
        )
        if ns is not None
    ]
    return f"{verified.device}, cache {verified.state}: {', '.join(times)}" if times else ""


def refuted_text(verified: Verified) -> str:
    """Why a claim is taken away, in a line. Where torch.compile's kernels do win it says so: that is not claimed.

    >>> from tracemine.findings.record import NOTHING, Verified
    >>> print(refuted_text(Verified(basis="refuted", level="L3", says="this fusion loses", device="NVIDIA H200",
    ...     state="cold", eager_ns=20_000, fused_ns=24_000, compiled_ns=5_000, saved_share=None, predicted_ns=NOTHING,
    ...     occurrences=2, assumptions=(), not_tested=(), file="v.json")))
    this fusion loses · NVIDIA H200, cache cold: eager 20.0 µs, one kernel 24.0 µs, torch.compile 5.00 µs, which wins
    """
    eager, compiled = verified.eager_ns, verified.compiled_ns
    wins = eager is not None and compiled is not None and compiled < _WINS * eager
    return " · ".join(text for text in (verified.says, times_text(verified)) if text) + (", which wins" if wins else "")


def error_text(finding: Finding) -> str:
    """What was predicted of GPU time over the trace, and how far off the measured is; "" where nothing was measured."""
    verified = finding.verdict
    if verified is None or verified.basis != "measured":
        return ""
    predicted, measured = verified.predicted_ns, finding.gpu_saving_ns.mid
    off = measured - predicted.mid
    where = "within" if predicted.low <= measured <= predicted.high else "outside"
    return (
        f"predicted {time_text(predicted.mid)} ({range_text(predicted.low, predicted.high)}), off by "
        f"{'+' if off > 0 else ''}{time_text(off)}: {where} its interval"
    )


def not_tested_text(verified: Verified) -> str:
    """The levels that were not tried, and why, those with one reason together.

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
    """How many findings rest on what, and which verdicts change nothing here; "" where there are none."""
    if scan.evidence is None:
        return ""
    bases = [finding.verdict.basis for finding in scan.findings if finding.verdict is not None]
    measured_ns = sum(f.verdict.basis == "measured" and f.gpu_saving_ns.mid for f in scan.findings if f.verdict)
    refuted_ns = sum(f.verdict.predicted_ns.mid for f in scan.findings if f.verdict and f.refuted)
    parts = []
    if count := bases.count("measured"):
        parts.append(f"{count_text(count, 'finding')} measured: GPU {time_text(measured_ns)}")
    if count := bases.count("refuted"):
        parts.append(f"{count:,} refuted: GPU {time_text(refuted_ns)} less than predicted")
    levels = Counter(f.verdict.level for f in scan.findings if f.verdict and f.verdict.basis == "predicted")
    if levels:
        reached = ", ".join(f"{levels[level]:,} {level}" for level in sorted(levels, reverse=True))
        parts.append(f"{levels.total():,} as predicted: {reached}")
    unused = [f"{scan.evidence[name]:,} {text}" for name, text in _UNUSED.items() if scan.evidence.get(name)]
    if unused:
        parts.append(f"verdicts not used: {', '.join(unused)}")
    return "; ".join(parts) or "no verdicts"


def dropped_text(dropped: Mapping[str, int]) -> str:
    """What was looked at and not reported, and why, most first.

    >>> dropped_text({"below_threshold": 2, "some_new_reason": 1200})
    '1,200 matches some new reason, 2 below --min-saving'
    """
    by_count = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    first = count_text(by_count[0][1], "match") if by_count else ""
    counts = [first, *(f"{count:,}" for _, count in by_count[1:])]
    reasons = [_DROPPED.get(reason, reason.replace("_", " ")) for reason, _ in by_count]
    return ", ".join(map(" ".join, zip(counts, reasons, strict=False)))


def nothing_found(scan: Scan) -> str:
    """Why a scan has no finding, in one sentence."""
    summary = scan.summary
    if not scan.trace.activities:
        return "The trace holds no GPU activity: record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
    busy = percent_text(summary.gpu_busy_ns, summary.gpu_busy_ns + summary.gpu_idle_ns)
    matches = sum(scan.dropped.values())
    were = "was" if matches == 1 else "were"
    what = f"{count_text(matches, 'match')} of a rule {were} left out" if matches else "no rule matched"
    return f"The GPU was busy for {busy} of the time, and {what}."


def chain(names: Sequence[str]) -> tuple[str, ...]:
    """Names in order, neighbours of one name counted.

    >>> chain(["mm", "add", "add", "add"])
    ('mm', 'add ×3')
    """
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    return tuple(name if count == 1 else f"{name} ×{count}" for name, count in runs)


def operator_name(name: str) -> str:
    """An operator without the namespace that all have; a kernel family as it is.

    >>> operator_name("aten::pow"), operator_name("my_ops::rope"), operator_name("triton")
    ('pow', 'my_ops::rope', 'triton')
    """
    return name.removeprefix("aten::")


def blocks(text: str) -> tuple[tuple[bool, str], ...]:
    """A rule's text as paragraphs and indented code, (is code, text) each; a paragraph is one line.

    >>> blocks('''Do this:
    ...
    ...     a = 1
    ...
    ...     b = 2
    ...
    ... And look
    ... again.''')
    ((False, 'Do this:'), (True, 'a = 1\\n\\nb = 2'), (False, 'And look again.'))
    """
    found: list[tuple[bool, str]] = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = [one.rstrip() for one in block.splitlines() if one.strip()]
        if not lines:
            continue
        is_code = all(one.startswith("    ") for one in lines)
        content = dedent("\n".join(lines)) if is_code else " ".join(one.strip() for one in lines)
        if is_code and found and found[-1][0]:
            content = f"{found.pop()[1]}\n\n{content}"
        found.append((is_code, content))
    return tuple(found)


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence.

    >>> first_sentence("Use torch.compile. It fuses.")
    'Use torch.compile.'
    """
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", text.strip(), maxsplit=1)[0]
