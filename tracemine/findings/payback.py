"""After how many steps a fix that costs compile time has paid for it."""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.findings.record import Finding, Payback

COMPILE = "torch.compile"

# No run of ours has measured what compiling takes, so these are others' figures: one repeated block on an RTX 4090
# (2.54 s; all of that model 5.91 s), and a whole diffusion transformer (about 280 s).
_COMPILE_NS = (2_540_000_000, 280_000_000_000)
_SOURCE = "github.com/pytorch/tutorials/pull/3543, github.com/huggingface/diffusers/pull/11551"


def payback(findings: Iterable[Finding]) -> Payback | None:
    """When compiling has paid for itself, at what all findings that it fixes save a step (mid); None: never, or where
    no steps are known.
    """
    saved = [one.per_step.step_saving_ns.mid for one in findings if COMPILE in one.fix and one.per_step is not None]
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
