"""Allocations and frees, which profilers write as instants named `[memory]`."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from tracemine.columns import codes, examples
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.scan import Columns
from tracemine.formats.repetitions import without_repetitions
from tracemine.timeline.arrow import MISSING, table_of, texts

# c10::DeviceType, as far as profilers report memory of it.
_DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 14: "meta", 15: "hpu", 20: "privateuse1"}


def unsound(memory: Columns) -> Counter[str]:
    """Take away what does not say how much, and count it by reason."""
    there = memory["bytes"] != MISSING
    lost = int((~there).sum())
    if lost:
        for name in memory:
            memory[name] = memory[name][there]
    return Counter({"allocation without size": lost}) if lost else Counter()


def memory_table(
    memory: Columns, nesting: Nesting, is_op: np.ndarray[tuple[int], np.dtype[np.bool_]], dropped: Counter[str]
) -> pa.Table:
    """Return the table `memory`; is_op: of each interval of the nesting, whether it is an operator."""
    order = time_order(memory["start_ns"])
    columns = without_repetitions({name: values[order] for name, values in memory.items()}, dropped)
    kinds, device = columns["device_type"], columns["device"]
    code = codes(kinds, device)
    example = examples(code)
    names = [_device(*pair) for pair in zip(kinds[example].tolist(), device[example].tolist(), strict=True)]
    known = np.array([name != "" for name in names], np.bool_)[code] if names else np.zeros(0, np.bool_)
    start = columns["start_ns"]
    made = {
        **{name: columns[name] for name in ("start_ns", "bytes", "address", "pid", "tid")},
        "device": texts(np.where(known, code, -1).astype(np.int32), names),
        "op_row": nesting.innermost(start, start, columns["thread"], only=is_op),
        "allocated_bytes": columns["total_allocated"],
        "reserved_bytes": columns["total_reserved"],
    }
    return table_of("memory", made, len(start))


def _device(kind: int, number: int) -> str:
    """Return the name of a device; empty where it was not recorded."""
    if kind == MISSING:
        return ""
    name = _DEVICES.get(kind, f"type{kind}")
    return f"{name}:{number}" if number >= 0 and kind else name
