"""Kernels that serving engines wrote by hand: fused already, and not to be fused with their neighbours."""

from __future__ import annotations

import numpy as np

from tracemine.ops import classify
from tracemine.rows.arrow import categories
from tracemine.rows.table import BoolArray
from tracemine.timeline import Timeline

# Families of kernels.toml, whoever launched them.
_FAMILIES = frozenset({"moe", "kv_cache", "sampling", "batch_inputs"})


def of_engine(timeline: Timeline) -> BoolArray:
    """Return kernels for experts, caches, sampling and the next batch's inputs.

    >>> from tracemine.timeline import Meta
    >>> of_engine(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).tolist()
    []
    """
    name = categories(timeline.activities.column("name"))
    return np.array([*(each.family in _FAMILIES for each in classify(name.values)), False], np.bool_)[name.codes]
