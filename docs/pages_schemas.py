"""JSON Schemas of what commands print, written by generate.py into docs/schemas/: from the records themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import inspect

from tracemine.apply.record import APPLIED_SCHEMA_VERSION, Applied
from tracemine.comparison.record import DIFFERENCE_SCHEMA_VERSION, Difference
from tracemine.doctor import CHECKUP_SCHEMA_VERSION, Checkup
from tracemine.findings.record import FINDINGS_SCHEMA_VERSION, Scan
from tracemine.ranks.compare import JOB_DIFFERENCE_SCHEMA_VERSION, JobDifference
from tracemine.ranks.record import JOB_SCHEMA_VERSION, JobReport
from tracemine.top.record import TOP_SCHEMA_VERSION, HostTop, WaitTop
from tracemine.verdicts.verdict import VERDICTS_SCHEMA_VERSION, Verdicts

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command prints as JSON: the record that it encodes, its version, and what says so."""

    record: type[msgspec.Struct]
    version: int
    command: str


# A row for each JSON contract; docs/schemas/NAME.json is its schema.
PRINTED = {
    "findings": Printed(Scan, FINDINGS_SCHEMA_VERSION, "tracemine scan --format json"),
    "differences": Printed(Difference, DIFFERENCE_SCHEMA_VERSION, "tracemine diff --format json"),
    "checkups": Printed(Checkup, CHECKUP_SCHEMA_VERSION, "tracemine doctor --format json"),
    "jobs": Printed(JobReport, JOB_SCHEMA_VERSION, "tracemine scan FOLDER --format json"),
    "job-differences": Printed(
        JobDifference, JOB_DIFFERENCE_SCHEMA_VERSION, "tracemine diff FOLDER FOLDER --format json"
    ),
    "applied": Printed(Applied, APPLIED_SCHEMA_VERSION, "tracemine apply --format json"),
    "host": Printed(HostTop, TOP_SCHEMA_VERSION, "tracemine top --host --format json"),
    "waits": Printed(WaitTop, TOP_SCHEMA_VERSION, "tracemine top --waits --format json"),
    "verdicts": Printed(Verdicts, VERDICTS_SCHEMA_VERSION, "tracemine verify --format json"),
}


def schema_of(name: str) -> dict[str, Any]:
    """The schema of what is printed: every key that is always there is required, and others may be added."""
    printed = PRINTED[name]
    (reference,), components = msgspec.json.schema_components([printed.record], ref_template="#/$defs/{name}")
    for struct in _structs(inspect.type_info(printed.record), set()):
        component = components[struct.__name__]
        # msgspec takes the indent off a docstring since 0.23 only.
        component["description"] = cleandoc(component["description"])
        if not struct.__struct_config__.omit_defaults:
            component["required"] = [*component["properties"]]
    components[printed.record.__name__]["properties"]["schema_version"] = {"const": printed.version}
    head = {"$schema": _DIALECT, "title": f"{name.replace('-', ' ').capitalize()}, version {printed.version}"}
    return head | {
        "description": f"What `{printed.command}` prints, one object a line.",
        **reference,
        "$defs": components,
    }


def schema_page(name: str) -> str:
    """The text of docs/schemas/NAME.json."""
    return json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"


def _structs(of: inspect.Type, seen: set[type]) -> Iterator[type[msgspec.Struct]]:
    """Every record within a type, each once."""
    if isinstance(of, inspect.StructType):
        if of.cls in seen:
            return
        seen.add(of.cls)
        yield of.cls
        inner = [field.type for field in of.fields]
    else:
        inner = [*getattr(of, "types", ()), *getattr(of, "item_types", ())]
        inner += [getattr(of, name) for name in ("item_type", "key_type", "value_type") if hasattr(of, name)]
    for each in inner:
        yield from _structs(each, seen)
