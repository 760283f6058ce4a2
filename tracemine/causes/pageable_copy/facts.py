"""Which way copies go between host and device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.table import BoolArray, category


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether all of them go to the host."""
    if rule.saving != "pin_memory":
        return {}
    to_host = category(context.rows["activities"], "copy_kind").among("DtoH")
    return {"to_host": bool(to_host[np.concatenate([one.matrix.reshape(-1) for one in classes])].all())}


FACTS = AdviceFacts(docs={"to_host": FactDoc("what is copied goes from the device to the host")}, find=_facts)
