"""JSON Schemas of what tools take and answer, from the records themselves."""

from __future__ import annotations

from typing import Any

import msgspec


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
