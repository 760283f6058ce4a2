"""JSON Schemas of what tools take and answer, from the records themselves."""

from __future__ import annotations

from typing import Any

import msgspec

_DROPPED = ("title", "default")  # what the names say already, and what is left out anyway


def schema_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a record as one object, with what it refers to inside.

    >>> from tracemine.agents.answers import AskScan
    >>> found = schema_of(AskScan)
    >>> found["type"], found["required"], found["additionalProperties"]
    ('object', ['path'], False)
    """
    _, components = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    own: dict[str, Any] = components.pop(record.__name__)
    return own | ({"$defs": components} if components else {})


def short_schema_of(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of what a tool takes in as few words as say it: an agent reads all of them before it asks.

    >>> from tracemine.agents.answers import AskTraces
    >>> short_schema_of(AskTraces)["properties"]["limit"]
    {'description': 'Rows.', 'type': 'integer', 'minimum': 1, 'maximum': 25}
    """
    own = schema_of(record)
    properties = {name: _short(one) for name, one in own["properties"].items()}
    required = {"required": own["required"]} if own.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _short(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what one argument takes; that it may be null, which leaving it out says too, is left out."""
    kept = {name: one for name, one in schema.items() if name not in _DROPPED}
    either = [one for one in kept.pop("anyOf", ()) if one.get("type") != "null"]
    choice = {"enum": [one for one in kept.pop("enum") if one is not None]} if "enum" in kept else {}
    return kept | (_short(either[0]) if len(either) == 1 else {}) | choice
