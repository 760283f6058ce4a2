"""Say what a finding costs and what its fix saves, line by line: for reports that show all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracemine.documents.words import a_step, basis_text
from tracemine.findings.record import Range
from tracemine.units import bytes_text, ratio_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding


def cost_rows(finding: Finding) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is measured, predicted and saved, a step where steps are known: its name, low, mid and high."""
    yield "measured", "", time_text(a_step(finding, Range(*[finding.measured_ns] * 3)).mid), ""
    verified = finding.verdict if len(finding.variants) < 2 else None  # of one variant; each says it itself
    text = basis_text(finding)
    settled = text not in ("", "predicted", "partly predicted")
    basis = f", {text}" if settled else ""
    for name, estimate in (
        (f"{'' if settled else 'predicted '}after the change{basis}", finding.fused_ns),
        ("GPU time saved, predicted", verified.predicted_ns if verified is not None and settled else None),
        (f"GPU time saved{basis}", finding.gpu_saving_ns),
        ("step time saved", finding.step_saving_ns),
    ):
        if estimate is not None:
            each = a_step(finding, estimate)
            yield name, time_text(each.low), time_text(each.mid), time_text(each.high)


def traffic_texts(finding: Finding) -> Iterator[str]:
    """Yield sentences on memory traffic, arithmetic intensity and tensors that need not exist, as far as known."""
    if (traffic := finding.traffic_bytes) is not None:
        yield f"Device memory traffic goes from {bytes_text(traffic.before)} to {bytes_text(traffic.after)}."
    if (intensity := finding.arithmetic_intensity) is not None:
        before, after = ratio_text(intensity.before), ratio_text(intensity.after)
        ridge = "" if intensity.ridge is None else f"; arithmetic is the limit from {ratio_text(intensity.ridge)} on"
        yield f"Arithmetic intensity goes from {before} to {after} FLOP per byte{ridge}."
    if finding.intermediate_bytes:
        yield f"Tensors of {bytes_text(finding.intermediate_bytes)} need not exist any more."
