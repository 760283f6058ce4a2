"""What all findings save together: no less than the best of them alone."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tracemine.findings.record import Finding, Range


def no_less_together(findings: Sequence[Finding], unprofiled_ns: int) -> list[Finding]:
    """Return the findings with no less together than the best of them alone, to which then goes what is missing.

    A fix can cost the host more than it saves the GPU: together they save less by it, and it need not be made.
    """
    kept = list(findings)
    if (most := _missing(kept, [(own.step_saving_alone_ns, own.step_saving_ns) for own in kept])) is not None:
        kept[most[0]] = _with_more(kept[most[0]], most[1])
    steps = [finding.per_step for finding in kept]
    savings = [(step.step_saving_alone_ns, step.step_saving_ns) for step in steps if step is not None]
    if (most := _missing(kept, savings)) is not None:
        kept[most[0]] = _with_more_a_step(kept[most[0]], most[1], unprofiled_ns)
    return kept


def _missing(findings: Sequence[Finding], savings: Sequence[tuple[Range | None, Range]]) -> tuple[int, int] | None:
    """Return the place of the finding that saves most alone, and how much more that is than all together, if any."""
    if not findings or len(savings) < len(findings):
        return None
    alone = [0 if own is None else own.mid for own, _ in savings]
    best = max(range(len(alone)), key=alone.__getitem__)
    missing = alone[best] - sum(together.mid for _, together in savings)
    return (best, missing) if missing > 0 else None


def _with_more(finding: Finding, more_ns: int) -> Finding:
    """Return a finding that saves more over the trace, its first variants first; gaps no more than they last."""
    variants, left_ns = [], more_ns
    for variant in finding.variants:
        part_ns = left_ns if finding.on_gpu else min(left_ns, variant.measured_ns - variant.step_saving_ns.mid)
        variants.append(replace(variant, step_saving_ns=_more(variant.step_saving_ns, part_ns)))
        left_ns -= part_ns
    return replace(finding, step_saving_ns=_more(finding.step_saving_ns, more_ns), variants=tuple(variants))


def _with_more_a_step(finding: Finding, more_ns: int, unprofiled_ns: int) -> Finding:
    if finding.per_step is None:
        return finding
    step = _more(finding.per_step.step_saving_ns, more_ns)
    share = round(step.mid / max(unprofiled_ns, 1), 4)
    return replace(finding, per_step=replace(finding.per_step, step_saving_ns=step, share_of_unprofiled=share))


def _more(of: Range, more_ns: int) -> Range:
    return Range(of.low, of.mid + more_ns, max(of.high, of.mid + more_ns))
