"""What tests of recorded JAX programs count alike."""

from __future__ import annotations

import numpy as np

from tracemine.columns import numbers, string_ids
from tracemine.pipeline import Analysis


def classes_us(analysis: Analysis) -> dict[str, float]:
    """GPU time of each class of instructions, microseconds."""
    activities, ops = analysis.timeline.activities, analysis.timeline.ops
    row, dur = numbers(activities["op_row"], -1), numbers(activities["dur_ns"])
    names, strings = string_ids(ops["name"])
    owned = np.where(row >= 0, names[row], -1)
    return {
        text.removeprefix("xla::"): float(dur[owned == at].sum()) / 1000
        for at, text in enumerate(strings)
        if text.startswith("xla::")
    }
