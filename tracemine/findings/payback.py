"""Payback: after how many steps a fix that costs compile time has paid for it."""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.findings.record import Finding, Payback

COMPILE, GRAPH_MODE = "torch.compile", 'mode="reduce-overhead"'
AS_GRAPH = f"the step compiled as a whole, with `{GRAPH_MODE}`, is one"  # a CUDA graph: in the fix of what compiles

# What the first step of 27 models took under torch.compile, compilation in it, nine of them side by side on 16 cores
# of an H100's host (benchmarks/recordings/record_compiled.py): the shortest, and the longest, an EfficientNet in
# training. The median is 24.7 s.
_COMPILE_NS = (4_230_000_000, 121_140_000_000)
_SOURCE = "27 models, H100"


def payback(findings: Iterable[Finding]) -> Payback | None:
    """Return when compiling has paid for itself by what it fixes (mid); None: never, or no steps are known."""
    saved = [
        finding.per_step.step_saving_ns.mid
        for finding in findings
        if COMPILE in finding.fix and finding.per_step is not None
    ]
    saving_ns = sum(saved)
    if saving_ns <= 0:
        return None
    low, high = _COMPILE_NS
    return Payback(
        compile_low_ns=low,
        compile_high_ns=high,
        source=_SOURCE,
        step_saving_ns=saving_ns,
        low_steps=-(-low // saving_ns),
        high_steps=-(-high // saving_ns),
    )
