"""Read the fields of an event that does not have the types its category should have, as leniently as can be."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Raw

from tracemine.formats.kineto.events import LEGACY_PROCESSES, TABLES
from tracemine.formats.kineto.scan import MISSING
from tracemine.formats.kineto.structs import ARGUMENTS, MISSING_TIME, Loose, field_name
from tracemine.formats.kineto.values import READERS, exact_ns, members_of, scalar_of, text_of

_PHASES = {"i": "instant", "I": "instant", "C": "counter"}  # what an event without category is counted as


def category_of(event: Loose, phase: str) -> str:
    """Return the category of an event that names none."""
    legacy = LEGACY_PROCESSES.get(text_of(event.pid), "") if phase == "X" else ""
    memory = text_of(event.name) == "[memory]"  # had no category until torch 1.9
    return legacy or ("cpu_instant_event" if memory else _PHASES.get(phase, f"phase {phase}"))


def loose_fields(event: Loose, phase: str, table: str, repaired: Counter[str], *, exact: bool) -> dict[str, Any]:
    """Return the fields of the Struct of an event of a table; count in `repaired` what was repaired."""
    fields = {
        "ph": phase,
        "name": text_of(event.name),
        "ts": _time(event.ts, exact=exact),
        "dur": _time(event.dur, exact=exact),
        "pid": scalar_of(event.pid, MISSING),
        "tid": scalar_of(event.tid, MISSING),
    }
    struct = ARGUMENTS[table]
    if struct is not None:
        given = members_of(event.args)
        arguments = {
            field_name(key): READERS[argument.kind](given[key], repaired)
            for argument in TABLES[table].arguments
            for key in (argument.key, *argument.aliases)
            if key in given
        }
        fields["args"] = struct(**arguments)
    return fields


def _time(raw: Any, *, exact: bool) -> Any:
    """Return a time as the Struct holds it: its text where float64 is not exact, else microseconds."""
    if exact:
        return Raw(bytes(raw))
    ns = exact_ns(bytes(raw))
    return MISSING_TIME if ns == MISSING else ns / 1000
