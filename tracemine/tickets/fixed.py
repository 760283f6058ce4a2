"""What `tracemine diff --format json` says is fixed. The file is as little trusted as a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracemine.errors import InputError, Location
from tracemine.files import read_file

_LARGEST_BYTES = 1 << 28
_MOST_NS = 1 << 62
_HINT = "tracemine diff BEFORE AFTER --format json writes one"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A finding that a comparison of recordings says is fixed; what was predicted of it, and what was measured."""

    identity: str
    aliases: tuple[str, ...] = ()
    predicted_ns: int | None = None  # null: the comparison does not say
    measured_ns: int | None = None
    of: str = "step"


def read_fixed(path: Path) -> tuple[Fixed, ...]:
    """The findings of a diff that are `fixed`. Raises InputError where the file is none."""
    where = Location(str(path))
    try:
        found = msgspec.json.decode(read_file(path, _LARGEST_BYTES))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no comparison: {error}", where=where, hint=_HINT) from None
    if not isinstance(found, dict) or not isinstance(found.get("findings"), list):
        raise InputError("is no comparison: it has no list of findings", where=where, hint=_HINT)
    if not all(isinstance(one, dict) and isinstance(one.get("status"), str) for one in found["findings"]):
        raise InputError("is no comparison: its findings have no status", where=where, hint=_HINT)
    return fixed_in(found)


def fixed_in(comparison: Mapping[str, Any]) -> tuple[Fixed, ...]:
    """The findings that are `fixed`: no other status, and no absence, closes a ticket.

    >>> fixed_in({"findings": [{"status": "fixed", "before": {"fingerprint": "80c2800cc9860f75"}, "after": None},
    ...                        {"status": "unknown", "before": {"fingerprint": "1e8ccff5fdca1f02"}, "after": None}]})
    (Fixed(identity='80c2800cc9860f75', aliases=(), predicted_ns=None, measured_ns=None, of='step'),)
    """
    found = []
    for one in comparison["findings"]:
        before = one.get("before")
        if one.get("status") != "fixed" or not isinstance(before, dict):
            continue
        identity = before.get("fingerprint")
        if isinstance(identity, str):
            found.append(_fixed(identity, before, one))
    return tuple(found)


def _fixed(identity: str, before: Mapping[str, Any], one: Mapping[str, Any]) -> Fixed:
    aliases = _within(before, "identity").get("aliases")
    each = _within(before, "per_step")
    predicted = one.get("predicted_ns", each.get("step_saving_ns") or before.get("step_saving_ns"))
    measured = one.get("measured_ns", one.get("delta_ns"))
    return Fixed(
        identity=identity,
        aliases=tuple(a for a in aliases if isinstance(a, str)) if isinstance(aliases, list) else (),
        predicted_ns=_ns(predicted),
        measured_ns=None if (ns := _ns(measured)) is None else abs(ns),
        of="step" if each else "trace",
    )


def _within(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}


def _ns(found: object) -> int | None:
    """A time, or the middle of a range of times."""
    if isinstance(found, dict):
        found = found.get("mid")
    return found if isinstance(found, int) and not isinstance(found, bool) and abs(found) <= _MOST_NS else None
