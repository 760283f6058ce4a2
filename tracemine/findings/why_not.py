"""Refused pairs: operators that share data and are not one kernel, counted by operators and reason."""

from __future__ import annotations

import msgspec
import numpy as np

from tracemine.findings.record import Refused, Scan
from tracemine.fusion import REFUSALS, Groups, Refusal
from tracemine.fusion.roles import reason_of
from tracemine.rows.arrow import categories
from tracemine.timeline import Timeline

MOST_REFUSED = 50  # lines; the largest


def with_refusals(scan: Scan, timeline: Timeline, groups: Groups) -> Scan:
    """Return the scan with its refused pairs, most bytes first.

    Two kernels of libraries next to each other are left out: that those are not one is expected.
    """
    refusals = groups.refusals
    names = categories(timeline.ops["name"])
    first, second = names.codes[refusals.first_op_row], names.codes[refusals.second_op_row]
    reason = refusals.reason.astype(np.int64) * (len(refusals.library) + 1) + refusals.library_code + 1
    width = len(names.values) + 1
    key = (reason * width + first) * width + second
    found, at, inverse = np.unique(key, return_index=True, return_inverse=True)
    nbytes = np.bincount(inverse, refusals.bytes, len(found)).astype(np.int64)
    unknown = np.bincount(inverse, refusals.bytes < 0, len(found)) > 0
    times = np.bincount(inverse, minlength=len(found))
    rows = []
    for row in np.lexsort((found, -nbytes)).tolist():
        example = int(at[row])
        rows.append(
            Refused(
                first=names.values[first[example]],
                second=names.values[second[example]],
                reason=_text(groups, example),
                occurrences=int(times[row]),
                bytes=None if unknown[row] else int(nbytes[row]),
            )
        )
        if len(rows) == MOST_REFUSED:
            break
    return msgspec.structs.replace(scan, refused=tuple(rows))


def _text(groups: Groups, pair: int) -> str:
    refusals = groups.refusals
    refusal = REFUSALS[refusals.reason[pair]]
    code = int(refusals.library_code[pair])
    return reason_of(refusals.library[code]) if refusal is Refusal.LIBRARY and code >= 0 else refusal.value
