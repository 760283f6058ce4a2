"""Rows of `activities` that findings are made of, as an array."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from tracemine.findings.record import Finding
from tracemine.rows.table import IntArray


def activity_rows(findings: Iterable[Finding]) -> IntArray:
    """Return the rows of all occurrences of findings, in their order."""
    occurrences = chain.from_iterable(one.activities for one in findings)
    return np.fromiter(chain.from_iterable(occurrences), np.int64)
